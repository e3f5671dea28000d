"""Inputs whose values are known when a model is compiled: those that decide shapes, or which branch is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from compiler.errors import Place, Problem, UsageError
from compiler.frontend.load import Model
from compiler.frontend.naming import quoted
from compiler.frontend.tensors import type_name
from compiler.frontend.types import onnx_type_of


def known_values(model: Model, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The values of inputs, each of its input's shape and element type.

    An array has to have these; of numbers, and lists of them, that is seen to.
    """
    place = Place(model.file)
    inputs = {info.name: info for info in model.proto.graph.input}
    found: dict[str, np.ndarray] = {}
    problems: list[Problem] = []
    for name, value in values.items():
        info = inputs.get(name)
        if info is None:
            known = f"inputs: {', '.join(map(quoted, list(inputs)[:8]))}"
            problems.append(Problem("TW2041", f"a value is given for {quoted(name)}, which is no input", place, known))
            continue
        tensor = info.type.tensor_type
        array = value if isinstance(value, np.ndarray) else _converted(value, tensor)
        if array is None or onnx_type_of(array) != tensor.elem_type:
            given = repr(value)[:60] if array is None else array.dtype.name
            text = f"the value of input {quoted(name)} is {given}, but the input {type_name(tensor.elem_type)}"
            problems.append(Problem("TW2043", text, place))
            continue
        extents = _extents(tensor)
        if extents is not None and not (
            len(extents) == array.ndim and all(e in (None, n) for e, n in zip(extents, array.shape, strict=True))
        ):
            text = f"the value of input {quoted(name)} has shape {list(array.shape)}, which the input does not allow"
            problems.append(Problem("TW2043", text, place))
            continue
        found[name] = array
    if problems:
        raise UsageError(problems)
    return found


def with_known(model: Model, values: Mapping[str, Any]) -> onnx.ModelProto:
    """The model as ONNX has it, with these inputs as initialisers."""
    known = known_values(model, values)
    if not known:
        return model.proto
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model.proto)
    held = [tensor for tensor in fixed.graph.initializer if tensor.name not in known]
    held += [onnx.numpy_helper.from_array(array, name) for name, array in known.items()]
    left = [info for info in fixed.graph.input if info.name not in known]
    del fixed.graph.initializer[:], fixed.graph.input[:]
    fixed.graph.initializer.extend(held)
    fixed.graph.input.extend(left)
    return fixed


def _extents(tensor: Any) -> list[int | None] | None:
    if not tensor.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]


def _converted(value: Any, tensor: Any) -> np.ndarray | None:
    """Numbers in an input's type, and one alone in the shape of an input of one; None where they do not fit."""
    try:
        given = np.asarray(value)
        target = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    except (KeyError, TypeError, ValueError):
        return None
    if given.dtype.kind not in "biuf" or (target.kind in "biu" and given.dtype.kind == "f"):
        return None
    if target.kind == "b" and not np.isin(given, (0, 1)).all():
        return None
    if target.kind in "iu" and given.size:
        limits = np.iinfo(target)
        if int(given.min()) < limits.min or int(given.max()) > limits.max:
            return None
    array = given.astype(target)
    extents = _extents(tensor)
    one = extents is not None and array.size == 1 and all(extent in (None, 1) for extent in extents)
    return array.reshape((1,) * len(extents)) if one and extents is not None else array
