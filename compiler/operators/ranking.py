"""TopK by counting: how many elements of a row come before each is its rank, and its place in the result.

No element is compared under a condition, so that the vector unit does all of it: for rows of up to a few thousand the
square of their length is cheaper than the scalar unit's loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator
from compiler.operators.signature import Constant, only

# Measured on tw1: a row of 1000 takes 27k cycles and one of 4096 252k; scalar loops take about 2.7k for each element.
MAX_RANKED = 4096


@composition("TopK")
def top_k(
    graph: Graph, x: Value, k: Constant, *, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    """The ``k`` largest (or smallest) along ``axis`` in order, and their indices; the first of equal ones first."""
    axis = existing_axis(axis, len(shape_of(x)))
    extent, count = shape_of(x)[axis], int(only("k", k))
    if not 0 < count <= extent:
        raise refusals.wrong_value(f"must be 1 to {extent}, the extent of axis {axis}", "k", count)
    if count == 1:
        best, place = ("ReduceMax", "ArgMax") if largest else ("ReduceMin", "ArgMin")
        return graph.call(best, x, np.array([axis]), keepdims=True), graph.call(place, x, axis=axis, keepdims=True)
    if extent > MAX_RANKED:
        values, indices = graph.call("tilewright::TopKByLoops", x, k=count, axis=axis, largest=largest)
        return values, indices
    rank = graph.call("tilewright::Rank", x, axis=axis, largest=largest)
    return (
        graph.call("tilewright::AtRank", x, rank, k=count, axis=axis),
        graph.call("tilewright::IndexOfRank", rank, k=count, axis=axis),
    )


@operator("tilewright::Rank", schedule="reduction")
def rank(x: te.Tensor, *, axis: int, largest: bool = True) -> te.Tensor:
    """How many elements along ``axis`` come before each; float32, in which any count up to MAX_RANKED is exact."""
    shape = shape_of(x)
    other = te.reduce_axis((0, shape[axis]), "other")

    def count(*i: Any) -> Any:
        mine, theirs = x[i], x[_with(i, axis, other)]
        before = theirs > mine if largest else theirs < mine
        first_of_equal = tirx.all(tirx.EQ(theirs, mine), other < i[axis])
        return te.sum(tirx.Select(tirx.any(before, first_of_equal), _f32(1), _f32(0)), axis=other)

    return te.compute(shape, count, "rank")


@operator("tilewright::AtRank", schedule="reduction")
def at_rank(x: te.Tensor, rank: te.Tensor, *, k: int, axis: int) -> te.Tensor:
    """The elements of the first ``k`` ranks."""
    shape = shape_of(x)
    position = te.reduce_axis((0, shape[axis]), "position")
    least = tirx.min_value(dtype_of(x))

    def element(*i: Any) -> Any:
        place = _with(i, axis, position)
        here = tirx.EQ(rank[place], i[axis].astype("float32"))
        return te.max(tirx.Select(here, x[place], least), axis=position)

    return te.compute(_with(shape, axis, k), element, "at_rank")


@operator("tilewright::IndexOfRank", schedule="reduction")
def index_of_rank(rank: te.Tensor, *, k: int, axis: int) -> te.Tensor:
    """Where the first ``k`` ranks are."""
    shape = shape_of(rank)
    position = te.reduce_axis((0, shape[axis]), "position")

    def index(*i: Any) -> Any:
        here = tirx.EQ(rank[_with(i, axis, position)], i[axis].astype("float32"))
        return te.sum(tirx.Select(here, position.astype("float32"), _f32(0)), axis=position)

    found = te.compute(_with(shape, axis, k), index, "index_of_rank")
    return te.compute(shape_of(found), lambda *i: found[i].astype("int32"), "index")


def _with(indices: Sequence[Any], axis: int, index: Any) -> tuple[Any, ...]:
    return (*indices[:axis], index, *indices[axis + 1 :])


def _f32(value: float) -> Any:
    return tirx.const(value, "float32")
