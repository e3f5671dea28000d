"""Windows over ``[h, w, c]`` tensors in UB: pooling, depthwise convolution, resampling.

The iteration shape ``<n2, n1, n0>`` is the output: rows, columns, channels. Padding is done when the tensor is
loaded, or by ``vpad``. A window is combined element after element, row by row, in fp32; integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import FLOATS, NUMBERS, Queue
from compiler.isa.model import Args, Float, Int, Row, Shape, Tensor, Timing, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table.rules import MOVE_RULES
from compiler.isa.table.vector_operands import ONLY_3D, elements
from compiler.isa.timing import vector_timing

_KERNEL = (Int("kernel_h", 1, 255), Int("kernel_w", 1, 255))
_WINDOW = (
    *_KERNEL,
    Int("stride_h", 1, 63),
    Int("stride_w", 1, 63),
    Int("dilation_h", 1, 255),
    Int("dilation_w", 1, 255),
)


def _covered(args: Any) -> tuple[int, ...]:
    """The part of the source that the windows reach over."""
    return (
        (args.n2 - 1) * args.stride_h + (args.kernel_h - 1) * args.dilation_h + 1,
        (args.n1 - 1) * args.stride_w + (args.kernel_w - 1) * args.dilation_w + 1,
        args.n0,
    )


def _taps(args: Args, a: Any) -> list[Any]:
    """For each place in the window the source elements that lie there, one per output."""
    height, width = (args.n2 - 1) * args.stride_h + 1, (args.n1 - 1) * args.stride_w + 1
    return [
        a[top : top + height : args.stride_h, left : left + width : args.stride_w]
        for top in range(0, args.kernel_h * args.dilation_h, args.dilation_h)
        for left in range(0, args.kernel_w * args.dilation_w, args.dilation_w)
    ]


def _combined(combine: Callable[..., Any]) -> Callable[..., Any]:
    def semantics(args: Args, a: Any) -> Any:
        first, *others = _taps(args, a)
        result = first.copy()
        for tap in others:
            combine(result, tap, out=result)
        return result

    return semantics


_sum = _combined(np.add)


def _average(args: Args, a: Any) -> Any:
    return _sum(args, a) / np.float32(args.kernel_h * args.kernel_w)


def _depthwise(args: Args, a: Any, weights: Any) -> Any:
    result = np.zeros(args.shape, a.dtype)
    for tap, weight in zip(_taps(args, a), weights.reshape(-1, args.n0), strict=True):
        result += tap * weight
    return result


def _window_timing(cycles_per_tap: int) -> Callable[[Args], Timing]:
    return lambda args: vector_timing(args, cycles_per_tap, lanes=elements(args) * args.kernel_h * args.kernel_w)


def _pool(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    dtypes: tuple[str, ...] = NUMBERS,
    weights: tuple[Tensor, ...] = (),
) -> Row:
    """``dst[y, x, c] = function(window of a at y, x, c)``."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w"), Tensor("a", "r", extents=_covered), *weights, *_WINDOW, Shape()),
        modifiers=(dtype_modifier(*dtypes), ONLY_3D),
        rules=MOVE_RULES,
        semantics=function,
        timing=_window_timing(cost.SIMPLE),
    )


# ---- resampling -------------------------------------------------------------------------------------------


def _nearest_source(args: Any) -> tuple[int, ...]:
    return (-(-args.n2 // args.times_h), -(-args.n1 // args.times_w), args.n0)


def _repeated(args: Args, a: Any) -> Any:
    return a[np.arange(args.n2)[:, None] // args.times_h, np.arange(args.n1) // args.times_w]


def _source_image(args: Any) -> tuple[int, ...]:
    return (args.source_h, args.source_w, args.n0)


def _neighbours(count: int, scale: float, offset: float, length: int) -> tuple[Any, Any, Any]:
    """(lower neighbour, upper neighbour, weight of the upper) of each output position, clamped to the source."""
    position = np.arange(count, dtype=np.float32) * np.float32(scale) + np.float32(offset)
    position = np.where(np.isnan(position), np.float32(0), np.clip(position, 0, np.float32(length - 1)))
    lower = np.floor(position).astype(np.int64)
    return lower, np.minimum(lower + 1, length - 1), position - lower.astype(np.float32)


def _bilinear(args: Args, a: Any) -> Any:
    above, below, down = _neighbours(args.n2, args.scale_h, args.offset_h, args.source_h)
    left, right, across = _neighbours(args.n1, args.scale_w, args.offset_w, args.source_w)
    columns = a[:, left] + across[:, None] * (a[:, right] - a[:, left])
    return columns[above] + down[:, None, None] * (columns[below] - columns[above])


_SIZES = (Int("source_h", 1, 65535), Int("source_w", 1, 65535))
_POSITIONS = (Float("scale_h"), Float("offset_h"), Float("scale_w"), Float("offset_w"))

ROWS = [
    _pool(928, "vmaxpool", _combined(np.maximum), "dst = greatest element of each window; NaN if one is"),
    _pool(929, "vminpool", _combined(np.minimum), "dst = least element of each window; NaN if one is"),
    _pool(930, "vsumpool", _sum, "dst = sum of each window", (*FLOATS, "int32")),
    _pool(931, "vavgpool", _average, "dst = sum of each window / (kernel_h * kernel_w)", FLOATS),
    _pool(
        932, "vdwconv", _depthwise, "dst = sum of window * weights [kernel_h, kernel_w, c], a depthwise convolution",
        (*FLOATS, "int32"),
        (Tensor("weights", "r", extents=lambda args: (args.kernel_h, args.kernel_w, args.n0), strides="dense"),),
    ),
    Row(
        936, "vupsample", Queue.V, "dst[y, x, c] = a[y / times_h, x / times_w, c]",
        operands=(
            Tensor("dst", "w"), Tensor("a", "r", extents=_nearest_source),
            Int("times_h", 1, 65535), Int("times_w", 1, 65535), Shape(),
        ),
        modifiers=(dtype_modifier(*NUMBERS), ONLY_3D), rules=MOVE_RULES, semantics=_repeated, raw=True,
        timing=lambda args: vector_timing(args, cost.SIMPLE, lanes=elements(args)),
    ),
    Row(
        937, "vbilinear", Queue.V, "dst[y, x, c] = a between its four elements around y * scale_h + offset_h, x * ...",
        operands=(Tensor("dst", "w"), Tensor("a", "r", extents=_source_image), *_SIZES, *_POSITIONS, Shape()),
        modifiers=(dtype_modifier(*FLOATS), ONLY_3D), rules=MOVE_RULES, semantics=_bilinear,
        # Three interpolations of two steps each, and the positions.
        timing=lambda args: vector_timing(args, 8 * cost.SIMPLE, lanes=elements(args)),
    ),
]  # fmt: skip
