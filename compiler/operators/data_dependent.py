"""Operators whose output shape depends on the elements: possible where the elements are known at compile time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import normalised_axis, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition

MAX_ELEMENTS = 1 << 24  # that are looked at: a constant may be a few bytes that stand for gigabytes


@composition("Compress")
def compress(graph: Graph, data: Value, condition: Value, *, axis: int | None = None) -> Any:
    kept = np.flatnonzero(_known(condition, "condition")).astype(np.int32)
    if axis is None:
        shape = shape_of(data)
        flat = graph.call("Reshape", data, np.array([math.prod(shape)], np.int32))
        return graph.call("Gather", flat, graph.constant(kept), axis=0)
    return graph.call("Gather", data, graph.constant(kept), axis=normalised_axis(axis, len(shape_of(data))))


@composition("NonZero")
def non_zero(graph: Graph, data: Value) -> Any:
    elements = _known(data, "data")
    return graph.constant(np.array(np.nonzero(np.atleast_1d(elements)), np.int32).reshape(elements.ndim, -1))


@composition("Unique")
def unique(graph: Graph, data: Value, *, axis: int | None = None, sorted: bool = True) -> Any:
    elements = _known(data, "data")
    values, first, inverse, counts = np.unique(
        elements, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:  # in the order of the first appearance
        order = np.argsort(first)
        values = np.take(values, order, axis=axis or 0)
        inverse, first, counts = np.argsort(order)[inverse], first[order], counts[order]
    return tuple(graph.constant(array) for array in (values, *(a.astype(np.int32) for a in (first, inverse, counts))))


def _known(value: Value, name: str) -> np.ndarray[Any, Any]:
    if value.constant is None:
        raise refusals.unsupported(
            f"the shape of the output depends on the elements of {name!r}, which are not known at compile time",
            hint="a compiled program has static shapes; use Where, TopK or a mask of the full shape instead",
        )
    if value.constant.size > MAX_ELEMENTS:
        raise refusals.too_many(
            f"elements of {name!r} decide the shape of the output", value.constant.size, MAX_ELEMENTS
        )
    return value.constant
