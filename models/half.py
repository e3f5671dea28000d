"""A model as it would compute in fp16, run in fp32: every floating-point value is rounded to fp16 and back.

Sums inside an operator stay in fp32, as they do on the chips, whose accumulators are fp32.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SUFFIX = "_fp16"


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with rounded weights, and two Casts behind every floating-point input and value."""
    typed = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    floats = {value.name for value in [*typed.input, *typed.value_info, *typed.output] if _is_float(value)}
    weights = [_rounded_weight(weight) for weight in model.graph.initializer]
    outputs = {value.name for value in model.graph.output}
    nodes = [node for name in _inputs(model) if name in floats for node in _casts(name, name + SUFFIX)]
    renamed = {name: name + SUFFIX for name in _inputs(model) if name in floats}
    for original in model.graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        node.input[:] = [renamed.get(name, name) for name in original.input]
        nodes.append(node)
        for index, name in enumerate(original.output):
            if name not in floats:
                continue
            if name in outputs:  # an output keeps its name: it is the value before that gets another
                node.output[index] = name + SUFFIX
                nodes += _casts(name + SUFFIX, name)
            else:
                renamed[name] = name + SUFFIX
                nodes += _casts(name, name + SUFFIX)
    graph = helper.make_graph(nodes, model.graph.name, model.graph.input, model.graph.output, weights)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _inputs(model: onnx.ModelProto) -> list[str]:
    return [value.name for value in model.graph.input]


def _is_float(value: onnx.ValueInfoProto) -> bool:
    return bool(value.type.tensor_type.elem_type == TensorProto.FLOAT)


def _rounded_weight(weight: onnx.TensorProto) -> onnx.TensorProto:
    if weight.data_type != TensorProto.FLOAT:
        return weight
    array = numpy_helper.to_array(weight).astype(np.float16).astype(np.float32)
    return numpy_helper.from_array(array, weight.name)


def _casts(source: str, target: str) -> Iterator[onnx.NodeProto]:
    yield helper.make_node("Cast", [source], [f"{source}_half"], to=TensorProto.FLOAT16)
    yield helper.make_node("Cast", [f"{source}_half"], [target], to=TensorProto.FLOAT)
