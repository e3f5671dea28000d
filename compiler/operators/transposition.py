"""Axes in another order, and blocks of space exchanged with channels."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import prim_function, region
from compiler.operators.registry import operator


@operator("Transpose", schedule="movement")
def transpose(data: te.Tensor, *, perm: tuple[int, ...] | None = None) -> te.Tensor:
    shape = shape_of(data)
    order = tuple(reversed(range(len(shape)))) if perm is None else perm
    if sorted(order) != list(range(len(shape))):
        raise refusals.wrong_value(f"must order the {len(shape)} axes", "perm", list(order))
    place = [order.index(axis) for axis in range(len(shape))]
    return te.compute([shape[axis] for axis in order], lambda *i: data[tuple(i[p] for p in place)], "transpose")


@operator("DepthToSpace", schedule="movement")
def depth_to_space(data: te.Tensor, *, blocksize: int, mode: str = "DCR") -> tirx.PrimFunc:
    """A block of ``blocksize * blocksize`` channels becomes a block of pixels."""
    n, c, h, w = _image(data, blocksize)
    b = blocksize
    if c % (b * b):
        raise refusals.wrong_shape(f"the channels must be a multiple of {b * b}", data=data)
    if mode not in ("DCR", "CRD"):
        raise refusals.wrong_value("must be DCR or CRD", "mode", mode)
    depth = c // (b * b)

    def channel(i: Any, j: Any, at: Any) -> Any:
        return (i * b + j) * depth + at if mode == "DCR" else (at * b + i) * b + j

    def body(source: Any, out: Any) -> None:
        region(
            (n, depth, h, b, w, b),
            out,
            lambda p: (p[0], p[1], p[2] * b + p[3], p[4] * b + p[5]),
            lambda p: source[p[0], channel(p[3], p[5], p[1]), p[2], p[4]],
        )

    return prim_function([data], [((n, depth, h * b, w * b), dtype_of(data))], body)


@operator("SpaceToDepth", schedule="movement")
def space_to_depth(data: te.Tensor, *, blocksize: int, mode: str = "DCR") -> tirx.PrimFunc:
    """A block of pixels becomes ``blocksize * blocksize`` channels."""
    n, c, h, w = _image(data, blocksize)
    b = blocksize
    if h % b or w % b:
        raise refusals.wrong_shape(f"height and width must be multiples of {b}", data=data)
    if mode not in ("DCR", "CRD"):
        raise refusals.wrong_value("must be DCR or CRD", "mode", mode)

    def channel(i: Any, j: Any, at: Any) -> Any:
        return (i * b + j) * c + at if mode == "DCR" else (at * b + i) * b + j

    def body(source: Any, out: Any) -> None:
        region(
            (n, b, b, c, h // b, w // b),
            out,
            lambda p: (p[0], channel(p[1], p[2], p[3]), p[4], p[5]),
            lambda p: source[p[0], p[3], p[4] * b + p[1], p[5] * b + p[2]],
        )

    return prim_function([data], [((n, c * b * b, h // b, w // b), dtype_of(data))], body)


def _image(data: te.Tensor, blocksize: int) -> tuple[int, int, int, int]:
    shape = shape_of(data)
    if len(shape) != 4:
        raise refusals.wrong_shape("the input must be [batch, channels, height, width]", data=data)
    if blocksize < 1:
        raise refusals.wrong_value("must be positive", "blocksize", blocksize)
    return shape
