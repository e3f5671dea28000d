"""Elements that are scattered row by row, as rows: an index for each element costs an element at a time.

scatter_elements(data, expand(index, [n, width]), updates)   ->   scatter_nd(data, index, updates)
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
    """`ScatterElements` where all elements of an update along the other axes, which are whole, have the same index."""
    data, indices, updates = values
    if data is None or indices is None or updates is None or len(data.shape) != len(indices.shape):
        return None
    rank = len(data.shape)
    axis = int(attributes.get("axis", 0)) % max(rank, 1)
    others = [(data.shape[at], indices.shape[at]) for at in range(rank) if at != axis]
    width = prod(extent for extent, _ in others)
    if any(own != extent for extent, own in others) or width < LEAST or updates.shape != indices.shape:
        return None
    index = _index_of_rows(graph, indices, axis)
    if index is None:
        return None
    turned = (axis, *(at for at in range(rank) if at != axis))
    back = tuple(int(at) for at in np.argsort(turned))
    given = [value if axis == 0 else graph.call("Transpose", value, perm=turned) for value in (data, updates)]
    put = graph.call("ScatterND", given[0], index, given[1], reduction=attributes.get("reduction", "none"))
    result: Value = put if axis == 0 else graph.call("Transpose", put, perm=back)
    return result


def _index_of_rows(graph: GraphBuilder, indices: Value, axis: int) -> Any:
    """One for each position along an axis, if there is only one."""
    shape, count = indices.shape, indices.shape[axis]
    if indices.constant is not None:
        known = np.asarray(indices.constant)
        first = known[tuple(slice(None) if at == axis else slice(0, 1) for at in range(len(shape)))]
        return first.reshape(count, 1) if np.array_equal(np.broadcast_to(first, shape), known) else None
    maker = graph.maker(indices)
    if maker is None or maker.operator != "Expand":
        return None
    given = (1,) * (len(shape) - len(maker.operands[0].shape)) + maker.operands[0].shape
    if given != tuple(count if at == axis else 1 for at in range(len(shape))):
        return None
    return graph.call("Reshape", maker.operands[0], np.array([count, 1]))


SCATTERED: Mapping[str, Rewrite] = {"ScatterElements": rows}
