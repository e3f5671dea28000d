"""The axis that an operator works along."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import normalised_axis, shape_of
from compiler.operators.graph import Graph, Value


def within(diagonal: int, matrix: tuple[int, ...]) -> int:
    """The number of a diagonal, or of one next to the corners for all that are further away."""
    rows, columns = matrix
    return max(-rows, min(diagonal, columns))


def existing_axis(axis: int, rank: int) -> int:
    """As :func:`normalised_axis`, for operators that mean nothing without an axis: a scalar is refused."""
    if rank == 0:
        raise refusals.wrong_axis(axis, rank)
    return normalised_axis(axis, rank)


# Of fewer elements it takes no longer to go through rows that lie apart than to move them, in kernels of their own.
_FEW_ELEMENTS = 2048


def along_last(graph: Graph, x: Value, axis: int, of_rows: Callable[[Any, int], Any]) -> Any:
    """What ``of_rows`` makes of a tensor and an axis. Rows whose elements lie apart are moved to the end, and back."""
    shape = shape_of(x)
    at = normalised_axis(axis, len(shape))
    if math.prod(shape[at + 1 :]) == 1 or shape[at] == 1 or math.prod(shape) < _FEW_ELEMENTS:
        return of_rows(x, axis)
    apart = graph.call("Reshape", x, np.array([math.prod(shape[:at]), shape[at], math.prod(shape[at + 1 :])]))
    result = of_rows(graph.call("Transpose", apart, perm=(0, 2, 1)), 2)
    return graph.call("Reshape", graph.call("Transpose", result, perm=(0, 2, 1)), np.array(shape))
