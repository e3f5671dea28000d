"""What the stages of a kernel need of one another for a tile of its result, without scheduling it.

A stage stands for a block: its axes, what it reads and writes. For so many positions of its axes it reads a box of each
buffer, whose sides follow from the indices; the box of what another stage makes says how many positions of that one's
axes are needed, down to the kernel's inputs.

A space asks this of thousands of tiles, so TVM's nodes are read once, and what a tile asks is
worked out in numbers and tables of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from tvm import ir, tirx

from compiler.isa.declarations import BLOCK_BYTES
from compiler.isa.table import vector_costs as cost
from compiler.isa.timing import ceil_div
from compiler.tiling.blocks import REDUCTION, BlockFacts, block_facts
from compiler.tir.scopes import itemsize
from compiler.tir.structure import structural_walk

Lengths = tuple[int, ...]
Box = tuple[int, ...]

# Cycles per repeat of what is not done in one; the rest is.
_CYCLES = {
    "tirx.exp": cost.EXP, "tirx.log": cost.EXP, "tirx.sqrt": cost.SQRT, "tirx.tanh": cost.HYPERBOLIC,
    "tirx.erf": cost.ERF, "tirx.pow": cost.POWER, "tirx.sigmoid": cost.LOGISTIC, "tirx.sin": cost.TRIGONOMETRIC,
    "tirx.cos": cost.TRIGONOMETRIC,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Buffer:
    """A buffer as stages see it: one object for all of them."""

    name: str
    shape: tuple[int, ...]
    itemsize: int
    node: Any


class Known:
    """One object for each variable and buffer of a kernel: tables of them are looked up without asking TVM."""

    def __init__(self) -> None:
        self._variables: dict[int, Any] = {}
        self._buffers: dict[int, Buffer] = {}

    def variable(self, node: Any) -> Any:
        return self._variables.setdefault(hash(node), node)

    def buffer(self, node: Any) -> Buffer:
        if hash(node) not in self._buffers:
            shape = tuple(_size(extent) for extent in node.shape)
            self._buffers[hash(node)] = Buffer(str(node.name), shape, itemsize(node.dtype), node)
        return self._buffers[hash(node)]


# Positions from the first to the last of an index, for so many of each axis; zero where that is not known.
Measure = Callable[[Mapping[Any, int]], int]


@dataclass(frozen=True, eq=False)
class Place:
    """What a stage reads: a buffer, and how far each of its indices reaches."""

    source: Buffer
    measures: tuple[Measure, ...]

    def box(self, lengths: Mapping[Any, int]) -> Box:
        """How many positions of each dimension of what it loads are between the first and the last."""
        sides = zip(self.measures, self.source.shape, strict=True)
        return tuple([min(size, measure(lengths) or size) for measure, size in sides])


_NARROW = frozenset({"float16", "bfloat16"})
_FUSED = 3  # operations that one row does, at most


@dataclass(frozen=True, eq=False)
class Stage:
    """One block of the kernel."""

    block: Any
    facts: BlockFacts
    known: Known

    @cached_property
    def axes(self) -> dict[Any, int]:
        """The extent of every axis, in the order of the block's."""
        return {self.known.variable(axis.var): int(axis.dom.extent) for axis in self.block.iter_vars}

    @cached_property
    def reduced(self) -> frozenset[Any]:
        iterations = self.block.iter_vars
        return frozenset(self.known.variable(axis.var) for axis in iterations if int(axis.iter_type) == REDUCTION)

    @cached_property
    def along_rows(self) -> frozenset[Any]:
        """The reduced axes whose positions lie next to each other in something that is read."""
        last = (load.indices[-1] for load in self.loads if load.indices)
        return self.reduced & {self.known.variable(index) for index in last if isinstance(index, ir.Var)}

    @cached_property
    def kept(self) -> tuple[Any, ...]:
        """The axes of its result, which may be cut."""
        return tuple(axis for axis in self.axes if axis not in self.reduced)

    def made_bytes(self, lengths: Mapping[Any, int]) -> int:
        """Of its result, for so many positions of its axes."""
        kept = (length for axis, length in lengths.items() if axis in self.axes and axis not in self.reduced)
        return prod(kept) * self.made.itemsize

    @cached_property
    def stores(self) -> tuple[Any, ...]:
        found: list[Any] = []
        structural_walk(self.block.body, (tirx.BufferStore, found.append))
        return tuple(found)

    @cached_property
    def target(self) -> Any:
        return self.facts.writes[0]

    @cached_property
    def made(self) -> Buffer:
        """What it writes."""
        return self.known.buffer(self.target)

    @cached_property
    def stored(self) -> tuple[Buffer, tuple[Any, ...]]:
        """The buffer of its first store, and for each index the axis that it is; None where it is no axis alone."""
        store = self.stores[0]
        axes = tuple(self.known.variable(index) if isinstance(index, ir.Var) else None for index in store.indices)
        return self.known.buffer(store.buffer), axes

    @cached_property
    def values(self) -> tuple[_Value, ...]:
        """What its stores work out, each operation by an instruction of its own."""
        return tuple(_value(store.value, self.known, _operands) for store in self.stores)

    @cached_property
    def joined_values(self) -> tuple[_Value, ...]:
        """The same by the instructions that there are. What is folded is added by one that does nothing else."""
        given = _operands if self.reduced else _given
        return tuple(_value(store.value, self.known, given) for store in self.stores)

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
    def places(self) -> tuple[Place, ...]:
        """The same, as buffers and measures."""
        return tuple(
            Place(self.known.buffer(load.source), tuple(_measure(index, self.known) for index in load.indices))
            for load in self.loads
        )

    @cached_property
    def inner(self) -> dict[Any, int]:
        """The extents of loops within the block."""
        found: dict[Any, int] = {}

        def note(loop: Any) -> None:
            found.setdefault(self.known.variable(loop.loop_var), _size(loop.extent))

        structural_walk(self.block.body, (tirx.For, note))
        return found

    @cached_property
    def _patterns(self) -> dict[tuple[Any, Buffer], Any]:
        return {}

    def pattern(self, pattern: Any, buffer: Buffer) -> Any:
        """What a function of the block and a buffer says of them."""
        key = pattern, buffer
        if key not in self._patterns:
            self._patterns[key] = pattern(self.block, buffer.node)
        return self._patterns[key]

    def lengths(self, cut: Mapping[Any, int]) -> dict[Any, int]:
        """Positions of each axis and of loops within, where some axes are cut."""
        return {**self.inner, **self.axes, **cut}

    def gathers(self, buffer: Buffer) -> bool:
        """Whether data decides what is read of a buffer: then it is read where it is."""
        return buffer.name in self.facts.dynamic_reads

    def cut_for(self, box: Box) -> dict[Any, int]:
        """The positions of the axes of its result that a box of it takes."""
        found: dict[Any, int] = {}
        for axis, length in zip(self.stored[1], box, strict=True):
            if axis in self.axes and axis not in self.reduced:
                found[axis] = max(1, min(length, self.axes[axis]))
        return found


def stages_of(sch: Any, blocks: list[Any]) -> list[Stage]:
    known = Known()
    return [Stage(block, block_facts(block), known) for block in map(sch.get, blocks)]


@dataclass
class Needs:
    """What a tile of one result needs: positions of the axes of every stage, boxes of every input."""

    lengths: dict[Stage, dict[Any, int]] = field(default_factory=dict)
    inputs: dict[tuple[Buffer, Any], Box] = field(default_factory=dict)  # by buffer, and what reads the same of it


def needs(stages: list[Stage], out: Stage, tile: Mapping[Any, int], pattern: Any) -> Needs:
    """``pattern(block, buffer)`` is the same for stages that read the same of an input."""
    makers = {stage.made: stage for stage in stages if stage is not out}
    found = Needs({out: out.lengths(tile)})
    cuts: dict[Stage, dict[Any, int]] = {}
    for stage in reversed(stages):
        if stage is not out and stage not in cuts:
            continue
        lengths = found.lengths.setdefault(stage, stage.lengths(cuts.get(stage, {})))
        for place in stage.places:
            box = place.box(lengths)
            maker = makers.get(place.source)
            if maker is None:
                key = (place.source, stage.pattern(pattern, place.source))
                found.inputs[key] = _both(box, found.inputs[key]) if key in found.inputs else box
                continue
            cut = maker.cut_for(box)
            before = cuts.setdefault(maker, {})
            for axis, length in cut.items():
                before[axis] = max(length, before.get(axis, 1))
    return found


class Made(NamedTuple):
    """Bytes of what a stage makes, and of temporaries meanwhile."""

    bytes: int
    temporary_bytes: int


def most_bytes(stages: list[Stage], made: Mapping[Stage, Made]) -> int:
    """Of what is made and of temporaries at one time: a result stays until the last stage that reads it is done."""
    order = [stage for stage in stages if stage in made]
    last = {place.source: at for at, stage in enumerate(order) for place in stage.places}
    ends = [max(at, last.get(stage.made, at)) for at, stage in enumerate(order)]
    most = kept = 0
    for at, stage in enumerate(order):
        kept += made[stage].bytes
        most = max(most, kept + made[stage].temporary_bytes)
        kept -= sum(made[other].bytes for other, end in zip(order, ends, strict=True) if end == at)
    return most


def _both(one: Box, other: Box) -> Box:
    return tuple(max(a, b) for a, b in zip(one, other, strict=True))


def _size(extent: Any) -> int:
    return int(extent) if isinstance(extent, tirx.IntImm) else 1


def _measure(index: Any, known: Known) -> Measure:
    """How many positions an index takes from the first to the last."""
    match index:
        case tirx.IntImm():
            return lambda _: 1
        case tirx.Add() | tirx.Sub():
            return _sum(_measure(index.a, known), _measure(index.b, known))
        case tirx.Mul() if isinstance(index.b, tirx.IntImm):
            return _scaled(_measure(index.a, known), abs(int(index.b)))
        case tirx.FloorDiv() if isinstance(index.b, tirx.IntImm):
            return _divided(_measure(index.a, known), int(index.b))
        case tirx.FloorMod() if isinstance(index.b, tirx.IntImm):
            return _bounded(_measure(index.a, known), int(index.b))
        case tirx.Cast():
            return _measure(index.value, known)
        case ir.Var():
            axis = known.variable(index)
            return lambda lengths: lengths.get(axis, 1)
        case ir.TensorLoad():  # data decides: one place for each that it is read from
            inner = [_measure(each, known) for each in index.indices]
            return lambda lengths: prod(measure(lengths) for measure in inner)
    return lambda _: 0


def _sum(a: Measure, b: Measure) -> Measure:
    def measure(lengths: Mapping[Any, int]) -> int:
        one, other = a(lengths), b(lengths)
        return one + other - 1 if one and other else 0

    return measure


def _scaled(a: Measure, factor: int) -> Measure:
    def measure(lengths: Mapping[Any, int]) -> int:
        one = a(lengths)
        return (one - 1) * factor + 1 if one else 0

    return measure


def _divided(a: Measure, divisor: int) -> Measure:
    def measure(lengths: Mapping[Any, int]) -> int:
        one = a(lengths)
        return ceil_div(one - 1, divisor) + 1 if one else 0

    return measure


def _bounded(a: Measure, most: int) -> Measure:
    return lambda lengths: min(a(lengths), most)


# ---- what a stage costs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effort:
    """Instructions of the vector unit, their bytes times cycles per repeat, bytes of temporaries beside the result."""

    instructions: int
    weighted_bytes: float
    temporary_bytes: int


def effort(stage: Stage, lengths: Mapping[Any, int], *, joined: bool = False) -> Effort:
    """What working out a stage takes for so many positions of its axes.

    Ranking was taught with operations that are not ``joined`` to instructions.
    """
    total = Effort(0, 0.0, 0)
    for value in stage.joined_values if joined else stage.values:
        root = _walk(value, lengths)
        moved = max(_bytes(value, lengths), root.moved)
        temporary = max(0, root.peak - root.result)
        if stage.reduced:  # what is folded is as large as all of it, its result is not
            temporary = max((_walk(part, lengths).peak >> part.halved for part in value.parts), default=0)
        weighted = root.weighted if root.instructions else float(moved)
        total = Effort(
            total.instructions + max(1, root.instructions) + _folds_of_blocks(stage, lengths),
            total.weighted_bytes + weighted,
            max(total.temporary_bytes, temporary),
        )
    return total


def _folds_of_blocks(stage: Stage, lengths: Mapping[Any, int]) -> int:
    """Instructions behind the one that folds rows to a block: what is left over joins it, then its places are folded.

    They take little of UB, but each has a head and a tail.
    """
    row_bytes = max((lengths[axis] * stage.made.itemsize for axis in stage.along_rows), default=0)
    return 0 if row_bytes <= BLOCK_BYTES else 1 + (row_bytes % BLOCK_BYTES > 0)


@dataclass(frozen=True, eq=False)
class _Value:
    """An expression: the axes that it depends on, bytes of an element, cycles per repeat, and what it is made of."""

    axes: frozenset[Any]
    itemsize: int
    cycles: int
    loaded: bool
    parts: tuple[_Value, ...]
    halved: bool = False  # if it is summed: its halves are added as they are converted


def _value(value: Any, known: Known, given: Callable[[Any], Iterator[Any]]) -> _Value:
    """Of an expression; ``given`` is what an operation is worked out of."""
    used: list[Any] = []
    structural_walk(value, (ir.Var, used.append))
    axes, loaded = frozenset(map(known.variable, used)), isinstance(value, ir.TensorLoad)
    row = None if loaded else _Row.rounding(value) or _Row.widening(value)
    if row is not None:
        parts, cycles = tuple(_value(part, known, given) for part in row.given), row.cycles
    else:
        parts = () if loaded else tuple(_value(part, known, given) for part in given(value))
        cycles = _cycles(value)
    converted = isinstance(value, tirx.Cast) and isinstance(value.value, ir.TensorLoad)
    halved = converted and str(value.value.ty.dtype) in _NARROW
    return _Value(axes, itemsize(value.ty.dtype), cycles, loaded, parts, halved)


@dataclass
class _Row:
    """Several operations that are one row of the vector unit, with conversions of what has 16 bits on their way."""

    dtype: str  # of what it reads
    given: list[Any] = field(default_factory=list)
    cycles: int = 0
    operations: int = 0

    @staticmethod
    def rounding(value: Any) -> _Row | None:
        """What is worked out in fp32 of numbers of 16 bits, and rounded to such: at the rate of 16 bits."""
        if not isinstance(value, tirx.Cast) or str(value.ty.dtype) not in _NARROW:
            return None
        for dtype in _NARROW:
            row = _Row(dtype)
            if row._reads(value.value) and 0 < row.operations <= _FUSED:
                row.cycles = max(row.cycles, cost.CONVERT if dtype != str(value.ty.dtype) else 0)
                return row
        return None

    @staticmethod
    def widening(value: Any) -> _Row | None:
        """A sum or a product, in fp32, of two numbers of 16 bits."""
        if not isinstance(value, tirx.Add | tirx.Mul):
            return None
        sides = [side.value for side in (value.a, value.b) if isinstance(side, tirx.Cast)]
        kinds = {str(side.ty.dtype) for side in sides}
        if len(sides) < 2 or len(kinds) > 1 or not kinds <= _NARROW:
            return None
        return _Row(kinds.pop(), sides, cost.CONVERT, 1)

    def _reads(self, value: Any) -> bool:
        if isinstance(value, tirx.Cast):
            self.given.append(value.value)
            return str(value.value.ty.dtype) == self.dtype
        if isinstance(value, ir.TensorLoad):
            return False
        parts = list(_operands(value))
        self.operations += bool(parts)
        self.cycles = max(self.cycles, _cycles(value))
        return all(self._reads(part) for part in parts)


class _Node(NamedTuple):
    """A value: instructions and weighted bytes in all, most bytes of temporaries, those that its result takes."""

    instructions: int
    weighted: float
    peak: int
    result: int
    moved: int = 0


def _walk(value: _Value, lengths: Mapping[Any, int]) -> _Node:
    if value.loaded:
        return _Node(0, 0.0, 0, 0, _bytes(value, lengths))
    parts = [_walk(part, lengths) for part in value.parts]
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
        widest * value.cycles + sum(part.weighted for part in parts),
        peak,
        own,
        widest,
    )


def _given(value: Any) -> Iterator[Any]:
    """What one instruction of the vector unit works a value out of, with what it does on the way: it adds what it
    multiplied, cuts sums and products off below zero, or anything below zero and above six, and converts them.
    """
    for part in _operands(value):
        if _joins(value, part):
            yield from _given(part)
        else:
            yield part


def _joins(value: Any, part: Any) -> bool:
    """Whether the instruction that works a value out of a part of it works that out, too."""
    if isinstance(value, tirx.Cast):
        return isinstance(part, tirx.Add | tirx.Mul) or (_cuts_off(part) and isinstance(part.a, tirx.Add | tirx.Sub))
    if _cuts_off(value):
        return isinstance(part, tirx.Add | tirx.Sub | tirx.Mul)
    if isinstance(value, tirx.Min):
        return _is(value.b, 6) and _cuts_off(part)
    return isinstance(value, tirx.Add) and isinstance(part, tirx.Mul)


def _cuts_off(value: Any) -> bool:
    return isinstance(value, tirx.Max) and _is(value.b, 0)


def _is(value: Any, number: int) -> bool:
    return isinstance(value, tirx.FloatImm | tirx.IntImm) and float(value.value) == number


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


def _bytes(value: _Value, lengths: Mapping[Any, int]) -> int:
    """Of a value for all positions of the axes that it depends on."""
    return prod([length for axis, length in lengths.items() if axis in value.axes]) * value.itemsize
