"""Random quantised networks, run free of hazards, against onnxruntime.

Convolutions over one to three axes, grouped, strided, dilated, padded, and products behind them, as QDQ and as
operators on integers; bytes with and without signs, zero points anywhere, scales of all or of each column; biases of
steps, of floats and none; with cuts at zero, residuals, pools and other work between.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from ci.random_cases import Outcome
from compiler import api
from models.checks import run

MOST_STEPS, LEAST_COSINE = 2.5, {"fp32": 0.9995, "fp16": 0.99, "bf16": 0.99}
PRECISIONS = ("fp32", "fp32", "fp16", "bf16")
CHANNELS, SIZES = (3, 8, 16, 24, 32, 33, 40, 64), {1: (9, 30, 64), 2: (5, 8, 13, 20), 3: (3, 5, 6)}
SPREAD = 4  # how many deviations of a value its bytes reach


class Network:
    """Nodes with the shapes and deviations of what they make, one after another."""

    def __init__(self, seed: int) -> None:
        self.random, self.rng = Random(seed), np.random.default_rng(seed)
        self.nodes, self.weights = list[Any](), dict[str, np.ndarray]()
        self.as_operators = self.random.random() < 0.3
        self.rank = self.random.choice((1, 2, 2, 2, 3))
        batch, channels = self.random.choice((1, 1, 2, 4)), self.random.choice(CHANNELS)
        places = [self.random.choice(SIZES[self.rank]) for _ in range(self.rank)]
        self.shape, self.deviation = (batch, channels, *places), 1.0
        self.input = self.shape
        value = self.quantised("x", cut=False)
        for _ in range(self.random.choice((1, 2, 2, 3))):
            value = self.convolution(value)
        if self.random.random() < 0.4:
            value = self.product(value)
        self.op("DequantizeLinear", *value, output="y")

    def op(self, operator: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """A node; arrays among its inputs become weights."""
        name = output or f"v{len(self.nodes)}"
        self.nodes.append(make_node(operator, [self._named(each) for each in inputs], [name], name, **attributes))
        return name

    def _named(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    # ---- bytes

    def parameters(self, *, cut: bool) -> tuple[Any, Any]:
        """A scale and a zero point for what has the deviation of now."""
        dtype = np.uint8 if self.as_operators or self.random.random() < 0.5 else np.int8
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        middle = (low + high + 1) // 2
        if cut:
            return np.float32(SPREAD * self.deviation / 255), dtype(low)
        zero = self.random.choice((middle, middle, middle + 5, low + 40, high - 30))
        return np.float32(SPREAD * self.deviation / 127), dtype(zero)

    def quantised(self, x: str, *, cut: bool) -> tuple[str, Any, Any]:
        """Bytes with their scale and zero point."""
        scale, zero = self.parameters(cut=cut)
        return self.op("QuantizeLinear", x, scale, zero), scale, zero

    def known(self, shape: tuple[int, ...], terms: int) -> tuple[Any, Any, Any]:
        """Weights for which results have the deviation of what they read, with scales and zero points."""
        count = (shape[0],) if self.random.random() < 0.6 else ()
        integers = np.clip(np.rint(self.rng.standard_normal(shape) * 40), -127, 127).astype(np.int8)
        scales = (self.rng.uniform(0.7, 1.4, count) / 40 * terms**-0.5).astype(np.float32)
        return integers, scales, np.zeros(count, np.int8)

    def bias(self, outputs: int, scale: Any, scales: Any) -> list[Any]:
        """Of floats, or steps of what is summed, dequantised; or none."""
        values = self.rng.standard_normal(outputs) * 0.3 * self.deviation
        kind = self.random.choice(("none", "floats", "steps", "steps"))
        if kind == "none":
            return []
        if kind == "floats":
            return [values.astype(np.float32)]
        steps = (np.float32(scale) * scales).astype(np.float32)
        integers = np.rint(values / steps).astype(np.int32)
        return [self.op("DequantizeLinear", integers, steps, np.zeros(steps.shape, np.int32), axis=0)]

    # ---- layers

    def convolution(self, value: tuple[str, Any, Any]) -> tuple[str, Any, Any]:
        bytes_, scale, zero = value
        channels, outputs = self.shape[1], self.random.choice(CHANNELS)
        group = self.random.choice([1, 1, 1, *(n for n in (2, channels) if channels % n == 0)])
        outputs = group * max(1, outputs // group)
        attributes = self._windows(self.shape[2:])
        weights = self.known(
            (outputs, channels // group, *attributes["kernel_shape"]),
            channels // group * prod(attributes["kernel_shape"]),
        )
        made = self._places(attributes)
        cut = self.random.random() < 0.5
        if self.as_operators:
            out = self.parameters(cut=cut)
            steps = np.rint(self.rng.standard_normal(outputs) * 0.3 * self.deviation / (scale * weights[1]))
            given = (bytes_, scale, zero, *weights, *out, steps.astype(np.int32))
            self.shape = (self.shape[0], outputs, *made)
            return self.op("QLinearConv", *given, group=group, **attributes), *out
        x, w = self.op("DequantizeLinear", *value), self.op("DequantizeLinear", *weights, axis=0)
        made_by = self.op("Conv", x, w, *self.bias(outputs, scale, weights[1]), group=group, **attributes)
        same, self.shape = self.shape == (self.shape[0], outputs, *made), (self.shape[0], outputs, *made)
        if same and self.random.random() < 0.4:
            made_by = self.op("Add", made_by, x)
        made_by = self.op("Relu", made_by) if cut else self._worked(made_by)
        return self.quantised(made_by, cut=cut)

    def _windows(self, places: tuple[int, ...]) -> dict[str, Any]:
        kernel = [self.random.choice((1, 2, 3, 3)) for _ in places]
        dilations = [self.random.choice((1, 1, 1, 2)) for _ in places]
        kernel = [k if (k - 1) * d < n else 1 for k, d, n in zip(kernel, dilations, places, strict=True)]
        pads = [self.random.choice((0, (k - 1) * d // 2, (k - 1) * d)) for k, d in zip(kernel, dilations, strict=True)]
        strides = [self.random.choice((1, 1, 2)) for _ in places]
        ends = [self.random.choice((pad, 0)) for pad in pads]
        return {"kernel_shape": kernel, "dilations": dilations, "strides": strides, "pads": [*pads, *ends]}

    def _places(self, attributes: dict[str, Any]) -> list[int]:
        kernel, dilations, strides, pads = attributes.values()
        around = zip(self.shape[2:], pads[: self.rank], pads[self.rank :], strict=True)
        return [
            (sum(sides) - (k - 1) * d - 1) // step + 1
            for sides, k, d, step in zip(around, kernel, dilations, strides, strict=True)
        ]

    def _worked(self, x: str) -> str:
        kind = self.random.choice(("none", "none", "Tanh", "LeakyRelu", "pool", "twice"))
        if kind == "pool" and min(self.shape[2:]) > 1:
            self.shape = (*self.shape[:2], *(n - 1 for n in self.shape[2:]))
            return self.op("MaxPool", x, kernel_shape=[2] * self.rank)
        if kind == "twice":
            return self.op("Mul", x, np.float32(1.5))
        return self.op(kind, x) if kind in ("Tanh", "LeakyRelu") else x

    def product(self, value: tuple[str, Any, Any]) -> tuple[str, Any, Any]:
        columns, outputs = prod(self.shape[1:]), self.random.choice((5, 10, 33, 100))
        weights, batch = self.known((outputs, columns), columns), self.shape[0]
        shape = np.array([batch, columns])
        self.shape = (batch, outputs)
        if self.as_operators:
            out = self.parameters(cut=False)
            flat, (integers, scales, zeros) = self.op("Reshape", value[0], shape), weights
            turned = (np.ascontiguousarray(integers.T), scales, zeros)
            return self.op("QLinearMatMul", flat, *value[1:], *turned, *out), *out
        flat = self.op("Reshape", self.op("DequantizeLinear", *value), shape)
        w = self.op("DequantizeLinear", *weights, axis=0)
        made = self.op("Gemm", flat, w, *self.bias(outputs, value[1], weights[1]), transB=1)
        return self.quantised(made, cut=False)

    def source(self) -> bytes:
        given = [make_tensor_value_info("x", TensorProto.FLOAT, self.input)]
        made = [make_tensor_value_info("y", TensorProto.FLOAT, self.shape)]
        weights = [numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        graph = make_graph(self.nodes, "network", given, made, weights)
        return bytes(make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=10).SerializeToString())

    @property
    def step(self) -> float:
        """The last scale."""
        return float(self.weights[self.nodes[-1].input[1]])


def check(seed: int, chip: str) -> Outcome:
    network = Network(seed)
    data, precision = network.source(), PRECISIONS[seed // 3 % len(PRECISIONS)]
    inputs = {"x": network.rng.standard_normal(network.input).astype(np.float32)}
    shown = f"x {network.input}, {precision}, " + " ".join(node.op_type for node in network.nodes)
    try:
        found = api.compile(data, chip, precision=precision, jobs=1).run(inputs, hazards=True)["y"]
    except Exception as problem:  # noqa: BLE001  whatever it is, it is this seed's failure
        return Outcome(seed, chip, f"{shown}: {type(problem).__name__}: {problem!s:.300}")
    (expected,) = run(onnx.load_from_string(data), inputs).values()
    fault = _fault(found.astype(np.float64), expected.astype(np.float64), network.step, precision)
    return Outcome(seed, chip, f"{shown}: {fault}" if fault else "", Counter({precision: 1}))


def _fault(found: np.ndarray, expected: np.ndarray, step: float, precision: str) -> str:
    """In fp32 some may be a step off, and others by it; what is rounded to 16 bits goes the same way."""
    if found.shape != expected.shape:
        return f"{found.shape}, not {expected.shape}"
    steps = np.abs(found - expected).max(initial=0) / step
    if precision == "fp32" and steps > MOST_STEPS:
        return f"off by {steps:.1f} steps"
    lengths = np.linalg.norm(found) * np.linalg.norm(expected)
    cosine = float((found * expected).sum() / lengths) if lengths else float(np.abs(found - expected).max() <= step)
    return "" if cosine >= LEAST_COSINE[precision] else f"cosine {cosine:.4f}"
