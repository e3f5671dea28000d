"""From TIR's scalar expressions to values of the scalar unit.

Indices and extents never overflow int32, so they are worked out in the registers' 64 bits. Data may: while a value to
be stored is worked out (``wrapping``), a sum or product is cut to its type before anything but a sum or product sees
it. Floats are fp32: what TIR computes in fp16 or bf16 is rounded where it is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad

from compiler.codegen.instruction_form import (
    Address,
    dtype_of,
    float_bits,
    is_call,
    is_float,
    strides_of,
)
from compiler.codegen.items import Test
from compiler.codegen.scalar_loads import ScalarLoads
from compiler.codegen.values import ONE, ZERO, Block, Linear, Operand, Values
from compiler.errors import Problem, UnsupportedError
from compiler.isa.dtypes import DTYPES

_LOGICAL = {tirx.And: "sand", tirx.Or: "sor"}
_BITS = {tirx.BitwiseAnd: "sand", tirx.BitwiseOr: "sor", tirx.BitwiseXor: "sxor"}
_LIMITS = {tirx.Min: "smin", tirx.Max: "smax"}
_CONDITIONALS = ("prim.if_then_else", "tirx.if_then_else")
_LIKELY = ("prim.likely", "tirx.likely")
# TIR's comparison -> (mnemonic without its letter, whether its sides are swapped)
_COMPARISONS = {
    tirx.EQ: ("eq", False),
    tirx.NE: ("ne", False),
    tirx.LT: ("lt", False),
    tirx.LE: ("le", False),
    tirx.GT: ("lt", True),
    tirx.GE: ("le", True),
}
_FLOAT_BINARY = {
    tirx.Add: "fadd",
    tirx.Sub: "fsub",
    tirx.Mul: "fmul",
    tirx.Div: "fdiv",
    tirx.Min: "fmin",
    tirx.Max: "fmax",
}
_FLOAT_CALLS = {"sqrt": "fsqrt", "fabs": "fabs"}
# The branch that is taken where a comparison does not hold.
_INVERSE = {"eq": "bne", "ne": "beq", "lt": "bge", "le": "bgt"}

# What may give more bits than its operands have, or passes on what does.
_OVERFLOWING = frozenset({"sadd", "ssub", "smul", "smadd", "smsub", "sshl", "sdiv", "ssel"})

AddressOf = Callable[[Address], Operand]


def unsupported(expression: Any) -> UnsupportedError:
    kind = expression.op.name if hasattr(expression, "op") else type(expression).__name__
    text = f"the scalar unit has no {kind} on {expression.ty.dtype}"
    return UnsupportedError(Problem("TW2602", text, hint="only a vector instruction, or the host, can compute it"))


class Scalars:
    """Turns expressions into operands; what they load stands in the block that ``loads`` is told of."""

    def __init__(self, values: Values, block: Block) -> None:
        self.values = values
        self.loads = ScalarLoads(values, block)
        self.variables: dict[Any, Linear | Operand] = {}
        self.address_of: AddressOf = lambda address: ZERO
        self.memory_of: Callable[[Any], str] = lambda buffer: "ddr"
        self.wrapping = False

    # ---- what callers ask for

    def operand(self, expression: Any) -> Operand:
        """A value of any type in one operand; truth values are zero and one."""
        if is_float(expression):
            return self.real(expression)
        return self.values.operand(self.integer(expression))

    def stored(self, expression: Any) -> Operand:
        """A value to be written to memory, where integers wrap as their types do."""
        self.wrapping = True
        try:
            return self.operand(expression)
        finally:
            self.wrapping = False

    def integer(self, expression: Any) -> Linear:
        kind = type(expression)
        if kind is tirx.IntImm:
            return Linear({}, int(expression.value))
        if kind is tirx.Var:
            return self._variable(expression)
        found = _INTEGER.get(kind)
        if found is not None:
            return found(self, expression)
        if kind in _COMPARISONS:
            return Linear.of(self._compare(expression))
        return self._call(expression, self.integer, lambda c, a, b: self._select(c, a(), b()))

    def real(self, expression: Any) -> Operand:
        kind = type(expression)
        if kind is tirx.FloatImm:
            return Operand(None, float_bits(float(expression.value)))
        if kind is tirx.Var:
            return self.values.operand(self._variable(expression))
        if kind in _FLOAT_BINARY:
            return self.values.operation(_FLOAT_BINARY[kind], self.real(expression.a), self.real(expression.b))
        if kind is tirx.Cast:
            return self._to_float(expression)
        if kind is tirx.Let:
            return self._let(expression, self.real)
        if kind is tirx.Select:
            condition = self.truth(expression.condition)
            then, otherwise = self.real(expression.true_value), self.real(expression.false_value)
            return self.values.operation("ssel", condition, then, otherwise)
        if kind is TensorLoad:
            return self._load(expression)
        name = expression.op.name.rpartition(".")[2] if hasattr(expression, "op") else ""
        if name in _FLOAT_CALLS:
            return self.values.operation(_FLOAT_CALLS[name], self.real(expression.args[0]))
        found: Operand = self._call(expression, self.real, lambda c, a, b: self.values.operation("ssel", c, a(), b()))
        return found

    def truth(self, expression: Any) -> Operand:
        """A condition as zero or one."""
        return self.values.operand(self.integer(expression))

    def tests(self, expression: Any) -> list[Test]:
        """Branches that are taken where the condition does not hold, none where it always does."""
        kind = type(expression)
        if any(is_call(expression, name) for name in _LIKELY):
            return self.tests(expression.args[0])
        if kind is tirx.And:
            first = self.tests(expression.a)
            with_guard = self.loads.guarded(self.truth(expression.a), lambda: self.tests(expression.b))
            return [*first, *with_guard]
        if kind in _COMPARISONS and not is_float(expression.a):
            name, swapped = _COMPARISONS[kind]
            a, b = self._sides(expression)
            if a.is_constant and b.is_constant:
                holds = self.values.operation(f"s{name}", *((b, a) if swapped else (a, b)))
                return [] if holds == ONE else [Test("beq", ZERO, ZERO)]
            a, b = self.values.all_in_range((b, a) if swapped else (a, b))
            return [Test(_INVERSE[name], a, b)]
        condition = self.truth(expression)
        if condition.is_constant:
            return [] if condition.offset else [Test("beq", ZERO, ZERO)]
        return [Test("beq", condition, ZERO)]

    # ---- integers

    def _variable(self, variable: Any) -> Linear:
        value = self.variables.get(variable)
        if value is None:
            raise unsupported(variable)
        return value if isinstance(value, Linear) else Linear.of(value)

    def _exact(self, expression: Any) -> Linear:
        """A value that others than sums and products may look at."""
        return self._cut(self.integer(expression), dtype_of(expression))

    def _cut(self, value: Linear, name: str) -> Linear:
        if not self.wrapping or name == "bool" or value.is_constant:
            return value
        overflows = not value.is_plain or any(node.operation in _OVERFLOWING for node in value.terms)
        return self._narrowed(value, name) if overflows else value

    def _exact_operand(self, expression: Any) -> Operand:
        return self.values.operand(self._exact(expression))

    def _add(self, expression: Any) -> Linear:
        return self.integer(expression.a).plus(self.integer(expression.b))

    def _subtract(self, expression: Any) -> Linear:
        return self.integer(expression.a).plus(self.integer(expression.b), -1)

    def _multiply(self, expression: Any) -> Linear:
        a, b = self.integer(expression.a), self.integer(expression.b)
        if a.is_constant or b.is_constant:
            return b.times(a.constant) if a.is_constant else a.times(b.constant)
        return Linear.of(self.values.operation("smul", self.values.operand(a), self.values.operand(b)))

    def _floor_div(self, expression: Any) -> Linear:
        a, b = self._exact(expression.a), self._exact(expression.b)
        if b.is_constant and b.constant > 0 and not any(times % b.constant for times in a.terms.values()):
            terms = {node: times // b.constant for node, times in a.terms.items()}
            return Linear(terms, a.constant // b.constant)
        return Linear.of(self.values.operation("sdiv", self.values.operand(a), self.values.operand(b)))

    def _floor_mod(self, expression: Any) -> Linear:
        a, b = self._exact(expression.a), self._exact(expression.b)
        if b.is_constant and b.constant > 0:
            kept = {node: times % b.constant for node, times in a.terms.items() if times % b.constant}
            if not kept:
                return Linear({}, a.constant % b.constant)
        return Linear.of(self.values.operation("srem", self.values.operand(a), self.values.operand(b)))

    def _truncating_quotient(self, expression: Any) -> tuple[Operand, Operand, Operand]:
        """(quotient, dividend, divisor), the quotient towards zero: floor of magnitudes, then the sign."""
        operation = self.values.operation
        a, b = self._exact_operand(expression.a), self._exact_operand(expression.b)
        magnitude = operation("sdiv", operation("sabs", a), operation("sabs", b))
        sign = operation("ssar", operation("sxor", a, b), Operand(None, 63))
        return operation("ssub", operation("sxor", magnitude, sign), sign), a, b

    def _truncated_div(self, expression: Any) -> Linear:
        return Linear.of(self._truncating_quotient(expression)[0])

    def _truncated_mod(self, expression: Any) -> Linear:
        quotient, a, b = self._truncating_quotient(expression)
        rest = self.values.operation("smsub", quotient, b, a)
        return Linear.of(self.values.operation("ssel", b, rest, ZERO))

    def _limit(self, expression: Any) -> Linear:
        a, b = self._exact_operand(expression.a), self._exact_operand(expression.b)
        return Linear.of(a if a == b else self.values.operation(_LIMITS[type(expression)], a, b))

    def _bitwise(self, expression: Any) -> Linear:
        a, b = self._exact_operand(expression.a), self._exact_operand(expression.b)
        return Linear.of(self.values.operation(_BITS[type(expression)], a, b))

    def _inverted(self, expression: Any) -> Linear:
        return Linear.of(self.values.operation("snot", self._exact_operand(expression.a)))

    def _shifted_left(self, expression: Any) -> Linear:
        a, b = self.integer(expression.a), self._exact(expression.b)
        if b.is_constant and 0 <= b.constant < 32:
            return a.times(1 << b.constant)
        return Linear.of(self.values.operation("sshl", self.values.operand(a), self.values.operand(b)))

    def _shifted_right(self, expression: Any) -> Linear:
        a, b = self._exact_operand(expression.a), self._exact_operand(expression.b)
        return Linear.of(self.values.operation("ssar", a, b))

    def _sides(self, expression: Any) -> tuple[Operand, Operand]:
        """Both sides of an integer comparison; what they have in common falls away where nothing can wrap."""
        a, b = self._exact(expression.a), self._exact(expression.b)
        if not self.wrapping:
            difference = a.plus(b, -1)
            if difference.is_constant:
                return Operand(None, difference.constant), ZERO
        return self.values.operand(a), self.values.operand(b)

    def _compare(self, expression: Any) -> Operand:
        name, swapped = _COMPARISONS[type(expression)]
        if not is_float(expression.a):
            a, b = self._sides(expression)
            return self.values.operation(f"s{name}", *((b, a) if swapped else (a, b)))
        a, b = self.real(expression.a), self.real(expression.b)
        if name == "ne":
            return self.values.operation("sxor", self.values.operation("feq", a, b), ONE)
        return self.values.operation(f"f{name}", *((b, a) if swapped else (a, b)))

    def _logical(self, expression: Any) -> Linear:
        a = self.truth(expression.a)
        guard = a if type(expression) is tirx.And else self._not(a)
        b = self.loads.guarded(guard, lambda: self.truth(expression.b))
        if a.is_constant or b.is_constant:
            known, other = (a, b) if a.is_constant else (b, a)
            absorbs = bool(known.offset) == (type(expression) is tirx.Or)
            return Linear.of(Operand(None, int(bool(known.offset))) if absorbs else other)
        return Linear.of(self.values.operation(_LOGICAL[type(expression)], a, b))

    def _negated(self, expression: Any) -> Linear:
        return Linear.of(self._not(self.truth(expression.a)))

    def _not(self, condition: Operand) -> Operand:
        return self.values.operation("seq", condition, ZERO)

    def _select(self, condition: Operand, then: Linear, otherwise: Linear) -> Linear:
        if condition.is_constant:
            return then if condition.offset else otherwise
        sides = (self.values.operand(side) for side in (then, otherwise))
        return Linear.of(self.values.operation("ssel", condition, *sides))

    def _selected(self, expression: Any) -> Linear:
        condition = self.truth(expression.condition)
        return self._select(condition, self.integer(expression.true_value), self.integer(expression.false_value))

    def _to_integer(self, expression: Any) -> Linear:
        source, name = expression.value, dtype_of(expression)
        if not is_float(source):
            value = self._exact(source)
            if name == "bool":
                return Linear.of(self._not(self._not(self.values.operand(value))))
            narrower = DTYPES[name].itemsize < DTYPES[dtype_of(source)].itemsize or name != dtype_of(source)
            return self._narrowed(value, name) if self.wrapping and narrower else value
        if name == "bool":
            return Linear.of(self._not(self.values.operation("feq", self.real(source), ZERO)))
        return self._narrowed(Linear.of(self.values.operation("ftoi", self.real(source))), name)

    def _narrowed(self, value: Linear, name: str) -> Linear:
        """An integer cut to a narrower type, even where it is plain."""
        if value.is_constant:
            return value
        bits = DTYPES[name].itemsize * 8
        operand = self.values.operand(value)
        if name.startswith("u"):
            return Linear.of(self.values.operation("sand", operand, Operand(None, (1 << bits) - 1)))
        raised = self.values.operation("sshl", operand, Operand(None, 64 - bits))
        return Linear.of(self.values.operation("ssar", raised, Operand(None, 64 - bits)))

    def _integer_load(self, expression: Any) -> Linear:
        return Linear.of(self._load(expression))

    # ---- floats

    def _to_float(self, expression: Any) -> Operand:
        if is_float(expression.value):
            return self.real(expression.value)
        value = self.values.operand(self._exact(expression.value))
        if value.is_constant:
            return Operand(None, float_bits(float(value.offset)))
        return self.values.operation("itof", value)

    # ---- of any type

    def _let(self, expression: Any, lower: Callable[[Any], Any]) -> Any:
        self.variables[expression.var] = self._bound(expression.value)
        return lower(expression.body)

    def _bound(self, value: Any) -> Linear:
        return Linear.of(self.real(value)) if is_float(value) else self._exact(value)

    def bind(self, variable: Any, value: Any) -> None:
        self.variables[variable] = self._bound(value)

    def _call(self, expression: Any, lower: Callable[[Any], Any], select: Callable[..., Any]) -> Any:
        """Calls that any type has."""
        if any(is_call(expression, name) for name in _LIKELY):
            return lower(expression.args[0])
        if not any(is_call(expression, name) for name in _CONDITIONALS):
            raise unsupported(expression)
        condition = self.truth(expression.args[0])
        if condition.is_constant:
            return lower(expression.args[1 if condition.offset else 2])
        then = self.loads.guarded(condition, lambda: lower(expression.args[1]))
        otherwise = self.loads.guarded(self._not(condition), lambda: lower(expression.args[2]))
        return select(condition, lambda: then, lambda: otherwise)

    def _load(self, expression: Any) -> Operand:
        buffer = expression.source
        wrapping, self.wrapping = self.wrapping, False
        address = self.address_of(Address(buffer, tuple(expression.indices)))
        self.wrapping = wrapping
        return self.loads.load(self.memory_of(buffer), dtype_of(buffer), address)


_INTEGER: dict[type, Callable[[Scalars, Any], Linear]] = {
    tirx.Add: Scalars._add,
    tirx.Sub: Scalars._subtract,
    tirx.Mul: Scalars._multiply,
    tirx.FloorDiv: Scalars._floor_div,
    tirx.FloorMod: Scalars._floor_mod,
    tirx.Div: Scalars._truncated_div,
    tirx.Mod: Scalars._truncated_mod,
    tirx.Min: Scalars._limit,
    tirx.Max: Scalars._limit,
    tirx.BitwiseAnd: Scalars._bitwise,
    tirx.BitwiseOr: Scalars._bitwise,
    tirx.BitwiseXor: Scalars._bitwise,
    tirx.BitwiseNot: Scalars._inverted,
    tirx.LShift: Scalars._shifted_left,
    tirx.RShift: Scalars._shifted_right,
    tirx.And: Scalars._logical,
    tirx.Or: Scalars._logical,
    tirx.Not: Scalars._negated,
    tirx.Select: Scalars._selected,
    tirx.Cast: Scalars._to_integer,
    TensorLoad: Scalars._integer_load,
    tirx.Let: lambda scalars, expression: scalars._let(expression, scalars.integer),
}


def byte_offset(scalars: Scalars, address: Address) -> Linear:
    """Bytes from a buffer's start to an address."""
    total = Linear()
    for index, stride in zip(address.indices, strides_of(address.buffer), strict=True):
        total = total.plus(scalars.integer(index), stride)
    total = total.times(DTYPES[dtype_of(address.buffer)].itemsize)
    return total if address.byte_offset is None else total.plus(scalars.integer(address.byte_offset))
