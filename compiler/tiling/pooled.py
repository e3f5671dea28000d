"""The schedule template of a convolution and what pools its result: windows that do not overlap, or all of its places.

    for core: for trip: { ub = sums of the tile, and the stages behind them
                          result = ub                      # where others read it, too
                          pooled_ub = windows of ub
                          pooled = pooled_ub }

The tiles are those of the convolution of which each has whole windows. What is pooled has the channels of a position
side by side, as it left the cube, and comes back from nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from tvm import ir, s_tir, sym, tirx
from tvm.sym import detect_linear_equation

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.apart import made_inside, part_of, writes
from compiler.tiling.convolution import ConvolutionSpace, problem_of
from compiler.tiling.convolution_stages import CHANNELS, merged
from compiler.tiling.convolution_tiles import DO, HO, PLACES, WO, Problem, Tile
from compiler.tiling.masters import masters_of
from compiler.tiling.places import in_lines, with_extent
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work, works_in
from compiler.tiling.started_sums import started_with_bias
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.near import memory_of_parameter, room_bytes, strides_of_parameters
from compiler.tir.rewriter import sequence
from compiler.tir.sblocks import block_with, point
from compiler.tir.structure import structural_map, structural_walk

NAME = "pooled"


@dataclass(frozen=True)
class Axis:
    """Of what is pooled: which axis of the result it becomes, and from which places to which.

    An axis that the result has not, or has one place of, is pooled as a whole.
    """

    of_result: int | None
    stride: int = 1

    @property
    def is_same(self) -> bool:
        return self.of_result is not None and self.stride == 1


@dataclass(frozen=True)
class Pooling:
    """The blocks behind a convolution: the first one pools, the others do something to each of its elements."""

    blocks: tuple[Any, ...]
    source: Any  # what is pooled
    axes: tuple[Axis, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all places become one, so that it means nothing in which order they are."""
        return all(axis.of_result is None for axis in self.axes[CHANNELS + 1 :])

    def takes(self, tile: Tile) -> bool:
        """Whether a tile has whole windows; and, of all places, none of which lie between the columns of two rows."""
        if self.is_whole and tile.made_columns > tile.columns:
            return False
        places = {HO: tile.rows * tile.stacked, WO: tile.columns, DO: 1}
        names = (DO, HO, WO)[-len(self.axes[CHANNELS + 1 :]) :]
        for axis, name in zip(self.axes[CHANNELS + 1 :], names, strict=True):
            parts = tile.trips[name] * tile.cores[name]
            if parts > 1 and (axis.of_result is None or places[name] % axis.stride):
                return False
        return True


@dataclass(frozen=True)
class PooledSpace:
    """All tiles of a convolution and what pools its result."""

    convolution: ConvolutionSpace
    pooling: Pooling
    like: Any  # the function of both
    kept: Any | None  # the parameter for what is pooled, where others read it, too

    @property
    def problem(self) -> Problem:
        return self.convolution.problem

    def tiles(self) -> list[Tile]:
        return self._all

    @cached_property
    def _all(self) -> list[Tile]:
        most = self.convolution.chip.memory.ub_bytes
        able = (tile for tile in self.convolution.tiles() if self.pooling.takes(tile))
        return [tile for tile in able if self.taken(tile)["ub"] <= most]

    def work(self, tile: Tile) -> Work:
        return works_in(self.work_of_all([tile]))[0]

    def work_of_all(self, tiles: Sequence[Tile]) -> Work:
        """Of all of them at once; each number is an array."""
        found, chip = self.convolution.work_of_all(tiles), self.convolution.chip
        elements = np.array([tile.products * tile.positions * ceil_to(tile.outputs, FRACTAL) for tile in tiles])
        heads = len(self.pooling.blocks) * (chip.vector.head_cycles + chip.vector.tail_cycles)
        of_tile = elements * self._bytes / chip.vector.bytes_per_cycle + heads
        cycles = of_tile * np.array([tile.rounds for tile in tiles])
        changed: dict[str, Any] = {
            "vector_cycles": found.vector_cycles + cycles, "last_cycles": found.last_cycles + of_tile,
        }  # fmt: skip
        return found._replace(**changed)

    @property
    def _itemsizes(self) -> tuple[int, int]:
        """Of what is pooled, and of what it is pooled to."""
        read, made = (cube.isa_dtype(one) for one in (self.pooling.source, self.pooling.blocks[0].writes[0].source))
        return DTYPES[read].itemsize, DTYPES[made].itemsize

    @property
    def _bytes(self) -> int:
        """Of an element, that the vector unit passes: it is read, and where sums are wider, widened before."""
        read, made = self._itemsizes
        return 2 * made if made > read else read

    def taken(self, tile: Tile) -> dict[str, int]:
        found, (read, made) = tile.bytes_of(self.problem), self._itemsizes
        share = made if made > read else 1  # sums of what is widened on the way are made of a copy
        return found | {"ub": found["ub"] + tile.products * tile.positions * ceil_to(tile.leaving, FRACTAL) * share}

    def apply(self, tile: Tile) -> Tiled:
        tiled = self.convolution.apply(tile)
        func = _Behind(tiled.func, self).joined()
        return Tiled(func, f"{tiled.description}, pooled in UB")


def space(func: Any, chip: Chip) -> PooledSpace:
    first, pooling, kept = _apart(func, chip)
    if pooling.is_whole and not strides_of_parameters(func):
        first = in_lines(first, HO, chip)
        pooling = _of_shape(pooling, first.params[-1])
    first = started_with_bias(merged(first), chip)
    sch = schedule_of(first)
    (master,) = masters_of(sch)
    problem = problem_of(sch, master, sch.get_producers(master.block)[0], chip)
    images, _, *places = (int(extent) for extent in pooling.source.shape)
    if images * prod(places) != prod(problem.extents[axis] for axis in PLACES):
        raise NoFeasibleTile(NAME, "a result that is padded before it is pooled")
    if kept is None:
        problem = replace(problem, near=problem.near - {"result"}, result_bytes=0)
    elif memory_of_parameter(func, kept) == "llb":
        problem = replace(problem, near=problem.near | {"result"})
    found = PooledSpace(ConvolutionSpace(first, NAME, problem, chip), pooling, func, kept)
    if not found.tiles():
        raise NoFeasibleTile(NAME, "tiles of whole windows")
    return found


def is_possible(problems: Sequence[Problem | None], chip: Chip) -> bool:
    """Whether one kernel may do what a convolution and a pooling do, as far as the shape of the first tells."""
    return len(problems) == 2 and problems[0] is not None and problems[1] is None


# ---- what is pooled how ------------------------------------------------------------------------------------------


def _apart(func: Any, chip: Chip) -> tuple[Any, Pooling, Any | None]:
    """The convolution as a kernel of its own, which writes last what is pooled; how that is, and the parameter for it
    where others read it, too.
    """
    room = room_bytes(func, chip)
    inner, results = made_inside(func, room)
    sch = schedule_of(inner)
    if len(masters_of(sch)) != 1:
        raise NoFeasibleTile(NAME, "anything but one convolution")
    (master,) = masters_of(sch)
    inner = sch.mod["main"]
    root, product = inner.body.block, sch.get(master.block).writes[0].source
    nests = list(root.body.seq)
    begins = next(at for at, nest in enumerate(nests) if writes(nest, product))
    blocks = [_block_of(nest) for nest in nests]
    at = next((at for at, one in enumerate(blocks) if at > begins and one is not None and one.init is not None), None)
    pooling = None if at is None else _pooling([one for one in blocks[at:] if one is not None])
    if at is None or pooling is None or len(pooling.blocks) < len(nests) - at:
        raise NoFeasibleTile(NAME, "anything but windows that do not overlap, and what is done to each of their sums")
    made = any(pooling.source.same_as(buffer) for buffer in root.alloc_buffers)
    if not made or not writes(nests[at - 1], pooling.source) or set(results) - {pooling.source}:
        raise NoFeasibleTile(NAME, "windows of something else than the result of the convolution")
    return part_of(inner, nests[:at], (None, pooling.source), room), pooling, results.get(pooling.source)


def _block_of(nest: Any) -> Any | None:
    """The block of a nest that has one."""
    found: list[Any] = []
    structural_walk(nest, (s_tir.SBlock, found.append))
    return found[0] if len(found) == 1 else None


def _pooling(blocks: Sequence[Any]) -> Pooling | None:
    first, loads = blocks[0], list[Any]()
    structural_walk(first.body.value, (ir.TensorLoad, loads.append))
    made = first.body.buffer
    loads = [load for load in loads if not load.source.same_as(made)]
    if len(loads) != 1 or not _in_order(first.body.indices, first):
        return None
    axes = _axes(first, loads[0])
    if axes is None or not all(axis.is_same for axis in axes[: CHANNELS + 1]):
        return None
    known = made
    for block in blocks[1:]:
        found: list[Any] = []
        structural_walk(block.body, (ir.TensorLoad, found.append))
        own = all(load.source.same_as(known) and _in_order(load.indices, block) for load in found)
        if block.init is not None or not own or not _in_order(block.body.indices, block):
            return None
        known = block.body.buffer
    return Pooling(tuple(blocks), loads[0].source, axes)


def _in_order(indices: Sequence[Any], block: Any) -> bool:
    """Whether these are the axes of a block that are not reduced, in order."""
    kept = [axis.var for axis in _kept(block)]
    return len(kept) == len(indices) and all(i.same_as(var) for i, var in zip(indices, kept, strict=True))


def _axes(block: Any, load: Any) -> tuple[Axis, ...] | None:
    """How each axis of what is read becomes one of what is made."""
    kept, reduced = _kept(block), _reduced(block)
    axes = [*kept, *reduced]
    extents = [int(axis.dom.extent) for axis in axes]
    found, used = list[Axis](), list[int]()
    for index, size in zip(load.indices, load.source.shape, strict=True):
        linear = [int(each) for each in detect_linear_equation(index, [axis.var for axis in axes])]
        if not linear or linear[-1]:
            return None
        own = [at for at, factor in enumerate(linear[:-1]) if factor]
        steps, inside = ([at for at in own if (at < len(kept)) == stepping] for stepping in (True, False))
        used += own
        if len(steps) > 1 or len(inside) > 1 or any(linear[at] != 1 for at in inside):
            return None
        extent = extents[inside[0]] if inside else 1
        if not steps and extent != int(size):
            return None
        if steps and linear[steps[0]] < extent:
            return None
        found.append(Axis(steps[0], linear[steps[0]]) if steps else Axis(None))
    left_out = [at for at, extent in enumerate(extents) if at not in used and extent > 1]
    return None if left_out or len(set(used)) != len(used) else tuple(found)


def _kept(block: Any) -> list[Any]:
    return [axis for axis in block.iter_vars if int(axis.iter_type) == tirx.IterVar.DataPar]


def _reduced(block: Any) -> list[Any]:
    return [axis for axis in block.iter_vars if int(axis.iter_type) != tirx.IterVar.DataPar]


def _of_shape(pooling: Pooling, source: Any) -> Pooling:
    """The same of places that lie in other rows."""
    first = pooling.blocks[0]
    load: list[Any] = []
    structural_walk(first.body.value, (ir.TensorLoad, load.append))
    indices = next(one.indices for one in load if not one.source.same_as(first.body.buffer))
    extents = {index: int(extent) for index, extent in zip(indices, source.shape, strict=True)}
    reduced = {axis.var for axis in _reduced(first)}
    if not reduced <= extents.keys():
        raise NoFeasibleTile(NAME, "places that are not pooled as they are")
    axes = [with_extent(axis, extents[axis.var] if axis.var in reduced else None) for axis in first.iter_vars]

    def other(node: Any) -> Any:
        return tirx.BufferLoad(source, list(node.indices)) if node.source.same_as(pooling.source) else node

    body = structural_map(first.body, (ir.TensorLoad, other))
    reads = [point(source, indices)]
    changed = block_with(first, iter_vars=axes, reads=reads, body=body)
    return replace(pooling, blocks=(changed, *pooling.blocks[1:]), source=source)


# ---- behind the stores of a tile ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """Where the places of a tile are along an axis."""

    base: Any
    extent: int


class _Behind:
    """The scheduled convolution, in which what it stores is pooled, too."""

    def __init__(self, func: Any, space: PooledSpace) -> None:
        self.func, self.space, self.pooling = func, space, space.pooling
        self.stored, kept = func.params[-1], space.kept
        # What others read, of places in rows as the convolution has them.
        self.kept = None if kept is None else tirx.decl_buffer(self.stored.shape, kept.dtype, kept.name, layout=None)
        self.analyzer, self.inner = sym.Analyzer(), list[Any]()
        structural_walk(func.body, (tirx.For, self._bind))

    def _bind(self, loop: Any) -> None:
        self.analyzer.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))

    def joined(self) -> Any:
        like, found = self.space.like, list[Any]()
        structural_walk(self.func.body, (tirx.For, lambda loop: found.append(loop) if self._stores(loop) else None))
        tops = [one for one in found if not any(one.same_as(other.body) for other in found)]
        if len(tops) != 1:
            raise NoFeasibleTile(NAME, "results that leave the core in several ways")
        behind = self._behind(tops[0])
        body = structural_map(self.func.body, (tirx.For, lambda loop: behind if loop.same_as(tops[0]) else loop))
        own = {param.name: param for param in self.func.params}
        own |= {param.name: param for param in (like.params[-1], self.kept) if param is not None}
        params = [own[param.name] for param in like.params]
        root = body.block
        made = block_with(root, alloc_buffers=[*root.alloc_buffers, *self.inner])
        func = tirx.PrimFunc(params, s_tir.SBlockRealize([], True, made))
        return func.with_attrs(dict(like.attrs.items()))

    def _stores(self, loop: Any) -> bool:
        """Whether a nest is of one block, which stores what is pooled."""
        realize = _perfect(loop)[1]
        written = [] if realize is None else [region.source for region in realize.block.writes]
        return any(one.same_as(self.stored) for one in written)

    def _behind(self, loop: Any) -> Any:
        """What pools what such a nest stores, in its place or behind it."""
        loops, realize = _perfect(loop)
        kept = [] if self.kept is None else [self._stored(loop, self.kept)]
        return sequence([*kept, *self._pooled(loops, realize)])

    def _stored(self, loop: Any, result: Any) -> Any:
        """The nest with another parameter in the place of what the convolution alone writes."""

        def stored(block: Any) -> Any:
            if not block.writes or not block.writes[0].source.same_as(self.stored):
                return block
            indices = list(block.body.indices)
            body = tirx.BufferStore(result, block.body.value, indices)
            return block_with(block, writes=[point(result, indices)], body=body)

        return structural_map(loop, (s_tir.SBlock, stored))

    def _pooled(self, loops: Sequence[Any], realize: Any) -> Iterator[Any]:
        store = realize.block.body
        tile = store.value
        if not isinstance(tile, ir.TensorLoad) or tile.source.scope() != cube.UB:
            raise NoFeasibleTile(NAME, "results that do not leave by way of UB")
        places = self._places(loops, realize)
        buffers = dict[Any, Any]()  # what the blocks make: in UB, with the channels of a position side by side
        for number, block in enumerate(self.pooling.blocks):
            shape = _channels_last([int(extent) for extent in block.body.buffer.shape])
            name = f"{block.body.buffer.name}_ub"
            made = tirx.decl_buffer(shape, block.body.buffer.dtype, name, scope=cube.UB, layout=None)
            buffers[block.body.buffer] = made
            self.inner.append(made)
            of_tile = (store, tile) if number == 0 else None
            yield self._nest(_in_ub(block, buffers, self.pooling.source, of_tile), places)
        yield self._nest(self._out(self.pooling.blocks[-1].body.buffer, made), places)

    def _places(self, loops: Sequence[Any], realize: Any) -> list[_Place]:
        """Where the tile's places are along each axis of the result."""
        variables, found = [loop.loop_var for loop in loops], list[_Place]()
        block = realize.block
        values = {axis.var: value for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)}
        for index in block.body.indices:
            value = values.get(index, index)
            linear = list(detect_linear_equation(value, variables)) if variables else [value]
            if not linear or not all(isinstance(each, tirx.IntImm) for each in linear[:-1]):
                raise NoFeasibleTile(NAME, "tiles whose places are not side by side")
            own = [loop for loop, factor in zip(loops, linear, strict=False) if int(factor)]
            if len(own) > 1 or any(int(factor) not in (0, 1) for factor in linear[:-1]):
                raise NoFeasibleTile(NAME, "tiles whose places are not side by side")
            found.append(_Place(self.analyzer.simplify(linear[-1]), int(own[0].extent) if own else 1))
        for axis, place, size in zip(self.pooling.axes, found, self.pooling.source.shape, strict=True):
            if axis.of_result is None and (place.extent < int(size) or not self._is_zero(place.base)):
                raise NoFeasibleTile(NAME, "tiles of some of the places")
        return found

    def _is_zero(self, value: Any) -> bool:
        return bool(self.analyzer.can_prove_equal(value, 0))

    def _nest(self, block: Any, places: Sequence[_Place]) -> Any:
        """A block over what a tile has of its result, channels innermost."""
        kept, reduced = _kept(block), _reduced(block)
        values, loops, conditions = dict[Any, Any](), dict[Any, tuple[Any, int]](), list[Any]()
        of_axis = {axis.of_result: (axis, place) for axis, place in zip(self.pooling.axes, places, strict=True)}
        for number, axis in enumerate(kept):
            if number not in of_axis:
                values[axis.var] = tirx.IntImm("int32", 0)
                continue
            base, extent = self._of_result(*of_axis[number], int(axis.dom.extent))
            var = tirx.Var(f"ax{number}", "int32")
            loops[axis.var] = var, extent
            values[axis.var] = self.analyzer.simplify(base + var)
            self.analyzer.bind(var, ir.Range.from_min_extent(0, extent))
            if not self.analyzer.can_prove(values[axis.var] < axis.dom.extent):
                conditions.append(values[axis.var] < axis.dom.extent)
        for axis in reduced:
            var = tirx.Var(f"r{len(loops)}", "int32")
            loops[axis.var], values[axis.var] = (var, int(axis.dom.extent)), var
        iter_values = [values[axis.var] for axis in block.iter_vars]
        body = s_tir.SBlockRealize(iter_values, tirx.all(*conditions) if conditions else True, block)
        order = _channels_last([axis.var for axis in kept]) + [axis.var for axis in reduced]
        for variable in reversed([one for one in order if one in loops]):
            var, extent = loops[variable]
            body = tirx.For(var, 0, extent, tirx.ForKind.SERIAL, body)
        return body

    def _of_result(self, axis: Axis, place: _Place, extent: int) -> tuple[Any, int]:
        """Where places of a result begin, and how many a tile has of them."""
        if axis.stride == 1:
            return place.base, place.extent
        if self._is_zero(place.base) and place.extent >= extent * axis.stride:
            return place.base, extent
        if not self._is_zero(tirx.floormod(place.base, axis.stride)) or place.extent % axis.stride:
            raise NoFeasibleTile(NAME, "tiles that begin within windows")
        return self.analyzer.simplify(tirx.floordiv(place.base, axis.stride)), place.extent // axis.stride

    def _out(self, like: Any, made: Any) -> Any:
        """The block that stores what is ``made`` in the last parameter, which is of the form of a buffer."""
        result = self.space.like.params[-1]
        axes = [tirx.IterVar(ir.Range(0, extent), f"v{n}", tirx.IterVar.DataPar) for n, extent in enumerate(like.shape)]
        indices = [axis.var for axis in axes]
        in_ub = _channels_last(indices)
        body = tirx.BufferStore(result, tirx.BufferLoad(made, in_ub), indices)
        return s_tir.SBlock(axes, [point(made, in_ub)], [point(result, indices)], f"{result.name}_stored", body)


def _channels_last(axes: Sequence[Any]) -> list[Any]:
    return [*axes[:CHANNELS], *axes[CHANNELS + 1 :], *axes[CHANNELS : CHANNELS + 1]]


def _perfect(loop: Any) -> tuple[list[Any], Any | None]:
    """The loops of a nest of nothing but one block, and that block."""
    loops = list[Any]()
    while isinstance(loop, tirx.For):
        loops.append(loop)
        loop = loop.body
    return loops, loop if isinstance(loop, s_tir.SBlockRealize) else None


def _in_ub(block: Any, buffers: dict[Any, Any], source: Any, first: tuple[Any, Any] | None) -> Any:
    """The block with what it reads and makes in UB: what is pooled where the tile has it (``first``: its store, and
    what that reads).
    """

    def load(node: Any) -> Any:
        if first is not None and node.source.same_as(source):
            store, tile = first
            at = dict(zip(store.indices, node.indices, strict=True))
            return tirx.BufferLoad(tile.source, [at.get(index, index) for index in tile.indices])
        made = buffers.get(node.source)
        return node if made is None else tirx.BufferLoad(made, _channels_last(list(node.indices)))

    def store(node: Any) -> Any:
        made = buffers.get(node.buffer)
        return node if made is None else tirx.BufferStore(made, node.value, _channels_last(list(node.indices)))

    kinds = [(ir.TensorLoad, load), (tirx.BufferStore, store)]
    body = structural_map(block.body, kinds)
    init = None if block.init is None else structural_map(block.init, kinds)
    reads: list[Any] = []
    structural_walk(body.value, (ir.TensorLoad, reads.append))
    others = [point(one.source, one.indices) for one in reads if not one.source.same_as(body.buffer)]
    return block_with(block, reads=others, writes=[point(body.buffer, body.indices)], body=body, init=init)
