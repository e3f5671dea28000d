"""The fixpipe, queue FIX: an m x n block of L0C to DDR, LLB, L1 or UB, scaled, activated and rounded on the way.

The accumulator becomes fp32, is scaled, goes through the activation and is rounded once to the destination:
to nearest even, saturating for integers (NaN to zero). int32 to int32 stays exact. A zero point is added to what was
rounded where that is an integer, to floats before.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.isa import layout
from compiler.isa.dtypes import DTYPES, Queue
from compiler.isa.model import Args, Float, Int, Modifier, Operand, Row, Rule, Shape, Tensor, Timing, dtype_modifier
from compiler.isa.table.copy_rules import path_exists, pitch_covers_rows
from compiler.isa.table.matrix_operands import l0c_block, nd
from compiler.isa.table.rules import destination_strides_differ
from compiler.isa.timing import ceil_div, copy_timing

_TARGET = Modifier("target", ("ddr", "llb", "l1", "ub"))
_LAYOUT = Modifier("layout", ("nd", "nz"))
_SOURCE = dtype_modifier("fp32", "int32", name="accumulator_dtype")
_ACTIVATION = Modifier("activation", ("none", "relu"))
_SHAPE = Shape(("m", "n"), hi=4095, follows_rank=False)
_PITCH = Int("src_pitch", 16, multiple=16, doc="rows between column blocks of L0C")
_STRIDE = Int("dst_stride", 1, doc="nd: elements between rows; nz: rows between column blocks")


def _target_extents(args: Args) -> tuple[int, ...]:
    if args.layout == "nd":
        return (args.m, args.n)
    k0 = args.dtype_of("@dtype").fractal_k
    return (ceil_div(args.n, k0), args.m, k0)


def _target_strides(args: Args) -> tuple[int, ...]:
    if args.layout == "nd":
        return (args.dst_stride, 1)
    k0 = args.dtype_of("@dtype").fractal_k
    return (args.dst_stride * k0, k0, 1)


_DST = Tensor("dst", "w", "@target", "@dtype", _target_extents, _target_strides)
_SRC = l0c_block("src", "src_pitch", "@accumulator_dtype")
ZERO_POINT = Int("zero_point", -128, 255, doc="added to the result")
_SCALES = Tensor("scale", "r", "fb", "fp32", extents=lambda args: (args.n,), strides="dense")


def nz_stays_on_core(args: Args) -> bool:
    """nz layout is for l1 and ub; ddr and llb take nd"""
    return bool(args.layout == "nd" or args.target in ("l1", "ub"))


def int32_from_int32(args: Args) -> bool:
    """int32 results come from int32 accumulators; round fp32 ones with a vector cast"""
    return bool(args.dtype != "int32" or args.accumulator_dtype == "int32")


def _relu(values: np.ndarray) -> np.ndarray:
    # Not maximum: the sign of its zero depends on how the host vectorises it.
    return np.where(values <= 0, np.zeros((), values.dtype), values)


def _rounded(values: np.ndarray, dtype: str, zero_point: int) -> np.ndarray:
    if values.dtype.kind == "i":
        return values
    if DTYPES[dtype].is_float:
        return values + np.float32(zero_point) if zero_point else values
    limits = np.iinfo(DTYPES[dtype].numpy)
    steps = np.nan_to_num(np.rint(values).astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    whole: np.ndarray = np.clip(steps + zero_point, limits.min, limits.max)
    return whole.astype(limits.dtype)


def _result(args: Args, block: layout.Blocks, scale: float | np.ndarray | None = None) -> np.ndarray:
    values = layout.l0c_to_matrix(block, args.m, args.n)
    if args.dtype != "int32":
        values = values.astype(np.float32, copy=False)
    if scale is not None:
        values = values * np.asarray(scale, np.float32)
    return values


def _fix(
    args: Args, block: layout.Blocks, scale: float | np.ndarray | None = None, zero_point: int = 0
) -> layout.Blocks:
    values = _result(args, block, scale)
    if args.activation == "relu":
        values = _relu(values)
    values = _rounded(values, args.dtype, zero_point)
    return values if args.layout == "nd" else layout.nd_to_nz(values, args.dtype_of("@dtype").fractal_k)


def _timing(args: Args) -> Timing:
    return copy_timing(args, args.view("src"), args.view("dst"))


def _fixpipe(
    opcode: int,
    mnemonic: str,
    doc: str,
    dtypes: tuple[str, ...],
    operands: tuple[Operand, ...],
    semantics: Callable[..., layout.Blocks],
    rules: tuple[Rule, ...] = (),
) -> Row:
    return Row(
        opcode,
        mnemonic,
        Queue.FIX,
        doc,
        operands,
        (_TARGET, _LAYOUT, dtype_modifier(*dtypes), _SOURCE, _ACTIVATION),
        (path_exists, nz_stays_on_core, destination_strides_differ, pitch_covers_rows, *rules),
        semantics,
        raw=True,
        timing=_timing,
    )


_SCALED = ("fp16", "bf16", "fp32", "int8", "uint8")

ROWS = [
    _fixpipe(
        352,
        "fix",
        "dst = activation(C)",
        ("fp16", "bf16", "fp32", "int32"),
        (_DST, _SRC, _SHAPE, _PITCH, _STRIDE),
        _fix,
        (int32_from_int32,),
    ),
    _fixpipe(
        353,
        "fixscale",
        "dst = activation(C * scale) + zero_point",
        _SCALED,
        (_DST, _SRC, _SHAPE, _PITCH, _STRIDE, Float("scale"), ZERO_POINT),
        lambda args, block: _fix(args, block, args.scale, args.zero_point),
    ),
    _fixpipe(
        354,
        "fixquant",
        "dst = activation(C * scale) + zero_point, one scale per column",
        _SCALED,
        (_DST, _SRC, _SCALES, _SHAPE, _PITCH, _STRIDE, ZERO_POINT),
        lambda args, block, scale: _fix(args, block, scale, args.zero_point),
    ),
    Row(
        355,
        "fixadd",
        Queue.FIX,
        "dst += C, in one piece that no other core can come between; floats in fp32, rounded once; int32 wraps",
        (
            nd("dst", "rw", "@target", "m", "n", "dst_stride"),
            _SRC,
            _SHAPE,
            _PITCH,
            Int("dst_stride", 1, doc="elements between rows"),
        ),
        (Modifier("target", ("ddr", "llb")), dtype_modifier("fp16", "bf16", "fp32", "int32"), _SOURCE),
        (path_exists, destination_strides_differ, pitch_covers_rows, int32_from_int32),
        lambda args, old, block: old + _result(args, block),
        timing=_timing,
    ),
]
