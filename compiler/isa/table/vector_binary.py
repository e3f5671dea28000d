"""Two-operand vector instructions: ``dst = f(a, b)``, element by element over up to three strided dimensions.

A stride of zero repeats an element or a row, so broadcasts need no instruction of their own. Integers divided by
zero give zero. Shifts by a negative count or by the type's width and more shift every bit out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import FLOATS, INTS, NUMBERS, Queue
from compiler.isa.model import RANK, Args, Computes, Row, Shape, Tensor, dtype_modifier, kept_where_positive
from compiler.isa.table import vector_costs as cost
from compiler.isa.table import vector_numerics as numerics
from compiler.isa.table.rules import VECTOR_RULES
from compiler.isa.timing import vector_timing

_SIGNED = (*FLOATS, "int8", "int16", "int32")
_BITS = (*INTS, "bool")


def _binary(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    dtypes: tuple[str, ...] = NUMBERS,
    cycles: int = cost.SIMPLE,
    computes: Computes = (),
) -> Row:
    """``dst = function(a, b)``; bool operands arrive as truth values."""

    def semantics(args: Args, a: Any, b: Any) -> Any:
        if args.dtype == "bool":
            return function(numerics.truth(a), numerics.truth(b))
        return function(a, b)

    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w"), Tensor("a", "r"), Tensor("b", "r"), Shape()),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=VECTOR_RULES,
        semantics=semantics,
        timing=lambda args: vector_timing(args, cycles),
        computes=computes,
    )


def _absolute_difference(a: Any, b: Any) -> Any:
    return np.maximum(a, b) - np.minimum(a, b)


def _rounded_average(a: Any, b: Any) -> Any:
    return (a.astype(np.int64) + b + 1 >> 1).astype(a.dtype)


ROWS = [
    _binary(448, "vadd", np.add, "dst = a + b; integers wrap", computes="a + b"),
    _binary(449, "vsub", np.subtract, "dst = a - b; integers wrap", computes="a - b"),
    _binary(450, "vmul", np.multiply, "dst = a * b; integers wrap", computes="a * b"),
    _binary(
        451, "vdiv", numerics.divide, "dst = a / b; integers toward zero, and zero where b is", cycles=cost.DIVIDE,
        computes="a / b",
    ),
    _binary(452, "vmax", np.maximum, "dst = the greater of a and b; NaN if either is NaN", computes="max(a, b)"),
    _binary(453, "vmin", np.minimum, "dst = the lesser of a and b; NaN if either is NaN", computes="min(a, b)"),
    _binary(454, "vfmax", np.fmax, "dst = the greater of a and b; the number if one is NaN", FLOATS),
    _binary(455, "vfmin", np.fmin, "dst = the lesser of a and b; the number if one is NaN", FLOATS),
    _binary(
        456, "vmod", np.mod, "dst = a modulo b, with the sign of b; integers: zero where b is", cycles=cost.MODULO,
        computes="a % b",
    ),
    _binary(
        457, "vfmod", np.fmod, "dst = remainder of a / b, with the sign of a; integers: zero where b is",
        cycles=cost.MODULO,
        computes="fmod(a, b)",
    ),
    _binary(458, "vpow", numerics.packed(np.power), "dst = a to the power b", FLOATS, cost.POWER, computes="pow(a, b)"),
    _binary(
        459, "vatan2", numerics.packed(np.arctan2), "dst = angle of the point (b, a), in radians", FLOATS,
        cost.INVERSE_TRIGONOMETRIC,
        computes="atan2(a, b)",
    ),
    _binary(
        460, "vhypot", numerics.packed(np.hypot), "dst = square root of (a * a + b * b)", FLOATS,
        cost.SQRT + 2 * cost.SIMPLE,
        computes=("hypot(a, b)", "sqrt(a * a + b * b)"),
    ),
    _binary(461, "vcopysign", np.copysign, "dst = |a| with the sign of b", FLOATS, computes="copysign(a, b)"),
    _binary(
        462, "vabsdiff", _absolute_difference, "dst = |a - b|; integers wrap",
        computes=("abs(a - b) if floats", "max(a, b) - min(a, b)"),
    ),
    _binary(
        463, "vsqdiff", lambda a, b: np.square(a - b), "dst = (a - b)^2; integers wrap",
        computes=("(a - b) * (a - b)", "pow(a - b, 2)"),
    ),
    # ---- with an activation
    _binary(
        464, "vaddrelu", lambda a, b: np.maximum(a + b, 0), "dst = max(a + b, 0); integers wrap first",
        computes="max(a + b, 0)",
    ),
    _binary(
        465, "vsubrelu", lambda a, b: np.maximum(a - b, 0), "dst = max(a - b, 0); integers wrap first", _SIGNED,
        computes="max(a - b, 0)",
    ),
    _binary(
        466, "vmulrelu", lambda a, b: np.maximum(a * b, 0), "dst = max(a * b, 0); integers wrap first",
        computes="max(a * b, 0)",
    ),
    _binary(
        467, "vprelu", lambda a, b: np.where(a > 0, a, a * b), "dst = a where a > 0, else a * b", FLOATS, cost.SELECT,
        computes=kept_where_positive("a * b"),
    ),
    _binary(468, "vexpsub", lambda a, b: np.exp(a - b), "dst = e^(a - b)", FLOATS, cost.EXP, computes="exp(a - b)"),
    _binary(
        469, "vsilumul", lambda a, b: a * numerics.sigmoid(a) * b, "dst = a / (1 + e^-a) * b, a gated unit", FLOATS,
        cost.LOGISTIC + cost.SIMPLE,
        computes=("a * sigmoid(a) * b", "a / (1 + exp(-a)) * b"),
    ),
    _binary(
        470, "vgelumul", lambda a, b: numerics.gelu(a) * b, "dst = gelu(a) * b, a gated unit", FLOATS,
        cost.GELU + cost.SIMPLE,
        computes=(
            "0.5 * a * (1 + erf(a * sqrt(0.5))) * b",
            "a * (0.5 * (1 + erf(a * sqrt(0.5)))) * b",
            "a * (0.5 + 0.5 * erf(a * sqrt(0.5))) * b",
            "0.5 * a * (1 + erf(a / sqrt(2))) * b",
        ),
    ),
    # ---- bits and truth values
    _binary(471, "vand", np.bitwise_and, "dst = a and b, bit by bit; bool: both true", _BITS, computes="a & b"),
    _binary(472, "vor", np.bitwise_or, "dst = a or b, bit by bit; bool: any true", _BITS, computes="a | b"),
    _binary(
        473, "vxor", np.bitwise_xor, "dst = a exclusive-or b, bit by bit; bool: one true", _BITS,
        computes=("a ^ b", "a != b"),
    ),
    _binary(
        474, "vandn", lambda a, b: a & ~b, "dst = a and not b, bit by bit; bool: only a true", _BITS,
        computes="a & ~b",
    ),
    _binary(475, "vshl", np.left_shift, "dst = a shifted left by b bits", INTS, computes="a << b"),
    _binary(
        476, "vshr", np.right_shift, "dst = a shifted right by b bits; signed types keep the sign", INTS,
        computes="a >> b",
    ),
    # ---- integers beyond their range
    _binary(477, "vaddsat", numerics.add_saturating, "dst = a + b, saturated", INTS),
    _binary(478, "vsubsat", numerics.subtract_saturating, "dst = a - b, saturated", INTS),
    _binary(479, "vmulhi", numerics.multiply_high, "dst = upper half of the double-width product of a and b", INTS),
    _binary(480, "vavg", _rounded_average, "dst = (a + b + 1) / 2, rounded down, without overflow", INTS),
]  # fmt: skip
