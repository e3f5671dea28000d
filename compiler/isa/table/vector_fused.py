"""Vector instructions that do several steps at the cost of one pass: multiply-add, convert, quantise.

Each step rounds to fp32, in the order in which the row writes it; only the result is rounded to the destination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import DTYPES, FLOATS, NUMBERS, Queue
from compiler.isa.model import RANK, Args, Computes, Float, Int, Operand, Row, Shape, Tensor, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table import vector_numerics as numerics
from compiler.isa.table.rules import VECTOR_RULES
from compiler.isa.timing import vector_timing

_QUANTISED = ("int8", "uint8")


def _fused(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    sources: tuple[str, ...] = ("a", "b", "c"),
    accumulates: bool = False,
    dtypes: tuple[str, ...] = FLOATS,
    cycles: int = cost.SIMPLE,
    computes: Computes = (),
) -> Row:
    """``dst = function(*sources)``, the sources led by ``dst`` where it accumulates."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "rw" if accumulates else "w"), *(Tensor(name, "r") for name in sources), Shape()),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=VECTOR_RULES,
        semantics=lambda args, *inputs: function(*inputs),
        timing=lambda args: vector_timing(args, cycles),
        computes=computes,
    )


def _converting(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    sources: tuple[Operand, ...],
    parameters: tuple[Operand, ...] = (),
    src: tuple[str, ...] = FLOATS,
    to: tuple[str, ...] = FLOATS,
    cycles: int = cost.CONVERT,
    computes: Computes = (),
) -> Row:
    """``dst = function(args, *sources)`` of type ``to``; sources are of type ``src`` unless they say otherwise."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w", dtype="@to"), *sources, *parameters, Shape()),
        modifiers=(dtype_modifier(*src, name="src"), dtype_modifier(*to, name="to"), RANK),
        rules=VECTOR_RULES,
        semantics=function,
        timing=lambda args: vector_timing(args, cycles),
        computes=computes,
    )


def _quantised(args: Args, a: Any, scale: Any, zero_point: Any) -> Any:
    """Round a / scale half to even, add the zero point, saturate; NaN counts as zero."""
    steps = np.rint(a / scale).astype(np.float64)
    return numerics.float_to_int(np.where(np.isnan(steps), 0, steps) + zero_point, DTYPES[args.to].numpy)


def _dequantised(args: Args, a: Any, scale: Any, zero_point: Any) -> Any:
    return (a.astype(np.int64) - zero_point).astype(np.float32) * scale


def _by_scalars(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda args, a: function(args, a, np.float32(args.scale), np.int64(args.zero_point))


def _relu(a: Any) -> Any:
    return np.maximum(a, 0)


_A, _B = Tensor("a", "r", dtype="@src"), Tensor("b", "r", dtype="@src")
_SCALARS = (Float("scale"), Int("zero_point"))
_TENSORS = (Tensor("scale", "r", dtype="fp32"), Tensor("zero_point", "r", dtype="int32"))

# How the difference from a zero point is written that is then scaled; rounded at once, or twice where that is the same.
_DIFFERENCES = (
    ("(cast(a) - zero_point)", ""),
    ("cast(cast(a) - zero_point)", ""),
    ("cast(cast(a) + -zero_point)", ""),
    ("cast(a)", " if zero_point == 0"),
    ("cast(cast(a))", " if zero_point == 0"),
)

ROWS = [
    _fused(
        576, "vmla", lambda dst, a, b: dst + a * b, "dst = dst + a * b; integers wrap", ("a", "b"), True, NUMBERS,
        computes="dst + a * b",
    ),
    _fused(
        577, "vmls", lambda dst, a, b: dst - a * b, "dst = dst - a * b; integers wrap", ("a", "b"), True, NUMBERS,
        computes="dst - a * b",
    ),
    _fused(578, "vmadd", lambda dst, a, b: dst * a + b, "dst = dst * a + b", ("a", "b"), True, computes="dst * a + b"),
    _fused(
        579, "vmaddrelu", lambda dst, a, b: _relu(dst * a + b), "dst = max(dst * a + b, 0)", ("a", "b"), True,
        computes="max(dst * a + b, 0)",
    ),
    _fused(
        580, "vadd3", lambda a, b, c: a + b + c, "dst = a + b + c; integers wrap", dtypes=NUMBERS,
        computes="a + b + c",
    ),
    _fused(
        581, "vsubadd", lambda a, b, c: a - b + c, "dst = a - b + c; integers wrap", dtypes=NUMBERS,
        computes="a - b + c",
    ),
    _fused(
        582, "vmuladd", lambda a, b, c: a * b + c, "dst = a * b + c; integers wrap", dtypes=NUMBERS,
        computes="a * b + c",
    ),
    _fused(
        583, "vmulsub", lambda a, b, c: a * b - c, "dst = a * b - c; integers wrap", dtypes=NUMBERS,
        computes="a * b - c",
    ),
    _fused(584, "vaddmul", lambda a, b, c: (a + b) * c, "dst = (a + b) * c", computes="(a + b) * c"),
    _fused(
        585, "vsubmul", lambda a, b, c: (a - b) * c, "dst = (a - b) * c, a normalisation step",
        computes="(a - b) * c",
    ),
    _fused(586, "vlerp", lambda a, b, c: a + c * (b - a), "dst = a + c * (b - a)", computes="a + c * (b - a)"),
    _fused(
        587, "vclamp", lambda a, b, c: np.minimum(np.maximum(a, b), c), "dst = min(max(a, b), c); NaN stays NaN",
        computes="min(max(a, b), c)",
    ),
    # ---- with a conversion
    _converting(
        592, "vaddcast", lambda args, a, b: a + b, "dst = a + b, converted", (_A, _B),
        computes=("cast(a + b)", "cast(a) + cast(b) if widens"),
    ),
    _converting(
        593, "vmulcast", lambda args, a, b: a * b, "dst = a * b, converted", (_A, _B),
        computes=("cast(a * b)", "cast(a) * cast(b) if widens"),
    ),
    _converting(
        594, "vaddrelucast", lambda args, a, b: _relu(a + b), "dst = max(a + b, 0), converted", (_A, _B),
        computes=("cast(max(a + b, 0))", "max(cast(a) + cast(b), 0) if widens"),
    ),
    _converting(
        595, "vsubrelucast", lambda args, a, b: _relu(a - b), "dst = max(a - b, 0), converted", (_A, _B),
        computes=("cast(max(a - b, 0))", "max(cast(a) - cast(b), 0) if widens"),
    ),
    _converting(
        596, "vmulscast", lambda args, a: a * np.float32(args.scale), "dst = a * scale, converted", (_A,),
        (Float("scale"),),
        computes=("cast(a * scale)", "cast(a) * scale if widens"),
    ),
    # ---- between floats and quantised integers
    _converting(
        600, "vquant", _by_scalars(_quantised), "dst = a / scale rounded half to even, plus zero_point, saturated",
        (_A,), _SCALARS, FLOATS, (*_QUANTISED, "int16"), cost.DIVIDE + cost.CONVERT,
        computes=(
            "saturate(round(a / scale) + zero_point)",
            "saturate(round(a / scale)) if zero_point == 0",
            "saturate(round(a) + zero_point) if scale == 1",
        ),
    ),
    _converting(
        601, "vquantt", _quantised, "dst = a / scale rounded half to even, plus zero_point, saturated; by tensors",
        (_A, *_TENSORS), (), FLOATS, (*_QUANTISED, "int16"), cost.DIVIDE + cost.CONVERT,
        computes="saturate(round(a / scale) + cast(zero_point))",
    ),
    _converting(
        602, "vdequant", _by_scalars(_dequantised), "dst = (a - zero_point) * scale",
        (_A,), _SCALARS, (*_QUANTISED, "int16", "int32"), FLOATS,
        computes=tuple(
            f"{text}{condition}"
            for way, condition in _DIFFERENCES
            for text in (f"{way} * scale", f"cast({way} * scale)")
        ),
    ),
    _converting(
        603, "vdequantt", _dequantised, "dst = (a - zero_point) * scale; by tensors",
        (_A, *_TENSORS), (), (*_QUANTISED, "int16", "int32"), FLOATS,
        computes=("(cast(a) - cast(zero_point)) * scale", "cast(cast(a) - zero_point) * scale"),
    ),
    _converting(
        604, "vrequant",
        lambda args, a: _quantised(args, a.astype(np.float32) * np.float32(args.scale), 1, np.int64(args.zero_point)),
        "dst = a * scale rounded half to even, plus zero_point, saturated", (_A,), _SCALARS, ("int32",), _QUANTISED,
        computes=(
            "saturate(round(cast(a) * scale) + zero_point)",
            "saturate(round(cast(a) * scale)) if zero_point == 0",
        ),
    ),
    _converting(
        605, "vadddeqrelu",
        lambda args, a, b: _relu((a.astype(np.int64) + b).astype(np.float32) * np.float32(args.scale)),
        "dst = max((a + b) * scale, 0)", (_A, _B), (Float("scale"),), ("int32",), FLOATS,
        computes="max(cast(a + b) * scale, 0)",
    ),
]  # fmt: skip
