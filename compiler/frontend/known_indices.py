"""Indices that a model holds itself: all of them have to be in the axis that they count along."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from compiler.frontend.graph import Value
from compiler.operators import refusals

Extents: TypeAlias = "int | np.ndarray[Any, Any]"


def check_known_indices(operator: str, values: Sequence[Value | None], attributes: Mapping[str, Any]) -> None:
    """Raises the refusal that `Gather` has, for operators of ONNX to which known indices are data like others.

    What else may be wrong with the operands is said by the operator.
    """
    if operator not in _EXTENTS or len(values) < 2 or values[0] is None or values[1] is None:
        return
    indices = values[1].constant
    if indices is None or indices.size == 0:
        return
    extents = _EXTENTS[operator](values[0].shape, indices, attributes)
    if extents is None:
        return
    outside = (indices < -extents) | (indices >= extents)
    if outside.any():
        at = tuple(np.argwhere(outside)[0])
        extent = int(np.broadcast_to(extents, indices.shape)[at])
        raise refusals.wrong_value(f"must be in an axis of {extent}", "indices", int(indices[at]))


def _along_axis(shape: tuple[int, ...], indices: np.ndarray[Any, Any], attributes: Mapping[str, Any]) -> Extents | None:
    axis = int(attributes.get("axis", 0))
    return shape[axis] if -len(shape) <= axis < len(shape) else None


def _of_tuples(shape: tuple[int, ...], indices: np.ndarray[Any, Any], attributes: Mapping[str, Any]) -> Extents | None:
    """The last axis of the indices counts the axes of the data, behind those of the batch."""
    first = int(attributes.get("batch_dims", 0))
    if indices.ndim == 0 or first < 0 or first + indices.shape[-1] > len(shape):
        return None
    return np.array(shape[first : first + indices.shape[-1]], np.int64)


_EXTENTS: Mapping[str, Callable[..., Extents | None]] = {
    "GatherElements": _along_axis,
    "ScatterElements": _along_axis,
    "Scatter": _along_axis,
    "GatherND": _of_tuples,
    "ScatterND": _of_tuples,
}
BY_INDICES, INDICES = frozenset({"Gather", *_EXTENTS}), 1  # operators, and which of their operands these are
