"""Putting the columns of blocks back into an image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator
from compiler.operators.sampling import reshaped
from compiler.operators.signature import Constant


@composition("Col2Im")
def col2im(
    graph: Graph,
    x: Value,
    image_shape: Constant,
    block_shape: Constant,
    *,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """``x`` is [batch, channels * elements of a block, blocks]; where blocks overlap, their elements are added.

    One axis after another. Of the elements that an axis has within a block, each stride-th goes to the same phase of
    the image, a place further for each block: a phase is a sum of rows that are shifted against each other. The phases
    are then interleaved, and the padding is cut off.
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
    wide = "float32" if dtype_of(x) in ("float16", "bfloat16") else dtype_of(x)
    sums = as_dtype(graph, x, wide)
    places = list(blocks)
    for axis in reversed(range(spatial)):
        sums = reshaped(
            graph,
            sums,
            batch * channels * math.prod(block[:axis]),
            block[axis],
            math.prod(steps[axis + 1 :]) * math.prod(places[:axis]),
            places[axis],
            math.prod(places[axis + 1 :]),
        )
        sums = graph.call("tilewright::PhasesOfBlocks", sums, stride=steps[axis], dilation=apart[axis])
        places[axis] = shape_of(sums)[3]
    phases = reshaped(graph, as_dtype(graph, sums, dtype_of(x)), batch * channels, *steps, *places)
    pairs = [axis for each in range(1, spatial + 1) for axis in (spatial + each, each)]
    together = graph.call("Transpose", phases, perm=(0, *pairs))
    whole = [count * step for count, step in zip(places, steps, strict=True)]
    return _cut(graph, reshaped(graph, together, batch, channels, *whole), image, around[:spatial])


def _cut(graph: Graph, x: Value, image: tuple[int, ...], begins: tuple[int, ...]) -> Value:
    """The image in its padding; where no block reaches, there are zeros."""
    rank = len(image)
    ends = [begin + extent for begin, extent in zip(begins, image, strict=True)]
    missing = [max(0, end - extent) for end, extent in zip(ends, shape_of(x)[2:], strict=True)]
    if any(missing):
        x = graph.call("Pad", x, np.array([0] * (rank + 4) + missing))
    if shape_of(x)[2:] == image:
        return x
    result: Value = graph.call("Slice", x, np.array(begins), np.array(ends), np.arange(2, 2 + rank))
    return result


@operator("tilewright::PhasesOfBlocks", schedule="elementwise")
def phases_of_blocks(x: te.Tensor, *, stride: int, dilation: int) -> te.Tensor:
    """[outer, element of a block, middle, block, inner] -> [outer, phase, middle, place, inner].

    Element k of block i is at ``i * stride + k * dilation``, which is ``place * stride + phase``.
    """
    outer, elements, middle, blocks, inner = shape_of(x)
    reach = (elements - 1) * dilation
    shape = (outer, stride, middle, blocks + reach // stride, inner)
    zero = tirx.const(0, dtype_of(x))

    def sum_of_shifted(n: Any, phase: Any, m: Any, place: Any, i: Any) -> Any:
        terms = []
        for shift in range(reach // stride + 1):
            element = tirx.floordiv(shift * stride + phase, dilation)
            block = place - shift
            conditions = [block >= 0, block < blocks]
            if shift * stride + stride - 1 > reach:
                conditions.append(shift * stride + phase <= reach)
            if dilation > 1:
                conditions.append(tirx.EQ(tirx.floormod(shift * stride + phase, dilation), 0))
            terms.append(tirx.if_then_else(tirx.all(*conditions), x[n, element, m, block, i], zero))
        return sum(terms[1:], start=terms[0])

    return te.compute(shape, sum_of_shifted, "phases_of_blocks")
