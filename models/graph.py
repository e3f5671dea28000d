"""Builds an ONNX graph node by node, with the names and constants that an exporter would give it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import onnx
from onnx import helper, numpy_helper

Operand: TypeAlias = str | np.ndarray | float | int | Sequence[int] | None
"""An input of a node: the name of a value; a constant (floats are float32, integers int64); or None, left out."""

LARGE_ELEMS = 64  # initialisers above this hold no shapes or axes: shape inference does not need their values


class Graph:
    """An ONNX model that is being built.

    Values are named by strings. Nodes and weights are named after the scopes they are made in, so that a weight's
    random stream depends on its name and the seed alone: changing one layer does not change the others' weights.
    """

    def __init__(self, name: str, *, seed: int, opset: int) -> None:
        self.name = name
        self.seed = seed
        self.opset = opset
        self._scopes: list[str] = []
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: dict[str, onnx.ValueInfoProto] = {}
        self._weights: dict[str, onnx.TensorProto] = {}
        self._named: Counter[str] = Counter()

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Nodes and weights made inside are named ``<scopes so far>/<name>/...``."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def input(self, name: str, dtype: np.dtype[Any], shape: Sequence[int | str]) -> str:
        self._inputs[name] = helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an input or weight; an open size counts as -1, which Reshape understands."""
        if name in self._weights:
            return tuple(self._weights[name].dims)
        sizes = self._inputs[name].type.tensor_type.shape.dim
        return tuple(size.dim_value if size.HasField("dim_value") else -1 for size in sizes)

    def rng(self, name: str) -> np.random.Generator:
        """The random stream of the weight ``name`` in this scope."""
        return np.random.default_rng([self.seed, crc32(self._path(name).encode())])

    def weight(self, name: str, array: np.ndarray) -> str:
        """An initialiser of this scope: floating-point arrays are stored as float32, others as they are."""
        stored = array.astype(np.float32) if array.dtype.kind == "f" else array
        path = self._path(name)
        if path in self._weights:
            raise ValueError(f"two weights are named {path}")
        self._weights[path] = numpy_helper.from_array(np.ascontiguousarray(stored), path)
        return path

    def constant(self, value: np.ndarray | float | int | Sequence[int]) -> str:
        """A Constant node, as an exporter makes of a number in the source."""
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
        if not isinstance(value, np.ndarray):
            array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        return self.op("Constant", value=numpy_helper.from_array(array))

    def op(self, kind: str, *operands: Operand, **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        return self.ops(kind, *operands, outputs=1, **attributes)[0]

    def ops(self, kind: str, *operands: Operand, outputs: int, **attributes: Any) -> tuple[str, ...]:
        """Add a node with several outputs and return their names."""
        inputs = [self._operand(operand) for operand in operands]
        name = self._unique("/" + "/".join([*self._scopes, kind]))
        results = tuple(f"{name}_output_{index}" for index in range(outputs))
        self._nodes.append(helper.make_node(kind, inputs, results, name=name, **attributes))
        return results

    def finish(self, outputs: Mapping[str, str]) -> onnx.ModelProto:
        """The model whose outputs are {name: value}; their types are inferred.

        What inference cannot say of a first axis is the batch, if an input leaves the batch open.
        """
        for name, value in outputs.items():
            self._rename(value, name)
        graph = helper.make_graph(self._nodes, self.name, list(self._inputs.values()), self._inferred(list(outputs)))
        graph.initializer.extend(self._weights.values())
        return self._model(graph)

    def _inferred(self, outputs: Sequence[str]) -> list[onnx.ValueInfoProto]:
        """The outputs' types. Large weights stand as inputs here, so that inference copies none of their bytes."""
        small = [weight for weight in self._weights.values() if np.prod(weight.dims) <= LARGE_ELEMS]
        large = [weight for weight in self._weights.values() if np.prod(weight.dims) > LARGE_ELEMS]
        declared = [helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in large]
        unknown = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self._nodes, self.name, [*self._inputs.values(), *declared], unknown, small)
        model = onnx.shape_inference.infer_shapes(self._model(graph), strict_mode=True, data_prop=True)
        batch = {value.type.tensor_type.shape.dim[0].dim_param for value in self._inputs.values()} - {""}
        for found in model.graph.output:
            first = found.type.tensor_type.shape.dim[0]
            if batch and not first.HasField("dim_value"):
                first.dim_param = min(batch)
        return list(model.graph.output)

    def _model(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=8,
            producer_name="tilewright-models",
        )

    def _rename(self, value: str, name: str) -> None:
        """Give a value the name of an output wherever it is made and used."""
        for node in self._nodes:
            for names in (node.input, node.output):
                for index, each in enumerate(names):
                    if each == value:
                        names[index] = name

    def _operand(self, operand: Operand) -> str:
        if operand is None:
            return ""
        return operand if isinstance(operand, str) else self.constant(operand)

    def _path(self, name: str) -> str:
        return ".".join([*self._scopes, name])

    def _unique(self, name: str) -> str:
        self._named[name] += 1
        count = self._named[name]
        return name if count == 1 else f"{name}_{count - 1}"
