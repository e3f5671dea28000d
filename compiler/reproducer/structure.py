"""A model without what it has learned: the graph, names, types and shapes, with made-up weights."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

# What decides shapes is small and of integers; what is learned is neither.
MAX_KEPT_INTEGERS = 4096
MAX_KEPT_VALUES = 16
MAX_BYTES = 1 << 30  # of all made-up weights: a protobuf has less than 2 GiB
_PATTERN = 8  # values that repeat, so that they take no room once compressed


def without_weights(path: Path) -> bytes:
    """The model at ``path``, to which no external data belongs any more."""
    model = onnx.load_model(str(path), load_external_data=False)
    room = MAX_BYTES
    for tensor in _tensors(model):
        room -= _forget(tensor)
        if room < 0:
            raise ValueError(f"the weights have more than {MAX_BYTES} bytes")
    model.doc_string = model.graph.doc_string = ""
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    return bytes(model.SerializeToString(deterministic=True))


def external_files(path: Path) -> set[str]:
    """What the model's external data is called, as the model has it."""
    model = onnx.load_model(str(path), load_external_data=False)
    entries = (entry for tensor in _tensors(model) for entry in tensor.external_data)
    return {entry.value for entry in entries if entry.key == "location"}


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    graphs: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while graphs:
        graph = graphs.pop()
        if isinstance(graph, onnx.GraphProto):
            yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else []
                graphs += attribute.graphs
                yield from [attribute.t] if attribute.HasField("t") else []
                yield from attribute.tensors


def _forget(tensor: TensorProto) -> int:
    """Replace the values of a tensor that may have learned something; how many bytes it has now."""
    count = prod(tensor.dims)
    is_external = tensor.data_location == TensorProto.EXTERNAL
    if tensor.data_type in (TensorProto.STRING, TensorProto.UNDEFINED):
        return 0
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    is_integer = kind.kind in "iub"
    if not is_external and count <= (MAX_KEPT_INTEGERS if is_integer else MAX_KEPT_VALUES):
        return len(tensor.raw_data)
    values = np.arange(_PATTERN) if is_integer else 0.5 + np.arange(_PATTERN) / _PATTERN
    made_up = helper.make_tensor(tensor.name, tensor.data_type, [_PATTERN], values.astype(kind), raw=False)
    pattern = onnx.numpy_helper.to_array(made_up)
    size = int(count * pattern.itemsize)
    if size > MAX_BYTES:
        return size
    if tensor.data_type in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1):
        content = bytes((count + 1) // 2)  # two to a byte
    else:
        content = np.resize(pattern, count).tobytes()
    name, dims, element = tensor.name, list(tensor.dims), tensor.data_type
    tensor.Clear()
    tensor.name, tensor.data_type, tensor.raw_data = name, element, content
    tensor.dims.extend(dims)
    return len(content)
