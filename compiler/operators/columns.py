"""Picking along the last axis as rows: each element for itself costs a line of DDR, or a look-up.

gather(data, indices, axis=-1)   ->   transpose(gather(transpose(data), indices, axis=0)), of matrices
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.operators.broadcast import shape_of
from compiler.operators.gathering import is_in_runs
from compiler.operators.graph import Graph, Value
from compiler.operators.runs import runs_of
from compiler.operators.sampling import reshaped

# Fewer elements are picked as fast as a matrix is turned twice: measured on tw1, where that pays from 1,024 on, and on
# tw2, where it does from 4,096 on. Of known indices in runs, what lies side by side is copied at once: of pairs of 7 to
# 13 features, 6,144 to 12,288 stretches take 3 to 13 % less time as they lie, and 24,576 take 22 to 29 % more.
_LEAST_ELEMENTS = 1 << 12
_LEAST_STRETCHES = 1 << 14
_LEAST_ROWS = 8
_MOST_LEFT_OUT = 8  # times as many columns as are picked: all of them are turned
_LONG = 8  # columns side by side, which are copied as they lie


def pays(shape: tuple[int, ...], indices: np.ndarray[Any, Any] | None, count: int) -> bool:
    """Whether ``count`` columns of data of ``shape`` are better rows; ``indices`` where they are known."""
    rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 0
    if rows < _LEAST_ROWS or columns > _MOST_LEFT_OUT * count:
        return False
    if indices is None or not is_in_runs(indices):
        return rows * count >= _LEAST_ELEMENTS
    if indices.ndim != 1 or len(runs_of(indices)) == 1:
        return False
    stretches = 1 + np.count_nonzero(np.diff(indices) != 1)
    return bool(count < _LONG * stretches and rows * stretches >= _LEAST_STRETCHES)


def picked_columns(graph: Graph, data: Value, indices: Value) -> Any:
    """``data[..., indices]``."""
    *outer, columns = shape_of(data)
    picked = shape_of(indices)
    turned = graph.call("Transpose", reshaped(graph, data, math.prod(outer), columns), perm=(1, 0))
    rows = graph.call("Gather", turned, reshaped(graph, indices, math.prod(picked)), axis=0)
    return reshaped(graph, graph.call("Transpose", rows, perm=(1, 0)), *outer, *picked)
