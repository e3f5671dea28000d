"""What instructions of the vector unit work a value out of, and the cycles that each takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx

from compiler.isa.table import vector_costs as cost
from compiler.tiling.reads import Known
from compiler.tir.scopes import itemsize
from compiler.tir.structure import structural_walk

# Cycles per repeat of what is not done in one; the rest is.
_CYCLES = {
    "tirx.exp": cost.EXP, "tirx.log": cost.EXP, "tirx.sqrt": cost.SQRT, "tirx.tanh": cost.HYPERBOLIC,
    "tirx.erf": cost.ERF, "tirx.pow": cost.POWER, "tirx.sigmoid": cost.LOGISTIC, "tirx.sin": cost.TRIGONOMETRIC,
    "tirx.cos": cost.TRIGONOMETRIC,
}  # fmt: skip
_NARROW = ("float16", "bfloat16")
_FUSED = 3  # operations that one row does, at most


@dataclass(frozen=True, eq=False)
class Value:
    """An expression: the axes that it depends on, bytes of an element, cycles per repeat, and what it is made of."""

    axes: frozenset[Any]
    itemsize: int
    cycles: int
    loaded: bool
    parts: tuple[Value, ...]
    halved: bool = False  # if it is summed: its halves are added as they are converted


def value_of(value: Any, known: Known, given: Callable[[Any], Iterator[Any]]) -> Value:
    """Of an expression; ``given`` is what an operation is worked out of."""
    used: list[Any] = []
    structural_walk(value, (ir.Var, used.append))
    axes, loaded = frozenset(map(known.variable, used)), isinstance(value, ir.TensorLoad)
    row = None if loaded else _Row.rounding(value) or _Row.widening(value)
    if row is not None:
        parts, cycles = tuple(value_of(part, known, given) for part in row.given), row.cycles
    else:
        parts = () if loaded else tuple(value_of(part, known, given) for part in given(value))
        cycles = _cycles(value)
    converted = isinstance(value, tirx.Cast) and isinstance(value.value, ir.TensorLoad)
    halved = converted and str(value.value.ty.dtype) in _NARROW
    return Value(axes, itemsize(value.ty.dtype), cycles, loaded, parts, halved)


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
        if len(sides) < 2 or len(kinds) > 1 or not kinds <= {*_NARROW}:
            return None
        return _Row(kinds.pop(), sides, cost.CONVERT, 1)

    def _reads(self, value: Any) -> bool:
        if isinstance(value, tirx.Cast):
            self.given.append(value.value)
            return str(value.value.ty.dtype) == self.dtype
        if isinstance(value, ir.TensorLoad):
            return False
        parts = list(operands(value))
        self.operations += bool(parts)
        self.cycles = max(self.cycles, _cycles(value))
        return all(self._reads(part) for part in parts)


def joined_operands(value: Any) -> Iterator[Any]:
    """What one instruction of the vector unit works a value out of, with what it does on the way: it adds what it
    multiplied, cuts sums and products off below zero, or anything below zero and above six, and converts them.
    """
    for part in operands(value):
        if _joins(value, part):
            yield from joined_operands(part)
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


def operands(value: Any) -> Iterator[Any]:
    """What a single operation works a value out of."""
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
