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
# Nor does it where rows are so short that as many as fill a line of DDR fit UB side by side, and there are enough of
# them for all cores.
_MOST_BYTES = 512
_LEAST_ROWS = 2  # for each element of a row
_NARROW, _WIDE = 2, 4  # bytes of a floating-point number


def stay_apart(shape: tuple[int, ...], axis: int, dtype: str) -> bool:
    """Whether rows along an axis, whose elements lie apart, are best left as they lie."""
    elements, rows = shape[axis], math.prod(shape[axis + 1 :])
    if math.prod(shape) < _FEW_ELEMENTS:
        return True
    size = _WIDE if dtype == "float32" else _NARROW
    return elements * size <= _MOST_BYTES and rows >= _LEAST_ROWS * elements


def in_three_axes(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """What lies before an axis, along it, and behind it."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def along_last(graph: Graph, x: Value, axis: int, of_rows: Callable[[Any, int], Any]) -> Any:
    """What ``of_rows`` makes of a tensor and an axis. Rows whose elements lie apart are moved to the end, and back, or
    become the middle one of three axes.
    """
    shape = shape_of(x)
    at = normalised_axis(axis, len(shape))
    if math.prod(shape[at + 1 :]) == 1 or shape[at] == 1 or math.prod(shape) < _FEW_ELEMENTS:
        return of_rows(x, axis)
    apart = graph.call("Reshape", x, np.array(in_three_axes(shape, at)))
    if stay_apart(shape, at, x.dtype):
        return graph.call("Reshape", of_rows(apart, 1), np.array(shape))
    result = of_rows(graph.call("Transpose", apart, perm=(0, 2, 1)), 2)
    return graph.call("Reshape", graph.call("Transpose", result, perm=(0, 2, 1)), np.array(shape))
