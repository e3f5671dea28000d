"""Elements repeated: broadcast to a shape, or tiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te

from compiler.operators import refusals
from compiler.operators.broadcast import read, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator
from compiler.operators.signature import Constant


@operator("Expand", schedule="movement")
def expand(data: te.Tensor, shape: Constant) -> te.Tensor:
    """To the shape that ``data`` and ``shape`` broadcast to."""
    try:
        result = np.broadcast_shapes(shape_of(data), tuple(int(extent) for extent in shape.ravel()))
    except ValueError:
        raise refusals.wrong_shape(
            "the input must broadcast to the shape", data=data, shape=shape.ravel().tolist()
        ) from None
    return te.compute(result, lambda *i: read(data, i), "expand")


@composition("Tile")
def tile(graph: Graph, data: Value, repeats: Constant) -> Any:
    shape = shape_of(data)
    if repeats.size != len(shape) or min(repeats.ravel().tolist(), default=0) < 0:
        raise refusals.wrong_value(f"one count for each of {len(shape)} axes", "repeats", repeats.ravel().tolist())
    return repeated(graph, data, [int(count) for count in repeats.ravel()], [1] * len(shape))


def repeated(graph: Graph, x: Value, wholes: Sequence[int], each: Sequence[int]) -> Value:
    """Every element of an axis ``each`` times on end, and that axis ``wholes`` times, one after the other.

    As a broadcast along axes of their own, so that a tile is put together on the chip and stored in one piece. Where
    such axes are there, it is a broadcast and no more, which others know as that.
    """
    shape = shape_of(x)
    apart, wide = list[int](), list[int]()
    for extent, whole, times in zip(shape, wholes, each, strict=True):
        axes = [(1, whole), (extent, extent), (1, times)]
        kept = [(before, after) for before, after in axes if (before, after) != (1, 1)] or axes[:1]
        apart += [before for before, _ in kept]
        wide += [after for _, after in kept]
    result = [whole * extent * times for extent, whole, times in zip(shape, wholes, each, strict=True)]
    if apart == wide:
        return graph.call("Identity", x)
    if (*apart,) != shape:
        x = graph.call("Reshape", x, np.array(apart, np.int64), allowzero=True)
    x = graph.call("Expand", x, np.array(wide))
    return x if wide == result else graph.call("Reshape", x, np.array(result, np.int64), allowzero=True)
