"""Vector and scalar: ``dst = f(a, scalar)`` over up to three strided dimensions.

Mnemonics that end in ``s`` take an fp32 scalar and float tensors; those that end in ``i`` take an integer, of
which the low bits that fit the tensor's type count. Divisions and shifts are as in :mod:`vector_binary`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import FLOATS, INTS, Queue
from compiler.isa.model import (
    RANK,
    Args,
    Computes,
    Float,
    Int,
    Row,
    Shape,
    Tensor,
    dtype_modifier,
    kept_where_positive,
)
from compiler.isa.table import vector_costs as cost
from compiler.isa.table import vector_numerics as numerics
from compiler.isa.table.rules import VECTOR_RULES
from compiler.isa.timing import vector_timing


def _with_floats(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    scalars: tuple[str, ...] = ("scalar",),
    cycles: int = cost.SIMPLE,
    sources: tuple[str, ...] = ("a",),
    accumulates: bool = False,
    computes: Computes = (),
) -> Row:
    """``dst = function(*sources, *scalars)``, the sources led by ``dst`` where it accumulates."""

    def semantics(args: Args, *inputs: Any) -> Any:
        values = [np.float32(getattr(args, name)) for name in scalars]
        return function(*inputs, *values)

    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(
            Tensor("dst", "rw" if accumulates else "w"),
            *(Tensor(name, "r") for name in sources),
            *(Float(name) for name in scalars),
            Shape(),
        ),
        modifiers=(dtype_modifier(*FLOATS), RANK),
        rules=VECTOR_RULES,
        semantics=semantics,
        timing=lambda args: vector_timing(args, cycles),
        computes=computes,
    )


def _with_ints(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    scalars: tuple[str, ...] = ("scalar",),
    cycles: int = cost.SIMPLE,
    computes: Computes = (),
) -> Row:
    """``dst = function(a, *scalars)`` on integers."""

    def semantics(args: Args, a: Any) -> Any:
        return function(a, *(numerics.wrapped(getattr(args, name), a) for name in scalars))

    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w"), Tensor("a", "r"), *(Int(name) for name in scalars), Shape()),
        modifiers=(dtype_modifier(*INTS), RANK),
        rules=VECTOR_RULES,
        semantics=semantics,
        timing=lambda args: vector_timing(args, cycles),
        computes=computes,
    )


def _clamped(a: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(a, low), high)


def _elu(a: Any, alpha: Any) -> Any:
    return np.where(a > 0, a, alpha * np.expm1(a))


def _shrunk(a: Any, threshold: Any, bias: Any) -> Any:
    inside = np.where(np.isnan(a), a, np.float32(0))
    return np.where(a < -threshold, a + bias, np.where(a > threshold, a - bias, inside))


ROWS = [
    # ---- float tensors
    _with_floats(512, "vadds", np.add, "dst = a + scalar", computes="a + scalar"),
    _with_floats(513, "vsubs", np.subtract, "dst = a - scalar", computes="a - scalar"),
    _with_floats(514, "vrsubs", lambda a, s: s - a, "dst = scalar - a", computes="scalar - a"),
    _with_floats(515, "vmuls", np.multiply, "dst = a * scalar", computes="a * scalar"),
    _with_floats(516, "vdivs", np.divide, "dst = a / scalar", cycles=cost.DIVIDE, computes="a / scalar"),
    _with_floats(517, "vrdivs", lambda a, s: s / a, "dst = scalar / a", cycles=cost.DIVIDE, computes="scalar / a"),
    _with_floats(
        518, "vmaxs", np.maximum, "dst = the greater of a and scalar; NaN if either is NaN",
        computes="max(a, scalar)",
    ),
    _with_floats(
        519, "vmins", np.minimum, "dst = the lesser of a and scalar; NaN if either is NaN",
        computes="min(a, scalar)",
    ),
    _with_floats(
        520, "vclamps", _clamped, "dst = min(max(a, low), high); NaN stays NaN", ("low", "high"),
        computes=("min(max(a, low), high)", "max(min(a, high), low) if low <= high"),
    ),
    _with_floats(
        521, "vpows", numerics.packed(np.power), "dst = a to the power scalar", cycles=cost.POWER,
        computes="pow(a, scalar)",
    ),
    _with_floats(
        522, "vrpows", numerics.packed(lambda a, s: np.power(s, a)), "dst = scalar to the power a", cycles=cost.POWER,
        computes="pow(scalar, a)",
    ),
    _with_floats(
        523, "vmods", np.mod, "dst = a modulo scalar, with the sign of scalar", cycles=cost.MODULO,
        computes="a % scalar",
    ),
    _with_floats(
        524, "vfmods", np.fmod, "dst = remainder of a / scalar, with the sign of a", cycles=cost.MODULO,
        computes="fmod(a, scalar)",
    ),
    _with_floats(
        525, "vexpsubs", lambda a, s: np.exp(a - s), "dst = e^(a - scalar)", cycles=cost.EXP,
        computes="exp(a - scalar)",
    ),
    _with_floats(
        526, "vmadds", lambda a, s, t: a * s + t, "dst = a * scale + offset", ("scale", "offset"),
        computes=("a * scale + offset", "a * scale - -offset"),
    ),
    _with_floats(
        527, "vaddmuls", lambda a, s, t: (a + t) * s, "dst = (a + offset) * scale", ("scale", "offset"),
        computes=("(a + offset) * scale", "(a - -offset) * scale"),
    ),
    _with_floats(
        528, "vaxpy", lambda dst, a, s: dst + s * a, "dst = dst + scalar * a", accumulates=True,
        computes="dst + scalar * a",
    ),
    _with_floats(
        529, "vaxpby", lambda a, b, s, t: s * a + t * b, "dst = scale_a * a + scale_b * b", ("scale_a", "scale_b"),
        sources=("a", "b"),
        computes="scale_a * a + scale_b * b",
    ),
    _with_floats(
        530, "vaddsc", lambda a, b, s: a + s + b, "dst = a + scalar + b", sources=("a", "b"),
        computes="a + scalar + b",
    ),
    _with_floats(
        531, "vsubsc", lambda a, b, s: a - s + b, "dst = a - scalar + b", sources=("a", "b"),
        computes="a - scalar + b",
    ),
    # ---- activations with a parameter
    _with_floats(
        532, "vaddsrelu", lambda a, s: np.maximum(a + s, 0), "dst = max(a + scalar, 0)",
        computes="max(a + scalar, 0)",
    ),
    _with_floats(
        533, "vlrelu", lambda a, s: np.where(a > 0, a, a * s), "dst = a where a > 0, else a * scalar",
        computes=(*kept_where_positive("a * scalar"), "max(a, a * scalar) if scalar <= 1"),
    ),
    _with_floats(
        534, "velu", numerics.packed(_elu), "dst = a where a > 0, else scalar * (e^a - 1)",
        cycles=cost.LOGARITHMIC + cost.SELECT,
        computes=(*kept_where_positive("scalar * (exp(a) - 1)"), *kept_where_positive("exp(a) - 1", "scalar == 1")),
    ),
    _with_floats(
        535, "vhardsigmoid", lambda a, s, t: np.clip(a * s + t, 0, 1), "dst = min(max(a * scale + offset, 0), 1)",
        ("scale", "offset"),
        computes=("min(max(a * scale + offset, 0), 1)", "max(min(a * scale + offset, 1), 0)"),
    ),
    _with_floats(
        536, "vthreshold", lambda a, s, t: np.where(a > s, a, t), "dst = a where a > scalar, else other",
        ("scalar", "other"), cost.SELECT,
        computes="where(a > scalar, a, other)",
    ),
    _with_floats(
        537, "vshrink", _shrunk,
        "dst = a moved by bias toward zero, and zero where |a| <= scalar; NaN stays NaN", ("scalar", "bias"),
        2 * cost.SELECT,
        computes="where(a < -scalar, a + bias, where(a > scalar, a - bias, 0))",
    ),
    _with_floats(
        538, "vswishs", lambda a, s: a * numerics.sigmoid(a * s), "dst = a / (1 + e^-(scalar * a))",
        cycles=cost.LOGISTIC + cost.SIMPLE,
        computes=("a * sigmoid(a * scalar)", "a / (1 + exp(-(a * scalar)))"),
    ),
    # ---- integer tensors
    _with_ints(544, "vaddi", np.add, "dst = a + scalar; wraps", computes=("a + scalar", "a - -scalar")),
    _with_ints(545, "vrsubi", lambda a, s: s - a, "dst = scalar - a; wraps", computes="scalar - a"),
    _with_ints(546, "vmuli", np.multiply, "dst = a * scalar; wraps", computes="a * scalar"),
    _with_ints(
        547, "vdivi", numerics.divide, "dst = a / scalar toward zero; zero if scalar is", cycles=cost.DIVIDE,
        computes="a / scalar",
    ),
    _with_ints(
        548, "vmodi", np.mod, "dst = a modulo scalar, with the sign of scalar; zero if it is", cycles=cost.MODULO,
        computes="a % scalar",
    ),
    _with_ints(549, "vmaxi", np.maximum, "dst = the greater of a and scalar", computes="max(a, scalar)"),
    _with_ints(550, "vmini", np.minimum, "dst = the lesser of a and scalar", computes="min(a, scalar)"),
    _with_ints(
        551, "vclampi", _clamped, "dst = min(max(a, low), high)", ("low", "high"),
        computes=("min(max(a, low), high)", "max(min(a, high), low) if low <= high"),
    ),
    _with_ints(552, "vandi", np.bitwise_and, "dst = a and scalar, bit by bit", computes="a & scalar"),
    _with_ints(553, "vori", np.bitwise_or, "dst = a or scalar, bit by bit", computes="a | scalar"),
    _with_ints(554, "vxori", np.bitwise_xor, "dst = a exclusive-or scalar, bit by bit", computes="a ^ scalar"),
    _with_ints(555, "vshli", np.left_shift, "dst = a shifted left by scalar bits", computes="a << scalar"),
    _with_ints(
        556, "vshri", np.right_shift, "dst = a shifted right by scalar bits; signed types keep the sign",
        computes="a >> scalar",
    ),
    _with_ints(557, "vaddsati", numerics.add_saturating, "dst = a + scalar, saturated"),
    _with_ints(
        558, "vmadi", lambda a, s, t: a * s + t, "dst = a * scale + offset; wraps", ("scale", "offset"),
        computes="a * scale + offset",
    ),
]  # fmt: skip
