"""What an ONNX graph does not say of operators that ONNX does not know, or not well: the types of their results.

The rule is the operator's own declaration: its function is called for the shapes that it is given. One that is composed
of others is, in a graph of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.errors import TilewrightError
from compiler.frontend.graph import GraphBuilder
from compiler.frontend.limits import Limits
from compiler.frontend.types import Types, is_compiled, onnx_type
from compiler.operators import Declared, TensorType, find

_OWN = ("", "ai.onnx")
_SMALL_ELEMENTS = 1024  # operands that shapes may depend on are not larger
Kind = tuple[int, tuple[int, ...]]  # element type and shape


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


def untyped_nodes(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, Declared]]:
    """Those, and those of operators that are composed here of others, such as onnxruntime's, or ONNX's group norm."""
    functions = {(function.domain, function.name) for function in model.functions}
    found = []
    for node in model.graph.node:
        domain = "" if node.domain in _OWN else node.domain
        if (node.domain, node.op_type) not in functions and not _has_types(node.op_type, domain):
            declared = find(domain, node.op_type)
            if declared is not None:
                found.append((node, declared))
    return found


def _has_types(operator: str, domain: str) -> bool:
    """Whether ONNX can say what an operator makes."""
    has_schema = onnx.defs.has(operator, domain=domain)
    return has_schema and onnx.defs.get_schema(operator, domain=domain).has_type_and_shape_inference_function


def with_declared_types(model: onnx.ModelProto, weights: Collection[str] = ()) -> onnx.ModelProto:
    """The model with the types of what declared operators make, as far as those of their inputs are known.

    ``weights`` are inputs that importing the model would know.
    """
    said = {info.name for info in model.graph.value_info if _static_kind(info) is not None}
    left = [pair for pair in untyped_nodes(model) if not said.issuperset(filter(None, pair[0].output))]
    if not left:
        return model
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    types = _Types({tensor.name: tensor for tensor in whole.graph.initializer}, weights)
    while left:
        graph = onnx.shape_inference.infer_shapes(whole, data_prop=True).graph
        known = {info.name: info for info in (*graph.input, *graph.output, *graph.value_info)}
        made = [list(types.made(node, declared, known)) for node, declared in left]
        if not any(made):
            break
        whole.graph.value_info.extend(info for infos in made for info in infos)
        left = [pair for pair, infos in zip(left, made, strict=True) if not infos]
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


class _Types:
    """Of what nodes of one model make; those that are alike are looked at once."""

    def __init__(self, arrays: Mapping[str, onnx.TensorProto], weights: Collection[str]) -> None:
        self.arrays, self.weights = arrays, weights
        self.found: dict[Any, list[Kind]] = {}

    def made(self, node: onnx.NodeProto, declared: Declared, known: Mapping[str, Any]) -> Iterator[onnx.ValueInfoProto]:
        given: list[Any] = []
        for position, name in enumerate(node.input):
            given.append(self._given(name, declared, position, known) if name else None)
            if name and given[-1] is None:
                return
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
        key = declared.full_name, *attributes, len(node.output), *map(_hashable, given)
        if key not in self.found:
            try:
                kinds = _of_composition if declared.is_composition else _of_kernels
                self.found[key] = kinds(declared, given, attributes_of(node), len(node.output))
            except TilewrightError:
                self.found[key] = []  # importing the model says why
        for name, (number, shape) in zip(node.output, self.found[key], strict=False):
            if name:
                yield helper.make_tensor_value_info(name, number, list(shape))

    def _given(self, name: str, declared: Declared, position: int, known: Mapping[str, Any]) -> Any:
        """An operand's type, or its elements where they may decide a shape."""
        parameter = declared.signature.input_at(position)
        array = self.arrays.get(name)
        if declared.is_composition:
            if array is not None and prod(array.dims) <= _SMALL_ELEMENTS:
                return numpy_helper.to_array(array)
            type_ = _type(name, known, self.arrays)
            if type_ is None or (array is None and name not in self.weights):
                return type_
            return np.broadcast_to(np.zeros((), np.dtype(type_.dtype)), type_.shape)  # some that are known, too
        if array is not None and parameter is not None and parameter.kind != "tensor":
            return numpy_helper.to_array(array)
        return _type(name, known, self.arrays)


def _hashable(given: TensorType | np.ndarray | None) -> Any:
    if not isinstance(given, np.ndarray):
        return given
    return given.dtype.str, given.shape, given.tobytes() if given.size <= _SMALL_ELEMENTS else None


def _of_kernels(declared: Declared, given: list[Any], attributes: Mapping[str, Any], outputs: int) -> list[Kind]:
    functions = declared.kernels(given, attributes, outputs=outputs)
    tensors = sum(isinstance(one, TensorType) for one in given)
    results = [parameter for function in functions for parameter in list(function.params)[tensors:]]
    kinds = [(str(result.dtype), tuple(int(n) for n in result.shape)) for result in results]
    return [(onnx_type(dtype), shape) for dtype, shape in kinds if is_compiled(dtype)]


def _of_composition(declared: Declared, given: list[Any], attributes: Mapping[str, Any], outputs: int) -> list[Kind]:
    graph = GraphBuilder(Types(), Limits())
    values = [
        graph.input(f"operand_{at}", one.shape, helper.np_dtype_to_tensor_dtype(np.dtype(one.dtype)))
        if isinstance(one, TensorType)
        else one
        for at, one in enumerate(given)
    ]
    results = graph.apply(declared, values, attributes, opset=graph.limits.opset[1], outputs=outputs)
    return [(result.element_type, result.shape) for result in results]


def _static_kind(info: onnx.ValueInfoProto) -> Kind | None:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim)


def _type(name: str, known: Mapping[str, Any], arrays: Mapping[str, onnx.TensorProto]) -> TensorType | None:
    if name in arrays:
        number, shape = arrays[name].data_type, tuple(arrays[name].dims)
    elif name in known and (kind := _static_kind(known[name])) is not None:
        number, shape = kind
    else:
        return None
    return TensorType(shape, helper.tensor_dtype_to_np_dtype(number).name)
