"""Shapes, element types and reading with broadcast: what every operator's TE begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes  # noqa: F401 - makes bfloat16 a type that numpy knows by name
import numpy as np
from tvm import te, tirx

from compiler.operators import refusals

FLOATS = ("float32", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32")
INTEGERS = (*SIGNED, "uint8", "uint16", "uint32")
NUMBERS = (*FLOATS, *INTEGERS)
_NARROWER = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The static shape of a te.Tensor, an array or a Value."""
    return tuple(int(extent) for extent in tensor.shape)


def dtype_of(tensor: Any) -> str:
    return tensor.dtype.name if isinstance(tensor, np.ndarray) else str(tensor.dtype)


def element_dtype(expression: Any) -> str:
    """The type of one element: of an expression, or of a tensor read at some indices."""
    return str(expression.expr_ty())


def broadcast_shape(**tensors: Any) -> tuple[int, ...]:
    """The shape that all broadcast to by numpy's rules; the names are those of the inputs, for the message."""
    shapes = [shape_of(tensor) for tensor in tensors.values()]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise refusals.wrong_shape("shapes must broadcast", **tensors) from None


def result_dtype(tensor: Any) -> str:
    """The element type on the machine, which has no 64-bit data."""
    dtype = dtype_of(tensor)
    return _NARROWER.get(dtype, dtype)


def require_dtype(dtypes: Sequence[str], **tensors: Any) -> None:
    """Refuses tensors whose elements are of another type than ``dtypes``."""
    if any(result_dtype(tensor) not in dtypes for tensor in tensors.values()):
        names = " and ".join(tensors)
        raise refusals.wrong_dtype(f"{names} must be of {', '.join(dtypes)}", **tensors)


def literal(value: Any, dtype: str) -> Any:
    """A number as an element of type ``dtype``; an integer too large for it saturates."""
    if isinstance(value, np.ndarray):
        value = value.reshape(-1)[0].item()
    if dtype == "bool":
        return tirx.const(bool(value), dtype)
    if "int" in dtype:
        limits = np.iinfo(dtype)
        return tirx.const(min(max(int(value), int(limits.min)), int(limits.max)), dtype)
    return tirx.const(float(value), dtype)


def read(tensor: te.Tensor | np.ndarray[Any, Any], indices: Sequence[Any]) -> Any:
    """The element that broadcasting puts at ``indices`` of the result; an array has one element and is a literal."""
    if isinstance(tensor, np.ndarray):
        return literal(tensor, result_dtype(tensor))
    return tensor[broadcast_index(shape_of(tensor), indices)]


def broadcast_index(shape: Sequence[int], indices: Sequence[Any]) -> tuple[Any, ...]:
    """Where a tensor of ``shape`` is read for ``indices`` of the result: at 0 where it has one element."""
    own = indices[len(indices) - len(shape) :]
    return tuple(0 if extent == 1 else index for extent, index in zip(shape, own, strict=True))


def in_float32(function: Callable[..., Any], *values: Any) -> Any:
    """``function`` of ``values``, of 16 bits or 32, computed in float32 and rounded once to their type."""
    dtype = element_dtype(values[0])
    if dtype == "float32":
        return function(*values)
    return function(*(value.astype("float32") for value in values)).astype(dtype)


def normalised_axis(axis: int, rank: int) -> int:
    """A negative axis counts from the end."""
    if not -rank <= axis < max(rank, 1):
        raise refusals.wrong_axis(axis, rank)
    return axis % rank if rank else 0


def normalised_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Sorted, each once. A scalar has none, though ONNX lets it be asked for axis 0."""
    checked = {normalised_axis(int(axis), rank) for axis in axes}
    return tuple(sorted(checked)) if rank else ()
