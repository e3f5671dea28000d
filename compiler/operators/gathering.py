"""Elements and rows picked by indices that are data."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import dtype_of, normalised_axis, shape_of
from compiler.operators.registry import operator
from compiler.operators.runs import pick, runs_of, whole
from compiler.operators.signature import SETUP_VALUE, Constant, only

MOST_RUNS = 16  # of known indices: each is a copy of its own
MOST_LISTED = 1 << 12  # indices, of which runs are looked for


def is_in_runs(indices: np.ndarray[Any, Any]) -> bool:
    """One index, a list of which few stretches go by equal steps, or a grid that does so along each of its axes."""
    if indices.size == 1:
        return True
    if indices.ndim != 1:
        one_sided = indices.size > 0 and (indices.min() >= 0 or indices.max() < 0)
        return bool(one_sided) and steps_of(indices) is not None
    return 0 < indices.size <= MOST_LISTED and len(runs_of(indices)) <= MOST_RUNS


def steps_of(indices: np.ndarray[Any, Any]) -> tuple[int, ...] | None:
    """By how much the indices grow along each of their axes, where it is the same everywhere: those of windows do."""
    origin = (0,) * indices.ndim
    next_to_it = [tuple(int(at == axis) for at in range(indices.ndim)) for axis in range(indices.ndim)]
    steps = tuple(
        int(indices[place]) - int(indices[origin]) if extent > 1 else 0
        for place, extent in zip(next_to_it, indices.shape, strict=True)
    )
    grown = [step * np.arange(extent) for step, extent in zip(steps, indices.shape, strict=True)]
    return steps if np.array_equal(indices, indices[origin] + sum(np.ix_(*grown))) else None


Runs: TypeAlias = Annotated[np.ndarray[Any, Any], SETUP_VALUE, is_in_runs]


@operator("Gather", schedule="gather")
def gather(data: te.Tensor, indices: te.Tensor | Runs, *, axis: int = 0) -> te.Tensor | tirx.PrimFunc:
    """Known indices in runs or grids are parts of the input; the rows of others are looked up when they are known."""
    shape = shape_of(data)
    axis = existing_axis(axis, len(shape))
    if not isinstance(indices, te.Tensor):
        return _known_rows(data, indices, axis)
    picked = shape_of(indices)
    rank = len(picked)
    rows = from_the_start(indices, shape[axis])

    def element(*i: Any) -> Any:
        return data[(*i[:axis], rows[i[axis : axis + rank]], *i[axis + rank :])]

    return te.compute((*shape[:axis], *picked, *shape[axis + 1 :]), element, "gather")


def _known_rows(data: te.Tensor, indices: Constant, axis: int) -> te.Tensor | tirx.PrimFunc:
    shape = shape_of(data)
    extent, picked = shape[axis], np.shape(indices)
    wrong = [int(row) for row in indices.ravel() if not -extent <= row < extent]
    if wrong:
        raise refusals.wrong_value(f"must be in an axis of {extent}", "indices", wrong[0])
    rows = indices.ravel().astype(np.int64) % extent
    if len(picked) == 1:
        lists = whole(data)
        lists[axis] = rows
        return pick(data, lists)
    rank, first, steps = len(picked), int(rows[0]), steps_of(indices) or ()
    result = (*shape[:axis], *picked, *shape[axis + 1 :])

    def element(*i: Any) -> Any:
        row: Any = first
        for at, step in zip(i[axis : axis + rank], steps, strict=True):
            row = row + at * step if step else row
        return data[(*i[:axis], row, *i[axis + rank :])]

    return te.compute(result, element, "gather")


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
    shape, extent = shape_of(indices), int(only("depth", depth))
    if not 0 <= extent < 2**31:
        raise refusals.wrong_value("must be a number of places, of 31 bits at most", "depth", extent)
    if shape_of(values) != (2,):
        raise refusals.wrong_shape("values must be two", values=values)
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
