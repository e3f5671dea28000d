"""The schedule template of two convolutions of which the second needs, of the first, the same positions only.

What the first makes never leaves the core: all channels of a tile's positions go from UB to L1, in the layout of a
feature map, and the second multiplies them from there.

    for core: for trip: { for piece of the first one's channels: { sums = windows of map * weights
                                                                  ub = stages(sums)
                                                                  l1[piece] = ub }
                          for output channels: { c = l1 * weights; slaves } }

1. The second has windows of one element, side by side, of one group; it reads what the first makes, nobody else does.
2. A tile has whole rows, or parts of one, of one image, and all channels of both.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from tvm import s_tir, tirx

from compiler.emission.cube.weights import WEIGHTS
from compiler.emission.cube.windows import made_mark, map_mark
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import ceil_to
from compiler.target import Chip
from compiler.tiling import convolution, cube
from compiler.tiling.convolution import problem_of
from compiler.tiling.convolution_stages import CHANNELS, bring_bias, channels_last, merged, started_with_bias
from compiler.tiling.convolution_tiles import C1, DO, GROUP, HO, KD, OUT, WO, N, Problem, Tile, tiles_of
from compiler.tiling.convolution_work import Columns, map_load, work_of, works_of
from compiler.tiling.cube import Master, Placed
from compiler.tiling.fusion import renamed
from compiler.tiling.search import Work, analytical_cycles, works_in
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.near import near_parameters, placed_near, room_bytes
from compiler.tir.structure import structural_map, structural_walk

HANDOVER_CYCLES = 300  # of a trip, from the first product's last results to the second one's first
SUMS = ("cube_cycles", "vector_cycles", "mte1_cycles", "fix_cycles", "trips", "turns", "steps", "instructions")
NAME = "chain"
PLACES = (N, DO, HO, WO)
BEST = 6  # tiles of each of both, for the same positions, of which all pairs are ranked


class Pair(NamedTuple):
    """Tiles of both for the same positions."""

    first: Tile
    second: Tile


@dataclass(frozen=True)
class Halves:
    """Both convolutions as kernels of their own; the first writes last what the second reads first."""

    first: Any
    second: Any

    @staticmethod
    def of(func: Any, chip: Chip) -> Halves:
        """Those of which a kernel is made: the stages in front of the second one's windows, and the rest."""
        sch = cube.new_schedule(func)
        products = cube.masters(sch)
        if len(products) != 2:
            raise NoFeasibleTile(NAME, "anything but two convolutions")
        func = sch.mod["main"]
        windows = sch.get(sch.get_producers(products[1].block)[0])
        root = func.body.block
        at = next(i for i, nest in enumerate(root.body.seq) if _writes(nest, windows.writes[0].source))
        between = windows.reads[0].source if windows.reads else None
        if between is None or not any(between.same_as(buffer) for buffer in root.alloc_buffers):  # (1)
            raise NoFeasibleTile(NAME, "a second convolution of something else than the first makes")
        first, second = root.body.seq[:at], root.body.seq[at:]
        room = room_bytes(func, chip)
        return Halves(_part(func, first, between, room, writes=True), _part(func, second, between, room, writes=False))

    def joined(self, like: Any) -> Any:
        """One kernel of both, with the parameters of ``like``."""
        names = dict[str, int]()
        first, second = self.first.body.block, self.second.body.block
        between = self.first.params[-1]
        (read,) = (param for param in self.second.params[:1])
        in_first = (tirx.Var, lambda var: between if var.same_as(read) else var)
        nests = [*_nests(first.body), *(structural_map(nest, in_first) for nest in _nests(second.body))]
        inner = [*first.alloc_buffers, between, *second.alloc_buffers]
        root = s_tir.SBlock(
            [], [], [], "root", tirx.SeqStmt([renamed(nest, names) for nest in nests]), alloc_buffers=inner
        )
        own = {param.name: param for param in (*self.first.params[:-1], *self.second.params[1:])}
        params = [own[param.name] for param in like.params]
        return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)).with_attrs(dict(like.attrs.items()))


def _writes(nest: Any, buffer: Any) -> bool:
    found: list[Any] = []
    structural_walk(nest, (tirx.BufferStore, lambda store: found.append(store.buffer.same_as(buffer))))
    return any(found)


def _nests(body: Any) -> list[Any]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _part(func: Any, nests: Any, between: Any, room: int, *, writes: bool) -> Any:
    used = set[Any]()
    for nest in nests:
        structural_walk(nest, (tirx.Var, used.add))
    own = [param for param in func.params if param in used]
    params = [*own, between] if writes else [between, *own]
    inner = [b for b in func.body.block.alloc_buffers if b in used and not b.same_as(between)]
    body = tirx.SeqStmt(list(nests)) if len(nests) > 1 else nests[0]
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=inner)
    part = tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)).with_attrs(dict(func.attrs.items()))
    near = near_parameters(func)
    return placed_near(part, [i for i, param in enumerate(params) if param in near], room)


@dataclass(frozen=True)
class ChainSpace:
    """All tiles of two convolutions in one kernel."""

    func: Any
    problems: tuple[Problem, Problem]
    chip: Chip

    def tiles(self) -> list[Pair]:
        return self._pairs

    @cached_property
    def _pairs(self) -> list[Pair]:
        for times in (2, 1):
            firsts, seconds = (
                _by_places(problem, self.chip, times, first=at == 0) for at, problem in enumerate(self.problems)
            )
            pairs = [
                Pair(first, second)
                for places, of_first in firsts.items()
                for first in of_first
                for second in seconds.get(places, ())
            ]
            pairs = [pair for pair in pairs if self._fits(pair, times)]
            if pairs:
                return pairs
        return []

    def _fits(self, pair: Pair, times: int) -> bool:
        taken = self.taken(pair)
        rooms = 1 if times == 2 else 2
        return all(size <= self.chip.memory_bytes(name) * rooms for name, size in taken.items())

    def work(self, tile: Pair) -> Work:
        return work_of_pair(tile, self.problems, self.chip)

    def taken(self, tile: Pair) -> dict[str, int]:
        return bytes_of(tile, self.problems)

    def apply(self, tile: Pair) -> Tiled:
        sch = cube.new_schedule(self.func)
        with cube.schedulable(NAME):
            apply(sch, cube.masters(sch), self.problems, tile, self.chip)
        return Tiled(sch.mod["main"], describe(self.problems, tile))


def space(func: Any, chip: Chip) -> ChainSpace:
    if not cube.path(chip, "ub", "l1"):
        raise NoFeasibleTile(NAME, "a path from UB to L1, which the chip has not")
    halves = Halves.of(func, chip)
    prepared = [started_with_bias(merged(half), chip) for half in (halves.first, halves.second)]
    problems = []
    for half in prepared:
        sch = cube.new_schedule(half)
        (master,) = cube.masters(sch)
        problems.append(problem_of(sch, master, sch.get_producers(master.block)[0], chip))
    first, second = problems
    if not follows(first, second):
        raise NoFeasibleTile(NAME, "windows of more than one element")
    joined = Halves(*prepared).joined(func)
    # The first one's results go to L1.
    first = replace(first, near=first.near - {"result"}, result_bytes=0)
    found = ChainSpace(joined, (first, second), chip)
    if not found.tiles():
        raise NoFeasibleTile(NAME, "tiles of all channels")
    return found


def follows(first: Problem, second: Problem) -> bool:
    """Whether the second needs, of what the first makes, the same places only (1)."""
    places = [first.extents[axis] == second.extents[axis] for axis in PLACES]
    windows, whole = second.windows, first.extents[OUT] * first.extents[GROUP] == second.channels
    alone = second.kernel == (1, 1) and windows.strides == (1, 1) and windows.pad_left == 0
    shape = second.map_shape == (second.extents[HO], second.extents[WO])
    return all(places) and alone and shape and whole and second.extents[GROUP] == 1 and not first.side_bytes


def is_possible(first: Any, second: Any, chip: Chip) -> bool:
    """Whether one kernel may do what two convolutions do, as far as their shapes tell."""
    if not cube.path(chip, "ub", "l1"):
        return False
    problems = []
    for func in (first, second):
        sch = cube.new_schedule(func)
        products = cube.masters(sch)
        if len(products) != 1:
            return False
        problems.append(problem_of(sch, products[0], sch.get_producers(products[0].block)[0], chip))
    return follows(*problems)


def _by_places(problem: Problem, chip: Chip, times: int, *, first: bool) -> dict[Any, list[Tile]]:
    """The best tiles of all channels (2), by which places they are of."""
    found = defaultdict[Any, set[Tile]](set)
    for tile in tiles_of(problem, chip, times, all_channels=True):
        kept = _kept(tile, problem, chip, first=first)
        if kept is not None:
            places = kept.rows, kept.columns, *((kept.trips[axis], kept.cores[axis]) for axis in PLACES)
            found[places].add(kept)
    best = {}
    for places, tiles in found.items():
        listed = sorted(tiles, key=tuple_of)
        cycles = [analytical_cycles(work, chip) for work in works_in(works_of(listed, problem, chip))]
        best[places] = [listed[at] for at in np.argsort(cycles, kind="stable")[:BEST]]
    return best


def tuple_of(tile: Tile) -> Any:
    return (*tile[:-2], sorted(tile.held), tile.images)


def _kept(tile: Tile, problem: Problem, chip: Chip, *, first: bool) -> Tile | None:
    """The tile as it is in a chain, if it can be (2): trips are along places, and inside these along channels.

    The second one's map is kept; weights that stay do so for all trips.
    """
    if tile.products > 1 or "rows" in tile.held:
        return None
    pieces = tile.trips[OUT]
    if problem.extents[OUT] % tile.outputs or (problem.extents[GROUP] > 1 and pieces > 1):
        return None
    blocks = tile.outputs % DTYPES[problem.dtype].fractal_k == 0
    if first and pieces * tile.trips[GROUP] > 1 and not blocks:  # a piece is whole blocks of L1
        return None
    if not first and pieces > 1 and "map" not in tile.held:
        return None
    held = tile.held if first and "weights" not in tile.held else tile.held | {"map"}
    if "weights" in held:
        whole = ceil_to(problem.extents[C1], tile.step[0]), problem.kernel[0]
        tile = tile._replace(chunk=whole)
    leaving = tile.outputs if first else tile.leaving
    tile = tile._replace(held=frozenset(held), leaving=leaving, places_last=False)
    fits = tile.bytes_of(problem)["l1"] <= chip.memory.l1_bytes
    return tile if fits else None


def bytes_of(tile: Pair, problems: tuple[Problem, Problem]) -> dict[str, int]:
    """Of each memory; those around the cube are taken by both in turn, where they have no room for both."""
    taken = [one.bytes_of(problem) for one, problem in zip(tile, problems, strict=True)]
    first, second = taken
    return {name: first[name] + second[name] if name == "l1" else max(first[name], second[name]) for name in first}


def work_of_pair(tile: Pair, problems: tuple[Problem, Problem], chip: Chip) -> Work:
    """What both do, but for the loads of what lies in L1."""
    first, second = (work_of(one, problem, chip) for one, problem in zip(tile, problems, strict=True))
    of = Columns([tile.second], problems[1])
    load = map_load(of, problems[1], chip)
    cycles, llb, ddr = (float(each[0]) for each in (load.cycles(chip, of.used_cores), load.llb, load.ddr))
    elements = tile.first.rounds * tile.first.positions * tile.first.outputs
    stored = elements * DTYPES[problems[0].dtype].itemsize / chip.path["ub_l1"].bytes_per_cycle
    trips = tile.second.rounds // tile.second.trips[OUT]
    return first._replace(
        **{name: getattr(first, name) + getattr(second, name) for name in SUMS},
        mte2_cycles=first.mte2_cycles + max(0.0, second.mte2_cycles - cycles),
        mte3_cycles=first.mte3_cycles + stored + second.mte3_cycles,
        ddr_bytes=first.ddr_bytes + max(0.0, second.ddr_bytes - ddr),
        llb_bytes=first.llb_bytes + max(0.0, second.llb_bytes - llb),
        last_cycles=second.last_cycles,
        serial_cycles=first.serial_cycles + second.serial_cycles + trips * HANDOVER_CYCLES,
    )


def describe(problems: tuple[Problem, Problem], tile: Pair) -> str:
    first, second = (convolution.describe(problem, one) for problem, one in zip(problems, tile, strict=True))
    return f"{first}; in L1 for {second}"


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, masters: Any, problems: tuple[Problem, Problem], tile: Pair, chip: Chip) -> None:
    first, second = masters
    matrix = sch.get_producers(second.block)[0]
    (last,) = sch.get_producers(matrix)  # of the first one's stages
    result = sch.get(sch.get_output_blocks("root")[0]).writes[0].source
    between = sch.get(last).writes[0].source
    channels = [problem.extents[OUT] * problem.extents[GROUP] for problem in problems]
    taken, _ = cube.keep_result(sch, first.block, chip)
    placed, kept, trip, axes = convolution.place(sch, second, matrix, problems[1], tile.second, chip)
    piece = _place_stages(sch, taken, last, (kept, trip, axes), tile.first.outputs)
    _place_first(sch, first, problems[0], tile.first, (placed.core, trip, piece), chip)
    channels_last(sch, between if channels[0] < channels[1] else result)
    cube.start_sum(sch, second.block, placed)


def _place_stages(sch: Any, taken: Any, last: Any, kept: tuple[Any, Any, Any], channels: int) -> Any:
    """Fill what is kept in L1 by so many channels at a time, by way of the stages behind the first product."""
    block, trip, axes = kept
    loops = cube.loops_below(sch, block, trip)
    piece, inside = sch.split(loops[CHANNELS], [None, channels])
    sch.reorder(piece, *loops[:CHANNELS], inside, *loops[CHANNELS + 1 :])
    cube.mark(sch, block, piece, made_mark(axes))
    parameters = list(sch.mod["main"].params)
    stages = [taken, *(one for one in cube.followers(sch, taken) if not _is_behind(sch, one, last))]
    for stage in reversed(stages):
        sch.compute_at(stage, piece, preserve_unit_loops=True)
        sch.set_scope(stage, 0, cube.UB)
    for stage in stages[1:]:
        cube.stage_inputs(sch, stage, piece, parameters)
    cube.mark(sch, taken, piece, "result")
    return piece


def _is_behind(sch: Any, block: Any, last: Any) -> bool:
    return any(sch.get(block).same_as(sch.get(one)) for one in cube.followers(sch, last))


def _place_first(
    sch: Any, master: Master, problem: Problem, tile: Tile, loops: tuple[Any, Any, Any], chip: Chip
) -> None:
    """Put the first product into the loop over pieces of its channels, and its operands where they come."""
    core, trip, piece = loops
    matrix = sch.get_producers(master.block)[0]
    sch.compute_at(master.block, piece, preserve_unit_loops=True)
    own = cube.loops_below(sch, master.block, piece)
    parts = convolution.cut_k(sch, own[KD:], problem, tile)
    inner = [*own[:KD], *(part[2] for part in parts)]
    sch.reorder(*(part[0] for part in parts), *(part[1] for part in parts), *inner)
    placed = Placed(piece, [piece], parts[0][0], parts[-1][0], parts[-1][1], inner)
    of_all = problem.extents[GROUP] == 1
    at_map = (trip if of_all else piece) if "map" in tile.held else placed.chunk
    windows = convolution.windows_of(problem, tile)
    once = tile.steps(problem) == 1 and "map" in tile.held and of_all
    feature_map = convolution.bring_windows(sch, matrix, windows, trip if once else placed.step, at_map)
    if feature_map is not None:
        cube.mark(sch, feature_map, at_map, map_mark(windows.axes))
    at_weights = core if "weights" in tile.held else placed.chunk
    cube.bring_operand(sch, master.block, 1, cube.L0B, at_weights, placed.step, WEIGHTS)
    if problem.bias_bytes:
        bring_bias(sch, master.block, core, piece)
    cube.start_sum(sch, master.block, placed)
