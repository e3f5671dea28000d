"""Pooling over regions of an image that are data.

Samples of a known number are rows of channels, picked and weighted as in `compiler.operators.sampling`; where data says
how many there are, loops have as many steps as a region needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, scratch, store
from compiler.operators.registry import composition, operator
from compiler.operators.sampling import combined, reshaped, table_of


@composition("RoiAlign")
def roi_align(
    graph: Graph,
    x: Value,
    rois: Value,
    batch_indices: Value,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
    opset: int = 16,
) -> Value:
    """The mean, or the maximum, over samples of each bin; a sample is interpolated between four elements.

    A ``sampling_ratio`` of 0 takes as many samples as a bin is long, rounded up.
    """
    _, channels, *extents = _image(x)
    count = shape_of(rois)[0]
    if shape_of(rois) != (count, 4) or shape_of(batch_indices) != (count,):
        raise refusals.wrong_shape("rois must be [n, 4] and batch_indices [n]", rois=rois, batch_indices=batch_indices)
    if mode not in ("avg", "max"):
        raise refusals.wrong_value("must be avg or max", "mode", mode)
    bins = (output_height, output_width)
    where = {
        "bins": bins,
        "spatial_scale": spatial_scale,
        "half_pixel": coordinate_transformation_mode == "half_pixel" and opset >= 16,
    }
    if sampling_ratio <= 0:
        looped: Value = graph.call("tilewright::RoiAlignByLoops", x, rois, batch_indices, mode=mode, **where)
        return looped
    where |= {"extents": tuple(extents), "samples": sampling_ratio}
    sides = graph.call("Transpose", rois)
    rows = graph.call("tilewright::NeighboursOfSamples", sides, batch_indices, **where)
    weights = graph.call("tilewright::WeightsOfSamples", sides, mean=mode == "avg", **where)
    places = math.prod(bins) * count
    rows, weights = (reshaped(graph, each, 4 * sampling_ratio**2, places) for each in (rows, weights))
    pooled = combined(graph, table_of(graph, x, padded=False), rows, weights, largest=mode == "max")
    first = graph.call("Transpose", reshaped(graph, pooled, math.prod(bins), count, channels), perm=(1, 2, 0))
    return reshaped(graph, first, count, channels, *bins)


@operator("tilewright::NeighboursOfSamples", schedule="elementwise")
def neighbours_of_samples(
    sides: te.Tensor,
    batch_indices: te.Tensor,
    *,
    bins: tuple[int, ...],
    spatial_scale: float,
    half_pixel: bool,
    extents: tuple[int, ...],
    samples: int,
) -> te.Tensor:
    """[sample, side, sample, side, *bins, region]: the rows of the four elements about each sample, in a table."""
    regions = _Regions(bins, spatial_scale, half_pixel, extents, samples)

    def row(*i: Any) -> Any:
        y, x = (regions.element(sides, axis, i) for axis in (0, 1))
        return (batch_indices[i[-1]].astype("int32") * extents[0] + y) * extents[1] + x

    return te.compute(regions.shape(sides), row, "row")


@operator("tilewright::WeightsOfSamples", schedule="elementwise")
def weights_of_samples(
    sides: te.Tensor,
    *,
    mean: bool,
    bins: tuple[int, ...],
    spatial_scale: float,
    half_pixel: bool,
    extents: tuple[int, ...],
    samples: int,
) -> te.Tensor:
    """What these elements weigh: of the mean, or in one sample."""
    regions = _Regions(bins, spatial_scale, half_pixel, extents, samples)
    share = _f32(1 / samples**2 if mean else 1.0)
    return te.compute(
        regions.shape(sides),
        lambda *i: regions.weight(sides, 0, i) * (regions.weight(sides, 1, i) * share),
        "weight",
    )


@dataclass(frozen=True)
class _Regions:
    """Where the samples of regions lie, and between which elements."""

    bins: tuple[int, ...]
    spatial_scale: float
    half_pixel: bool
    extents: tuple[int, ...]
    samples: int

    def shape(self, sides: te.Tensor) -> tuple[int, ...]:
        return (self.samples, 2, self.samples, 2, *self.bins, shape_of(sides)[1])

    def element(self, sides: te.Tensor, axis: int, i: Sequence[Any]) -> Any:
        """The index on ``axis`` of the element that ``i`` is about."""
        limited = self._limited(self._place(sides, axis, i), axis)
        return tirx.min(limited.astype("int32") + i[2 * axis + 1], self.extents[axis] - 1)

    def weight(self, sides: te.Tensor, axis: int, i: Sequence[Any]) -> Any:
        """Nothing, of a sample outside."""
        place = self._place(sides, axis, i)
        limited = self._limited(place, axis)
        after = limited - tirx.floor(limited)
        outside = tirx.any(place < _f32(-1), place > _f32(self.extents[axis]))
        value = tirx.Select(tirx.EQ(i[2 * axis + 1], 0), _f32(1) - after, after)
        return tirx.Select(outside, _f32(0), value)

    def _place(self, sides: te.Tensor, axis: int, i: Sequence[Any]) -> Any:
        low, bin_length = _bin_of(
            (sides[1 - axis, i[-1]], sides[3 - axis, i[-1]]), self.bins[axis], self.spatial_scale, self.half_pixel
        )
        first = low + i[4 + axis].astype("float32") * bin_length
        return first + (i[2 * axis].astype("float32") + _f32(0.5)) * bin_length / _f32(self.samples)

    def _limited(self, place: Any, axis: int) -> Any:
        return tirx.max(tirx.min(place, _f32(self.extents[axis] - 1)), _f32(0))


@operator("tilewright::RoiAlignByLoops", schedule="library")
def roi_align_by_loops(
    x: te.Tensor,
    rois: te.Tensor,
    batch_indices: te.Tensor,
    *,
    mode: str,
    bins: tuple[int, ...],
    spatial_scale: float,
    half_pixel: bool,
) -> tirx.PrimFunc:
    """As many samples of each bin as it is long, rounded up."""
    _, channels, height, width = _image(x)
    count = shape_of(rois)[0]

    def body(image: Buffer, roi: Buffer, batch: Buffer, out: Buffer) -> None:
        total = scratch((channels,), "float32")
        with ordered_block("roi_align", [image, roi, batch, total], [out, total]), loops(count, *bins) as (r, *place):
            spans = []
            for axis in (0, 1):
                sides = (roi[r, 1 - axis], roi[r, 3 - axis])
                low, length = _bin_of(sides, bins[axis], spatial_scale, half_pixel)
                bin_length = T.Bind(length)
                samples = T.Bind(_ceiling(bin_length))
                spans.append((T.Bind(low + place[axis].astype("float32") * bin_length), bin_length, samples))
            with loops(channels) as (c,):
                store(total, _f32(0) if mode == "avg" else tirx.min_value("float32"), c)
            with loops(spans[0][2], spans[1][2]) as steps:
                corners = [
                    _corners(span, step, extent)
                    for span, step, extent in zip(spans, steps, (height, width), strict=True)
                ]
                with loops(channels) as (c,):
                    terms = [
                        image[batch[r].astype("int32"), c, y, x].astype("float32") * (wy * wx)
                        for y, wy in corners[0]
                        for x, wx in corners[1]
                    ]
                    if mode == "avg":
                        store(total, total[c] + (terms[0] + terms[1] + terms[2] + terms[3]), c)
                    else:
                        best = tirx.max(tirx.max(terms[0], terms[1]), tirx.max(terms[2], terms[3]))
                        store(total, tirx.max(total[c], best), c)
            number = spans[0][2] * spans[1][2]
            with loops(channels) as (c,):
                value = total[c]
                if mode == "avg":
                    value = value / tirx.max(number, 1).astype("float32")
                else:
                    value = tirx.Select(number > 0, value, _f32(0))
                store(out, value.astype(dtype_of(x)), r, c, *place)

    return prim_function([x, rois, batch_indices], [((count, channels, *bins), dtype_of(x))], body)


@operator("MaxRoiPool", schedule="library")
def max_roi_pool(
    x: te.Tensor, rois: te.Tensor, *, pooled_shape: tuple[int, ...], spatial_scale: float = 1.0
) -> tirx.PrimFunc:
    """The maximum over each bin of each region; regions are rounded to elements, an empty bin gives 0."""
    _, channels, height, width = _image(x)
    count = shape_of(rois)[0]
    if shape_of(rois) != (count, 5) or len(pooled_shape) != 2:
        raise refusals.wrong_shape("rois must be [n, 5]: batch index and two corners", rois=rois)
    dtype = dtype_of(x)

    def body(image: Buffer, roi: Buffer, out: Buffer) -> None:
        with ordered_block("max_roi_pool", [image, roi, out], [out]), loops(count, *pooled_shape) as (r, *place):
            spans = []
            for axis, extent in enumerate((height, width)):
                low, high = (
                    T.Bind(_half_up(roi[r, 2 - axis + 2 * side].astype("float32") * _f32(spatial_scale)))
                    for side in (0, 1)
                )
                bin_length = tirx.max(high - low + 1, 1).astype("float32") / _f32(pooled_shape[axis])
                first = _floor(place[axis].astype("float32") * bin_length) + low
                end = _ceiling((place[axis] + 1).astype("float32") * bin_length) + low
                first, end = (T.Bind(tirx.max(tirx.min(bound, extent), 0)) for bound in (first, end))
                spans.append((first, tirx.max(end - first, 0)))
            empty = tirx.EQ(spans[0][1] * spans[1][1], 0)
            with loops(channels) as (c,):
                start = tirx.Select(empty, tirx.const(0, dtype), tirx.min_value(dtype))
                store(out, start, r, c, *place)
            with loops(spans[0][1], spans[1][1]) as (h, w), loops(channels) as (c,):
                element = image[roi[r, 0].astype("int32"), c, spans[0][0] + h, spans[1][0] + w]
                store(out, tirx.max(out[(r, c, *place)], element), r, c, *place)

    return prim_function([x, rois], [((count, channels, *pooled_shape), dtype)], body)


def _bin_of(sides: tuple[Any, Any], bins: int, spatial_scale: float, half_pixel: bool) -> tuple[Any, Any]:
    """Where the first bin between two sides begins, in elements, and how long each is."""
    low, high = (side.astype("float32") * _f32(spatial_scale) - _f32(0.5 if half_pixel else 0.0) for side in sides)
    length = high - low if half_pixel else tirx.max(high - low, _f32(1))
    return low, length / _f32(bins)


def _corners(span: tuple[Any, Any, Any], step: Any, extent: int) -> list[tuple[Any, Any]]:
    """The two elements that a sample lies between on one axis, with their weights: both 0 for a sample outside."""
    low, bin_length, samples = span
    place = T.Bind(low + (step.astype("float32") + _f32(0.5)) * bin_length / samples.astype("float32"))
    outside = tirx.any(place < _f32(-1), place > _f32(extent))
    limited = T.Bind(tirx.max(tirx.min(place, _f32(extent - 1)), _f32(0)))
    first = T.Bind(limited.astype("int32"))
    after = T.Bind(limited - first.astype("float32"))
    zero = _f32(0)
    return [
        (first, tirx.Select(outside, zero, _f32(1) - after)),
        (tirx.min(first + 1, extent - 1), tirx.Select(outside, zero, after)),
    ]


def _image(x: te.Tensor) -> tuple[int, int, int, int]:
    shape = shape_of(x)
    if len(shape) != 4:
        raise refusals.wrong_shape("the input must be [batch, channels, height, width]", x=x)
    return shape


def _half_up(value: Any) -> Any:
    """Halves away from zero."""
    return (value + tirx.Select(value >= _f32(0), _f32(0.5), _f32(-0.5))).astype("int32")


def _floor(value: Any) -> Any:
    """By a cast, which truncates: the scalar unit has no rounding."""
    truncated = value.astype("int32")
    return truncated - tirx.Select(truncated.astype("float32") > value, 1, 0)


def _ceiling(value: Any) -> Any:
    truncated = value.astype("int32")
    return truncated + tirx.Select(truncated.astype("float32") < value, 1, 0)


def _f32(value: float) -> Any:
    return tirx.const(value, "float32")
