"""The schedule template of convolutions of which each reads only what the one before it makes.

What lies between them stays on the core: all channels of the rows that a tile needs go from UB to L1, in the layout
of a feature map, and the next one's windows are taken from there. Rows that two tiles need are made twice.

    for core: for trip: { for rows, channels of a piece: { sums = windows of map * weights
                                                          ub = stages(sums)
                                                          l1[piece] = ub                 # again for each but the last
                                                          result[piece] = ub }           # where others read it, too
                          for output channels: { c = windows of l1 * weights; slaves } }

1. Each reads what the one before it makes, as its feature map. Where others read that, too, all windows behind it are
   single elements, so that nothing of it is made, and stored, twice.
2. A tile has whole rows of one image, and all channels; where windows are single elements, it may be parts of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise, product
from typing import Any

import numpy as np
from tvm import ir, s_tir, tirx

from compiler.emission.cube.feature_maps import Axes, made_mark, map_mark
from compiler.emission.cube.weights import WEIGHTS
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import convolution, cube
from compiler.tiling.convolution import problem_of
from compiler.tiling.convolution_stages import CHANNELS, channels_last, merged
from compiler.tiling.convolution_tiles import (
    BLOCK_BYTES,
    C1,
    DO,
    GROUP,
    HO,
    KD,
    OUT,
    PLACES,
    WO,
    N,
    Problem,
    Tile,
    tiles_of,
)
from compiler.tiling.convolution_work import Columns, map_load, works_of
from compiler.tiling.cube import Placed
from compiler.tiling.fusion import renamed
from compiler.tiling.masters import Master, masters_of
from compiler.tiling.places import in_lines
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work, analytical_cycles_of_all, works_in
from compiler.tiling.started_sums import bring_bias, started_with_bias
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.near import memory_of_parameter, room_bytes, told_like
from compiler.tir.rewriter import fresh, loop_with
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map, structural_walk

HANDOVER_CYCLES = 300  # of a trip, from a product's last results to the next one's first
SUMS = ("cube_cycles", "vector_cycles", "mte1_cycles", "fix_cycles", "trips", "turns", "steps", "instructions")
NAME = "chain"
ORDER = (N, DO, HO, WO, GROUP, OUT)  # of the last one's trips
LAST, EARLIER = 4, 2  # tiles of the last one, and for each of these of every other one, of which all sets are ranked

Tiles = tuple[Tile, ...]  # of each, all for the same places of the last one


Begin = Callable[[Any, Master], tuple[Any, Any]]  # of a product: its first block, and the buffer that this one reads


@dataclass(frozen=True)
class Parts:
    """The products as kernels of their own; each but the last writes last what the next one reads first."""

    functions: tuple[Any, ...]
    kept: dict[int, Any] = field(default_factory=dict)  # by product: the parameter for what others read of it, too

    @staticmethod
    def of(func: Any, chip: Chip, begin: Begin | None = None, name: str = NAME) -> Parts:
        """Those of which a kernel is made: the stages from one's first block, by default its windows, to the next's."""
        room = room_bytes(func, chip)
        func, results = _made_inside(func, room)
        sch = schedule_of(func)
        products = masters_of(sch)
        if len(products) < 2:
            raise NoFeasibleTile(name, "anything but several products")
        func = sch.mod["main"]
        root = func.body.block
        begins = [(begin or _windows)(sch, each) for each in products[1:]]
        between = [buffer for _, buffer in begins]
        if not all(any(one.same_as(buffer) for buffer in root.alloc_buffers) for one in between if one is not None):
            raise NoFeasibleTile(name, "a product of something else than the one before it makes")  # (1)
        nests, places = list(root.body.seq), []
        for block, _ in begins:
            places.append(next(i for i, nest in enumerate(nests) if writes(nest, block.writes[0].source)))
        if None in between or places != sorted(places):
            raise NoFeasibleTile(name, "products that are not one after another")
        found = []
        for at, (start, end) in enumerate(pairwise([0, *places, len(nests)])):
            ends = between[at - 1] if at else None, between[at] if at < len(between) else None
            found.append(part_of(func, nests[start:end], ends, room))
        kept = {at: results[one] for at, one in enumerate(between) if one in results}
        if len(kept) < len(results):
            raise NoFeasibleTile(name, "results that no product is made of")
        return Parts(tuple(found), kept)

    def joined(self, like: Any) -> Any:
        """One kernel of all, with the parameters of ``like``."""
        names, nests, inner = dict[str, int](), list[Any](), list[Any]()
        own, before = {param.name: param for param in like.params}, None  # some may be read by no stage
        for at, part in enumerate(self.functions):
            block, params = part.body.block, list(part.params)
            parts = _nests(block.body)
            if before is not None:
                read = params.pop(0)
                parts = [_with(one, read, before) for one in parts]
            if at < len(self.functions) - 1:
                before = params.pop()
                inner.append(before)
            nests += parts
            inner += list(block.alloc_buffers)
            own |= {param.name: param for param in params}
        body = tirx.SeqStmt([renamed(nest, names) for nest in nests])
        root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=inner)
        params = [own[param.name] for param in like.params]
        return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)).with_attrs(dict(like.attrs.items()))


def _made_inside(func: Any, room: int) -> tuple[Any, dict[Any, Any]]:
    """The function with buffers of its own in the place of results that other stages of it read; these results, by
    buffer.
    """
    root, written, read = func.body.block, set[Any](), set[Any]()

    def stage(block: Any) -> None:
        own = {region.source for region in block.writes}
        written.update(own)
        read.update({region.source for region in block.reads} - own)

    structural_walk(root, (s_tir.SBlock, stage))
    results = [param for param in func.params if param in written and param in read]
    if not results:
        return func, {}
    made = {one: tirx.decl_buffer(one.shape, str(one.dtype), f"{one.name}_made", layout=None) for one in results}
    body = structural_map(root.body, (tirx.Var, lambda var: made.get(var, var)))
    inner = s_tir.SBlock([], [], [], "root", body, alloc_buffers=[*root.alloc_buffers, *made.values()])
    params = [param for param in func.params if param not in made]
    alone = tirx.PrimFunc(params, s_tir.SBlockRealize([], True, inner))
    return told_like(alone, func, room), {buffer: result for result, buffer in made.items()}


def _windows(sch: Any, master: Master) -> tuple[Any, Any]:
    """The block that makes the windows, and the feature map."""
    block = sch.get(sch.get_producers(master.block)[0])
    return block, block.reads[0].source if block.reads else None


def _with(nest: Any, buffer: Any, other: Any) -> Any:
    """A nest with another buffer in the place of one."""
    return structural_map(nest, (tirx.Var, lambda var: other if var.same_as(buffer) else var))


def writes(nest: Any, buffer: Any) -> bool:
    found: list[Any] = []
    structural_walk(nest, (tirx.BufferStore, lambda store: found.append(store.buffer.same_as(buffer))))
    return any(found)


def _nests(body: Any) -> list[Any]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def part_of(func: Any, nests: Sequence[Any], ends: tuple[Any, Any], room: int) -> Any:
    """The function of some stages; it reads the one of ``ends`` first, and writes the other last."""
    used = set[Any]()
    for nest in nests:
        structural_walk(nest, (tirx.Var, used.add))
    between = [one for one in ends if one is not None]
    own = [param for param in func.params if param in used]
    params = [*(one for one in ends[:1] if one is not None), *own, *(one for one in ends[1:] if one is not None)]
    inner = [b for b in func.body.block.alloc_buffers if b in used and not any(b.same_as(one) for one in between)]
    body = tirx.SeqStmt(list(nests)) if len(nests) > 1 else nests[0]
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=inner)
    return told_like(tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)), func, room)


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
            together = _together(self.problems, self.chip, times, kept=bool(self.kept))
            if found := [tiles for tiles in together if self._fits(tiles, times)]:
                return found
        return []

    def _fits(self, tiles: Tiles, times: int) -> bool:
        pairs = zip(tiles, self.problems, strict=True)
        table = sum(tile.outputs * problem.bias_bytes for tile, problem in pairs if not problem.bias_blocks)
        return table <= self.chip.memory.bt_bytes and _has_room(self.taken(tiles), self.chip, times)

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
    parts = Parts.of(func, chip)
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
    whole = single(second) or (second.windows.pad_left >= 0 and end >= second.map_shape[1])
    blocks = second.extents[GROUP] == 1 or second.channels % DTYPES[second.dtype].fractal_k == 0
    flat = second.extents[KD] == 1 and (single(second) or (second.extents[DO] == 1 and second.windows.axes.width > 0))
    # Of one place alone, a vector of channels is as large as the result.
    plain = single(second) or not first.epilogue.side_bytes or all(first.extents[axis] == 1 for axis in (N, *PLACES))
    return channels and shape and whole and blocks and flat and plain


def may_keep(problems: Sequence[Problem], kept: Collection[int]) -> bool:
    """Whether others may read, too, what these make (1)."""
    return all(single(problem) for at, problem in enumerate(problems) if kept and at > min(kept))


def single(problem: Problem) -> bool:
    """Whether windows are single elements, side by side."""
    windows = problem.windows
    alone = problem.kernel == (1, 1) and windows.strides == (1, 1) and windows.pad_left == 0
    return alone and problem.map_shape == (problem.extents[HO], problem.extents[WO])


def problem_alone(func: Any, chip: Chip) -> Problem | None:
    """Of a kernel of one convolution; None of any other."""
    return problem_of_part(func, chip) if len(masters_of(schedule_of(func))) == 1 else None


def is_possible(problems: Sequence[Problem | None], chip: Chip) -> bool:
    """Whether one kernel may do what several convolutions do, as far as their shapes tell."""
    return may_stay(problems, chip, follows)


def may_stay(problems: Sequence[Any], chip: Chip, follows: Callable[[Any, Any], bool]) -> bool:
    """Whether what lies between products of a row may stay in L1: all are known and each ``follows`` the one before."""
    known = all(problem is not None for problem in problems)
    return known and cube.path(chip, "ub", "l1") and all(follows(*pair) for pair in pairwise(problems))


# ---- tiles -------------------------------------------------------------------------------------------------------


def _together(problems: Sequence[Problem], chip: Chip, times: int, *, kept: bool) -> Iterator[Tiles]:
    """The best tiles of the last one, each with the best ones of those before it for the same places.

    The best are thought to load their map, though it lies in L1: ranking was learned of tiles that were found so. Where
    others read that map, too, ranking knows of no such kernels, and it counts as near.
    """
    of_each = [_tiles(problem, chip, times, last=problem is problems[-1]) for problem in problems]
    plain = all(single(problem) for problem in problems[1:])
    of_last = [tile for tile in of_each[-1] if plain or tile.columns == problems[-1].extents[WO]]
    of_places = dict[Any, list[Tile]]()
    for tile in of_last:
        of_places.setdefault((tile.rows, tile.columns), []).append(tile)
    last = replace(problems[-1], near=problems[-1].near | {"map"}) if kept else problems[-1]
    lasts = [tile for tiles in _cheapest([*of_places.values()], last, chip, LAST) for tile in tiles]
    rows, found = [tile.rows for tile in lasts], list[list[list[Tile]]]()
    for at in range(len(problems) - 2, -1, -1):
        of_columns = dict[int, list[Tile]]()
        for one in of_each[at]:
            of_columns.setdefault(one.columns, []).append(one)
        fitting = list[list[Tile]]()
        for number, tile in enumerate(lasts):
            needed = problems[at + 1].box(rows[number], tile.columns, problems[at + 1].kernel[0])[0]
            whole = plain or (needed == problems[at].extents[HO] and tile.rows == problems[-1].extents[HO])
            able = of_columns.get(tile.columns if plain else problems[at].extents[WO], [])
            # A piece of several rows, some of which are padding, begins at none that is known.
            able = [one for one in able if (one.rows <= needed if whole else one.rows == 1)]
            fitting.append([_for(one, tile, needed) for one in able])
            rows[number] = needed
        found.insert(0, _cheapest(fitting, problems[at], chip, EARLIER))
    for earlier, tile in zip(zip(*found, strict=True), lasts, strict=True):
        yield from ((*each, tile) for each in product(*earlier))


def _cheapest(groups: Sequence[Sequence[Tile]], problem: Problem, chip: Chip, count: int) -> list[list[Tile]]:
    """Of each group of tiles those that cost least, by the analytical cost of all, worked out at once."""
    tiles = [tile for group in groups for tile in group]
    if not tiles:
        return [[] for _ in groups]
    cycles, ends = analytical_cycles_of_all(works_of(tiles, problem, chip), chip), [*accumulate(map(len, groups))]
    orders = (np.argsort(each, kind="stable")[:count] for each in np.split(cycles, ends[:-1]))
    return [[group[at] for at in order] for group, order in zip(groups, orders, strict=True)]


def _for(tile: Tile, last: Tile, rows: int) -> Tile:
    """A tile of so many rows as a part of what a tile of the last one needs."""
    trips, cores = list(tile.trips), list(tile.cores)
    for axis in PLACES:
        trips[axis], cores[axis] = last.trips[axis], last.cores[axis]
    trips[HO] *= ceil_div(rows, tile.rows)
    return tile._replace(trips=tuple(trips), cores=tuple(cores))


@lru_cache(maxsize=64)  # of a convolution in several chains
def _tiles(problem: Problem, chip: Chip, times: int, *, last: bool) -> list[Tile]:
    """Tiles of all channels; those of others than the last one stand for all that differ in their places only."""
    found = dict[Any, Tile]()
    for tile in tiles_of(problem, chip, times, in_chain=True):
        kept = _kept(tile, problem, last=last)
        if kept is None:
            continue
        taken = kept.bytes_of(problem)
        if taken["l1"] <= chip.memory.l1_bytes and _has_room(taken, chip, times):
            places = (kept.trips, kept.cores) if last else ()
            found.setdefault((kept.rows, kept.columns, kept.outputs, kept.step, kept.chunk, kept.held, places), kept)
    return list(found.values())


def _kept(tile: Tile, problem: Problem, *, last: bool) -> Tile | None:
    """The tile as it is in a chain, if it can be (2): trips are along places, and inside these along channels.

    The last one's map is kept; weights that stay do so for all trips.
    """
    pieces = tile.trips[OUT]
    if problem.extents[OUT] % tile.outputs or (problem.extents[GROUP] > 1 and pieces > 1):
        return None
    blocks = tile.outputs % DTYPES[problem.dtype].fractal_k == 0
    if not last and pieces * tile.trips[GROUP] > 1 and not blocks:  # a piece is whole blocks of L1
        return None
    if last and pieces > 1 and "map" not in tile.held:
        return None
    held = tile.held if not last and "weights" not in tile.held else tile.held | {"map"}
    if "weights" in held:
        whole = ceil_to(problem.extents[C1], tile.step[0]), problem.kernel[0]
        tile = tile._replace(chunk=whole)
    leaving = tile.leaving if last else tile.outputs
    return tile._replace(held=frozenset(held), leaving=leaving)


def _has_room(taken: Mapping[str, int], chip: Chip, times: int) -> bool:
    """Whether memories hold so much; what is counted twice need not be there twice where there is room for one."""
    rooms = 1 if times == 2 else 2
    return all(size <= chip.memory_bytes(name) * rooms for name, size in taken.items())


def bytes_of(tiles: Tiles, problems: Sequence[Problem]) -> dict[str, int]:
    """Of each memory; those around the cube are taken by all in turn, where they have no room for all at once."""
    taken = [tile.bytes_of(problem) for tile, problem in zip(tiles, problems, strict=True)]
    found = {name: max(each[name] for each in taken) for name in taken[0]}
    found["l1"], rows = taken[0]["l1"], tiles[-1].rows
    for tile, problem in reversed(list(zip(tiles[1:], problems[1:], strict=True))):
        rows, columns = problem.box(rows, tile.columns, problem.kernel[0])
        kept = problem.extents[C1] * problem.extents[GROUP] * (rows * columns + 2 * DTYPES[problem.dtype].fractal_k)
        again = 2 if tile.weight_loads() > 1 or ("weights" not in tile.held and tile.chunks(problem) > 1) else 1
        found["l1"] += kept * BLOCK_BYTES + again * tile.weight_bytes(problem, tile.chunk)
    return found


def works_together(all_tiles: Sequence[Tiles], problems: Sequence[Problem], chip: Chip) -> Work:
    """What all do, but for the loads of what lies in L1; each number is an array."""
    of_each = [[tiles[at] for tiles in all_tiles] for at in range(len(problems))]
    works = [works_of(tiles, problem, chip) for tiles, problem in zip(of_each, problems, strict=True)]
    total, last = works[0], of_each[-1]
    places = np.array([tile.rounds // (tile.trips[OUT] * tile.trips[GROUP]) for tile in last])
    for before, tiles, problem, work in zip(of_each[:-1], of_each[1:], problems[1:], works[1:], strict=True):
        of = Columns(tiles, problem)
        load = map_load(of, problem, chip)
        elements = np.array([tile.rounds * tile.positions * tile.outputs for tile in before])
        stored = elements * DTYPES[problem.dtype].itemsize / chip.path["ub_l1"].bytes_per_cycle
        changed: dict[str, Any] = {name: getattr(total, name) + getattr(work, name) for name in SUMS}
        changed |= dict(
            mte2_cycles=total.mte2_cycles + np.maximum(0.0, work.mte2_cycles - load.cycles(chip, of.used_cores)),
            mte3_cycles=total.mte3_cycles + stored + work.mte3_cycles,
            ddr_bytes=total.ddr_bytes + np.maximum(0.0, work.ddr_bytes - load.ddr),
            llb_bytes=total.llb_bytes + np.maximum(0.0, work.llb_bytes - load.llb),
            last_cycles=work.last_cycles,
            serial_cycles=total.serial_cycles + work.serial_cycles + places * HANDOVER_CYCLES,
        )
        total = total._replace(**changed)
    return total


def describe(problems: Sequence[Problem], tiles: Tiles) -> str:
    each = [convolution.describe(problem, tile) for problem, tile in zip(problems, tiles, strict=True)]
    return "; in L1 for ".join(each)


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, masters: Sequence[Master], problems: Sequence[Problem], tiles: Tiles, chip: Chip) -> list[str]:
    """The names of the blocks that bring to L1 what each but the last one makes."""
    matrices = [sch.get_producers(master.block)[0] for master in masters]
    ends = [sch.get_producers(matrix)[0] for matrix in matrices[1:]]  # the last stage of each but the last one
    results = [sch.get(end).writes[0].source for end in (*ends, sch.get_output_blocks("root")[0])]
    taken = [cube.keep_result(sch, master.block, chip)[0] for master in masters[:-1]]
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
