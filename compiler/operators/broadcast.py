"""Shapes, element types and reading with broadcast: what every operator's TE begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The static shape of a te.Tensor, an array or a Value."""
    return tuple(int(extent) for extent in tensor.shape)


def dtype_of(tensor: Any) -> str:
    return tensor.dtype.name if isinstance(tensor, np.ndarray) else str(tensor.dtype)


def broadcast_shape(**tensors: Any) -> tuple[int, ...]:
    """The shape that all broadcast to by numpy's rules; the names are those of the inputs, for the message."""
    shapes = [shape_of(tensor) for tensor in tensors.values()]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise refusals.wrong_shape("shapes must broadcast", **tensors) from None


def read(tensor: te.Tensor | np.ndarray[Any, Any], indices: Sequence[Any]) -> Any:
    """The element that broadcasting puts at ``indices`` of the result; an array has one element and is a literal."""
    if isinstance(tensor, np.ndarray):
        return tirx.const(tensor.reshape(-1)[0].item(), dtype_of(tensor))
    shape = shape_of(tensor)
    own = indices[len(indices) - len(shape) :]
    return tensor[tuple(0 if extent == 1 else index for extent, index in zip(shape, own, strict=True))]


def normalised_axis(axis: int, rank: int) -> int:
    """A negative axis counts from the end."""
    if not -rank <= axis < max(rank, 1):
        raise refusals.wrong_axis(axis, rank)
    return axis % rank if rank else 0


def normalised_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Sorted, each once."""
    return tuple(sorted({normalised_axis(int(axis), rank) for axis in axes}))
