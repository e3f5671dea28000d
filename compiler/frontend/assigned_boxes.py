"""Scatters into a box of the data, as torch's older exporter writes ``x[:, a:b] = y``, which need no indices.

scatter_nd(data, indices of [a:b, c:d, ...] in order, updates)   ->   data's slices around the box, and updates in it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite

_REDUCTIONS = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
Box = list[tuple[int, int]]


def box(graph: GraphBuilder, values: Sequence[Value | None], attributes: Mapping[str, Any]) -> Value | None:
    """`ScatterND` with known indices that count through a box of the axes that they are of, each place once."""
    data, indices, updates = values
    if data is None or indices is None or updates is None or indices.constant is None or not indices.shape:
        return None
    depth = indices.shape[-1]
    if not 0 < depth <= len(data.shape) or updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
        return None
    ends = _box(np.asarray(indices.constant).reshape(-1, depth), data.shape[:depth])
    if ends is None:
        return None
    placed = graph.call("Reshape", updates, np.array([end - start for start, end in ends] + [*data.shape[depth:]]))
    reduction = attributes.get("reduction", "none")
    if reduction != "none":
        inside = data
        for axis, (start, end) in enumerate(ends):
            inside = _part(graph, inside, axis, start, end)
        placed = graph.call(_REDUCTIONS[reduction], inside, placed)
    return _assigned(graph, data, placed, ends, 0)


def _box(places: np.ndarray[Any, Any], extents: tuple[int, ...]) -> Box | None:
    """Where the box begins and ends on each axis, if ``places`` [count, axes] are all of its own, in order."""
    if not len(places):
        return None
    counted = np.where(places < 0, places + np.array(extents), places)
    starts, ends = counted.min(axis=0), counted.max(axis=0) + 1
    if prod(int(extent) for extent in ends - starts) != len(places):
        return None
    expected = np.indices(ends - starts).reshape(len(extents), -1).T + starts
    return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True)] if np.array_equal(counted, expected) else None


def _assigned(graph: GraphBuilder, data: Value, updates: Value, ends: Box, axis: int) -> Value:
    """``data`` with ``updates`` in the box, of which the axes before ``axis`` are whole."""
    while axis < len(ends) and ends[axis] == (0, data.shape[axis]):
        axis += 1
    if axis == len(ends):
        return updates
    start, end = ends[axis]
    inside = _assigned(graph, _part(graph, data, axis, start, end), updates, ends, axis + 1)
    around = [(0, start), (end, data.shape[axis])]
    before, behind = ([_part(graph, data, axis, a, b)] if a < b else [] for a, b in around)
    result: Value = graph.call("Concat", *before, inside, *behind, axis=axis)
    return result


def _part(graph: GraphBuilder, data: Value, axis: int, start: int, end: int) -> Value:
    if (start, end) == (0, data.shape[axis]):
        return data
    result: Value = graph.call("Slice", data, np.array([start]), np.array([end]), np.array([axis]))
    return result


ASSIGNED: Mapping[str, Rewrite] = {"ScatterND": box}
