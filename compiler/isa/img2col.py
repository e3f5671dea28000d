"""Convolution windows: which elements of a feature map the rows and columns of its im2col matrix are.

Row p is output position (p // wo, p % wo); a column block is (c1, kernel row, kernel column), each of c0 columns.
Extents are formed before an instruction's legality is known, so they hold for any operands, zeros too.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from compiler.isa import layout
from compiler.isa.model import Args
from compiler.isa.timing import ceil_div


def output_extent(size: int, kernel: int, stride: int, dilation: int, pad: int) -> int:
    """Output positions along one axis; ``pad`` counts both ends."""
    return (size + pad - dilation * (kernel - 1) - 1) // max(1, stride) + 1


def output_shape(args: Args) -> tuple[int, int]:
    ho = output_extent(args.h, args.kh, args.stride_h, args.dilation_h, args.pad_top + args.pad_bottom)
    wo = output_extent(args.w, args.kw, args.stride_w, args.dilation_w, args.pad_left + args.pad_right)
    return ho, wo


class Touched(NamedTuple):
    """The smallest box of whole input rows that holds all that is read. Windows wholly in the padding keep one row."""

    c1: int
    c1_count: int
    row: int
    row_count: int


def touched(args: Args) -> Touched:
    c0, window = args.dtype_of("@dtype").fractal_k, max(1, args.kh * args.kw)
    columns, wo = max(1, args.kw), max(1, output_shape(args)[1])
    first, last = args.k_start // c0, (args.k_start + args.k - 1) // c0
    one_channel_block = first // window == last // window
    top, bottom = (first % window // columns, last % window // columns) if one_channel_block else (0, args.kh - 1)

    def row(position: int, kernel_row: int) -> int:
        at: int = position // wo * args.stride_h + kernel_row * args.dilation_h - args.pad_top
        return min(max(at, 0), int(args.h) - 1)

    low, high = row(args.m_start, top), row(args.m_start + args.m - 1, bottom)
    return Touched(first // window, last // window - first // window + 1, low, high - low + 1)


def source_extents(args: Args) -> tuple[int, ...]:
    box = touched(args)
    return (box.c1_count, box.row_count, args.w, args.dtype_of("@dtype").fractal_k)


def source_strides(args: Args) -> tuple[int, ...]:
    c0 = args.dtype_of("@dtype").fractal_k
    return (args.c1_stride, args.w * c0, c0, 1)


def source_offset(args: Args) -> int:
    box = touched(args)
    return int(box.c1 * args.c1_stride + box.row * args.w * args.dtype_of("@dtype").fractal_k)


def source_end(least: Args, most: Args) -> int:
    """Elements from the first channel block to behind all that is touched, for operands between two of each."""
    c0, window = least.dtype_of("@dtype").fractal_k, max(1, least.kh * least.kw)
    channel_blocks = max(1, ceil_div(most.k_start + most.k, c0 * window))
    return int((channel_blocks - 1) * most.c1_stride + most.h * most.w * c0)


def img2col(args: Args, source: np.ndarray) -> layout.Laid:
    """The touched box -> L0A: m rows from m_start and k columns from k_start of the im2col matrix."""
    picked = _picked(args.dtype, *_geometry_of(args))
    box = layout.fractal_rows(source).reshape(source.shape[0], -1)
    rows = layout.elements(picked.of(box), source.dtype)
    if picked.outside is not None:
        rows[picked.outside] = layout.constant(args.pad_value, source.dtype)
    m, blocks, c0 = rows.shape
    return layout.matrix_to_l0a(rows.reshape(m, blocks * c0)[:, : args.k], c0)


_GEOMETRY = (
    "k_start", "k", "m_start", "m", "h", "w", "kh", "kw", "stride_h", "stride_w", "dilation_h", "dilation_w",
    "pad_top", "pad_bottom", "pad_left", "pad_right",
)  # fmt: skip
_geometry_of = attrgetter(*_GEOMETRY)


class _Picked(NamedTuple):
    """Where in the touched box, [channel block][position], each row and column block of the im2col matrix is found.

    What is picked without padding may be a view of the box.
    """

    channel_block: np.ndarray | None  # of each column block; None where they are those of the box, in order
    position: np.ndarray | slice  # of each row, and of each column block where these are not alike
    outside: np.ndarray | None  # which of them are padding, if any

    def of(self, box: np.ndarray) -> np.ndarray:
        """Slices where they will do, then one index, then two: each is several times as fast as the next."""
        if self.channel_block is None:
            found = box[:, self.position].T
        elif len(box) == 1:
            found = box[0].take(self.position)
        else:
            found = box[self.channel_block, self.position]
        return found


@lru_cache(maxsize=1024)  # a layer's tiles, and all runs, pick alike; what fits L0A makes at most 32 KiB of indices
def _picked(dtype: str, *geometry: int) -> _Picked:
    args = Args(dtype=dtype, **dict(zip(_GEOMETRY, geometry, strict=True)))
    box, (_, wo) = touched(args), output_shape(args)
    c0 = args.dtype_of("@dtype").fractal_k
    block = args.k_start // c0 + np.arange(ceil_div(args.k, c0))
    position = args.m_start + np.arange(args.m)[:, None]
    c1, in_window = np.divmod(block, args.kh * args.kw)
    kernel_row, kernel_col = np.divmod(in_window, args.kw)
    out_row, out_col = np.divmod(position, wo)
    row = out_row * args.stride_h + kernel_row * args.dilation_h - args.pad_top
    col = out_col * args.stride_w + kernel_col * args.dilation_w - args.pad_left
    outside = (row < 0) | (row >= args.h) | (col < 0) | (col >= args.w)
    row, col = np.clip(row - box.row, 0, box.row_count - 1), np.clip(col, 0, args.w - 1)
    position, padding = row * args.w + col, outside if outside.any() else None
    if args.kh * args.kw > 1:
        return _Picked(c1 - box.c1, position, padding)
    first, *others = position[:, 0].tolist()
    in_order = padding is None and others == list(range(first + 1, first + args.m))
    return _Picked(None, slice(first, first + args.m) if in_order else position[:, 0], padding)
