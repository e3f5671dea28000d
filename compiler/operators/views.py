"""The same bytes under another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.runtime import DataType

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, normalised_axes, normalised_axis, shape_of
from compiler.operators.cast import converted_element, onnx_dtype
from compiler.operators.registry import operator
from compiler.operators.signature import Constant, only

NARROWED = (7, 11, 13)  # int64, double and uint64 of ONNX: values are kept in 32 bits, so that their bits are others


@operator("Reshape", schedule="view")
def reshape(data: te.Tensor, shape: Constant, *, allowzero: bool = False) -> te.Tensor:
    """0 copies an extent of the input unless ``allowzero``; one -1 takes what is left."""
    given = shape_of(data)
    wanted = [int(extent) for extent in shape]
    if not allowzero:
        if any(extent == 0 and axis >= len(given) for axis, extent in enumerate(wanted)):
            raise refusals.wrong_shape("a 0 in shape must stand where the input has an axis", data=data, shape=wanted)
        wanted = [given[axis] if extent == 0 else extent for axis, extent in enumerate(wanted)]
    if wanted.count(-1) == 1:
        known = math.prod(extent for extent in wanted if extent != -1)
        if known and math.prod(given) % known == 0:
            wanted[wanted.index(-1)] = math.prod(given) // known
    if min(wanted, default=1) < 0 or math.prod(wanted) != math.prod(given):
        raise refusals.wrong_shape(
            "the shape must hold as many elements as the input", data=data, shape=shape.ravel().tolist()
        )
    return viewed(data, wanted)


@operator("Flatten", schedule="view")
def flatten(data: te.Tensor, *, axis: int = 1) -> te.Tensor:
    shape = shape_of(data)
    cut = axis + len(shape) if axis < 0 else axis
    if not 0 <= cut <= len(shape):
        raise refusals.wrong_axis(axis, len(shape))
    return viewed(data, (math.prod(shape[:cut]), math.prod(shape[cut:])))


@operator("Squeeze", schedule="view")
def squeeze(data: te.Tensor, axes: Constant | None = None) -> te.Tensor:
    shape = shape_of(data)
    if axes is None:
        dropped = {axis for axis, extent in enumerate(shape) if extent == 1}
    else:
        dropped = set(normalised_axes(axes.ravel().tolist(), len(shape)))
    if any(shape[axis] != 1 for axis in dropped):
        raise refusals.wrong_shape(f"axes {sorted(dropped)} must have extent 1", data=data)
    return viewed(data, [extent for axis, extent in enumerate(shape) if axis not in dropped])


@operator("Unsqueeze", schedule="view")
def unsqueeze(data: te.Tensor, axes: Constant) -> te.Tensor:
    rank = len(shape_of(data)) + axes.size
    added = {normalised_axis(int(axis), rank) for axis in axes.ravel()}
    if len(added) != axes.size:
        raise refusals.wrong_value("axes must differ", "axes", axes.ravel().tolist())
    extents = iter(shape_of(data))
    return viewed(data, [1 if axis in added else next(extents) for axis in range(rank)])


@operator("Identity", schedule="view")
def identity(data: te.Tensor) -> te.Tensor:
    return viewed(data, shape_of(data))


@operator("BitCast", schedule="view")
def bit_cast(data: te.Tensor, *, to: int) -> te.Tensor:
    """The same bits as another type of as many bits."""
    dtype = onnx_dtype(to)
    if DataType(dtype).bits != DataType(dtype_of(data)).bits or to in NARROWED:
        raise refusals.wrong_dtype(f"the type must have as many bits as {dtype} ({to}), and at most 32", data=data)
    truth = "bool" in (dtype, dtype_of(data))  # a byte that is 0 or 1
    convert = converted_element if truth else lambda value, dtype: tirx.reinterpret(dtype, value)
    return te.compute(shape_of(data), lambda *i: convert(data[i], dtype), "bit_cast")


@operator("Dropout", schedule="view")
def dropout(
    data: te.Tensor,
    ratio: Constant | None = None,
    training_mode: Constant | None = None,
    *,
    seed: int = 0,
) -> tuple[te.Tensor, te.Tensor]:
    """Inference: nothing is dropped, so the mask is all true."""
    if (
        training_mode is not None
        and only("training_mode", training_mode)
        and (ratio is None or only("ratio", ratio) != 0)
    ):
        raise refusals.unsupported("dropout in training mode", hint="export the model for inference")
    mask = te.compute(shape_of(data), lambda *_: tirx.const(True, "bool"), "mask")
    return viewed(data, shape_of(data)), mask


def viewed(data: te.Tensor, shape: Sequence[int]) -> te.Tensor:
    """The elements in the same order under ``shape``, which holds as many."""
    if 0 in shape:
        return te.compute(tuple(shape), lambda *_: tirx.const(0, dtype_of(data)), "view")
    groups = _common_groups(shape_of(data), shape)

    def element(*indices: Any) -> Any:
        source: list[Any] = []
        for inner, outer in groups:
            source += _unravelled(_ravelled([indices[a] for a in outer], [shape[a] for a in outer]), inner)
        return data[tuple(source)]

    return te.compute(tuple(shape), element, "view")


def _common_groups(inner: Sequence[int], outer: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Neighbouring axes that hold as many elements on both sides: (extents inside, axes outside) of each group."""
    groups: list[tuple[list[int], list[int]]] = []
    i = o = 0
    while i < len(inner) or o < len(outer):
        extents, axes = list(inner[i : i + 1]), list(range(o, min(o + 1, len(outer))))
        i, o = i + 1, o + 1
        while (have := math.prod(extents)) != (want := math.prod(outer[a] for a in axes)):
            if have < want or o >= len(outer):
                extents.append(inner[i])
                i += 1
            else:
                axes.append(o)
                o += 1
        groups.append((extents, axes))
    return groups


def _ravelled(indices: Sequence[Any], extents: Sequence[int]) -> Any:
    position: Any = 0
    for index, extent in zip(indices, extents, strict=True):
        position = index if isinstance(position, int) and position == 0 else position * extent + index
    return position


def _unravelled(position: Any, extents: Sequence[int]) -> list[Any]:
    """The index on each axis; an axis of extent one is read at 0."""
    strides = [int(stride) for stride in np.cumprod([1, *extents[:0:-1]])[::-1]]
    wide = [axis for axis, extent in enumerate(extents) if extent != 1]
    indices: list[Any] = [0] * len(extents)
    for axis in wide:
        index = position if strides[axis] == 1 else tirx.floordiv(position, strides[axis])
        indices[axis] = index if axis == wide[0] else tirx.floormod(index, extents[axis])
    return indices
