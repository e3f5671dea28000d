"""The axis that an operator works along."""

from __future__ import annotations

from compiler.operators import refusals
from compiler.operators.broadcast import normalised_axis


def within(diagonal: int, matrix: tuple[int, ...]) -> int:
    """The number of a diagonal, or of one next to the corners for all that are further away."""
    rows, columns = matrix
    return max(-rows, min(diagonal, columns))


def existing_axis(axis: int, rank: int) -> int:
    """As :func:`normalised_axis`, for operators that mean nothing without an axis: a scalar is refused."""
    if rank == 0:
        raise refusals.wrong_axis(axis, rank)
    return normalised_axis(axis, rank)
