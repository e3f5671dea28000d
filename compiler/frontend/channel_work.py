"""What works along the last axis of a tensor, as what works along the channels of a map.

x @ w          ->  convolution(x', w), with windows of single elements
layer_norm(x)  ->  a norm of x' over its channels
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend.graph import Call, GraphBuilder, Value
from compiler.operators import find_called
from compiler.operators.axes import stay_apart

NORM, _OVER_AXIS, _PRODUCT = "LayerNormalization", "tilewright::AxisNormalization", "MatMul"
_BLOCK = 16  # channels: maps of a part of so many take as long to load, and to multiply, as those of all
_RANKS = range(3, 6)  # of maps that are convolved


def is_along_last(graph: GraphBuilder, call: Call) -> bool:
    """Whether a call works along the last axis of its first operand, and is as good along the channels of a map."""
    if len(call.results) != 1 or len(call.results[0].shape) not in _RANKS or call.known:
        return False
    x, *known = call.operands
    if x.constant is not None or any(value.constant is None for value in known):
        return False
    if call.operator == _PRODUCT:
        return _is_matrix(known[0]) and x.shape[:-1] == call.results[0].shape[:-1]
    return call.operator == NORM and graph.recipes[call.function].number == 0 and _is_norm_of_channels(call)


def is_to_channels(order: Sequence[int]) -> bool:
    """Whether the last axis becomes the second one behind the first, which stays."""
    return order[0] == 0 and order[-1] == 1


def along_channels(graph: GraphBuilder, call: Call, x: Value) -> None:
    """Make what a call makes, of a map with the last axis of the call's operand as its channels."""
    _, *known = call.operands
    if call.operator == NORM:
        attributes = {"axis": 1, "epsilon": call.attributes.get("epsilon", 1e-5)}
        graph.apply(find_called(_OVER_AXIS), [x, *known], attributes, outputs=1)
        return
    (matrix,) = known
    array = np.asarray(matrix.constant).T
    array = np.ascontiguousarray(array).reshape(*array.shape, *(1 for _ in x.shape[2:]))
    weights = Value(matrix.name, array.shape, matrix.dtype, matrix.element_type, array)
    graph.apply(find_called("Conv"), [x, weights], {}, outputs=1)


def _is_matrix(weights: Value) -> bool:
    array = np.asarray(weights.constant)
    return array.ndim == 2 and np.issubdtype(array.dtype, np.floating) and not any(n % _BLOCK for n in array.shape)


def _is_norm_of_channels(call: Call) -> bool:
    x, *terms = call.operands
    batch, *places, channels = x.shape
    last = call.attributes.get("axis", -1) in (-1, len(x.shape) - 1)
    alike = all(term.shape == (channels,) for term in terms)
    return last and alike and stay_apart((batch, channels, *places), 1, x.dtype)
