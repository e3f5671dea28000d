"""What an ONNX graph does not say of operators that ONNX does not know: the types of their results.

The rule is the operator's own declaration: its function is called for the shapes that it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.errors import TilewrightError
from compiler.frontend.types import is_compiled, onnx_type
from compiler.operators import Declared, TensorType, find

_OWN = ("", "ai.onnx")


def declared_nodes(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, Declared]]:
    """The nodes of the main graph whose operator is declared here and is none of ONNX's."""
    functions = {(function.domain, function.name) for function in model.functions}
    found = []
    for node in model.graph.node:
        if node.domain in _OWN or node.domain.startswith("ai.onnx.") or (node.domain, node.op_type) in functions:
            continue
        declared = find(node.domain, node.op_type)
        if declared is not None and not declared.is_composition:
            found.append((node, declared))
    return found


def with_declared_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of what declared operators make, as far as those of their inputs are known."""
    left = declared_nodes(model)
    if not left:
        return model
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    arrays = {tensor.name: tensor for tensor in whole.graph.initializer}
    while left:
        graph = onnx.shape_inference.infer_shapes(whole, data_prop=True).graph
        known = {info.name: info for info in (*graph.value_info, *graph.output, *graph.input)}
        made = {node.output[0]: list(_made(node, declared, known, arrays)) for node, declared in left}
        if not any(made.values()):
            break
        whole.graph.value_info.extend(info for infos in made.values() for info in infos)
        left = [(node, declared) for node, declared in left if not made[node.output[0]]]
    return whole


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """As `Declared` takes them."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        elif isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [text.decode(errors="replace") for text in value]
        found[attribute.name] = value
    return found


def _made(node: onnx.NodeProto, declared: Declared, known: dict[str, Any], arrays: dict[str, Any]) -> Iterator[Any]:
    given: list[TensorType | np.ndarray | None] = []
    for position, name in enumerate(node.input):
        parameter = declared.signature.input_at(position)
        if not name:
            given.append(None)
        elif name in arrays and parameter is not None and parameter.kind != "tensor":
            given.append(numpy_helper.to_array(arrays[name]))
        elif (type_ := _type(name, known, arrays)) is not None:
            given.append(type_)
        else:
            return
    try:
        functions = declared.kernels(given, attributes_of(node), outputs=len(node.output))
    except TilewrightError:
        return  # importing the model says why
    tensors = sum(isinstance(one, TensorType) for one in given)
    results = [parameter for function in functions for parameter in list(function.params)[tensors:]]
    for name, result in zip(node.output, results, strict=False):
        if name and is_compiled(str(result.dtype)):
            yield helper.make_tensor_value_info(name, onnx_type(str(result.dtype)), [int(n) for n in result.shape])


def _type(name: str, known: dict[str, Any], arrays: dict[str, Any]) -> TensorType | None:
    if name in arrays:
        number, shape = arrays[name].data_type, tuple(arrays[name].dims)
    elif name in known and known[name].type.HasField("tensor_type"):
        tensor = known[name].type.tensor_type
        if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            return None
        number, shape = tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim)
    else:
        return None
    return TensorType(shape, helper.tensor_dtype_to_np_dtype(number).name)
