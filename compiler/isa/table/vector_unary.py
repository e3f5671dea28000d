"""One-operand vector instructions: ``dst = f(a)``, element by element over up to three strided dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import FLOATS, INTS, NUMBERS, Queue
from compiler.isa.model import RANK, Computes, Row, Shape, Tensor, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table import vector_numerics as numerics
from compiler.isa.table.rules import VECTOR_RULES
from compiler.isa.timing import vector_timing


def _unary(
    opcode: int,
    mnemonic: str,
    function: Callable[[Any], Any],
    doc: str,
    dtypes: tuple[str, ...] = FLOATS,
    cycles: int = cost.SIMPLE,
    to: str = "@dtype",
    computes: Computes = (),
) -> Row:
    """``dst = function(a)``; ``to`` is the type of ``dst``."""
    on_packed = numerics.packed(function)
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w", dtype=to), Tensor("a", "r"), Shape()),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=VECTOR_RULES,
        semantics=lambda args, a: on_packed(a),
        timing=lambda args: vector_timing(args, cycles),
        computes=computes,
    )


ROWS = [
    _unary(
        384, "vabs", np.abs, "dst = |a|; the lowest integer stays as it is", NUMBERS,
        computes=("abs(a)", "where(a >= 0, a, -a)"),
    ),
    _unary(385, "vneg", np.negative, "dst = -a; integers wrap", NUMBERS, computes="-a"),
    _unary(
        386, "vsign", np.sign, "dst = -1, 0 or 1 with the sign of a; NaN stays NaN", NUMBERS, cost.COMPARE,
        computes=("where(a < 0, -1, where(a > 0, 1, 0))", "where(a > 0, 1, where(a < 0, -1, 0))", "sign(a)"),
    ),
    _unary(387, "vsquare", np.square, "dst = a * a; integers wrap", NUMBERS, computes=("a * a", "pow(a, 2)")),
    _unary(
        388, "vrelu", lambda a: np.maximum(a, 0), "dst = max(a, 0); NaN stays NaN", NUMBERS,
        computes=("max(a, 0)", "where(a > 0, a, 0)"),
    ),
    _unary(
        389, "vrelu6", lambda a: np.clip(a, 0, 6), "dst = min(max(a, 0), 6); NaN stays NaN", NUMBERS,
        computes=("min(max(a, 0), 6)", "max(min(a, 6), 0)"),
    ),
    # ---- exponentials and logarithms
    _unary(390, "vexp", np.exp, "dst = e^a", cycles=cost.EXP, computes="exp(a)"),
    _unary(391, "vexp2", np.exp2, "dst = 2^a", cycles=cost.EXP, computes=("exp2(a)", "pow(2, a)")),
    _unary(392, "vexpm1", np.expm1, "dst = e^a - 1, exact near zero", cycles=cost.LOGARITHMIC, computes="exp(a) - 1"),
    _unary(393, "vln", np.log, "dst = ln a", cycles=cost.EXP, computes="log(a)"),
    _unary(394, "vlog2", np.log2, "dst = log2 a", cycles=cost.EXP, computes="log2(a)"),
    _unary(395, "vlog10", np.log10, "dst = log10 a", cycles=cost.LOGARITHMIC, computes="log10(a)"),
    _unary(
        396, "vlog1p", np.log1p, "dst = ln(1 + a), exact near zero", cycles=cost.LOGARITHMIC,
        computes=("log1p(a)", "log(1 + a)"),
    ),
    # ---- roots
    _unary(397, "vsqrt", np.sqrt, "dst = square root of a", cycles=cost.SQRT, computes="sqrt(a)"),
    _unary(398, "vrsqrt", lambda a: 1 / np.sqrt(a), "dst = 1 / square root of a", computes=("rsqrt(a)", "1 / sqrt(a)")),
    _unary(399, "vrec", lambda a: 1 / a, "dst = 1 / a", computes="1 / a"),
    _unary(400, "vcbrt", np.cbrt, "dst = cube root of a", cycles=cost.POWER),
    # ---- trigonometric and hyperbolic
    _unary(401, "vsin", np.sin, "dst = sin a, in radians", cycles=cost.TRIGONOMETRIC, computes="sin(a)"),
    _unary(402, "vcos", np.cos, "dst = cos a, in radians", cycles=cost.TRIGONOMETRIC, computes="cos(a)"),
    _unary(403, "vtan", np.tan, "dst = tan a, in radians", cycles=cost.INVERSE_TRIGONOMETRIC, computes="tan(a)"),
    _unary(404, "vasin", np.arcsin, "dst = arcsine of a", cycles=cost.INVERSE_TRIGONOMETRIC, computes="asin(a)"),
    _unary(405, "vacos", np.arccos, "dst = arccosine of a", cycles=cost.INVERSE_TRIGONOMETRIC, computes="acos(a)"),
    _unary(406, "vatan", np.arctan, "dst = arctangent of a", cycles=cost.INVERSE_TRIGONOMETRIC, computes="atan(a)"),
    _unary(407, "vsinh", np.sinh, "dst = hyperbolic sine of a", cycles=cost.HYPERBOLIC, computes="sinh(a)"),
    _unary(408, "vcosh", np.cosh, "dst = hyperbolic cosine of a", cycles=cost.HYPERBOLIC, computes="cosh(a)"),
    _unary(409, "vtanh", np.tanh, "dst = hyperbolic tangent of a", cycles=cost.LOGISTIC, computes="tanh(a)"),
    _unary(
        410, "vasinh", np.arcsinh, "dst = inverse hyperbolic sine of a", cycles=cost.HYPERBOLIC,
        computes="asinh(a)",
    ),
    _unary(
        411, "vacosh", np.arccosh, "dst = inverse hyperbolic cosine of a", cycles=cost.HYPERBOLIC,
        computes="acosh(a)",
    ),
    _unary(
        412, "vatanh", np.arctanh, "dst = inverse hyperbolic tangent of a", cycles=cost.HYPERBOLIC,
        computes="atanh(a)",
    ),
    # ---- activations
    _unary(
        413, "vsigmoid", numerics.sigmoid, "dst = 1 / (1 + e^-a)", cycles=cost.LOGISTIC,
        computes=("sigmoid(a)", "1 / (1 + exp(-a))"),
    ),
    _unary(
        414, "vsilu", lambda a: a * numerics.sigmoid(a), "dst = a / (1 + e^-a)", cycles=cost.LOGISTIC,
        computes=("a * sigmoid(a)", "a / (1 + exp(-a))"),
    ),
    _unary(415, "verf", numerics.erf, "dst = error function of a", cycles=cost.ERF, computes="erf(a)"),
    _unary(
        416, "vgelu", numerics.gelu, "dst = a/2 * (1 + erf(a / sqrt 2))", cycles=cost.GELU,
        computes=(
            "0.5 * a * (1 + erf(a * sqrt(0.5)))",
            "a * (0.5 * (1 + erf(a * sqrt(0.5))))",
            "a * (0.5 + 0.5 * erf(a * sqrt(0.5)))",
            "0.5 * a * (1 + erf(a / sqrt(2)))",
            "a * (1 + erf(a / sqrt(2))) * 0.5",
            "a * (1 + erf(a * sqrt(0.5))) * 0.5",
        ),
    ),
    _unary(
        417, "vgelutanh", numerics.gelu_tanh, "dst = gelu of a by its tanh approximation", cycles=cost.GELU,
        computes=(
            "0.5 * a * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * a * a * a)))",
            "0.5 * a * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * (a * a * a))))",
            "0.5 * a * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * pow(a, 3))))",
            "a * (0.5 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * a * a * a))))",
            "a * (0.5 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * (a * a * a)))))",
            "a * (0.5 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * pow(a, 3)))))",
        ),
    ),
    _unary(
        418, "vsoftplus", numerics.softplus, "dst = ln(1 + e^a) without overflow", cycles=cost.POWER,
        computes=("log(1 + exp(a))", "log1p(exp(a))", "max(a, 0) + log1p(exp(-abs(a)))"),
    ),
    _unary(
        419, "vsoftsign", lambda a: a / (1 + np.abs(a)), "dst = a / (1 + |a|)", cycles=cost.DIVIDE,
        computes="a / (1 + abs(a))",
    ),
    _unary(
        420, "vlogsigmoid", lambda a: -numerics.softplus(-a), "dst = ln(1 / (1 + e^-a))", cycles=cost.POWER,
        computes=("log(sigmoid(a))", "-log(1 + exp(-a))", "log(1 / (1 + exp(-a)))"),
    ),
    _unary(
        421, "vmish", lambda a: a * np.tanh(numerics.softplus(a)), "dst = a * tanh(ln(1 + e^a))", cycles=cost.GELU,
        computes=("a * tanh(log(1 + exp(a)))", "a * tanh(log1p(exp(a)))"),
    ),
    _unary(
        422, "vhardswish", lambda a: a * (np.clip(a + 3, 0, 6) / 6), "dst = a * (min(max(a + 3, 0), 6) / 6)",
        cycles=cost.DIVIDE,
        computes=(
            "a * min(max(a + 3, 0), 6) / 6",
            "a * max(0, min(1, a * (1 / 6) + 0.5))",
            "a * min(max(a * (1 / 6) + 0.5, 0), 1)",
        ),
    ),
    # ---- to whole numbers, still as floats
    _unary(423, "vfloor", np.floor, "dst = a rounded down to a whole number", computes="floor(a)"),
    _unary(424, "vceil", np.ceil, "dst = a rounded up to a whole number", computes="ceil(a)"),
    _unary(425, "vround", np.rint, "dst = a rounded to the nearest whole number, halves to even", computes="round(a)"),
    _unary(426, "vtrunc", np.trunc, "dst = a rounded toward zero to a whole number", computes="trunc(a)"),
    # ---- bits
    _unary(427, "vnot", np.invert, "dst = every bit of a inverted", INTS, computes="~a"),
    _unary(428, "vpopcnt", numerics.count_ones, "dst = number of one bits of a", INTS, computes="popcount(a)"),
    _unary(
        429, "vclz", numerics.count_leading_zeros, "dst = number of zero bits above the highest one bit of a", INTS,
        computes="clz(a)",
    ),
    # ---- to bool
    _unary(430, "visnan", np.isnan, "dst = a is NaN", cycles=cost.COMPARE, to="bool", computes="isnan(a)"),
    _unary(
        431, "visinf", np.isinf, "dst = a is plus or minus infinity", cycles=cost.COMPARE, to="bool",
        computes=("isinf(a)", "abs(a) == inf and not isnan(a)"),
    ),
    _unary(
        432, "visfinite", np.isfinite, "dst = a is neither infinite nor NaN", cycles=cost.COMPARE, to="bool",
        computes=("isfinite(a)", "not (abs(a) == inf and not isnan(a)) and not isnan(a)"),
    ),
    _unary(
        433, "vlnot", lambda a: a == 0, "dst = a is zero (not a, for bool)", ("bool", *INTS), cost.COMPARE, "bool",
        computes=("not a", "a == 0"),
    ),
]  # fmt: skip
