"""Axes in another order, and blocks of space exchanged with channels."""

from __future__ import annotations

import numpy as np
from tvm import te

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator

Shape = tuple[int, ...]


@operator("Transpose", schedule="movement")
def transpose(data: te.Tensor, *, perm: tuple[int, ...] | None = None) -> te.Tensor:
    shape = shape_of(data)
    order = tuple(reversed(range(len(shape)))) if perm is None else perm
    if sorted(order) != list(range(len(shape))):
        raise refusals.wrong_value(f"must order the {len(shape)} axes", "perm", list(order))
    place = [order.index(axis) for axis in range(len(shape))]
    return te.compute([shape[axis] for axis in order], lambda *i: data[tuple(i[p] for p in place)], "transpose")


@composition("DepthToSpace")
def depth_to_space(graph: Graph, data: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """A block of ``blocksize * blocksize`` channels becomes a block of pixels."""
    n, c, h, w = _image(data, blocksize, mode)
    b = blocksize
    if c % (b * b):
        raise refusals.wrong_shape(f"the channels must be a multiple of {b * b}", data=data)
    depth = c // (b * b)
    apart, perm = ((b, b, depth), (0, 3, 4, 1, 5, 2)) if mode == "DCR" else ((depth, b, b), (0, 1, 4, 2, 5, 3))
    return _regrouped(graph, data, (n, *apart, h, w), perm, (n, depth, h * b, w * b))


@composition("SpaceToDepth")
def space_to_depth(graph: Graph, data: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """A block of pixels becomes ``blocksize * blocksize`` channels."""
    n, c, h, w = _image(data, blocksize, mode)
    b = blocksize
    if h % b or w % b:
        raise refusals.wrong_shape(f"height and width must be multiples of {b}", data=data)
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return _regrouped(graph, data, (n, c, h // b, b, w // b, b), perm, (n, c * b * b, h // b, w // b))


def _regrouped(graph: Graph, data: Value, apart: Shape, perm: Shape, result: Shape) -> Value:
    """Axes taken apart, put in another order and joined: a tile is put in order on the chip, and stored in rows."""
    split = graph.call("Reshape", data, np.array(apart), allowzero=True)
    swapped = graph.call("Transpose", split, perm=perm)
    joined: Value = graph.call("Reshape", swapped, np.array(result), allowzero=True)
    return joined


def _image(data: Value, blocksize: int, mode: str) -> tuple[int, int, int, int]:
    shape = shape_of(data)
    if len(shape) != 4:
        raise refusals.wrong_shape("the input must be [batch, channels, height, width]", data=data)
    if blocksize < 1:
        raise refusals.wrong_value("must be positive", "blocksize", blocksize)
    if mode not in ("DCR", "CRD"):
        raise refusals.wrong_value("must be DCR or CRD", "mode", mode)
    return shape
