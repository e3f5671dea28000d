"""A model's quantised variant: int8 or uint8 between QuantizeLinear and DequantizeLinear, as tools write it (QDQ).

Weights of convolutions and products are quantised per output channel, symmetrically; what they read per tensor, by the
range that it has on calibration inputs. Biases are int32 in the product's own scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

QUANTISED = ("Conv", "Gemm", "MatMul")


def calibrated(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Least and greatest value of everything that a quantised operator reads."""
    from models.checks import run

    weights = {weight.name for weight in model.graph.initializer}
    read = dict.fromkeys(
        name for node in model.graph.node if node.op_type in QUANTISED for name in node.input[:2] if name not in weights
    )
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    known = {value.name for value in (*model.graph.output, *model.graph.input)}
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in read if name not in known)
    found = {**run(watched, inputs), **inputs}
    return {name: (float(found[name].min()), float(found[name].max())) for name in read}


def quantised(model: onnx.ModelProto, ranges: Mapping[str, tuple[float, float]], *, signed: bool) -> onnx.ModelProto:
    """The model with a pair of nodes before everything that a Conv, Gemm or MatMul reads."""
    return _Quantiser(model, ranges, signed).model()


class _Quantiser:
    def __init__(self, model: onnx.ModelProto, ranges: Mapping[str, tuple[float, float]], signed: bool) -> None:
        self._original, self._ranges, self._signed = model, ranges, signed
        self._weights = {weight.name: weight for weight in model.graph.initializer}
        self._made: dict[str, onnx.TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._dequantised: dict[str, tuple[str, float]] = {}

    def model(self) -> onnx.ModelProto:
        for original in self._original.graph.node:
            node = onnx.NodeProto()
            node.CopyFrom(original)
            if node.op_type in QUANTISED:
                self._quantise(node)
            self._nodes.append(node)
        used = {name for node in self._nodes for name in node.input}
        kept = [weight for name, weight in self._weights.items() if name in used]
        graph = helper.make_graph(
            self._nodes,
            self._original.graph.name,
            self._original.graph.input,
            self._original.graph.output,
            [*kept, *self._made.values()],
        )
        return helper.make_model(
            graph, opset_imports=self._original.opset_import, ir_version=8, producer_name="tilewright-models"
        )

    def _quantise(self, node: onnx.NodeProto) -> None:
        """Gemm's transposed weight has its output channels first, as a convolution's; MatMul's has them last."""
        scales = list[np.ndarray]()
        for index, name in enumerate(node.input[:2]):
            if name in self._weights:
                replaced, scale = self._weight(name, 1 if node.op_type == "MatMul" else 0)
            else:
                replaced, each = self._activation(name)
                scale = np.asarray(each, np.float32)
            node.input[index] = replaced
            scales.append(scale)
        if len(node.input) > 2 and node.input[2] in self._weights:
            node.input[2] = self._bias(node.input[2], np.atleast_1d(scales[0] * scales[1]))

    def _activation(self, name: str) -> tuple[str, float]:
        if name not in self._dequantised:
            low, high = (min(self._ranges[name][0], 0.0), max(self._ranges[name][1], 0.0))
            if self._signed:
                scale, zero = max(-low, high) / 127 or 1.0, np.asarray(0, np.int8)
            else:
                scale = (high - low) / 255 or 1.0
                zero = np.asarray(round(-low / scale), np.uint8)
            value = np.asarray(scale, np.float32)
            operands = [self._tensor(f"{name}_scale", value), self._tensor(f"{name}_zero_point", zero)]
            self._node("QuantizeLinear", [name, *operands], f"{name}_quantized")
            self._node("DequantizeLinear", [f"{name}_quantized", *operands], f"{name}_dequantized")
            self._dequantised[name] = (f"{name}_dequantized", float(value))
        return self._dequantised[name]

    def _weight(self, name: str, axis: int) -> tuple[str, np.ndarray]:
        array = numpy_helper.to_array(self._weights[name])
        others = tuple(a for a in range(array.ndim) if a != axis)
        scale = (np.abs(array).max(others) / 127).astype(np.float32)
        shape = [-1 if a == axis else 1 for a in range(array.ndim)]
        if f"{name}_quantized" not in self._made:
            rounded = np.clip(np.rint(array / scale.reshape(shape)), -127, 127).astype(np.int8)
            zero = self._tensor(f"{name}_zero_point", np.zeros(len(scale), np.int8))
            operands = [self._tensor(f"{name}_quantized", rounded), self._tensor(f"{name}_scale", scale), zero]
            self._node("DequantizeLinear", operands, f"{name}_dequantized", axis=axis)
        return f"{name}_dequantized", scale

    def _bias(self, name: str, scale: np.ndarray) -> str:
        array = numpy_helper.to_array(self._weights[name])
        rounded = np.rint(array / scale).astype(np.int32)
        operands = [self._tensor(f"{name}_quantized", rounded), self._tensor(f"{name}_scale", scale.astype(np.float32))]
        operands.append(self._tensor(f"{name}_zero_point", np.zeros(len(scale), np.int32)))
        self._node("DequantizeLinear", operands, f"{name}_dequantized", axis=0)
        return f"{name}_dequantized"

    def _tensor(self, name: str, array: np.ndarray) -> str:
        self._made[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def _node(self, kind: str, operands: list[str], output: str, **attributes: Any) -> None:
        self._nodes.append(helper.make_node(kind, operands, [output], name=f"{output}_{kind}", **attributes))
