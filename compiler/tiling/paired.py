"""The schedule template of two convolutions whose results are added: both products are summed in one place.

What one of them makes only the other one reads, to add it to its own. Both have the same places and channels. No sum
leaves the core before it has all of both, so that nothing of the first is stored, loaded or rounded.

    for core: for trip: { c = windows of one map * weights
                          c += windows of another * others
                          ub = c + bias + another bias; slaves }

A residual block whose shortcut has a convolution of its own ends so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from tvm import ir, s_tir, tirx
from tvm_ffi import structural_equal

from compiler.target import Chip
from compiler.tiling import convolution, cube
from compiler.tiling.apart import Parts, part_of, writes
from compiler.tiling.chain import problem_of_part
from compiler.tiling.convolution_stages import merged
from compiler.tiling.convolution_tiles import C1, DO, GROUP, HO, OUT, WO, N, Problem, Tile, tiles_of
from compiler.tiling.convolution_work import SLOTS, works_of
from compiler.tiling.epilogue import NO_EPILOGUE
from compiler.tiling.fusion import renamed
from compiler.tiling.masters import masters_of
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work, analytical_cycles_of_all, queue_cycles, works_in
from compiler.tiling.started_sums import started_with_bias, with_block
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.near import room_bytes
from compiler.tir.rewriter import loop_with, sequence, statements, substitute
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map, structural_walk

NAME = "pair"
SAME = (N, GROUP, DO, HO, WO, OUT)  # axes that both have
EACH = 6  # tiles of each for the same places and channels, of which all pairs are ranked
OTHERS_SHARE = 0.2  # of what all queues do, beside the cost of a tile by itself
SUMS = (  # of what both do
    *("cube_cycles", "mte1_cycles", "mte2_cycles", "ddr_bytes", "llb_bytes"),
    *("turns", "steps", "instructions", "serial_cycles", "loads", "shared"),
)

Pair = tuple[Tile, Tile]  # of what is added, and of what it is added to: the same but for k and what is held


@dataclass(frozen=True)
class PairSpace:
    """All tiles of two convolutions in one kernel."""

    parts: Parts
    func: Any  # of both
    problems: tuple[Problem, Problem]
    chip: Chip

    def tiles(self) -> list[Pair]:
        return self._all

    @cached_property
    def _all(self) -> list[Pair]:
        return next((found for times in (2, 1) if (found := [*_together(self.problems, self.chip, times)])), [])

    def work(self, tile: Pair) -> Work:
        return works_in(self.work_of_all([tile]))[0]

    def work_of_all(self, tiles: Sequence[Pair]) -> Work:
        """Of all of them at once."""
        added, last = (
            works_of([pair[at] for pair in tiles], problem, self.chip) for at, problem in enumerate(self.problems)
        )
        return last._replace(**{name: getattr(added, name) + getattr(last, name) for name in SUMS})

    def taken(self, tile: Pair) -> dict[str, int]:
        """Of each memory; sums of both are the same."""
        added, last = (one.bytes_of(problem) for one, problem in zip(tile, self.problems, strict=True))
        return last | {name: added[name] + last[name] for name in ("l1", "l0a", "l0b")}

    def apply(self, tile: Pair) -> Tiled:
        with cube.schedulable(NAME):
            func = apply(self.parts, self.func, self.problems, tile, self.chip)
        each = [convolution.describe(problem, one) for problem, one in zip(self.problems, tile, strict=True)]
        return Tiled(func, " added to ".join(each))


def space(func: Any, chip: Chip) -> PairSpace:
    sums = Sums.of(*(merged(part) for part in parts_of(func, chip).functions))
    alone = merged(sums.last)
    if sums.first.bias is None:
        last = started_with_bias(alone, chip)
        problem = problem_of_part(last, chip)
    else:  # the biases are added to each other first: that is next to nothing
        last = merged(sums.with_bias(sums.first.bias))
        problem = replace(problem_of_part(last, chip), epilogue=problem_of_part(alone, chip).epilogue)
    added = problem_of_part(sums.added, chip)
    # What is added goes nowhere but to the other's sums.
    problems = replace(added, near=added.near - {"result"}, result_bytes=0, epilogue=NO_EPILOGUE), problem
    if not _alike(*problems):
        raise NoFeasibleTile(NAME, "results that are not of one shape")
    found = PairSpace(Parts((sums.added, last)), func, problems, chip)
    if not found.tiles():
        raise NoFeasibleTile(NAME, "tiles for both")
    return found


def _alike(added: Problem, last: Problem) -> bool:
    """Whether one's sums can be added to the other's: both have the same ones."""
    return added.dtype == last.dtype and all(added.extents[axis] == last.extents[axis] for axis in SAME)


def is_possible(problems: Sequence[Problem | None], _chip: Chip) -> bool:
    """Whether one kernel may do what two convolutions do, as far as their shapes tell."""
    able = [problem for problem in problems if problem is not None]
    return len(able) == len(problems) == 2 and _alike(*able) and able[1].epilogue.side_bytes > 0


# ---- the two convolutions ----------------------------------------------------------------------------------------


def parts_of(func: Any, chip: Chip) -> Parts:
    """What is added as a kernel of its own, and what it is added to as one that is given it first."""
    sch = schedule_of(func)
    products = masters_of(sch)
    if len(products) != 2:
        raise NoFeasibleTile(NAME, "anything but two convolutions")
    func = sch.mod["main"]
    behind = [{sch.get(stage) for stage in cube.followers(sch, master.block)} for master in products]
    own, shared = behind[0] - behind[1], behind[0] & behind[1]
    if sch.get(products[1].block) in own or not shared:
        raise NoFeasibleTile(NAME, "a convolution of what another one makes")
    made = {sch.get(products[0].block).writes[0].source, *(block.writes[0].source for block in own)}
    made |= {sch.get(block).writes[0].source for block in sch.get_producers(products[0].block)}
    read = {region.source for block in shared for region in block.reads}
    between = [buffer for buffer in func.body.block.alloc_buffers if buffer in made and buffer in read]
    if len(between) != 1:
        raise NoFeasibleTile(NAME, "several results of one convolution that are read behind the other")
    nests = list(func.body.block.body.seq)
    first = [nest for nest in nests if any(writes(nest, buffer) for buffer in made)]
    rest = [nest for nest in nests if not any(nest.same_as(one) for one in first)]
    room = room_bytes(func, chip)
    return Parts((part_of(func, first, (None, between[0]), room), part_of(func, rest, (between[0], None), room)))


@dataclass(frozen=True)
class _TakenOut:
    """The stage that takes the sums of a product out: rounded, with a bias or without."""

    block: Any
    sums: Any  # the load of a sum
    bias: Any | None  # and of what is added to it

    @staticmethod
    def of(func: Any) -> _TakenOut:
        sch = schedule_of(func)
        (master,) = masters_of(sch)
        stages = cube.followers(sch, master.block)
        block = sch.get(stages[0]) if stages else None
        value = None if block is None or block.init is not None else block.body.value
        rounded = value.value if isinstance(value, tirx.Cast) else value
        sums, bias = (rounded.a, rounded.b) if isinstance(rounded, tirx.Add) else (rounded, None)
        made = sch.get(master.block).writes[0].source
        known = bias is None or (isinstance(bias, ir.TensorLoad) and any(bias.source.same_as(p) for p in func.params))
        if not known or not isinstance(sums, ir.TensorLoad) or not sums.source.same_as(made):
            raise NoFeasibleTile(NAME, "a result that is more than sums with a bias")
        return _TakenOut(block, sums, bias)

    def axes_of(self, other: _TakenOut) -> dict[Any, Any]:
        """For each of its axes the one of another such stage."""
        mine, others = ([axis.var for axis in one.block.iter_vars] for one in (self, other))
        if len(mine) != len(others):
            raise NoFeasibleTile(NAME, "results that are not added element by element")
        return dict(zip(mine, others, strict=True))


@dataclass(frozen=True)
class Sums:
    """Two convolutions: what is added, and what it is added to as if it were alone."""

    added: Any
    last: Any
    first: _TakenOut
    second: _TakenOut

    @staticmethod
    def of(added: Any, last: Any) -> Sums:
        first, second = _TakenOut.of(added), _TakenOut.of(last)
        if not first.block.writes[0].source.same_as(added.params[-1]):
            raise NoFeasibleTile(NAME, "a result that is more than sums with a bias")
        places = [substitute(index, first.axes_of(second)) for index in first.block.body.indices]
        if not all(structural_equal(*pair) for pair in zip(places, second.block.body.indices, strict=True)):
            raise NoFeasibleTile(NAME, "results that are not added element by element")
        return Sums(added, _without(last, last.params[0], second.block.writes[0].source), first, second)

    def with_bias(self, bias: Any) -> Any:
        """What is added to, with the bias of what is added, too."""
        first, second = self.first, self.second
        index = [substitute(each, first.axes_of(second)) for each in bias.indices]
        bias = tirx.BufferLoad(bias.source, index)
        total = tirx.Add(second.sums, bias if second.bias is None else tirx.Add(second.bias, bias))
        store = second.block.body
        value = tirx.Cast(store.value.ty, total) if isinstance(store.value, tirx.Cast) else total
        region = tirx.BufferRegion(bias.source, [ir.Range.from_min_extent(each, 1) for each in index])
        body = tirx.BufferStore(store.buffer, value, list(store.indices))
        func = with_block(self.last, second.block, [*second.block.reads, region], body, None)
        return tirx.PrimFunc([*func.params, bias.source], func.body).with_attrs(dict(func.attrs.items()))


def _without(func: Any, given: Any, own: Any) -> Any:
    """The function whose stage that adds ``given`` to ``own`` does not, where there is one, and nobody else reads
    either of them.
    """
    adding = list[Any]()
    readers = list[Any]()

    def is_load(value: Any, buffer: Any) -> bool:
        return isinstance(value, ir.TensorLoad) and value.source.same_as(buffer)

    def own_alone(total: Any) -> Any:
        for one, other in ((total.a, total.b), (total.b, total.a)):
            if is_load(one, given) and is_load(other, own) and structural_equal(one.indices, other.indices):
                adding.append(total)
                return other
        return total

    def stage(block: Any) -> Any:
        if not any(region.source.same_as(buffer) for region in block.reads for buffer in (given, own)):
            return block
        readers.append(block)
        body = structural_map(block.body, (tirx.Add, own_alone))
        reads = [region for region in block.reads if not region.source.same_as(given)]
        return block_with(block, reads=reads, body=body)

    func = structural_map(func, (s_tir.SBlock, stage))
    if len(readers) != 1 or len(adding) != 1:
        raise NoFeasibleTile(NAME, "results that are not added element by element")
    return func


# ---- tiles -------------------------------------------------------------------------------------------------------


def _together(problems: tuple[Problem, Problem], chip: Chip, times: int) -> Iterator[Pair]:
    """The best tiles of both for the same places and channels. Each has half of the memories of operands, and half of
    the flags by which these are filled again.
    """
    halves = {name: getattr(chip.memory, name) // 2 for name in ("l1_bytes", "l0a_bytes", "l0b_bytes")}
    half = replace(chip, memory=replace(chip.memory, **halves))
    of_each = [dict[Any, list[Tile]](), dict[Any, list[Tile]]()]
    for problem, found in zip(problems, of_each, strict=True):
        for tile in tiles_of(problem, half, times):
            if _rings(tile, problem) <= max(1, chip.event_ids // (2 * SLOTS)):
                found.setdefault(_common(tile), []).append(tile)
    keys = [key for key in of_each[0] if key in of_each[1]]
    for key in keys:
        yield from product(
            *(_best(found[key], problem, chip) for problem, found in zip(problems, of_each, strict=True))
        )


def _best(tiles: Sequence[Tile], problem: Problem, chip: Chip) -> list[Tile]:
    """Those that cost least. What is not the busiest now may be once the other convolution is there, too."""
    if len(tiles) <= EACH:
        return list(tiles)
    works = works_of(tiles, problem, chip)
    cycles = analytical_cycles_of_all(works, chip) + sum(queue_cycles(works, chip)) * OTHERS_SHARE
    return [tiles[at] for at in np.argsort(cycles, kind="stable")[:EACH]]


def _rings(tile: Tile, problem: Problem) -> int:
    """How many buffers are filled again that queues need flags of their own for: of L1 by MTE2, or beside the cube by
    MTE1, where what comes for a product and what comes for all of a tile come together unless steps are uneven.
    """
    filled = [
        tile.held < {"map", "weights"} and tile.rounds * tile.chunks(problem) > 1,
        "map" in tile.held and tile.map_loads() > 1,
        "weights" in tile.held and tile.weight_loads() > 1,
    ]
    even = problem.extents[C1] % tile.chunk[0] == 0 and tile.chunk[0] % tile.step[0] == 0
    return max(sum(filled), 1 if even and tile.products == 1 else 2)


def _common(tile: Tile) -> tuple[Any, ...]:
    """What both tiles of a kernel have in common."""
    places = tile.rows, tile.columns, tile.outputs, tile.stacked, tile.images
    return (*places, tile.trips, tile.cores, tile.places_last, convolution.order_of(tile))


# ---- the schedule ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Alone:
    """One convolution, scheduled; the variables of its loops over cores and trips, and its sums."""

    func: Any
    loops: list[Any]
    sums: Any


def apply(parts: Parts, like: Any, problems: tuple[Problem, Problem], tiles: Pair, chip: Chip) -> Any:
    """Each convolution is scheduled as if it were alone; then the loops that both have become those of both, and the
    first one's sums those of the second one.
    """
    added, last = (
        _alone(part, problem, tile, chip) for part, problem, tile in zip(parts.functions, problems, tiles, strict=True)
    )
    blocks = added.func.body.block, last.func.body.block
    same = dict(zip(added.loops, last.loops, strict=True)) | {added.sums: last.sums}
    names = dict[str, int]()
    nests = [
        renamed(structural_map(nest, (tirx.Var, lambda var: same.get(var, var))), names)
        for nest in _merged(added, last, (blocks[0].body, blocks[1].body))
    ]
    root = s_tir.SBlock([], [], [], "root", sequence(nests))
    used = set[Any]()
    structural_walk(root, (tirx.Var, used.add))
    inner = [buffer for block in blocks for buffer in block.alloc_buffers if buffer in used]
    root = block_with(root, alloc_buffers=inner)
    own = {param.name: param for func in (like, added.func, last.func) for param in func.params}
    params = [own[param.name] for param in like.params]
    return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)).with_attrs(dict(like.attrs.items()))


def _alone(func: Any, problem: Problem, tile: Tile, chip: Chip) -> _Alone:
    sch = schedule_of(func)
    (master,) = masters_of(sch)
    placed = convolution.apply(sch, master, sch.get_producers(master.block)[0], problem, tile, chip)
    loops = [sch.get(loop).loop_var for loop in (placed.core, *placed.trips)]
    return _Alone(sch.mod["main"], loops, sch.get(master.block).writes[0].source)


def _merged(added: _Alone, last: _Alone, bodies: tuple[Any, Any], depth: int = 0) -> list[Any]:
    """The statements of both in the same loops: of the first one only what its products need.

    Its products come last, since what they read was, more often than not, made last.
    """
    mine, others = [one for one in statements(bodies[0]) if _is_operand(one, added)], statements(bodies[1])
    if depth == len(last.loops):
        out = next(at for at, nest in enumerate(others) if _takes_out(nest, last.sums))
        return [*others[:out], *mine, *others[out:]]
    at, where = (_place_of(nests, one.loops[depth]) for nests, one in ((mine, added), (others, last)))
    if not structural_equal(mine[at].extent, others[where].extent):
        raise NoFeasibleTile(NAME, "loops that are not the same for both")
    inside = sequence(_merged(added, last, (mine[at].body, others[where].body), depth + 1))
    loop = loop_with(others[where], inside, annotations={**mine[at].annotations, **others[where].annotations})
    return [*others[:where], *mine[:at], loop, *others[where + 1 :], *mine[at + 1 :]]


def _place_of(nests: Sequence[Any], var: Any) -> int:
    """Of the loop over a variable."""
    return next(at for at, nest in enumerate(nests) if isinstance(nest, tirx.For) and nest.loop_var.same_as(var))


def _stores(nest: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(nest, (tirx.BufferStore, found.append))
    return found


def _reads(store: Any, buffer: Any) -> bool:
    found: list[Any] = []
    structural_walk(store.value, (ir.TensorLoad, lambda load: found.append(load.source.same_as(buffer))))
    return any(found)


def _is_operand(nest: Any, one: _Alone) -> bool:
    """Whether a nest brings operands of products, or multiplies, and does not only begin sums, or take them out."""
    operands = (cube.L1, cube.L0A, cube.L0B)
    return any(
        store.buffer.scope() in operands or (store.buffer.same_as(one.sums) and _reads(store, one.sums))
        for store in _stores(nest)
    )


def _takes_out(nest: Any, sums: Any) -> bool:
    return any(not store.buffer.same_as(sums) and _reads(store, sums) for store in _stores(nest))
