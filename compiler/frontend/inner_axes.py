"""Moves of single elements: what picks or joins along a last axis, as moves of longer runs.

Pairs are taken apart and put together again so, as rotary embeddings do: each element for itself costs a line of DDR.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.frontend.graph import GraphBuilder, Value
from compiler.operators.columns import pays, picked_columns

_FEW = 16  # elements of the last axis
_LEAST_ELEMENTS = 1024  # of the result: moves of less take as long as another kernel

Values = Sequence[Value | None]
Rewrite = Callable[[GraphBuilder, Values, Mapping[str, Any]], Value | None]


def picked(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    """`Gather` of one known index: every so many elements of the last two axes as one. That of more: of rows."""
    data, indices = values
    if data is None or indices is None or data.constant is not None:
        return None
    shape, known = data.shape, indices.constant
    axis, extent = int(attributes.get("axis", 0)), shape[-1] if shape else 0
    if len(shape) < 2 or axis not in (-1, len(shape) - 1):
        return None
    if pays(shape, known, math.prod(indices.shape)):
        return picked_columns(graph, data, indices)
    if known is None or known.size != 1 or not 1 < extent <= _FEW:
        return None
    index, count = int(known.reshape(-1)[0]), math.prod(shape[:-1])
    if not -extent <= index < extent or count < _LEAST_ELEMENTS:
        return None
    whole = graph.call("Reshape", data, np.array([*shape[:-2], shape[-2] * extent]))
    bounds = (np.array([at], np.int64) for at in (index % extent, shape[-2] * extent, len(shape) - 2, extent))
    result: Value = graph.call("Reshape", graph.call("Slice", whole, *bounds), np.array([*shape[:-1], *known.shape]))
    return result


def joined(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    """`Concat` of single elements: one tensor behind the other, then turned."""
    given = [value for value in values if value is not None]
    shape = given[0].shape if given else ()
    alike = all(value.shape == shape and value.dtype == given[0].dtype for value in given)
    if len(given) < 2 or len(given) > _FEW or len(shape) < 2 or shape[-1] != 1 or not alike:
        return None
    if int(attributes.get("axis", 0)) not in (-1, len(shape) - 1) or math.prod(shape) < _LEAST_ELEMENTS:
        return None
    rows = [graph.call("Reshape", value, np.array([1, math.prod(shape)])) for value in given]
    turned = graph.call("Transpose", graph.call("Concat", *rows, axis=0), perm=(1, 0))
    result: Value = graph.call("Reshape", turned, np.array([*shape[:-1], len(given)]))
    return result


INNER_AXES: Mapping[str, Rewrite] = {"Gather": picked, "Concat": joined}
