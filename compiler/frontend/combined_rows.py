"""Rows that are added where indices say, as graph networks sum messages, at once: one after the other they are a loop.

scatter_nd(data, index, updates, "add")   ->   add(matmul(one_hot(index), updates), data)
scatter_nd(data, index, updates, "max")   ->   max(reduce_max(where(one_hot(index), updates, -inf)), data), or of "min"

As in all products of the matrix unit, what is infinite makes all sums of its column no numbers.
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
# take about 1,200, and one more for 400 elements of the matrix, or for 200 that are compared.
_LEAST = 16  # updates
_MOST_PLACES = 1 << 24  # elements of the matrix, and of what is reduced
_MOST_COMPARED = 1 << 16  # elements of the data whose extremes are taken
_EXTREMES = {"max": ("ReduceMax", "Max", -inf), "min": ("ReduceMin", "Min", inf)}


def pays(rows: int, width: int, count: int, dtype: str, reduction: str) -> bool:
    """Whether ``count`` updates for so many rows are better combined at once.

    1. They are floats: the matrix unit has no sums of int32.
    2. There are enough, and what says which one goes where is not too large.
    """
    if "float" not in dtype or count < _LEAST:
        return False
    if reduction == "add":
        return rows * count <= _MOST_PLACES
    return reduction in _EXTREMES and rows * width <= _MOST_COMPARED and rows * width * count <= _MOST_PLACES


def combined(graph: GraphBuilder, data: Value, index: Any, updates: Value, reduction: str) -> Value:
    """The data, and with each row of it all updates whose ``index``, one for each, is that of the row."""
    shape, count = data.shape, prod(index.shape)
    index, rows = _shaped(graph, index, (count,)), _shaped(graph, updates, (count, prod(shape[1:])))

    def places(dtype: Any) -> Any:
        return graph.call("OneHot", index, np.array(shape[0]), np.array([0, 1], dtype), axis=0)

    result: Value
    if reduction == "add":
        result = _shaped(graph, graph.call("MatMul", places(numpy_dtype(updates.dtype)), rows), shape)
        nothing = data.constant is not None and not np.any(data.constant)
        return result if nothing else graph.call("Add", result, data)
    reduce, either, none = _EXTREMES[reduction]
    here = _shaped(graph, places(np.bool_), (shape[0], count, 1))
    each = graph.call("Where", here, rows, np.array(none, numpy_dtype(updates.dtype)))
    best = graph.call(reduce, each, np.array([1]), keepdims=0)
    result = graph.call(either, _shaped(graph, best, shape), data)
    return result


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
