"""What the stages of a kernel need of one another for a tile of its result, without scheduling it.

A stage stands for a block: its axes, what it reads and writes. For so many positions of its axes it reads a box of each
buffer, whose sides follow from the indices; the box of what another stage makes says how many positions of that one's
axes are needed, down to the kernel's inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd, prod
from typing import Any

from tvm import ir, tirx
from tvm.runtime import DataType
from tvm_ffi import structural_walk

from compiler.isa.table import vector_costs as cost
from compiler.isa.timing import ceil_div
from compiler.tiling.blocks import REDUCTION, BlockFacts, block_facts

Lengths = tuple[int, ...]
Box = tuple[int, ...]

# Cycles per repeat of what is not done in one; the rest is.
_CYCLES = {
    "tirx.exp": cost.EXP, "tirx.log": cost.EXP, "tirx.sqrt": cost.SQRT, "tirx.tanh": cost.HYPERBOLIC,
    "tirx.erf": cost.ERF, "tirx.pow": cost.POWER, "tirx.sigmoid": cost.LOGISTIC, "tirx.sin": cost.TRIGONOMETRIC,
    "tirx.cos": cost.TRIGONOMETRIC,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Stage:
    """One block of the kernel."""

    block: Any
    facts: BlockFacts

    @cached_property
    def axes(self) -> dict[Any, int]:
        """The extent of every axis, in the order of the block's."""
        return {axis.var: int(axis.dom.extent) for axis in self.block.iter_vars}

    @cached_property
    def reduced(self) -> frozenset[Any]:
        return frozenset(axis.var for axis in self.block.iter_vars if int(axis.iter_type) == REDUCTION)

    @cached_property
    def kept(self) -> tuple[Any, ...]:
        """The axes of its result, which may be cut."""
        return tuple(axis for axis in self.axes if axis not in self.reduced)

    @cached_property
    def stores(self) -> tuple[Any, ...]:
        found: list[Any] = []
        structural_walk(self.block.body, (tirx.BufferStore, found.append))
        return tuple(found)

    @cached_property
    def target(self) -> Any:
        return self.facts.writes[0]

    @cached_property
    def loads(self) -> tuple[Any, ...]:
        """Every place that is read, once; what a reduction has so far is not among them."""
        found: list[Any] = []

        def visit(load: Any) -> None:
            if not load.source.same_as(self.target):
                found.append(load)

        structural_walk(self.block.body, (ir.TensorLoad, visit))
        return tuple(found)

    @cached_property
    def inner(self) -> dict[Any, int]:
        """The extents of loops within the block."""
        found: dict[Any, int] = {}
        structural_walk(self.block.body, (tirx.For, lambda loop: found.setdefault(loop.loop_var, _size(loop.extent))))
        return found

    def lengths(self, cut: Mapping[Any, int]) -> dict[Any, int]:
        """Positions of each axis and of loops within, where some axes are cut."""
        return {**self.inner, **self.axes, **cut}

    def box(self, load: Any, lengths: Mapping[Any, int]) -> Box:
        """How many positions of each dimension of what it loads are between the first and the last."""
        sizes = (_size(extent) for extent in load.source.shape)
        return tuple(
            min(size, _length(index, lengths) or size) for index, size in zip(load.indices, sizes, strict=True)
        )

    def gathers(self, buffer: Any) -> bool:
        """Whether data decides what is read of a buffer: then it is read where it is."""
        return buffer.name in self.facts.dynamic_reads

    def cut_for(self, box: Box) -> dict[Any, int]:
        """The positions of the axes of its result that a box of it takes."""
        found: dict[Any, int] = {}
        for index, length in zip(self.stores[0].indices, box, strict=True):
            if index in self.axes and index not in self.reduced:
                found[index] = max(1, min(length, self.axes[index]))
        return found


def stages_of(sch: Any, blocks: list[Any]) -> list[Stage]:
    return [Stage(sch.get(block), block_facts(sch.get(block))) for block in blocks]


@dataclass
class Needs:
    """What a tile of one result needs: positions of the axes of every stage, boxes of every input."""

    lengths: dict[Stage, dict[Any, int]] = field(default_factory=dict)
    inputs: dict[tuple[Any, Any], Box] = field(default_factory=dict)  # by buffer, and what reads the same of it


def needs(stages: list[Stage], out: Stage, tile: Mapping[Any, int], pattern: Any) -> Needs:
    """``pattern(block, buffer)`` is the same for stages that read the same of an input."""
    makers = {stage.target: stage for stage in stages if stage is not out}
    found = Needs({out: out.lengths(tile)})
    cuts: dict[Stage, dict[Any, int]] = {}
    for stage in reversed(stages):
        if stage is not out and stage not in cuts:
            continue
        lengths = found.lengths.setdefault(stage, stage.lengths(cuts.get(stage, {})))
        for load in stage.loads:
            box = stage.box(load, lengths)
            maker = makers.get(load.source)
            if maker is None:
                key = (load.source, pattern(stage.block, load.source))
                found.inputs[key] = _both(box, found.inputs.get(key, box))
                continue
            cut = maker.cut_for(box)
            before = cuts.setdefault(maker, {})
            for axis, length in cut.items():
                before[axis] = max(length, before.get(axis, 1))
    return found


def _both(one: Box, other: Box) -> Box:
    return tuple(max(a, b) for a, b in zip(one, other, strict=True))


def _size(extent: Any) -> int:
    return int(extent) if isinstance(extent, tirx.IntImm) else 1


def _length(index: Any, lengths: Mapping[Any, int]) -> int:
    """Positions from the first to the last; zero where that is not known."""
    match index:
        case tirx.IntImm():
            return 1
        case tirx.Add() | tirx.Sub():
            a, b = _length(index.a, lengths), _length(index.b, lengths)
            return a + b - 1 if a and b else 0
        case tirx.Mul() if isinstance(index.b, tirx.IntImm):
            a = _length(index.a, lengths)
            return (a - 1) * abs(int(index.b)) + 1 if a else 0
        case tirx.FloorDiv() if isinstance(index.b, tirx.IntImm):
            a = _length(index.a, lengths)
            return ceil_div(a - 1, int(index.b)) + 1 if a else 0
        case tirx.FloorMod() if isinstance(index.b, tirx.IntImm):
            a = _length(index.a, lengths)
            return min(a, int(index.b)) if a else 0
        case tirx.Cast():
            return _length(index.value, lengths)
        case ir.Var():
            return lengths.get(index, 1)
        case ir.TensorLoad():  # data decides: one place for each that it is read from
            return prod(_length(inner, lengths) for inner in index.indices)
    return 0


# ---- what a stage costs ------------------------------------------------------------------------------------------


def itemsize(dtype: Any) -> int:
    return ceil_div(DataType(str(dtype)).bits, 8)


@dataclass(frozen=True)
class Effort:
    """Instructions of the vector unit, their bytes times cycles per repeat, bytes of temporaries beside the result."""

    instructions: int
    weighted_bytes: float
    temporary_bytes: int


def effort(stage: Stage, lengths: Mapping[Any, int]) -> Effort:
    """What working out a stage takes for so many positions of its axes."""
    total = Effort(0, 0.0, 0)
    for store in stage.stores:
        root = _walk(store.value, lengths)
        moved = max(_bytes(store.value, lengths), root.moved)
        temporary = max(0, root.peak - root.result)
        if stage.reduced:  # what is folded is as large as all of it, its result is not
            temporary = max((_walk(part, lengths).peak for part in _operands(store.value)), default=0)
        weighted = root.weighted if root.instructions else float(moved)
        total = Effort(
            total.instructions + max(1, root.instructions),
            total.weighted_bytes + weighted,
            max(total.temporary_bytes, temporary),
        )
    return total


@dataclass(frozen=True)
class _Node:
    """A value: instructions and weighted bytes in all, most bytes of temporaries, those that its result takes."""

    instructions: int
    weighted: float
    peak: int
    result: int
    moved: int = 0


def _walk(value: Any, lengths: Mapping[Any, int]) -> _Node:
    if isinstance(value, ir.TensorLoad):
        return _Node(0, 0.0, 0, 0, _bytes(value, lengths))
    parts = [_walk(part, lengths) for part in _operands(value)]
    if not parts:
        return _Node(0, 0.0, 0, 0)
    own = _bytes(value, lengths)
    widest = max([own, *(part.moved for part in parts)])
    ordered = sorted(parts, key=lambda part: part.result - part.peak)
    peak = held = 0
    for part in ordered:
        peak, held = max(peak, held + part.peak), held + part.result
    in_place = any(part.result == own for part in parts)
    peak = max(peak, held if in_place else held + own)
    return _Node(
        1 + sum(part.instructions for part in parts),
        widest * _cycles(value) + sum(part.weighted for part in parts),
        peak,
        own,
        widest,
    )


def _operands(value: Any) -> Iterator[Any]:
    if isinstance(value, ir.Call):
        yield from value.args
    for name in ("a", "b", "value", "condition", "true_value", "false_value"):
        part = getattr(value, name, None)
        if part is not None and hasattr(part, "ty") and not isinstance(value, tirx.IntImm | tirx.FloatImm | ir.Var):
            yield part


def _cycles(value: Any) -> int:
    if isinstance(value, ir.Call):
        return _CYCLES.get(getattr(value.op, "name", ""), cost.SIMPLE)
    if isinstance(value, tirx.Cast):
        return cost.CONVERT
    if isinstance(value, tirx.Div):
        return cost.DIVIDE
    if isinstance(value, tirx.Select):
        return cost.SELECT
    return cost.SIMPLE


def _bytes(value: Any, lengths: Mapping[Any, int]) -> int:
    """Of a value for all positions of the axes that it depends on."""
    used: set[Any] = set()
    structural_walk(value, (ir.Var, used.add))
    return prod(length for axis, length in lengths.items() if axis in used) * itemsize(value.ty.dtype)


# ---- what a box of DDR costs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transfer:
    """Bytes of a box, those of the lines of DDR that it touches, and how many instructions move it."""

    moved_bytes: int
    line_bytes: float
    instructions: int


def transfer(box: Box, shape: Box, itemsize: int, line: int) -> Transfer:
    """A box of a buffer, wherever it begins."""
    run, axis = itemsize, len(box) - 1
    while axis >= 0:
        run *= box[axis]
        if box[axis] != shape[axis]:
            break
        axis -= 1
    moved = prod(box) * itemsize
    outer = [n for n in box[: max(axis, 0)] if n > 1]
    # Runs begin at whole numbers of boxes into whole rows.
    pitch = prod(shape[axis:]) * itemsize if axis > 0 else line
    step = gcd(gcd(run, pitch), line)
    starts = range(0, line, step)
    lines = sum(ceil_div(start + run, line) for start in starts) / len(starts)
    return Transfer(moved, lines * line * moved / run, prod(outer[:-2]))
