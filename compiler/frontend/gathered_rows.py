"""Elements that are gathered row by row, as rows: an index for each element costs an element at a time.

gather_elements(data, expand(index, [..., n, *row]), axis)   ->   gather(data, index, axis), of one index for all
                                                                  gather_nd(data, index), of one for each of a batch
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite

LEAST = 2  # elements of a row


def rows(graph: GraphBuilder, values: Sequence[Value | None], attributes: Mapping[str, Any]) -> Value | None:
    """`GatherElements` where all elements along the axes behind the one of the indices, which are whole, have the same.

    The axes before it, which are whole as well, are a batch.
    """
    data, indices = values
    if data is None or indices is None or len(data.shape) != len(indices.shape):
        return None
    axis = int(attributes.get("axis", 0)) % max(len(data.shape), 1)
    batch, row = indices.shape[:axis], indices.shape[axis + 1 :]
    if (data.shape[:axis], data.shape[axis + 1 :]) != (batch, row) or prod(row) < LEAST:
        return None
    index = _index_of_rows(graph, indices, axis)
    if index is None:
        return None
    count = indices.shape[axis]
    if prod(index.shape) == count:
        result: Value = graph.call("Gather", data, graph.call("Reshape", index, np.array([count])), axis=axis)
        return result
    place = (*index.shape[: axis + 1], 1)
    of_batch = graph.call("Expand", graph.call("Reshape", index, np.array(place)), np.array([*batch, count, 1]))
    result = graph.call("GatherND", data, of_batch, batch_dims=axis)
    return result


def _index_of_rows(graph: GraphBuilder, indices: Value, axis: int) -> Any:
    """[..., n, *ones], of as many axes as ``indices``, where they are that along each row: an array or a value."""
    shape = indices.shape
    if indices.constant is not None:
        known = np.asarray(indices.constant)
        of_rows = known[tuple(slice(0, 1 if at > axis else None) for at in range(len(shape)))]
        of_all = known[tuple(slice(0, None if at == axis else 1) for at in range(len(shape)))]
        kept = of_all if np.array_equal(np.broadcast_to(of_all, shape), known) else of_rows
        return kept if np.array_equal(np.broadcast_to(kept, shape), known) else None
    maker = graph.maker(indices)
    if maker is None or maker.operator != "Expand":
        return None
    (operand, *_) = maker.operands
    given = (1,) * (len(shape) - len(operand.shape)) + operand.shape
    if given[axis] != shape[axis] or prod(given[axis + 1 :]) != 1:
        return None
    return graph.call("Reshape", operand, np.array(given))


GATHERED: Mapping[str, Rewrite] = {"GatherElements": rows}
