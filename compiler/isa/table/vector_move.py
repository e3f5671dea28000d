"""Fills, index patterns and rearrangements inside UB. Values pass unchanged, whatever their type.

Anything that strides can express (broadcast, sub-tile, transposition by strides) is a ``vcopy``; the rows here
are what strides cannot express, or what the permutation network does without bank conflicts.
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
    Modifier,
    Operand,
    Row,
    Shape,
    Tensor,
    Timing,
    dtype_modifier,
)
from compiler.isa.table import vector_costs as cost
from compiler.isa.table.rules import (
    MOVE_RULES,
    VECTOR_RULES,
    axis_is_in_the_rank,
    destination_strides_differ,
    destinations_apart,
    reflected_padding_fits,
    sources_apart_from_destinations,
)
from compiler.isa.table.vector_numerics import wrapped
from compiler.isa.table.vector_operands import FROM_2D, MOVABLE, ONLY_3D, elements
from compiler.isa.timing import vector_timing

_WHOLE = ("int16", "int32", "int64")


def _fill(
    opcode: int, mnemonic: str, function: Callable[[Args], Any], doc: str, scalars: tuple[Operand, ...],
    dtypes: tuple[str, ...], computes: Computes = (),
) -> Row:  # fmt: skip
    """``dst = function(args)``: no tensor is read."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w"), *scalars, Shape()),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=(destination_strides_differ,),
        semantics=function,
        timing=lambda args: vector_timing(args, cost.SIMPLE),
        computes=computes,
    )


def _move(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    tensors: tuple[Tensor, ...] = (Tensor("dst", "w"), Tensor("a", "r")),
    parameters: tuple[Operand, ...] = (),
    modifiers: tuple[Modifier, ...] = (RANK,),
    rules: tuple[Callable[[Any], bool], ...] = MOVE_RULES,
    dtypes: tuple[str, ...] = MOVABLE,
    timing: Callable[[Args], Timing] = vector_timing,
    computes: Computes = (),
) -> Row:
    """``dst = function(args, *sources)`` on values as they are stored."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(*tensors, *parameters, Shape()),
        modifiers=(dtype_modifier(*dtypes), *modifiers),
        rules=rules,
        semantics=function,
        raw=True,
        timing=timing,
        computes=computes,
    )


def _permuting(args: Args) -> Timing:
    """The permutation network takes 32-byte blocks in any order: no bank conflicts, whatever the strides."""
    return vector_timing(args, cost.TRANSPOSE, lanes=elements(args))


# ---- fills ------------------------------------------------------------------------------------------------


def _filled_with_int(args: Args) -> Any:
    value = args.scalar != 0 if args.dtype == "bool" else args.scalar
    return wrapped(value, np.empty(0, args.view("dst").dtype.numpy))


def _index_pattern(args: Args) -> Any:
    plane, row, column = np.ogrid[: args.n2, : args.n1, : args.n0]
    pattern = args.start + plane * args.plane_step + row * args.row_step + column * args.step
    return pattern.reshape(args.shape)


def _ramp(args: Args) -> Any:
    return np.float32(args.start) + np.arange(args.n0, dtype=np.float32) * np.float32(args.step)


# ---- rearrangements ---------------------------------------------------------------------------------------


def _block_per_element(args: Any) -> tuple[int, ...]:
    return (*args.shape, args.dtype_of("@dtype").fractal_k)


def _transposed_shape(args: Any) -> tuple[int, ...]:
    return (*args.shape[:-2], args.n0, args.n1)


def _permuted_shape(args: Any) -> tuple[int, ...]:
    return tuple(args.shape[int(axis)] for axis in args.order)


def _doubled(args: Any) -> tuple[int, ...]:
    return (*args.shape[:-1], 2 * args.n0)


def _one_period(args: Any) -> tuple[int, ...]:
    return (*args.shape[:-1], args.period)


def _shortened(args: Any) -> tuple[int, ...]:
    return (*args.shape[:-1], -(-args.n0 // args.times))


def _interleaved(args: Args, a: Any, b: Any) -> Any:
    return np.stack((a, b), axis=-1).reshape(_doubled(args))


def _deinterleaved(args: Args, a: Any) -> Any:
    return a[..., 0::2], a[..., 1::2]


def _rotated(args: Args, a: Any) -> Any:
    return np.roll(a, -args.distance, axis=-1)


def _slid(args: Args, a: Any) -> Any:
    """Zeros come in where elements leave: all-zero bytes are zero in every type."""
    result = np.zeros_like(a)
    distance = min(abs(args.distance), args.n0)
    kept = args.n0 - distance
    if args.distance >= 0:
        result[..., distance:] = a[..., :kept]
    else:
        result[..., :kept] = a[..., distance:]
    return result


def _triangle(args: Args, a: Any) -> Any:
    beyond = np.arange(args.n0) - np.arange(args.n1)[:, None] - args.diagonal
    kept = beyond <= 0 if args.part == "lower" else beyond >= 0
    return np.where(kept, a, np.asarray(args.other).astype(a.dtype))


_PADS = tuple(Int(name, 0, 65535) for name in ("top", "bottom", "left", "right"))


def _padded_shape(args: Any) -> tuple[int, ...]:
    return (*args.shape[:-2], args.top + args.n1 + args.bottom, args.left + args.n0 + args.right)


def _padding(args: Args) -> list[tuple[int, int]]:
    return [(0, 0)] * (len(args.shape) - 2) + [(args.top, args.bottom), (args.left, args.right)]


def _padded_with(args: Args, a: Any) -> Any:
    result = np.empty(_padded_shape(args), a.dtype)
    result[...] = np.asarray(args.fill).astype(a.dtype)
    result[..., args.top : args.top + args.n1, args.left : args.left + args.n0] = a
    return result


_PADDED = (Tensor("dst", "w", extents=_padded_shape), Tensor("a", "r"))
_DIAGONAL = Int("diagonal", -65535, 65535)
_PART = Modifier("part", ("lower", "upper"))

ROWS = [
    # ---- fills
    _fill(
        768, "vdup", lambda args: np.float32(args.scalar), "dst = scalar", (Float("scalar"),), FLOATS,
        computes="scalar",
    ),
    _fill(
        769, "vdupi", _filled_with_int, "dst = low bits of scalar; bool: scalar is not zero", (Int("scalar"),),
        (*INTS, "bool", "int64"),
        computes="scalar",
    ),
    _fill(
        770, "viota", _index_pattern, "dst[i, j, k] = start + i * plane_step + j * row_step + k * step; wraps",
        (Int("start"), Int("step"), Int("row_step"), Int("plane_step")), _WHOLE,
        computes="start + n2 * plane_step + n1 * row_step + n0 * step",
    ),
    _fill(
        771, "vramp", _ramp, "dst[..., k] = start + k * step, in fp32", (Float("start"), Float("step")), FLOATS,
    ),
    # ---- copies and broadcasts
    _move(776, "vcopy", lambda args, a: a, "dst = a", rules=VECTOR_RULES, computes="a"),
    _move(
        777, "vbrcb", lambda args, a: a[..., None], "each element of a fills one 32-byte block of dst",
        (Tensor("dst", "w", extents=_block_per_element, strides="dense", align=32), Tensor("a", "r")),
        rules=(sources_apart_from_destinations,),
    ),
    _move(
        778, "vrepeat", lambda args, a: a[..., np.arange(args.n0) % args.period], "dst[i] = a[i modulo period]",
        (Tensor("dst", "w"), Tensor("a", "r", extents=_one_period)), (Int("period", 1, 65535),),
    ),
    _move(
        779, "vstretch", lambda args, a: a[..., np.arange(args.n0) // args.times], "dst[i] = a[i / times]",
        (Tensor("dst", "w"), Tensor("a", "r", extents=_shortened)), (Int("times", 1, 65535),),
    ),
    # ---- rearrangements
    _move(
        784, "vtrans", lambda args, a: np.swapaxes(a, -1, -2), "dst[..., j, i] = a[..., i, j]",
        (Tensor("dst", "w", extents=_transposed_shape), Tensor("a", "r")), modifiers=(FROM_2D,), timing=_permuting,
    ),
    _move(
        785, "vpermute", lambda args, a: a.transpose([int(axis) for axis in args.order]),
        "dst = a with its dimensions in another order: .201 makes [n0, n2, n1]",
        (Tensor("dst", "w", extents=_permuted_shape), Tensor("a", "r")),
        modifiers=(Modifier("order", ("021", "102", "120", "201", "210")), ONLY_3D), timing=_permuting,
    ),
    _move(
        786, "vinterleave", _interleaved, "dst = a[0], b[0], a[1], b[1], ...",
        (Tensor("dst", "w", extents=_doubled), Tensor("a", "r"), Tensor("b", "r")),
    ),
    _move(
        787, "vdeinterleave", _deinterleaved, "dst = a[0], a[2], ...; other = a[1], a[3], ...",
        (Tensor("dst", "w"), Tensor("other", "w"), Tensor("a", "r", extents=_doubled)),
        rules=(*MOVE_RULES, destinations_apart),
    ),
    _move(
        788, "vflip", lambda args, a: np.flip(a, -1 - int(args.axis[1])), "dst = a, one dimension reversed",
        modifiers=(Modifier("axis", ("n0", "n1", "n2")), RANK), rules=(*MOVE_RULES, axis_is_in_the_rank),
    ),
    _move(
        789, "vrot", _rotated, "dst[i] = a[(i + distance) modulo n0]", parameters=(Int("distance", -65535, 65535),),
    ),
    _move(
        790, "vslide", _slid, "dst[i + distance] = a[i] inside the row; zeros come in",
        parameters=(Int("distance", -65535, 65535),),
    ),
    # ---- triangles and borders
    _move(
        796, "vtri", _triangle, "dst = a on and below (.upper: above) the diagonal, else other",
        parameters=(_DIAGONAL, Float("other")), modifiers=(_PART, FROM_2D), rules=VECTOR_RULES, dtypes=FLOATS,
    ),
    _move(
        800, "vpad", _padded_with, "dst = a with rows and columns of fill around it", _PADDED,
        (*_PADS, Float("fill")), (FROM_2D,), dtypes=FLOATS,
    ),
    _move(
        801, "vpadi", _padded_with, "dst = a with rows and columns of fill around it; wraps",
        _PADDED, (*_PADS, Int("fill")), (FROM_2D,), dtypes=(*INTS, "int64"),
    ),
    _move(
        802, "vpadedge", lambda args, a: np.pad(a, _padding(args), mode=args.mode),
        "dst = a with its border repeated (.edge), mirrored (.reflect) or wrapped around (.wrap)", _PADDED, _PADS,
        (Modifier("mode", ("edge", "reflect", "wrap")), FROM_2D), (*MOVE_RULES, reflected_padding_fits),
    ),
]  # fmt: skip
