"""Elements that are scattered row by row, as rows: an index for each element costs an element at a time.

scatter_elements(data, expand(index, [n, width]), updates)   ->   scatter_nd(data, index, updates)

What is added to rows is combined at once (`combined_rows`), rows of one element as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from compiler.frontend.combined_rows import combined, pays
from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite
from compiler.operators.scattering import fits_as_row

LEAST = 2  # elements of a row


def rows(graph: GraphBuilder, values: Sequence[Value | None], attributes: Mapping[str, Any]) -> Value | None:
    """`ScatterElements` where all elements of an update along the other axes, which are whole, have the same index."""
    data, indices, updates = values
    if data is None or indices is None or updates is None or len(data.shape) != len(indices.shape):
        return None
    rank = len(data.shape)
    axis = int(attributes.get("axis", 0)) % max(rank, 1)
    others = [(data.shape[at], indices.shape[at]) for at in range(rank) if at != axis]
    width, reduction = prod(extent for extent, _ in others), attributes.get("reduction", "none")
    if rank == 0 or any(own != extent for extent, own in others) or updates.shape != indices.shape:
        return None
    at_once = pays(data.shape[axis], width, indices.shape[axis], data.dtype, reduction)
    if width < LEAST and (not at_once or fits_as_row(data.shape[axis], data.dtype)):
        return None
    index = _index_of_rows(graph, indices, axis)
    if index is None:
        return None
    turned = (axis, *(at for at in range(rank) if at != axis))
    back = tuple(int(at) for at in np.argsort(turned))
    given = [value if axis == 0 else graph.call("Transpose", value, perm=turned) for value in (data, updates)]
    if at_once:
        put = combined(graph, given[0], index, given[1], reduction)
    else:
        put = graph.call("ScatterND", given[0], index, given[1], reduction=reduction)
    result: Value = put if axis == 0 else graph.call("Transpose", put, perm=back)
    return result


def _index_of_rows(graph: GraphBuilder, indices: Value, axis: int) -> Any:
    """One for each position along an axis, if there is only one."""
    shape, count = indices.shape, indices.shape[axis]
    if indices.constant is not None:
        known = np.asarray(indices.constant)
        first = known[tuple(slice(None) if at == axis else slice(0, 1) for at in range(len(shape)))]
        return first.reshape(count, 1) if np.array_equal(np.broadcast_to(first, shape), known) else None
    if prod(shape) == count:
        return graph.call("Reshape", indices, np.array([count, 1]))
    maker = graph.maker(indices)
    if maker is None or maker.operator != "Expand":
        return None
    given = (1,) * (len(shape) - len(maker.operands[0].shape)) + maker.operands[0].shape
    if given != tuple(count if at == axis else 1 for at in range(len(shape))):
        return None
    return graph.call("Reshape", maker.operands[0], np.array([count, 1]))


SCATTERED: Mapping[str, Rewrite] = {"ScatterElements": rows}
