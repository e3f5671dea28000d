"""Reading an image at places that are data."""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.registry import operator
from compiler.operators.signature import Constant

NEIGHBOURS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


@operator("GridSample", schedule="gather")
def grid_sample(
    x: te.Tensor,
    grid: te.Tensor,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> te.Tensor:
    """Each output element is the weighted sum of the neighbours of a place that ``grid`` gives from -1 to 1.

    The weight is a product of one weight for each axis; neighbours outside have weight 0 or stand for one inside.
    """
    shape, places = shape_of(x), shape_of(grid)
    spatial = len(shape) - 2
    if spatial < 1 or len(places) != len(shape) or places[-1] != spatial or places[0] != shape[0]:
        raise refusals.wrong_shape("grid must be [batch, ..., one coordinate for each spatial axis]", x=x, grid=grid)
    if mode not in NEIGHBOURS:
        raise refusals.wrong_value(f"must be one of {', '.join(NEIGHBOURS)}", "mode", mode)
    if padding_mode not in ("zeros", "border", "reflection"):
        raise refusals.wrong_value("must be zeros, border or reflection", "padding_mode", padding_mode)
    axes = [
        _Axis(extent, align_corners, padding_mode).neighbours(grid, spatial - 1 - axis, NEIGHBOURS[mode])
        for axis, extent in enumerate(shape[2:])
    ]
    offsets = [te.reduce_axis((0, NEIGHBOURS[mode]), f"k{axis}") for axis in range(spatial)]

    def weighted(n: Any, c: Any, *place: Any) -> Any:
        indices = [index[(n, *place, k)] for (index, _), k in zip(axes, offsets, strict=True)]
        weight = math.prod(
            (weight[(n, *place, k)] for (_, weight), k in zip(axes, offsets, strict=True)),
            start=tirx.const(1, "float32"),
        )
        return te.sum(x[(n, c, *indices)].astype("float32") * weight, axis=offsets)

    sums = te.compute((*shape[:2], *places[1:-1]), weighted, "sample")
    return te.compute(shape_of(sums), lambda *i: sums[i].astype(dtype_of(x)), "grid_sample")


@operator("AffineGrid", schedule="elementwise")
def affine_grid(theta: te.Tensor, size: Constant, *, align_corners: bool = False) -> te.Tensor:
    """Where each element of an image of ``size`` comes from under the affine maps ``theta``; made for GridSample."""
    batch, _, *extents = (int(extent) for extent in size.ravel())
    spatial = len(extents)
    if shape_of(theta) != (batch, spatial, spatial + 1):
        raise refusals.wrong_shape(f"theta must be [{batch}, {spatial}, {spatial + 1}]", theta=theta)

    def from_minus_one_to_one(index: Any, extent: int) -> Any:
        count = extent - 1 if align_corners else extent
        if count == 0:
            return tirx.const(0, "float32")
        numerator = 2 * index - (count if align_corners else count - 1)
        return numerator.astype("float32") * tirx.const(1 / count, "float32")

    def element(n: Any, *i: Any) -> Any:
        *place, row = i
        mapped = theta[n, row, spatial].astype("float32")
        for column, (index, extent) in enumerate(reversed(list(zip(place, extents, strict=True)))):
            mapped = mapped + theta[n, row, column].astype("float32") * from_minus_one_to_one(index, extent)
        return mapped.astype(dtype_of(theta))

    return te.compute((batch, *extents, spatial), element, "affine_grid")


class _Axis:
    """One spatial axis: from a coordinate between -1 and 1 to neighbours and weights."""

    def __init__(self, extent: int, align_corners: bool, padding: str) -> None:
        self.extent = extent
        self.align_corners = align_corners
        self.padding = padding

    def neighbours(self, grid: te.Tensor, coordinate: int, count: int) -> tuple[te.Tensor, te.Tensor]:
        """Of each place of the grid: ``count`` indices (always inside), and their weights."""
        outer = shape_of(grid)[:-1]
        place = te.compute(outer, lambda *i: self._place(grid[(*i, coordinate)].astype("float32")), "place")
        base = te.compute(outer, lambda *i: tirx.nearbyint(place[i]) if count == 1 else tirx.floor(place[i]), "base")

        def neighbour(i: tuple[Any, ...]) -> Any:
            return base[i[:-1]].astype("int32") + (i[-1] - max(0, count // 2 - 1))

        def weight(i: tuple[Any, ...]) -> Any:
            value = _weight(count, place[i[:-1]] - base[i[:-1]], i[-1])
            if self.padding != "zeros":
                return value
            inside = tirx.all(neighbour(i) >= 0, neighbour(i) < self.extent)
            return tirx.Select(inside, value, tirx.const(0, "float32"))

        shape = (*outer, count)
        indices = te.compute(shape, lambda *i: self._inside(neighbour(i)), "neighbour")
        return indices, te.compute(shape, lambda *i: weight(i), "weight")

    def _place(self, coordinate: Any) -> Any:
        """In elements; reflected where that is asked for, and near enough to be an int32 in any case."""
        scale = (self.extent - 1 if self.align_corners else self.extent) / 2
        shift = (self.extent - 1) / 2
        place = coordinate * tirx.const(scale, "float32") + tirx.const(shift, "float32")
        low, high = (0.0, self.extent - 1.0) if self.align_corners else (-0.5, self.extent - 0.5)
        if self.padding == "reflection" and high > low:
            place = _reflected(place, low, high)
        # Further out than this, every neighbour has the same weight and stands for the same element.
        return _clamped(place, -3.0, self.extent + 2.0)

    def _inside(self, index: Any) -> Any:
        if self.padding == "reflection" and self.extent > 1:
            if self.align_corners:
                turned = tirx.floormod(index, 2 * (self.extent - 1))
                return tirx.min(turned, 2 * (self.extent - 1) - turned)
            turned = tirx.floormod(index, 2 * self.extent)
            return tirx.min(turned, 2 * self.extent - 1 - turned)
        return tirx.max(tirx.min(index, self.extent - 1), 0)


def _reflected(place: Any, low: float, high: float) -> Any:
    length = tirx.const(high - low, "float32")
    twice = tirx.const(2 * (high - low), "float32")
    away = tirx.abs(place - tirx.const(low, "float32"))
    turned = away - tirx.floor(away / twice) * twice
    return tirx.const(high, "float32") - tirx.abs(length - turned)


def _clamped(value: Any, low: float, high: float) -> Any:
    return tirx.max(tirx.min(value, tirx.const(high, "float32")), tirx.const(low, "float32"))


def _weight(count: int, ratio: Any, k: Any) -> Any:
    """Of neighbour ``k`` of ``count``, ``ratio`` being the way from the one before the place to the one after it."""
    if count == 1:
        return tirx.const(1, "float32")
    one = tirx.const(1, "float32")
    if count == 2:
        return tirx.Select(tirx.EQ(k, 0), one - ratio, ratio)
    a = -0.75
    x = tirx.abs(ratio - (k - 1).astype("float32"))
    near = ((a + 2) * x - (a + 3)) * x * x + 1.0
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return tirx.Select(x <= one, near, far)
