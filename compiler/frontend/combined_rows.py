"""Rows that are added where indices say, as graph networks sum messages, at once: one after the other they are a loop.

scatter_nd(data, index, updates, "max")   ->   max(reduce_max(where(one_hot(index), updates, -inf)), data), or others
scatter_nd(data, index, updates, "add")   ->   add(matmul(one_hot(index), updates), data), of many elements

Zero times what is infinite or no number is no number: of a product such elements are counted, in the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from typing import Any

import numpy as np

from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite, Values
from compiler.frontend.types import numpy_dtype

# Measured on tw2 in fp16: as a loop an update takes 115 cycles, 400 where the data does not fit a core. At once all
# take about 1,200, and one more for 200 elements that are compared; as a product 3,600, and few more.
_LEAST = 16  # updates
_MOST_PLACES = 1 << 24  # elements of the matrix, and of what is reduced
_MOST_COMPARED = 1 << 16  # elements of the data whose extremes are taken
_MOST_ADDED = 1 << 19  # elements of what is reduced; of more sums, products are faster
# How rows are reduced, and combined with the data; what changes nothing.
_REDUCTIONS = {"add": ("ReduceSum", "Add", 0), "max": ("ReduceMax", "Max", -inf), "min": ("ReduceMin", "Min", inf)}


def pays(rows: int, width: int, count: int, dtype: str, reduction: str) -> bool:
    """Whether ``count`` updates for so many rows are better combined at once.

    1. They are floats: the matrix unit has no sums of int32.
    2. There are enough, and what says which one goes where is not too large.
    """
    if "float" not in dtype or count < _LEAST:
        return False
    if reduction == "add":
        return rows * count <= _MOST_PLACES
    return reduction in _REDUCTIONS and rows * width <= _MOST_COMPARED and rows * width * count <= _MOST_PLACES


def combined(graph: GraphBuilder, data: Value, index: Any, updates: Value, reduction: str) -> Value:
    """The data, and with each row of it all updates whose ``index``, one for each, is that of the row."""
    shape, count = data.shape, prod(index.shape)
    index, rows = _shaped(graph, index, (count,)), _shaped(graph, updates, (count, prod(shape[1:])))

    def places(dtype: Any) -> Any:
        return graph.call("OneHot", index, np.array(shape[0]), np.array([0, 1], dtype), axis=0)

    reduce, either, none = _REDUCTIONS[reduction]
    if reduction == "add" and shape[0] * prod(rows.shape) > _MOST_ADDED:
        each = _sums(graph, places(numpy_dtype(updates.dtype)), rows)
    else:
        here = _shaped(graph, places(np.bool_), (shape[0], count, 1))
        given = graph.call("Where", here, rows, np.array(none, numpy_dtype(updates.dtype)))
        each = graph.call(reduce, given, np.array([1]), keepdims=0)
    result: Value = graph.call(either, _shaped(graph, each, shape), data)
    return result


def _sums(graph: GraphBuilder, places: Any, rows: Any) -> Any:
    """``matmul(places, rows)`` of places that are zero or one, where only a one lets anything through.

    matmul(places, [finite rows, not below infinity, not above its opposite]), then infinities where those were counted
    """
    if rows.constant is not None and np.isfinite(rows.constant).all():
        return graph.call("MatMul", places, rows)
    zero, one, most, least = (np.array(value, numpy_dtype(rows.dtype)) for value in (0, 1, inf, -inf))
    is_below, is_above = graph.call("Less", rows, most), graph.call("Greater", rows, least)
    finite = graph.call("Where", graph.call("And", is_below, is_above), rows, zero)
    counted = [graph.call("Where", each, zero, one) for each in (is_below, is_above)]
    whole = graph.call("MatMul", places, graph.call("Concat", finite, *counted, axis=1))
    sums, high, low = graph.call("Split", whole, axis=1, num_outputs=3)
    for count, infinite in ((high, most), (low, least)):
        sums = graph.call("Add", sums, graph.call("Where", graph.call("Greater", count, zero), infinite, zero))
    return sums


def _shaped(graph: GraphBuilder, value: Any, shape: tuple[int, ...]) -> Any:
    return value if value.shape == shape else graph.call("Reshape", value, np.array(shape))


def rows(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    """`ScatterND` of whole rows."""
    data, indices, updates = values
    if data is None or indices is None or updates is None or indices.shape[-1:] != (1,):
        return None
    if not data.shape or updates.shape != (*indices.shape[:-1], *data.shape[1:]):
        return None
    count, reduction = prod(indices.shape), attributes.get("reduction", "none")
    if not pays(data.shape[0], prod(data.shape[1:]), count, data.dtype, reduction):
        return None
    return combined(graph, data, indices, updates, reduction)


COMBINED: Mapping[str, Rewrite] = {"ScatterND": rows}
