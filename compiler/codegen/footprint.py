"""Which bytes an operand of a kernel may touch, as a function of the loops around it.

An offset is a sum over loop variables plus a constant plus something between two bounds; whatever is not such a sum
is only known by its bounds. Where the bounds are not known either, the operand touches all of its buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from tvm import sym, tirx

from compiler.codegen.instruction_form import is_call, strides_of
from compiler.tir.rewriter import contains

Bound = int | float  # an integer, or one of the infinities


@dataclass(eq=False, frozen=True)
class LoopRange:
    """A variable from zero to below ``extent``; what is not ``repeated`` has one value for all that runs on a core."""

    extent: Bound
    repeated: bool = True


@dataclass
class Affine:
    """``constant`` plus the terms plus anything from ``low`` to ``high``."""

    terms: dict[LoopRange, int] = field(default_factory=dict)
    constant: int = 0
    low: Bound = 0
    high: Bound = 0

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        if not other.terms and other.low == other.high == 0:
            return Affine(self.terms, self.constant + other.constant * factor, self.low, self.high)
        terms = dict(self.terms)
        for loop, times in other.terms.items():
            terms[loop] = terms.get(loop, 0) + times * factor
        low, high = other.low, other.high
        if factor < 0:
            low, high = high, low
        return Affine(
            {loop: times for loop, times in terms.items() if times},
            self.constant + other.constant * factor,
            self.low + (low * factor if factor else 0),
            self.high + (high * factor if factor else 0),
        )

    def times(self, factor: int) -> Affine:
        return Affine().plus(self, factor)

    def bounds(self) -> tuple[Bound, Bound]:
        low, high = self.constant + self.low, self.constant + self.high
        for loop, times in self.terms.items():
            reach = times * (loop.extent - 1) if loop.extent > 1 else 0
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high

    @property
    def exact(self) -> int | None:
        """The value of a constant."""
        return self.constant if not self.terms and self.low == self.high == 0 else None

    def multiple(self) -> bool:
        """Whether it is always a whole number of blocks."""
        parts = (self.constant, *self.terms.values())
        return self.low == self.high == 0 and not any(part % 32 for part in parts)


def _between(low: Bound, high: Bound) -> Affine:
    return Affine({}, 0, low, high)


_ANYTHING = (-inf, inf)


class Ranges:
    """Reads integer expressions; ``variables`` says what is known of each variable."""

    def __init__(self) -> None:
        self.variables: dict[Any, Affine] = {}
        self._of_core: dict[Any, LoopRange] = {}  # values that are the same for all that runs on a core

    def read(self, expression: Any) -> Affine:
        kind = type(expression)
        if kind is tirx.IntImm:
            return Affine({}, int(expression.value))
        if kind is tirx.Var:  # these two are most of what is read
            known = self.variables.get(expression)
            return _between(*_ANYTHING) if known is None else known
        match expression:
            case tirx.Add():
                return self.read(expression.a).plus(self.read(expression.b))
            case tirx.Sub():
                return self.read(expression.a).plus(self.read(expression.b), -1)
            case tirx.Mul():
                return self._product(self.read(expression.a), self.read(expression.b))
            case tirx.FloorDiv():
                return self._quotient(self.read(expression.a), self.read(expression.b).exact)
            case tirx.FloorMod():
                return self._remainder(self.read(expression.a), self.read(expression.b).exact)
            case tirx.Min() | tirx.Max():
                return self._limit(expression)
            case tirx.Cast() if "int" in str(expression.value.ty.dtype):
                return self.read(expression.value)
            case tirx.Select():
                return self._either(expression.true_value, expression.false_value)
        if is_call(expression, "prim.if_then_else") or is_call(expression, "tirx.if_then_else"):
            return self._either(expression.args[1], expression.args[2])
        return _between(*_ANYTHING)

    def _product(self, a: Affine, b: Affine) -> Affine:
        for factor, other in ((a.exact, b), (b.exact, a)):
            if factor is not None:
                return other.times(factor)
        corners = [x * y if x and y else 0 for x in a.bounds() for y in b.bounds()]
        return _between(min(corners), max(corners))

    def _quotient(self, a: Affine, divisor: int | None) -> Affine:
        if divisor is None or divisor <= 0:
            return _between(*_ANYTHING)
        if a.low == a.high == 0 and not any(times % divisor for times in a.terms.values()):
            return Affine({loop: times // divisor for loop, times in a.terms.items()}, a.constant // divisor)
        low, high = (bound if abs(bound) == inf else bound // divisor for bound in a.bounds())
        return self._within(low, high, "quotient", a, Affine({}, divisor))

    def _remainder(self, a: Affine, divisor: int | None) -> Affine:
        if divisor is None or divisor <= 0:
            return _between(*_ANYTHING)
        low, high = a.bounds()
        if low >= 0 and high < divisor:
            return a
        return self._within(0, divisor - 1, "remainder", a, Affine({}, divisor))

    def _limit(self, expression: Any) -> Affine:
        choose = min if isinstance(expression, tirx.Min) else max
        a, b = self.read(expression.a), self.read(expression.b)
        low, high = (choose(of_a, of_b) for of_a, of_b in zip(a.bounds(), b.bounds(), strict=True))
        return self._within(low, high, choose.__name__, a, b)

    def _within(self, low: Bound, high: Bound, operation: str, *operands: Affine) -> Affine:
        """What an operation makes of operands: one value for each core if they are, else anything in between."""
        if low == high and abs(low) != inf:
            return Affine({}, int(low))
        fixed = all(each.low == each.high == 0 and not any(loop.repeated for loop in each.terms) for each in operands)
        if not fixed or abs(low) == inf or abs(high) == inf:
            return _between(low, high)
        key = operation, *((frozenset(each.terms.items()), each.constant) for each in operands)
        value = self._of_core.setdefault(key, LoopRange(high - low + 1, repeated=False))
        return Affine({value: 1}, int(low))

    def _either(self, then: Any, otherwise: Any) -> Affine:
        sides = (self.read(then).bounds(), self.read(otherwise).bounds())
        return _between(min(sides[0][0], sides[1][0]), max(sides[0][1], sides[1][1]))

    def byte_offset(self, indices: tuple[Any, ...], buffer: Any, itemsize: int) -> Affine:
        strides = strides_of(buffer)
        total, known = Affine(), 0
        for index, stride in zip(indices, strides, strict=True):
            if type(index) is tirx.IntImm:
                known += int(index.value) * stride * itemsize
            else:
                total = total.plus(self.read(index), stride * itemsize)
        total = total.plus(Affine({}, known)) if known else total
        if total.low == total.high or not any(contains(index, tirx.FloorMod) for index in indices):
            return total
        return self._together(indices, [stride * itemsize for stride in strides], total)

    def _together(self, indices: tuple[Any, ...], strides: list[int], total: Affine) -> Affine:
        """A loop that counts through several axes has a quotient in one and the rest in the other: one sum again."""
        flat: Any = tirx.IntImm("int32", 0)
        for index, stride in zip(indices, strides, strict=True):
            flat = flat + index * stride
        again = self.read(sym.Analyzer().simplify(flat))
        return again if again.high - again.low < total.high - total.low else total


@dataclass(eq=False)
class Turn:
    """The executions of a block that work on slots of rings: which slot, is the same throughout one of them.

    A block may be in phases, each a block of its own, which are executed one after another in different turns of the
    loop around them; ``phases`` are the variables that they bind the slot to.
    """

    depth: int  # loops around the block
    slot: LoopRange
    buffers: set[Any] = field(default_factory=set)  # the rings
    phases: list[Any] = field(default_factory=list)

    @property
    def slots(self) -> int:
        return int(self.slot.extent)


@dataclass(frozen=True)
class Access:
    """``extent_bytes`` bytes from an offset into a place, and always within ``span``, the buffer's bytes of it.

    A place is a memory of the core, or (a number) a buffer of DDR.
    """

    place: str | int
    span: tuple[int, int]
    offset: Affine
    extent_bytes: int
    reads: bool
    writes: bool
    blocks: bool  # whether the hardware keeps its bytes apart by blocks only
    rows: tuple[int, int] | None = None  # bytes between the starts of rows, and of each row, where the rest is skipped
    turn: Turn | None = None  # where the buffer is a ring: the block whose executions take its slots in turn
    ring: object = None
    phase: int = 0  # of that block

    def in_rows(self, rows: tuple[int, int] | None) -> Access:
        """The access with what is known of its rows; on chip, where these are whole blocks."""
        if rows is None or (self.blocks and (rows[0] % 32 or rows[1] % 32 or not self.offset.multiple())):
            return self
        return replace(self, rows=rows)

    def meets(self, earlier: Access, loops: Mapping[LoopRange, str]) -> bool:
        """Whether this access may touch a byte of an earlier one, one of the two writing it.

        ``loops`` gives, for loops around both, what is known of their two iterations: "same", "earlier" or "any".
        """
        if self.place != earlier.place or not (self.writes or earlier.writes):
            return False
        if self.span[1] <= earlier.span[0] or earlier.span[1] <= self.span[0]:
            return False
        low, high = _difference(earlier.offset, self.offset, loops)
        reach_low, reach_high = earlier.extent_bytes, self.extent_bytes
        if self.blocks:
            if self.offset.multiple() and earlier.offset.multiple():
                reach_low, reach_high = (-(-reach // 32) * 32 for reach in (reach_low, reach_high))
            else:
                reach_low, reach_high = reach_low + 31, reach_high + 31
        if high <= -reach_low or low >= reach_high:
            return False
        return self.rows is None or earlier.rows is None or self._rows_meet(earlier, loops)

    def _rows_meet(self, earlier: Access, loops: Mapping[LoopRange, str]) -> bool:
        """Whether rows that are as far apart in both may touch: columns beside each other do not."""
        (pitch, length), (other_pitch, other_length) = self.rows or (0, 0), earlier.rows or (0, 0)
        if pitch != other_pitch:
            return True
        low, high = _difference(earlier.offset, self.offset, loops, pitch)
        if abs(low) == inf or abs(high) == inf:
            return True
        # Some whole number of pitches away, the two would have to be less than a row apart.
        nearest = -(-(low - length + 1) // pitch) * pitch
        return bool(nearest < high + other_length)


def _difference(earlier: Affine, later: Affine, loops: Mapping[LoopRange, str], pitch: int = 0) -> tuple[Bound, Bound]:
    """Bounds of an earlier offset minus a later one, whole pitches apart from it.

    They are empty (low above high) where no such iterations exist.
    """
    low = earlier.constant - later.constant + earlier.low - later.high
    high = earlier.constant - later.constant + earlier.high - later.low
    for loop in {**earlier.terms, **later.terms, **loops}:
        a, b = earlier.terms.get(loop, 0), later.terms.get(loop, 0)
        last = loop.extent - 1
        relation = loops.get(loop, "any") if loop.repeated else "same"
        if relation == "earlier":
            if last < 1:
                return inf, -inf
            parts = [((a - b), 0, last - 1), (-b, 1, last)]
        elif relation == "same":
            parts = [(a - b, 0, last)]
        else:
            parts = [(a, 0, last), (-b, 0, last)]
        for times, first, end in parts:
            if times and not (pitch and times % pitch == 0):
                reach = (times * first, times * max(first, end))
                low, high = low + min(reach), high + max(reach)
    return low, high
