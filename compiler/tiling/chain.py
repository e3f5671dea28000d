"""The schedule template of convolutions of which each reads only what the one before it makes.

What lies between them stays on the core: all channels of the rows that a tile needs go from UB to L1, in the layout
of a feature map, and the next one's windows are taken from there. Rows that two tiles need are made twice.

    for core: for trip: { for rows, channels of a piece: { sums = windows of map * weights
                                                          ub = stages(sums)
                                                          l1[piece] = ub                 # again for each but the last
                                                          result[piece] = ub }           # where others read it, too
                          for output channels: { c = windows of l1 * weights; slaves } }

Each reads what the one before it makes, as its feature map. Where others read that, too, all windows behind it are
single elements, so that nothing of it is made, and stored, twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.emission.cube.feature_maps import Axes, made_mark, map_mark
from compiler.emission.cube.weights import WEIGHTS
from compiler.isa.dtypes import DTYPES
from compiler.target import Chip
from compiler.tiling import convolution, cube
from compiler.tiling.apart import Parts, may_stay
from compiler.tiling.chain_tiles import Tiles, bytes_of, describe, has_room, tiles_together, works_together
from compiler.tiling.convolution import problem_of
from compiler.tiling.convolution_stages import CHANNELS, channels_last, merged
from compiler.tiling.convolution_tiles import DO, GROUP, HO, KD, OUT, PLACES, WO, N, Problem, Tile
from compiler.tiling.cube import Placed
from compiler.tiling.masters import Master, masters_of
from compiler.tiling.places import in_lines
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work, works_in
from compiler.tiling.started_sums import bring_bias, started_with_bias
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.near import memory_of_parameter
from compiler.tir.rewriter import fresh, loop_with
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map, structural_walk

NAME = "chain"
ORDER = (N, DO, HO, WO, GROUP, OUT)  # of the last one's trips


@dataclass(frozen=True)
class ChainSpace:
    """All tiles of several convolutions in one kernel."""

    func: Any
    problems: tuple[Problem, ...]
    chip: Chip
    kept: Mapping[int, Any] = field(default_factory=dict)  # by product: the parameter for what others read of it, too

    def tiles(self) -> list[Tiles]:
        return self._all

    @cached_property
    def _all(self) -> list[Tiles]:
        for times in (2, 1):
            together = tiles_together(self.problems, self.chip, times, kept=bool(self.kept))
            if found := [tiles for tiles in together if self._fits(tiles, times)]:
                return found
        return []

    def _fits(self, tiles: Tiles, times: int) -> bool:
        pairs = zip(tiles, self.problems, strict=True)
        table = sum(tile.outputs * problem.bias_bytes for tile, problem in pairs if not problem.bias_blocks)
        return table <= self.chip.memory.bt_bytes and has_room(self.taken(tiles), self.chip, times)

    def work(self, tile: Tiles) -> Work:
        return works_in(self.work_of_all([tile]))[0]

    def work_of_all(self, tiles: Sequence[Tiles]) -> Work:
        """Of all of them at once."""
        return works_together(tiles, self.problems, self.chip)

    def taken(self, tile: Tiles) -> dict[str, int]:
        return bytes_of(tile, self.problems)

    def apply(self, tile: Tiles) -> Tiled:
        sch = schedule_of(self.func)
        with cube.schedulable(NAME):
            brought = apply(sch, masters_of(sch), self.problems, tile, self.chip)
        func = sch.mod["main"]
        for at, result in self.kept.items():
            func = _stored(func, brought[at], result)
        return Tiled(func, describe(self.problems, tile))


def space(func: Any, chip: Chip) -> ChainSpace:
    if not cube.path(chip, "ub", "l1"):
        raise NoFeasibleTile(NAME, "a path from UB to L1, which the chip has not")
    func = in_lines(func, HO, chip)  # where all windows are single elements
    parts = Parts.of(func, chip, NAME)
    prepared = [started_with_bias(merged(part), chip) for part in parts.functions]
    alone = [problem_of_part(part, chip) for part in prepared]
    if not all(follows(*pair) for pair in pairwise(alone)):
        raise NoFeasibleTile(NAME, "a feature map that is not all of what the one before makes")
    if not may_keep(alone, parts.kept):
        raise NoFeasibleTile(NAME, "results that others read, of which some rows are made twice")
    between = [_to_l1(problem, func, parts.kept.get(at)) for at, problem in enumerate(alone[:-1])]
    found = ChainSpace(Parts(tuple(prepared)).joined(func), (*between, alone[-1]), chip, parts.kept)
    if not found.tiles():
        raise NoFeasibleTile(NAME, "tiles of all channels")
    return found


def _to_l1(problem: Problem, func: Any, result: Any | None) -> Problem:
    """What it makes goes to L1, and to the parameter ``result`` where others read it, too."""
    if result is None:
        return replace(problem, near=problem.near - {"result"}, result_bytes=0)
    near = {"result"} if memory_of_parameter(func, result) == "llb" else set()
    return replace(problem, near=problem.near - {"result"} | near)


def problem_of_part(func: Any, chip: Chip) -> Problem:
    sch = schedule_of(func)
    (master,) = masters_of(sch)
    found = problem_of(sch, master, sch.get_producers(master.block)[0], chip, joined=True)
    return replace(found, awaited=False)  # beside the cube there are weights of the others, too


def follows(first: Problem, second: Problem) -> bool:
    """Whether the feature map of the second is what the first makes, all of it, and the second has whole rows of it.

    Rows end where the last window does: a stride may leave columns behind it, which none would make. A group of the
    second begins with a block of L1.
    """
    made = first.extents[OUT] * first.extents[GROUP]
    channels = made == second.channels * second.extents[GROUP] and first.extents[N] == second.extents[N]
    shape = second.map_shape == (first.extents[HO], first.extents[WO]) and first.extents[DO] == second.extents[DO]
    stride, dilation = second.windows.strides[1], second.windows.dilations[1]
    end = (second.extents[WO] - 1) * stride + (second.kernel[1] - 1) * dilation + 1 - second.windows.pad_left
    whole = second.is_single or (second.windows.pad_left >= 0 and end >= second.map_shape[1])
    blocks = second.extents[GROUP] == 1 or second.channels % DTYPES[second.dtype].fractal_k == 0
    flat = second.extents[KD] == 1 and (second.is_single or (second.extents[DO] == 1 and second.windows.axes.width > 0))
    # Of one place alone, a vector of channels is as large as the result.
    plain = second.is_single or not first.epilogue.side_bytes or all(first.extents[axis] == 1 for axis in (N, *PLACES))
    return channels and shape and whole and blocks and flat and plain


def may_keep(problems: Sequence[Problem], kept: Collection[int]) -> bool:
    """Whether others may read, too, what these make."""
    return all(problem.is_single for at, problem in enumerate(problems) if kept and at > min(kept))


def problem_alone(func: Any, chip: Chip) -> Problem | None:
    """Of a kernel of one convolution; None of any other."""
    return problem_of_part(func, chip) if len(masters_of(schedule_of(func))) == 1 else None


def is_possible(problems: Sequence[Problem | None], chip: Chip) -> bool:
    """Whether one kernel may do what several convolutions do, as far as their shapes tell."""
    return may_stay(problems, chip, follows)


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, masters: Sequence[Master], problems: Sequence[Problem], tiles: Tiles, chip: Chip) -> list[str]:
    """The names of the blocks that bring to L1 what each but the last one makes."""
    matrices = [sch.get_producers(master.block)[0] for master in masters]
    ends = [sch.get_producers(matrix)[0] for matrix in matrices[1:]]  # the last stage of each but the last one
    results = [sch.get(end).writes[0].source for end in (*ends, sch.get_output_blocks("root")[0])]
    taken = [cube.keep_result(sch, master.block)[0] for master in masters[:-1]]
    last = (masters[-1], matrices[-1], problems[-1], tiles[-1])
    placed, kept, trip, axes = convolution.place(sch, *last, chip, ORDER)
    trip = placed.trips[ORDER.index(WO)]
    brought = list[str]()
    for at in range(len(masters) - 2, -1, -1):
        brought.insert(0, str(sch.get(kept).name_hint))
        pieces = _place_stages(sch, (taken[at], ends[at]), (kept, trip, axes), tiles[at], placed.core, chip)
        loops = (placed.core, trip, *pieces)
        kept, axes = _place_product(sch, masters[at], problems[at], tiles[at], loops, chip, first=at == 0)
    narrowest = dict[Any, Any]()
    for result in sorted(results, key=lambda one: -int(one.shape[CHANNELS])):
        narrowest[(int(result.shape[0]), *(int(n) for n in result.shape[CHANNELS + 1 :]))] = result
    for result in narrowest.values():
        channels_last(sch, result)
    cube.start_sum(sch, masters[-1].block, placed)
    return brought


def _place_stages(
    sch: Any, stages: tuple[Any, Any], kept: tuple[Any, Any, Axes], tile: Tile, core: Any, chip: Chip
) -> tuple[Any, Any]:
    """Fill what is kept in L1 by some rows and channels at a time, by way of the stages behind a product; the loops
    over pieces of rows and, in it, of channels.
    """
    (taken, last), (block, trip, axes) = stages, kept
    loops = cube.loops_below(sch, block, trip)
    channels, inside = sch.split(loops[CHANNELS], [None, tile.outputs])
    inner = [*loops[:CHANNELS], inside, *loops[CHANNELS + 1 :]]
    if axes.row is None:
        sch.reorder(channels, *inner)
        rows = sch.add_unit_loop(channels)
    else:
        rows, inner[axes.row] = sch.split(loops[axes.row], [None, tile.rows])
        sch.reorder(rows, channels, *inner)
    cube.mark(sch, block, channels, made_mark(axes))
    parameters = list(sch.mod["main"].params)
    behind = [sch.get(one) for one in cube.followers(sch, last)]
    own = [taken, *(one for one in cube.followers(sch, taken) if not any(sch.get(one).same_as(b) for b in behind))]
    for stage in reversed(own):
        sch.compute_at(stage, channels, preserve_unit_loops=True)
        sch.set_scope(stage, 0, cube.UB)
    for stage in own[1:]:
        cube.stage_inputs(sch, stage, channels, parameters, (core, chip.memory.ub_bytes // cube.CONSTANTS_SHARE))
    cube.mark(sch, taken, channels, "result")
    return rows, channels


def _place_product(
    sch: Any,
    master: Master,
    problem: Problem,
    tile: Tile,
    loops: tuple[Any, Any, Any, Any],
    chip: Chip,
    *,
    first: bool,
) -> tuple[Any, Axes]:
    """Put a product into the loop over pieces of its channels, and its operands where they come: the block that brings
    its feature map, which the one before makes if this is not the ``first``, and the map's axes.
    """
    core, trip, rows, channels = loops
    matrix = sch.get_producers(master.block)[0]
    sch.compute_at(master.block, channels, preserve_unit_loops=True)
    own = cube.loops_below(sch, master.block, channels)
    parts = convolution.cut_k(sch, own[KD:], problem, tile)
    inner = [*own[:KD], *(part[2] for part in parts)]
    sch.reorder(*(part[0] for part in parts), *(part[1] for part in parts), *inner)
    placed = Placed(channels, [channels], parts[0][0], parts[-1][0], parts[-1][1], inner)
    of_all, held = problem.extents[GROUP] == 1, "map" in tile.held or not first
    at_map = trip if not first else (rows if of_all else channels) if held else placed.chunk
    windows = convolution.windows_of(problem, tile)
    once = tile.steps(problem) == 1 and held and of_all
    feature_map = convolution.bring_windows(sch, matrix, windows, rows if once else placed.step, at_map)
    if first and feature_map is not None:
        cube.mark(sch, feature_map, at_map, map_mark(windows.axes))
    at_weights = core if "weights" in tile.held else placed.chunk
    cube.bring_operand(sch, master.block, 1, cube.L0B, at_weights, placed.step, WEIGHTS)
    if problem.bias_bytes:
        bring_bias(sch, master.block, core, channels, chip)
    cube.start_sum(sch, master.block, placed)
    return feature_map, windows.axes


def _stored(func: Any, brought: str, result: Any) -> Any:
    """The function that stores in a result, too, what the block of this name brings to L1.

    No schedule can say so: what is read twice would have to be where both of its readers are before either is there.
    """

    def both(loop: Any) -> Any:
        found = list[Any]()
        if cube.CUBE in loop.annotations:
            structural_walk(loop, (s_tir.SBlock, lambda block: found.append(block.name_hint == brought)))
        return tirx.SeqStmt([loop, _to(result, loop)]) if any(found) else loop

    return structural_map(func, (tirx.For, both))


def _to(result: Any, nest: Any) -> Any:
    """A nest that copies what another one does, to elsewhere."""

    def stored(block: Any) -> Any:
        store = block.body
        region = tirx.BufferRegion(result, [ir.Range.from_min_extent(index, 1) for index in store.indices])
        body = tirx.BufferStore(result, store.value, list(store.indices))
        return block_with(block, writes=[region], body=body, name_hint=f"{result.name}_stored")

    return fresh(structural_map(loop_with(nest, nest.body, annotations={}), (s_tir.SBlock, stored)))
