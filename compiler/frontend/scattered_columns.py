"""Rows along a later axis that are put where indices say, as torch's older exporter writes ``x[:, index] = y``.

scatter_nd(data, [(i, index[j]) for i, j], updates)   ->   transpose(scatter_nd(transpose(data), index, updates))

An index for each element costs an element at a time; along the axis that is counted through, all go to the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from compiler.frontend.combined_rows import COMBINED
from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite

_SCATTER = "ScatterND"


def columns(graph: GraphBuilder, values: Sequence[Value | None], attributes: Mapping[str, Any]) -> Value | None:
    """`ScatterND` by indices that are joined of a part for each axis of the data, where

    1. some parts are known, and count through all of their axis along an axis of the indices that is theirs alone;
    2. no other part depends on that axis, and there is one that is not known.
    """
    data, indices, updates = values
    if data is None or indices is None or updates is None or indices.constant is not None:
        return None
    parts = _parts(graph, indices)
    if parts is None or len(parts) != indices.shape[-1] or len(parts) > len(data.shape):
        return None
    counted = {at: axis for at, part in enumerate(parts) if (axis := _counts_along(part, data.shape[at])) is not None}
    others = [at for at in range(len(parts)) if at not in counted]
    if not counted or not others or len(set(counted.values())) < len(counted):
        return None
    left = [_without(graph, parts[at], set(counted.values())) for at in others]
    if any(part is None for part in left):
        return None
    index = left[0] if len(left) == 1 else graph.call("Concat", *left, axis=-1)
    whole = list(counted)
    turned = (*others, *whole, *range(len(parts), len(data.shape)))
    places = range(len(indices.shape) - 1)
    counts = [counted[at] for at in whole]
    order = chain((at for at in places if at not in counts), counts, range(len(places), len(updates.shape)))
    given = [graph.call("Transpose", data, perm=turned), index, graph.call("Transpose", updates, perm=tuple(order))]
    put = COMBINED[_SCATTER](graph, given, attributes) or graph.call(_SCATTER, *given, **attributes)
    result: Value = graph.call("Transpose", put, perm=tuple(int(at) for at in np.argsort(turned)))
    return result


def _parts(graph: GraphBuilder, indices: Value) -> Sequence[Value] | None:
    """What indices are joined of along their last axis, an element each."""
    maker = graph.maker(indices)
    if maker is None or maker.operator != "Concat" or any(part.shape[-1:] != (1,) for part in maker.operands):
        return None
    return maker.operands


def _counts_along(part: Value, extent: int) -> int | None:
    """The axis along which a known part is 0, 1, 2, ... up to the extent, if it is that all over."""
    if part.constant is None:
        return None
    for axis, size in enumerate(part.shape[:-1]):
        counts = np.arange(extent).reshape([-1 if at == axis else 1 for at in range(len(part.shape))])
        if size == extent > 1 and np.array_equal(part.constant, np.broadcast_to(counts, part.shape)):
            return axis
    return None


def _without(graph: GraphBuilder, part: Value, axes: set[int]) -> Value | None:
    """A part without axes on which it does not depend; None where it may."""
    shape = [size for at, size in enumerate(part.shape) if at not in axes]
    if part.constant is not None:
        first = part.constant[tuple(slice(0, 1) if at in axes else slice(None) for at in range(part.constant.ndim))]
        return graph.constant(first.reshape(shape)) if (part.constant == first).all() else None
    given = _expanded_from(graph, part)
    if given is None:
        return None
    narrow = (*(1,) * (len(part.shape) - 1 - len(given.shape)), *given.shape)
    if any(narrow[at] != 1 for at in axes):
        return None
    kept = graph.call("Reshape", given, np.array([*(size for at, size in enumerate(narrow) if at not in axes), 1]))
    result: Value = kept if list(kept.shape) == shape else graph.call("Expand", kept, np.array(shape))
    return result


def _expanded_from(graph: GraphBuilder, part: Value) -> Value | None:
    """What was expanded, before its elements became ones of their own."""
    apart = graph.maker(part)
    if apart is None or apart.operator not in ("Unsqueeze", "Reshape") or apart.operands[0].shape != part.shape[:-1]:
        return None
    expanded = graph.maker(apart.operands[0])
    return expanded.operands[0] if expanded is not None and expanded.operator == "Expand" else None


SCATTERED_COLUMNS: Mapping[str, Rewrite] = {_SCATTER: columns}
