"""Elements that are gathered from a grid, as torch writes ``mask[rows[:, None], columns]``, axis by axis.

gather_nd(data, [(rows[i], columns[j]) for i, j])   ->   gather(gather(data, rows, 0), columns, 1)

An index for each element costs an element at a time, and where nothing depends on ``i``, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite


def grid(graph: GraphBuilder, values: Sequence[Value | None], attributes: Mapping[str, Any]) -> Value | None:
    """`GatherND` with known indices, of which no two count along the same axis of the result, nor along the batch."""
    data, indices = values
    if data is None or indices is None or indices.constant is None or 0 in indices.shape or not indices.shape:
        return None
    batch, (*places, depth) = int(attributes.get("batch_dims", 0)), indices.shape
    if batch > len(places) or batch + depth > len(data.shape):
        return None
    picked = [_where_it_varies(indices.constant[..., axis]) for axis in range(depth)]
    axes = [[at for at, size in enumerate(index.shape) if size > 1] for index in picked]
    order = list(chain(*axes))
    if len(set(order)) < len(order) or any(axis < batch for axis in order):
        return None
    result = data
    for axis in sorted(range(depth), key=lambda axis: picked[axis].size / data.shape[batch + axis]):
        result = _gathered(graph, result, picked[axis].reshape(-1), batch + axis)
    front, rest = data.shape[:batch], data.shape[batch + depth :]
    result = graph.call("Reshape", result, np.array([*front, *(places[axis] for axis in order), *rest], np.int64))
    turn = [*range(batch), *(batch + order.index(axis) for axis in sorted(order))]
    turn += range(len(turn), len(turn) + len(rest))
    if turn != sorted(turn):
        result = graph.call("Transpose", result, perm=tuple(turn))
    sizes = [size if axis < batch or axis in order else 1 for axis, size in enumerate(places)]
    result = graph.call("Reshape", result, np.array([*sizes, *rest], np.int64))
    return result if sizes == places else graph.call("Expand", result, np.array([*places, *rest], np.int64))


def _where_it_varies(index: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """With one position of each axis along which all are the same."""
    for axis in range(index.ndim):
        first = index[(slice(None),) * axis + (slice(0, 1),)]
        if (index == first).all():
            index = first
    return index


def _gathered(graph: GraphBuilder, data: Value, index: np.ndarray[Any, Any], axis: int) -> Value:
    extent = data.shape[axis]
    is_whole = np.array_equal(np.where(index < 0, index + extent, index), np.arange(extent))
    result: Value = data if is_whole else graph.call("Gather", data, index, axis=axis)
    return result


GRIDS: Mapping[str, Rewrite] = {"GatherND": grid}
