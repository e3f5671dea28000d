"""Putting the columns of blocks back into an image."""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import (
    Buffer,
    fill,
    loops,
    ordered_block,
    prim_function,
    region,
    scratch,
    store,
)
from compiler.operators.registry import operator
from compiler.operators.signature import Constant


@operator("Col2Im", schedule="library")
def col2im(
    x: te.Tensor,
    image_shape: Constant,
    block_shape: Constant,
    *,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> tirx.PrimFunc:
    """``x`` is [batch, channels * elements of a block, blocks]; where blocks overlap, their elements are added.

    They are added into an image with its padding, so that every index is affine; the padding is cut off at the end.
    """
    image = tuple(int(extent) for extent in image_shape.ravel())
    block = tuple(int(extent) for extent in block_shape.ravel())
    spatial = len(image)
    apart = dilations or (1,) * spatial
    steps = strides or (1,) * spatial
    around = pads or (0,) * (2 * spatial)
    if not len(block) == len(apart) == len(steps) == spatial or len(around) != 2 * spatial:
        raise refusals.wrong_value(f"{spatial} extents each", "block_shape", list(block))
    padded = tuple(extent + around[a] + around[spatial + a] for a, extent in enumerate(image))
    blocks = tuple((padded[a] - apart[a] * (block[a] - 1) - 1) // steps[a] + 1 for a in range(spatial))
    shape = shape_of(x)
    elements, positions = math.prod(block), math.prod(blocks)
    if len(shape) != 3 or shape[1] % elements or shape[2] != positions:
        raise refusals.wrong_shape(
            f"the input must be [batch, a multiple of {elements} channels, {positions} blocks]", x=x
        )
    batch, channels = shape[0], shape[1] // elements
    dtype = dtype_of(x)
    sums = "float32" if dtype in ("float16", "bfloat16") else dtype

    def body(columns: Buffer, out: Buffer) -> None:
        total = scratch((batch, channels, *padded), sums)
        fill(total, tirx.const(0, sums))
        with (
            ordered_block("col2im", [columns, total], [total]),
            loops(batch, channels, *block, *blocks) as (n, c, *rest),
        ):
            inner, outer = rest[:spatial], rest[spatial:]
            place = (n, c, *(outer[a] * steps[a] + inner[a] * apart[a] for a in range(spatial)))
            column = columns[n, _flat((c, *inner), (channels, *block)), _flat(outer, blocks)]
            store(total, total[place] + column.astype(sums), *place)
        region(
            (batch, channels, *image),
            out,
            lambda point: point,
            lambda point: total[(*point[:2], *(i + around[a] for a, i in enumerate(point[2:])))].astype(dtype),
            "crop",
        )

    return prim_function([x], [((batch, channels, *image), dtype)], body)


def _flat(indices: Any, extents: tuple[int, ...]) -> Any:
    position = indices[0]
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        position = position * extent + index
    return position
