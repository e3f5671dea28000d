"""Running sums and products along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition
from compiler.operators.running import KINDS, NARROW
from compiler.operators.signature import Constant, only

LONGEST = 8192  # elements of a row that is one piece
COMBINE = {"Sum": "Add", "Prod": "Mul"}


@composition("CumSum")
def cum_sum(graph: Graph, x: Value, axis: Constant, *, exclusive: bool = False, reverse: bool = False) -> Any:
    return _along(graph, "Sum", x, int(only("axis", axis)), exclusive, reverse)


@composition("CumProd")
def cum_prod(graph: Graph, x: Value, axis: Constant, *, exclusive: bool = False, reverse: bool = False) -> Any:
    return _along(graph, "Prod", x, int(only("axis", axis)), exclusive, reverse)


def _along(graph: Graph, what: str, x: Value, axis: int, exclusive: bool, reverse: bool) -> Any:
    shape = shape_of(x)
    axis, last = existing_axis(axis, len(shape)), len(shape) - 1
    if 0 in shape:
        return graph.call("Identity", x)
    extent = shape[axis] if shape else 1
    perm = (*(at for at in range(last + 1) if at != axis), axis)
    turned = x if axis == last else graph.call("Transpose", x, perm=perm)
    rows = graph.call("Reshape", turned, np.array([-1, extent]))
    found = graph.call("Reshape", _of_rows(graph, what, rows, exclusive, reverse), np.array(shape_of(turned)))
    return found if axis == last else graph.call("Transpose", found, perm=tuple(map(perm.index, range(last + 1))))


def _of_rows(graph: Graph, what: str, x: Value, exclusive: bool, reverse: bool) -> Value:
    """Long rows piece by piece: what each piece comes to is accumulated likewise, and combined with the next ones.

    A type of 16 bits is accumulated in float32 and rounded once at the end.
    """
    (rows, length), dtype = shape_of(x), dtype_of(x)
    result: Value
    if length <= LONGEST:
        result = graph.call("tilewright::Running", x, what=what, exclusive=exclusive, reverse=reverse)
        return result
    count = -(-length // LONGEST)
    width = -(-length // count)
    result = as_dtype(graph, x, "float32") if dtype in NARROW else x
    neutral = np.array(KINDS[what].neutral, np.int32 if "int" in dtype else np.float32)
    if count * width > length:
        result = graph.call("Pad", result, np.array([0, count * width - length]), neutral, np.array([1]))
    pieces = graph.call("Reshape", result, np.array([rows * count, width]))
    within = graph.call("tilewright::Running", pieces, what=what, exclusive=exclusive, reverse=reverse)
    all_of_each = graph.call("Reshape", graph.call(f"Reduce{what}", pieces, np.array([1])), np.array([rows, count]))
    before = graph.call("Reshape", _of_rows(graph, what, all_of_each, True, reverse), np.array([rows * count, 1]))
    result = graph.call("Reshape", graph.call(COMBINE[what], within, before), np.array([rows, count * width]))
    if count * width > length:
        result = graph.call("Slice", result, np.array([0]), np.array([length]), np.array([1]))
    return as_dtype(graph, result, dtype)
