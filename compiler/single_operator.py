"""One operator as a model of one node, so that it goes the way of every other from there on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.arguments import expect, expect_count
from compiler.errors import InvalidError, Problem, UsageError
from compiler.operators import Declared, TensorType, find_called, refusals
from compiler.operators.registry import declared as all_declared

if TYPE_CHECKING:
    import onnx

Array = np.ndarray[Any, Any]
InputType = TensorType | str | Array
_TYPE = re.compile(r"\s*([a-z]\w*)\s*\[\s*((?:\d{1,99}\s*(?:,\s*\d{1,99}\s*)*)?)\]\s*")
OPSET = 17


def operator_called(operator: str | Callable[..., Any]) -> Declared:
    """By its full name, or by the function that was decorated."""
    if isinstance(operator, str):
        return find_called(operator)
    for one in all_declared():
        if one.function is operator:
            return one
    raise refusals.unknown_operator(getattr(operator, "__name__", repr(operator)))


def parsed_type(text: str) -> TensorType:
    """``float32[37, 53]``"""
    found = _TYPE.fullmatch(text)
    if found is None:
        hint = "write an element type and a shape: float32[37,53]"
        raise UsageError(Problem("TW0002", f"{text[:60]!r} is no type of a tensor", hint=hint))
    return TensorType(tuple(int(word) for word in found[2].split(",") if word.strip()), found[1])


def model_of(
    declared: Declared, inputs: Mapping[str, InputType], attributes: Mapping[str, Any], outputs: int | None = None
) -> onnx.ModelProto:
    """A model of one node; its inputs have the parameters' names, its outputs are called ``out0`` and so on.

    An input is a type, as text or TensorType, or an array that is known when it is compiled.
    """
    from onnx import helper, numpy_helper

    expect("inputs", inputs, (Mapping,), "types or arrays by name")
    if outputs is not None:
        expect_count("outputs", outputs, "results")
    types = {name: parsed_type(given) if isinstance(given, str) else given for name, given in inputs.items()}
    _check_names(declared, types)
    _check_shapes(types)
    count = outputs or _results(declared, types, attributes)
    given = [name if name in types else "" for name in _parameters(declared, types)]
    while given and not given[-1]:
        given.pop()
    node = helper.make_node(
        declared.name, given, [f"out{at}" for at in range(count)], name=declared.name, domain=declared.domain
    )
    node.attribute.extend(_attribute(name, value) for name, value in attributes.items() if _says_something(value))
    graph = helper.make_graph(
        [node],
        declared.name,
        [
            helper.make_tensor_value_info(name, _element_type(one.dtype), list(one.shape))
            for name, one in types.items()
            if isinstance(one, TensorType)
        ],
        [helper.make_empty_tensor_value_info(name) for name in node.output],
        [numpy_helper.from_array(one, name) for name, one in types.items() if isinstance(one, np.ndarray)],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    if declared.domain:
        opsets.append(helper.make_opsetid(declared.domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _check_names(declared: Declared, types: Mapping[str, Any]) -> None:
    known = _parameters(declared, types)
    for name in types:
        if name not in known:
            hint = f"its inputs: {', '.join(known) or 'none'}"
            raise UsageError(Problem("TW0002", f"{declared.full_name} has no input {name!r}", hint=hint))


def _check_shapes(types: Mapping[str, Any]) -> None:
    from compiler.frontend.limits import Limits
    from compiler.frontend.tensors import check_dims

    for name, one in types.items():
        expect(f"input {name!r}", one, (TensorType, np.ndarray), 'a type, as "float32[37, 53]", or an array')
        if isinstance(one, TensorType) and (text := check_dims(one.shape, Limits())):
            raise InvalidError(Problem("TW2006", f"input {name!r}: {text}"))


def _parameters(declared: Declared, types: Mapping[str, Any]) -> list[str]:
    """The names of the inputs in order; those of a variadic one are counted: ``xs0``, ``xs1``."""
    names = []
    for one in declared.signature.inputs:
        if one.variadic:
            names += sorted(
                (n for n in types if re.fullmatch(rf"{one.name}\d+", n)), key=lambda n: int(n[len(one.name) :])
            )
        else:
            names.append(one.name)
    return names


def _results(declared: Declared, types: Mapping[str, Any], attributes: Mapping[str, Any]) -> int:
    if declared.signature.results is not None or declared.is_composition:
        return declared.signature.results or 1
    given = [types.get(name) for name in _parameters(declared, types)]
    return len(declared.kernels(given, attributes))


def _says_something(value: Any) -> bool:
    return value is not None and not (isinstance(value, list | tuple) and not value)


def _attribute(name: str, value: Any) -> Any:
    from onnx import helper, numpy_helper

    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, numpy_helper.from_array(value))
    return helper.make_attribute(name, int(value) if isinstance(value, bool) else value)


def _element_type(dtype: str) -> int:
    from compiler.frontend.types import COMPILED, is_compiled, onnx_type

    if not is_compiled(dtype):
        hint = f"use {', '.join(COMPILED)}; what a model has of int64 is int32 on the chip, of float64 float32"
        raise UsageError(Problem("TW0002", f"the chips have no elements of {dtype!r}", hint=hint))
    return onnx_type(dtype)
