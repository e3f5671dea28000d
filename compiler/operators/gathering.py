"""Elements and rows picked by indices that are data."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, TypeAlias

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import dtype_of, normalised_axis, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator
from compiler.operators.runs import pick, runs_of, whole
from compiler.operators.signature import SETUP_VALUE, Constant, only

MOST_RUNS = 16  # of known indices: each is a copy of its own
MOST_LISTED = 1 << 12  # indices, of which runs are looked for
# Elements of a row for each that is picked of it, so that the row is moved as a whole. Of 12 x 128 rows of 128, 128 of
# each take 10.7k cycles on tw1 in fp16 so, and 220k one by one, on tw2 4.5k and 31k; of 4 rows of 8,400, 300 of each
# take 1.3k and 2.1k on tw1, but 1.1k and 0.8k on tw2.
LONGEST_TABLE = 16
# Rows of more elements than these, fewer than leave no core idle, are worth transpositions to more and shorter ones:
# 300 x 64 of one row of 100 x 64 elements take 5.5k cycles on tw1 in fp16 and 2.2k on tw2, of 64 rows 3.3k and 2.2k.
FEW_ROWS, MANY_ELEMENTS = 16, 1 << 12


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


@composition("GatherElements")
def gather_elements(graph: Graph, data: Value, indices: Value, *, axis: int = 0) -> Any:
    """From rows, of an axis and all behind it: a place is counted in these, or where few are picked, in rows of rows.

    The first axis stays, by which clusters divide a batch.
    """
    shape, picked = shape_of(data), shape_of(indices)
    if len(shape) != len(picked):
        raise refusals.wrong_shape("indices must have the rank of the input", data=data, indices=indices)
    axis = existing_axis(axis, len(shape))
    beside = [at for at in range(len(shape)) if at != axis and picked[at] < shape[at]]
    if beside:
        ends = np.array([picked[at] for at in beside])
        data = graph.call("Slice", data, np.zeros_like(ends), ends, np.array(beside))
    rows, behind = picked[:axis], prod(picked[axis + 1 :])
    if behind > 1 and shape[axis] * behind > MANY_ELEMENTS and prod(rows) < FEW_ROWS:
        return with_axis_last(graph, "GatherElements", (data, indices), axis)
    length, count = shape[axis] * behind, picked[axis] * behind
    if behind > 1:
        own = np.arange(behind).reshape(picked[axis + 1 :])
        indices = counted_in_rows(graph, indices, shape[axis], behind, own)
    inner = prod(rows[1:])
    if inner > 1 and length > LONGEST_TABLE * count > 0:
        first = np.arange(inner).reshape(*rows[1:], *(1 for _ in picked[axis:])) * length
        indices = counted_in_rows(graph, indices, length, 1, first)
        rows, length, count = rows[:1], inner * length, inner * count
    of_rows = graph.call(
        "tilewright::PickInRows",
        graph.call("Reshape", data, np.array([*rows, length]), allowzero=True),
        graph.call("Reshape", indices, np.array([*rows, count]), allowzero=True),
    )
    return graph.call("Reshape", of_rows, np.array(picked), allowzero=True)


def with_axis_last(graph: Graph, name: str, values: Sequence[Value], axis: int, **attributes: Any) -> Any:
    """What an operator makes along an axis of values of one rank, in rows of that axis alone: more of them, shorter."""
    rank = len(shape_of(values[0]))
    order = (*range(axis), *range(axis + 1, rank), axis)
    turned = [graph.call("Transpose", value, perm=order) for value in values]
    result = graph.call(name, *turned, axis=-1, **attributes)
    return graph.call("Transpose", result, perm=tuple(order.index(at) for at in range(rank)))


def counted_in_rows(graph: Graph, indices: Value, extent: int, step: int, others: np.ndarray[Any, Any]) -> Value:
    """Indices of an axis of ``extent``, from its start and in steps, and the ``others`` that are counted with them."""
    dtype = dtype_of(indices) if indices.constant is None else indices.constant.dtype
    from_end = graph.call("Less", indices, np.asarray(0, dtype))
    counted = graph.call("Where", from_end, graph.call("Add", indices, np.asarray(extent, dtype)), indices)
    if step > 1:
        counted = graph.call("Mul", counted, np.asarray(step, dtype))
    result: Value = graph.call("Add", counted, others.astype(dtype))
    return result


@operator("tilewright::PickInRows", schedule="gather")
def pick_in_rows(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
    """From each row the elements that its own indices name: where they are many, of a copy of the row in UB."""
    shape, picked = shape_of(data), shape_of(indices)
    places = from_the_start(indices, shape[-1])
    table = data
    if shape[-1] <= LONGEST_TABLE * picked[-1]:
        table = te.compute(shape, lambda *i: data[i], "table")
    return te.compute(picked, lambda *i: table[(*i[:-1], places[i])], "picked")


@composition("GatherND")
def gather_nd(graph: Graph, data: Value, indices: Value, *, batch_dims: int = 0) -> Any:
    """The last axis of ``indices`` holds the leading indices of a slice of ``data``, after the batch axes.

    These axes are one, of slices: what picks by one index is an instruction.
    """
    shape, places = shape_of(data), shape_of(indices)
    if not places or batch_dims + places[-1] > len(shape) or places[:batch_dims] != shape[:batch_dims]:
        raise refusals.wrong_shape(
            f"indices must be [{batch_dims} batch axes of the input, ..., at most its other axes]",
            data=data,
            indices=indices,
        )
    batch, extents, rest = (shape[:batch_dims], shape[batch_dims:][: places[-1]], shape[batch_dims + places[-1] :])
    slices = graph.call("Reshape", data, np.array([*batch, prod(extents), *rest]), allowzero=True)
    return graph.call("tilewright::PickSlices", slices, indices, extents=extents, batch_dims=batch_dims)


@operator("tilewright::PickSlices", schedule="gather")
def pick_slices(data: te.Tensor, indices: te.Tensor, *, extents: tuple[int, ...], batch_dims: int) -> te.Tensor:
    """``data`` [*batch, slices, ...], whose slices are counted by axes of the ``extents``."""
    shape, picked = shape_of(data), shape_of(indices)[:-1]
    rest = shape[batch_dims + 1 :]

    def place(*i: Any) -> Any:
        counted: Any = tirx.const(0, "int32")
        for k, extent in enumerate(extents):
            counted = counted * extent + counted_from_start(indices[(*i, k)], extent)
        return counted

    places = te.compute(picked, place, "index")
    table = data
    if not rest and shape[batch_dims] <= LONGEST_TABLE * prod(picked[batch_dims:]):
        table = te.compute(shape, lambda *i: data[i], "table")

    def element(*i: Any) -> Any:
        return table[(*i[:batch_dims], places[i[: len(picked)]], *i[len(picked) :])]

    return te.compute((*picked, *rest), element, "picked")


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


def counted_from_start(index: Any, extent: Any) -> Any:
    position = index.astype("int32")
    return tirx.Select(position < 0, position + extent, position)
