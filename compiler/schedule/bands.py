"""Functions in bands: some rows of a result along one of its axes, made of the rows of the inputs that these need.

    y[c, h, w] = max(x[c, 2 h + i - 1, ..])    rows 8 to 15 of 32    ->    y'[c, h, w] = max(x'[c, 2 h + i, ..])
                                                                           of rows 15 to 31 of x

Windows stand over the edges of bands, so bands of inputs overlap; over the edges of the image they stand in its first
and last band only, and these are other functions than those between. A function has bands where for each of its blocks

1. one variable counts the rows of what it stores, all others count the same in each band, and a loop counts no other
   block's rows, and
2. each tensor is read along one axis by this variable (that has bands, too), or by others only (it is read whole). What
   is read of an axis is an interval, found by its bounds and cut off where the tensor ends: nothing is read there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, s_tir, sym, tirx

from compiler import graph
from compiler.parts import OF_CLUSTERS
from compiler.schedule.pieces import NEVER, RECURRENCE
from compiler.tir.sblocks import innermost
from compiler.tir.structure import structural_map, structural_walk

Band = tuple[int, int]  # rows from the first to before the second
_FAR = 1 << 31
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


@dataclass(frozen=True)
class _Read:
    """Of a tensor along an axis: for row ``v`` those from ``factor * v + low`` to ``factor * v + high``."""

    buffer: Any
    factor: int
    low: int
    high: int


@dataclass(frozen=True)
class _Stage:
    """A block, the variable and the loop that count rows, and what it reads in bands."""

    block: Any
    target: Any
    variable: Any
    loop: Any
    reads: tuple[_Read, ...]


class Bands:
    """A PrimFunc of one result, in bands along an axis of it; ``axes`` are those of all that is cut."""

    def __init__(self, func: Any, axes: Mapping[Any, int], stages: Sequence[_Stage]) -> None:
        self.func, self.axes, self._stages = func, axes, stages
        self.inputs = tuple(axes.get(param) for param in func.params[:-1])  # by input: its axis, or None

    @staticmethod
    def of(func: Any, axis: int) -> Bands | None:
        """None where the function has no bands along this axis of its result."""
        schedule = graph.attribute(func, "tw.schedule")
        if schedule in NEVER | {RECURRENCE, "view"} or graph.attribute(func, "tw.valid_count"):
            return None
        if graph.attribute(func, OF_CLUSTERS) is not None:
            return None
        found = _Finder(func)
        return Bands(func, found.axes, found.stages) if found.run(axis) else None

    def needed(self, band: Band) -> dict[Any, Band] | None:
        """The rows of all that is cut, for a band of the result; None where it needs nothing of one."""
        found = {self.func.params[-1]: band}
        for stage in self._stages:
            low, high = found[stage.target]
            for read in stage.reads:
                first, last = sorted((read.factor * low, read.factor * (high - 1)))
                end = int(read.buffer.shape[self.axes[read.buffer]])
                own = max(0, first + read.low), min(end, last + read.high + 1)
                if own[0] >= own[1]:
                    return None
                found[read.buffer] = hull(found.get(read.buffer, own), own)
        return found

    def inputs_of(self, band: Band) -> tuple[Band | None, ...] | None:
        """The rows of each input, None of those that are read whole."""
        needed = self.needed(band)
        return None if needed is None else tuple(needed.get(param) for param in self.func.params[:-1])

    def ratios(self) -> tuple[int | None, ...]:
        """By how many rows of each input the needed ones begin later, for a row of the result; None of those that are
        read whole, or unevenly."""
        found: dict[Any, int | None] = {self.func.params[-1]: 1}
        for stage in self._stages:
            for read in stage.reads:
                own = found[stage.target]
                ratio = None if own is None else own * read.factor
                found[read.buffer] = ratio if found.get(read.buffer, ratio) == ratio else None
        return tuple(found.get(param) for param in self.func.params[:-1])

    def function(self, needed: Mapping[Any, Band]) -> Any:
        """The PrimFunc for the bands that are ``needed``, or wider ones."""
        stages = {stage.block: stage for stage in self._stages}
        extents = {stage.loop: _rows(needed[stage.target]) for stage in self._stages}
        made = {
            buffer: tirx.decl_buffer(
                banded_shape(_shape(buffer), self.axes[buffer], rows), str(buffer.dtype), buffer.name, layout=None
            )
            for buffer, rows in needed.items()
        }

        def loop(node: Any) -> Any:
            extent = extents.get(node.loop_var)
            if extent is None:
                return node
            return tirx.For(
                node.loop_var, 0, extent, node.kind, node.body, node.thread_binding, node.annotations, node.step
            )

        def block(node: Any) -> Any:
            stage = stages.get(node)
            if stage is not None:
                return _banded(stage, self.axes, needed)
            kept = [made.get(buffer, buffer) for buffer in node.alloc_buffers]
            return s_tir.SBlock(
                node.iter_vars, node.reads, node.writes, node.name_hint, node.body, node.init, kept,
                node.match_buffers, node.annotations,
            )  # fmt: skip

        # Blocks are known by what they are, so they come first, from the outermost inwards.
        body = structural_map(self.func.body, [(s_tir.SBlock, block), (tirx.For, loop)], order="pre")
        body = structural_map(body, (tirx.Var, lambda var: made.get(var, var)))
        params = [made.get(param, param) for param in self.func.params]
        attributes = {name: value for name, value in self.func.attrs.items() if name != "global_symbol"}
        return s_tir.renew_defs(tirx.PrimFunc(params, body).with_attrs(attributes))


def banded_shape(shape: Sequence[int], axis: int, band: Band) -> tuple[int, ...]:
    return (*shape[:axis], _rows(band), *shape[axis + 1 :])


def _rows(band: Band) -> int:
    return band[1] - band[0]


def hull(one: Band, other: Band) -> Band:
    return min(one[0], other[0]), max(one[1], other[1])


# ---- the proof ---------------------------------------------------------------------------------------------------


@dataclass
class _Finder:
    func: Any
    axes: dict[Any, int] = field(default_factory=dict)
    whole: set[Any] = field(default_factory=set)
    stages: list[_Stage] = field(default_factory=list)  # readers before what makes what they read

    def run(self, axis: int) -> bool:
        blocks = list(innermost(self.func.body))
        made: list[Any] = [_target(realize.block) for realize in blocks]
        if None in made or len(set(made)) != len(made) or not made or not made[-1].same_as(self.func.params[-1]):
            return False
        if any(buffer.same_as(param) for buffer in made[:-1] for param in self.func.params):
            return False
        if axis >= len(made[-1].shape):
            return False
        self.axes[made[-1]] = axis
        for realize, target in zip(reversed(blocks), reversed(made), strict=True):
            if target in self.axes:
                if not self._cut(realize, target):
                    return False
            elif not self._whole(realize):
                return False
        loops = [stage.loop for stage in self.stages]
        return not self.whole & self.axes.keys() and len(set(loops)) == len(loops) and self._alone(blocks)

    def _whole(self, realize: Any) -> bool:
        """What nobody reads in bands is made as it was."""
        self.whole.update(access.source for access in _loads(realize.block))
        return True

    def _cut(self, realize: Any, target: Any) -> bool:
        block, axis = realize.block, self.axes[target]
        place = _stores(block)[0].indices[axis]
        counted = [
            (each, value) for each, value in zip(block.iter_vars, realize.iter_values, strict=True)
            if each.var.same_as(place)
        ]  # fmt: skip
        if len(counted) != 1 or not all(store.indices[axis].same_as(place) for store in _stores(block)):
            return False
        ((own, loop),) = counted
        if int(own.iter_type) != int(tirx.IterVar.DataPar) or not isinstance(loop, tirx.Var) or int(own.dom.min):
            return False
        if not isinstance(realize.predicate, tirx.IntImm) or not int(realize.predicate):
            return False
        if int(own.dom.extent) != int(target.shape[axis]):
            return False
        if any(_uses(store.indices[at], own.var) for store in _stores(block) for at in _others(store.indices, axis)):
            return False
        found = list[_Read]()
        for load in _loads(block):
            if load.source.same_as(target):
                if not load.indices[axis].same_as(place):
                    return False
                continue
            if not self._read(load, block, own.var, found):
                return False
        self.stages.append(_Stage(block, target, own.var, loop, tuple(dict.fromkeys(found))))
        return True

    def _read(self, load: Any, block: Any, variable: Any, found: list[_Read]) -> bool:
        """Condition 2."""
        moving = [axis for axis, index in enumerate(load.indices) if _uses(index, variable)]
        if not moving:
            self.whole.add(load.source)
            return True
        if len(moving) > 1 or self.axes.setdefault(load.source, moving[0]) != moving[0]:
            return False
        index = load.indices[moving[0]]
        linear = sym.detect_linear_equation(index, [variable])
        if len(linear) != 2 or not isinstance(linear[0], tirx.IntImm):
            return False
        analyzer = sym.Analyzer()
        for var, extent in _ranges(block).items():
            analyzer.bind(var, ir.Range(0, extent))
        bound = analyzer.const_int_bound(analyzer.simplify(linear[1]))
        if bound.min_value <= -_FAR or bound.max_value >= _FAR:  # data decides which rows it reads
            return False
        found.append(_Read(load.source, int(linear[0]), bound.min_value, bound.max_value))
        return True

    def _alone(self, blocks: Sequence[Any]) -> bool:
        """Whether no other block goes by a loop that counts rows."""
        counting = {stage.loop: stage.block for stage in self.stages}
        for realize in blocks:
            for value in realize.iter_values:
                used: list[Any] = []
                structural_walk(value, (tirx.Var, used.append))
                if any(var in counting and not counting[var].same_as(realize.block) for var in used):
                    return False
            if sum(isinstance(value, tirx.Var) and value in counting for value in realize.iter_values) > 1:
                return False
        return True


def _parts(block: Any) -> list[Any]:
    return [block.body] if block.init is None else [block.init, block.body]


def _stores(block: Any) -> list[Any]:
    found: list[Any] = []
    for part in _parts(block):
        structural_walk(part, (tirx.BufferStore, found.append))
    return found


def _loads(block: Any) -> list[Any]:
    found: list[Any] = []
    for part in _parts(block):
        structural_walk(part, (ir.TensorLoad, found.append))
    return found


def _target(block: Any) -> Any | None:
    """The one tensor that a block stores to."""
    stores = _stores(block)
    same = stores and all(store.buffer.same_as(stores[0].buffer) for store in stores)
    return stores[0].buffer if same else None


def _ranges(block: Any) -> dict[Any, int]:
    found = {axis.var: int(axis.dom.extent) for axis in block.iter_vars}
    for part in _parts(block):
        structural_walk(part, (tirx.For, lambda loop: found.setdefault(loop.loop_var, int(loop.extent))))
    return found


def _others(indices: Sequence[Any], axis: int) -> list[int]:
    return [at for at in range(len(indices)) if at != axis]


def _uses(node: Any, var: Any) -> bool:
    found: list[Any] = []
    structural_walk(node, (tirx.Var, lambda v: found.append(v) if v.same_as(var) else None))
    return bool(found)


def _shape(buffer: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in buffer.shape)


# ---- the function of a band --------------------------------------------------------------------------------------


def _banded(stage: _Stage, axes: Mapping[Any, int], needed: Mapping[Any, Band]) -> Any:
    """A block over the rows of its band, which it counts from zero."""
    block, own, first = stage.block, stage.variable, needed[stage.target][0]
    rows = _rows(needed[stage.target])
    ranges = {**_ranges(block), own: rows}
    bounded, plain = sym.Analyzer(), sym.Analyzer()
    for var, extent in ranges.items():
        bounded.bind(var, ir.Range(0, extent))

    def further(node: Any) -> Any:
        return structural_map(node, (tirx.Var, lambda var: own + first if var.same_as(own) else var)) if first else node

    def settled(comparison: Any) -> Any:
        if not _uses(comparison, own):
            return comparison
        known = bounded.simplify(comparison)
        return known if isinstance(known, tirx.IntImm) else plain.simplify(comparison)

    def at_row(buffer: Any, indices: Sequence[Any]) -> list[Any]:
        if buffer not in axes:
            return list(indices)
        axis, found = axes[buffer], list(indices)
        found[axis] = own if buffer.same_as(stage.target) else plain.simplify(found[axis] - needed[buffer][0])
        return found

    def statement(node: Any) -> Any:
        moved = structural_map(
            further(node),
            [
                (ir.TensorLoad, lambda load: tirx.BufferLoad(load.source, at_row(load.source, load.indices))),
                (tirx.BufferStore, lambda store: _store(store, at_row(store.buffer, store.indices))),
                (_COMPARISONS, settled),
                (tirx.And, _both),
                (ir.Call, _chosen),
            ],
        )
        return moved

    def region(found: Any) -> Any:
        if found.source not in axes:
            return found
        axis, ranges = axes[found.source], list(found.region)
        rows_there = needed[found.source]
        low, extent = further(ranges[axis].min), ranges[axis].extent
        if isinstance(extent, tirx.IntImm) and int(extent) == int(found.source.shape[axis]):
            ranges[axis] = ir.Range(0, _rows(rows_there))
        elif found.source.same_as(stage.target):
            ranges[axis] = ir.Range.from_min_extent(own, extent)
        else:
            ranges[axis] = ir.Range.from_min_extent(plain.simplify(low - rows_there[0]), further(extent))
        return tirx.BufferRegion(found.source, ranges)

    variables = [
        tirx.IterVar(ir.Range(0, rows), axis.var, axis.iter_type, axis.thread_tag) if axis.var.same_as(own) else axis
        for axis in block.iter_vars
    ]
    return s_tir.SBlock(
        variables, [region(each) for each in block.reads], [region(each) for each in block.writes], block.name_hint,
        statement(block.body), None if block.init is None else statement(block.init), block.alloc_buffers,
        block.match_buffers, block.annotations,
    )  # fmt: skip


def _store(store: Any, indices: Sequence[Any]) -> Any:
    return tirx.BufferStore(store.buffer, store.value, indices)


def _both(condition: Any) -> Any:
    for one, other in ((condition.a, condition.b), (condition.b, condition.a)):
        if isinstance(one, tirx.IntImm):
            return other if int(one) else one
    return condition


def _chosen(call: Any) -> Any:
    """A choice that is made before."""
    if "if_then_else" not in str(call.op) or not isinstance(call.args[0], tirx.IntImm):
        return call
    return call.args[1] if int(call.args[0].value) else call.args[2]
