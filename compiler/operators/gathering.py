"""Elements and rows picked by indices that are data."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import dtype_of, normalised_axis, shape_of
from compiler.operators.registry import operator
from compiler.operators.signature import Constant


@operator("Gather", schedule="gather")
def gather(data: te.Tensor, indices: te.Tensor | Constant, *, axis: int = 0) -> te.Tensor:
    """One index that is known makes a part of the input of it."""
    shape = shape_of(data)
    axis = existing_axis(axis, len(shape))
    known = not isinstance(indices, te.Tensor)
    picked = tuple(np.shape(indices)) if known else shape_of(indices)
    rank = len(picked)
    rows: Any = _known_row(indices, shape[axis]) if known else from_the_start(indices, shape[axis])

    def element(*i: Any) -> Any:
        row = rows if known else rows[i[axis : axis + rank]]
        return data[(*i[:axis], row, *i[axis + rank :])]

    return te.compute((*shape[:axis], *picked, *shape[axis + 1 :]), element, "gather")


def _known_row(index: Constant, extent: int) -> int:
    row = int(np.asarray(index).item())
    if not -extent <= row < extent:
        raise refusals.wrong_value(f"must be in an axis of {extent}", "indices", row)
    return row % extent


@operator("GatherElements", schedule="gather")
def gather_elements(data: te.Tensor, indices: te.Tensor, *, axis: int = 0) -> te.Tensor:
    shape = shape_of(data)
    if len(shape) != len(shape_of(indices)):
        raise refusals.wrong_shape("indices must have the rank of the input", data=data, indices=indices)
    axis = existing_axis(axis, len(shape))
    places = from_the_start(indices, shape[axis])
    return te.compute(shape_of(indices), lambda *i: data[(*i[:axis], places[i], *i[axis + 1 :])], "gather_elements")


@operator("GatherND", schedule="gather")
def gather_nd(data: te.Tensor, indices: te.Tensor, *, batch_dims: int = 0) -> te.Tensor:
    """The last axis of ``indices`` holds the leading indices of a slice of ``data``, after the batch axes."""
    shape, places = shape_of(data), shape_of(indices)
    if not places or batch_dims + places[-1] > len(shape) or places[:batch_dims] != shape[:batch_dims]:
        raise refusals.wrong_shape(
            f"indices must be [{batch_dims} batch axes of the input, ..., at most its other axes]",
            data=data,
            indices=indices,
        )
    depth = places[-1]
    starts = normalised_tuples(indices, shape[batch_dims : batch_dims + depth])
    outer = len(places) - 1

    def element(*i: Any) -> Any:
        picked = [starts[(*i[:outer], k)] for k in range(depth)]
        return data[(*i[:batch_dims], *picked, *i[outer:])]

    return te.compute((*places[:-1], *shape[batch_dims + depth :]), element, "gather_nd")


@operator("OneHot", schedule="elementwise")
def one_hot(indices: te.Tensor, depth: Constant, values: te.Tensor, *, axis: int = -1) -> te.Tensor:
    """``values`` is what stands elsewhere, and what stands at the index; an index out of range is nowhere."""
    shape, extent = shape_of(indices), int(depth.item())
    axis = normalised_axis(axis, len(shape) + 1)
    places = from_the_start(indices, extent)

    def element(*i: Any) -> Any:
        here = places[(*i[:axis], *i[axis + 1 :])] == i[axis].astype(dtype_of(places))
        return tirx.Select(here, values[1], values[0])

    return te.compute((*shape[:axis], extent, *shape[axis:]), element, "one_hot")


@operator("ReverseSequence", schedule="gather")
def reverse_sequence(
    data: te.Tensor, sequence_lens: te.Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> te.Tensor:
    """The first ``sequence_lens[b]`` steps of each sequence in reverse; the steps after them stay."""
    shape = shape_of(data)
    batch, time = normalised_axis(batch_axis, len(shape)), normalised_axis(time_axis, len(shape))
    if shape_of(sequence_lens) != (shape[batch],) or batch == time:
        raise refusals.wrong_shape(
            f"sequence_lens must have one length for each of axis {batch}", data=data, sequence_lens=sequence_lens
        )

    def source(b: Any, t: Any) -> Any:
        length = sequence_lens[b].astype("int32")
        return tirx.Select(t < length, length - 1 - t, t)

    steps = te.compute((shape[batch], shape[time]), source, "step")
    return te.compute(shape, lambda *i: data[(*i[:time], steps[i[batch], i[time]], *i[time + 1 :])], "reverse_sequence")


def from_the_start(indices: te.Tensor, extent: int) -> te.Tensor:
    """Indices counted from the start where they were counted from the end; always int32."""
    return te.compute(shape_of(indices), lambda *i: counted_from_start(indices[i], extent), "index")


def normalised_tuples(indices: te.Tensor, extents: tuple[int, ...]) -> te.Tensor:
    """As :func:`from_the_start`, for index tuples on the last axis of ``indices``."""
    if len(set(extents)) == 1:
        return from_the_start(indices, extents[0])

    def element(*i: Any) -> Any:
        extent: Any = tirx.const(extents[-1], "int32") if extents else 0
        for k, size in reversed(list(enumerate(extents[:-1]))):
            extent = tirx.Select(i[-1] == k, tirx.const(size, "int32"), extent)
        return counted_from_start(indices[i], extent)

    return te.compute(shape_of(indices), element, "index")


def counted_from_start(index: Any, extent: Any) -> Any:
    position = index.astype("int32")
    return tirx.Select(position < 0, position + extent, position)
