"""The cube: C (m x n) from A (m x k) in L0A and B (k x n) in L0B, summed in fp32 (int8: in int32).

The rows and columns that fill C up to whole fractals are written as zeros.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.isa import layout
from compiler.isa.dtypes import CUBE_TYPES, Queue
from compiler.isa.layout import Blocks, Laid
from compiler.isa.model import Args, Float, Modifier, Operand, Row, Shape, Tensor, Timing, dtype_modifier
from compiler.isa.table.matrix_operands import l0a, l0b, l0c
from compiler.isa.timing import ceil_div, cube_timing

_MATRICES = (l0c("c", "w"), l0a("a", "r"), l0b("b", "r"))
_ADDED = (l0c("c", "rw"), l0a("a", "r"), l0b("b", "r"))
_SHAPE = Shape(("m", "n", "k"), hi=4095, follows_rank=False)
_BIAS = Tensor("bias", "r", "bt", "@accumulator", extents=lambda args: (args.n,), strides="dense")


def _mad(args: Args, a: Blocks, b: Blocks) -> Laid:
    return layout.product_in_l0c(None, a, b, args.m, args.n, args.k)


def _madacc(args: Args, c: Blocks, a: Blocks, b: Blocks) -> Laid:
    return layout.product_in_l0c(c, a, b, args.m, args.n, args.k)


def _madbias(args: Args, a: Blocks, b: Blocks, bias: np.ndarray) -> Laid:
    return layout.matrix_to_l0c(_mad(args, a, b).matrix + bias)


def _bmad(args: Args, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.stack([_mad(args, one_a, one_b) for one_a, one_b in zip(a, b, strict=True)])


def _bmadacc(args: Args, c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.stack([_madacc(args, *one) for one in zip(c, a, b, strict=True)])


def _mfill(args: Args) -> Laid:
    value = layout.constant(args.value, args.view("c").dtype.numpy)
    return layout.matrix_to_l0c(np.broadcast_to(value, (args.m, args.n)))


def _mbias(args: Args, bias: np.ndarray) -> Laid:
    return layout.matrix_to_l0c(np.broadcast_to(bias, (args.m, args.n)))


def _batched_timing(args: Args) -> Timing:
    """The overhead is paid once."""
    one, overhead = cube_timing(args), args.chip.cube.overhead_cycles
    return Timing(overhead + args.batch * (one.cycles - overhead))


def _writing_timing(args: Args) -> Timing:
    """One 16 x 16 block per cycle, as fast as the fixpipe could drain it."""
    return Timing(args.chip.cube.overhead_cycles + ceil_div(args.m, 16) * ceil_div(args.n, 16))


def _cube(
    opcode: int,
    mnemonic: str,
    doc: str,
    operands: tuple[Operand, ...],
    semantics: Callable[..., np.ndarray | Laid],
    timing: Callable[[Args], Timing] = cube_timing,
    modifier: Modifier = dtype_modifier(*CUBE_TYPES),  # noqa: B008
) -> Row:
    return Row(opcode, mnemonic, Queue.M, doc, operands, (modifier,), (), semantics, raw=True, timing=timing)


_BATCH = Shape(("batch", "m", "n", "k"), hi=4095, follows_rank=False)
_BATCHED = (l0c("c", "w", batched=True), l0a("a", "r", batched=True), l0b("b", "r", batched=True))
_BATCHED_ADDED = (l0c("c", "rw", batched=True), l0a("a", "r", batched=True), l0b("b", "r", batched=True))
_ACCUMULATORS = dtype_modifier("fp32", "int32")
_PLAIN = Shape(("m", "n"), hi=4095, follows_rank=False)
_PLAIN_BIAS = Tensor("bias", "r", "bt", "@dtype", extents=lambda args: (args.n,), strides="dense")

ROWS = [
    _cube(320, "mad", "C = A B", (*_MATRICES, _SHAPE), _mad),
    _cube(321, "madacc", "C += A B; int32 wraps", (*_ADDED, _SHAPE), _madacc),
    _cube(322, "madbias", "C = A B + bias, one bias per column", (*_MATRICES, _BIAS, _SHAPE), _madbias),
    _cube(323, "bmad", "C = A B for each of a batch; the batch is dense", (*_BATCHED, _BATCH), _bmad, _batched_timing),
    _cube(
        324,
        "bmadacc",
        "C += A B for each of a batch; the batch is dense",
        (*_BATCHED_ADDED, _BATCH),
        _bmadacc,
        _batched_timing,
    ),
    _cube(
        325,
        "mfill",
        "C = value",
        (l0c("c", "w", "@dtype"), _PLAIN, Float("value", doc="cut to an integer where C is int32")),
        _mfill,
        _writing_timing,
        _ACCUMULATORS,
    ),
    _cube(
        326,
        "mbias",
        "C = bias, one per column",
        (l0c("c", "w", "@dtype"), _PLAIN_BIAS, _PLAIN),
        _mbias,
        _writing_timing,
        _ACCUMULATORS,
    ),
]
