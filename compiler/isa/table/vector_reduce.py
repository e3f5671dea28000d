"""Reductions along the rows (``vr...``, over n0), the columns (``vc...``, over n1), 32-byte blocks and pairs.

The order is stated, so that results are the same everywhere: a reduction over n elements folds as a binary tree.
Each step combines element i with element i + h, where h is the largest power of two below the current length;
elements without a partner stay; h becomes the next length. Floats are combined in fp32, integers wrap.
Of equal extremes, the first one's index is given; NaN is an extreme to every maximum and minimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import FLOATS, NUMBERS, Queue
from compiler.isa.model import RANK, Computes, Row, Shape, Tensor, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table import vector_numerics as numerics
from compiler.isa.table.rules import MOVE_RULES, inner_extent_fills_blocks
from compiler.isa.table.vector_numerics import fold
from compiler.isa.table.vector_operands import FROM_2D, per_column, per_row
from compiler.isa.timing import vector_timing

_SUMMABLE = (*FLOATS, "int32")
_BOOL = ("bool",)
_AB = ("a", "b")
_truth = numerics.truth


def _row(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    dtypes: tuple[str, ...] = NUMBERS,
    to: str = "@dtype",
    sources: tuple[str, ...] = ("a",),
    computes: Computes = (),
) -> Row:
    """One result per row: ``dst[...] = function(a[..., :])``."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(per_row("dst", "w", to), *(Tensor(name, "r") for name in sources), Shape()),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=MOVE_RULES,
        semantics=lambda args, *inputs: function(*inputs),
        timing=lambda args: vector_timing(args, cost.ROW_REDUCE),
        computes=computes,
    )


def _column(
    opcode: int,
    mnemonic: str,
    function: Callable[[Any], Any],
    doc: str,
    dtypes: tuple[str, ...] = NUMBERS,
    to: str = "@dtype",
    computes: Computes = (),
) -> Row:
    """One result per column: ``dst[..., :] = function(a[..., :, :])`` over n1."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(per_column("dst", "w", to), Tensor("a", "r"), Shape()),
        modifiers=(dtype_modifier(*dtypes), FROM_2D),
        rules=MOVE_RULES,
        semantics=lambda args, a: function(a),
        timing=lambda args: vector_timing(args, cost.SIMPLE),
        computes=computes,
    )


def _blocks(args: Any) -> tuple[int, ...]:
    return (*args.shape[:-1], -(-args.n0 // args.dtype_of("@dtype").fractal_k))


def _block(
    opcode: int,
    mnemonic: str,
    combine: Callable[..., Any],
    doc: str,
    dtypes: tuple[str, ...],
    computes: str,
) -> Row:
    """One result per 32-byte block of a row."""

    def semantics(args: Any, a: Any) -> Any:
        return fold(combine, a.reshape(*_blocks(args), -1))

    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w", extents=_blocks), Tensor("a", "r"), Shape()),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=(*MOVE_RULES, inner_extent_fills_blocks),
        semantics=semantics,
        timing=lambda args: vector_timing(args, cost.BLOCK_REDUCE),
        computes=computes,
    )


def _twice_as_long(args: Any) -> tuple[int, ...]:
    return (*args.shape[:-1], 2 * args.n0)


def _pair(
    opcode: int,
    mnemonic: str,
    combine: Callable[..., Any],
    doc: str,
    dtypes: tuple[str, ...],
) -> Row:
    """One result per pair of neighbours; the iteration shape is that of ``dst``."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w"), Tensor("a", "r", extents=_twice_as_long), Shape()),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=MOVE_RULES,
        semantics=lambda args, a: combine(a[..., 0::2], a[..., 1::2]),
        timing=lambda args: vector_timing(args, cost.BLOCK_REDUCE),
    )


def _first_true(a: Any) -> Any:
    mask = _truth(a)
    return np.where(mask.any(axis=-1), mask.argmax(axis=-1), mask.shape[-1])


ROWS = [
    # ---- over n0
    _row(640, "vrsum", lambda a: fold(np.add, a), "dst = sum of each row", _SUMMABLE, computes="sum_n0(a)"),
    _row(
        641, "vrmax", lambda a: fold(np.maximum, a), "dst = greatest element of each row; NaN if one is",
        computes="max_n0(a)",
    ),
    _row(
        642, "vrmin", lambda a: fold(np.minimum, a), "dst = least element of each row; NaN if one is",
        computes="min_n0(a)",
    ),
    _row(643, "vrprod", lambda a: fold(np.multiply, a), "dst = product of each row", _SUMMABLE, computes="prod_n0(a)"),
    _row(
        644, "vrsqsum", lambda a: fold(np.add, a * a), "dst = sum of squares of each row", _SUMMABLE,
        computes="sum_n0(a * a)",
    ),
    _row(
        645, "vrabssum", lambda a: fold(np.add, np.abs(a)), "dst = sum of magnitudes of each row", _SUMMABLE,
        computes="sum_n0(abs(a))",
    ),
    _row(
        646, "vrabsmax", lambda a: fold(np.maximum, np.abs(a)), "dst = greatest magnitude of each row", FLOATS,
        computes="max_n0(abs(a))",
    ),
    _row(647, "vrargmax", lambda a: a.argmax(axis=-1), "dst = index of the first greatest of each row", to="int32"),
    _row(648, "vrargmin", lambda a: a.argmin(axis=-1), "dst = index of the first least of each row", to="int32"),
    _row(
        649, "vrany", lambda a: _truth(a).any(axis=-1), "dst = any element of each row is true", _BOOL,
        computes="any_n0(a)",
    ),
    _row(
        650, "vrall", lambda a: _truth(a).all(axis=-1), "dst = all elements of each row are true", _BOOL,
        computes="all_n0(a)",
    ),
    _row(
        651, "vrcount", lambda a: _truth(a).sum(axis=-1), "dst = number of true elements of each row", _BOOL, "int32",
        computes="sum_n0(cast(a))",
    ),
    _row(652, "vrfirst", _first_true, "dst = index of the first true element of each row, or n0", _BOOL, "int32"),
    _row(
        653, "vdot", lambda a, b: fold(np.add, a * b), "dst = sum of a * b of each row", _SUMMABLE, sources=_AB,
        computes="sum_n0(a * b)",
    ),
    _row(
        654, "vrsqdiff", lambda a, b: fold(np.add, np.square(a - b)), "dst = sum of (a - b)^2 of each row", FLOATS,
        sources=_AB,
        computes="sum_n0((a - b) * (a - b))",
    ),
    # ---- over n1
    _column(660, "vcsum", lambda a: fold(np.add, a, -2), "dst = sum of each column", _SUMMABLE, computes="sum_n1(a)"),
    _column(
        661, "vcmax", lambda a: fold(np.maximum, a, -2), "dst = greatest element of each column; NaN if one is",
        computes="max_n1(a)",
    ),
    _column(
        662, "vcmin", lambda a: fold(np.minimum, a, -2), "dst = least element of each column; NaN if one is",
        computes="min_n1(a)",
    ),
    _column(
        663, "vcprod", lambda a: fold(np.multiply, a, -2), "dst = product of each column", _SUMMABLE,
        computes="prod_n1(a)",
    ),
    _column(
        664, "vcsqsum", lambda a: fold(np.add, a * a, -2), "dst = sum of squares of each column", _SUMMABLE,
        computes="sum_n1(a * a)",
    ),
    _column(
        665, "vcabsmax", lambda a: fold(np.maximum, np.abs(a), -2), "dst = greatest magnitude of each column", FLOATS,
        computes="max_n1(abs(a))",
    ),
    _column(666, "vcargmax", lambda a: a.argmax(axis=-2), "dst = row of the first greatest of each column", to="int32"),
    _column(667, "vcargmin", lambda a: a.argmin(axis=-2), "dst = row of the first least of each column", to="int32"),
    _column(
        668, "vcany", lambda a: _truth(a).any(axis=-2), "dst = any element of each column is true", _BOOL,
        computes="any_n1(a)",
    ),
    _column(
        669, "vcall", lambda a: _truth(a).all(axis=-2), "dst = all elements of each column are true", _BOOL,
        computes="all_n1(a)",
    ),
    _column(
        670, "vccount", lambda a: _truth(a).sum(axis=-2), "dst = number of true elements of each column", _BOOL,
        "int32",
        computes="sum_n1(cast(a))",
    ),
    # ---- over 32-byte blocks and pairs
    _block(680, "vgsum", np.add, "dst = sum of each 32-byte block", _SUMMABLE, computes="sum_blocks(a)"),
    _block(
        681, "vgmax", np.maximum, "dst = greatest element of each 32-byte block; NaN if one is", NUMBERS,
        computes="max_blocks(a)",
    ),
    _block(
        682, "vgmin", np.minimum, "dst = least element of each 32-byte block; NaN if one is", NUMBERS,
        computes="min_blocks(a)",
    ),
    _pair(684, "vpairsum", np.add, "dst[i] = a[2i] + a[2i+1]", _SUMMABLE),
    _pair(
        685, "vpairmax", np.maximum, "dst[i] = the greater of a[2i] and a[2i+1]; NaN if either is NaN", NUMBERS,
    ),
    _pair(
        686, "vpairmin", np.minimum, "dst[i] = the lesser of a[2i] and a[2i+1]; NaN if either is NaN", NUMBERS,
    ),
]  # fmt: skip
