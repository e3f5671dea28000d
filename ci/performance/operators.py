"""Single operators as ONNX models of one or a few nodes, with what a chip has to do for them at least.

All in fp16; bounds are worked out from shapes, not from what the compiler makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx

from compiler.report import bounds
from compiler.report.bounds import Bound
from compiler.target import Chip
from models.graph import Graph
from models.initial import filters, vector

OPSET = 17

Shape = tuple[int, ...]
Build = Callable[[Graph, Mapping[str, str]], str]
ToBound = Callable[[Chip], Bound]


@dataclass(frozen=True)
class Operator:
    """One row of the table."""

    name: str
    family: str
    inputs: Mapping[str, Shape]
    output: Shape
    build: Build
    bound: ToBound
    handwritten: str = ""  # the name of the hand-written case, but for the chip

    def model(self) -> onnx.ModelProto:
        graph = Graph(self.name, seed=0, opset=OPSET)
        values = {name: graph.input(name, np.dtype(np.float32), shape) for name, shape in self.inputs.items()}
        return graph.finish({"y": self.build(graph, values)})


def product(name: str, m: int, k: int, n: int, *, batch: Shape = (), handwritten: str = "") -> Operator:
    return Operator(
        name,
        "product",
        {"a": (*batch, m, k), "b": (*batch, k, n)},
        (*batch, m, n),
        lambda graph, values: graph.op("MatMul", values["a"], values["b"]),
        lambda chip: bounds.product_bound(chip, m, k, n, batch=prod(batch)),
        handwritten=handwritten,
    )


def convolution(
    name: str,
    channels: tuple[int, int],
    kernel: int,
    size: int,
    *,
    stride: int = 1,
    groups: int = 1,
    batch: int = 1,
    relu: bool = False,
    handwritten: str = "",
) -> Operator:
    """Padded so that a stride of one keeps the size; with a bias."""
    inputs, outputs = channels
    pad = (kernel - 1) // 2
    out = (size + 2 * pad - kernel) // stride + 1
    weights = (outputs, inputs // groups, kernel, kernel)

    def build(graph: Graph, values: Mapping[str, str]) -> str:
        weight = graph.weight("weight", filters(graph.rng("weight"), weights, 1.0))
        bias = graph.weight("bias", vector(graph.rng("bias"), outputs))
        result = graph.op(
            "Conv", values["x"], weight, bias, group=groups, kernel_shape=[kernel, kernel], pads=[pad] * 4,
            strides=[stride, stride],
        )  # fmt: skip
        return graph.op("Relu", result) if relu else result

    return Operator(
        name,
        "convolution",
        {"x": (batch, inputs, size, size)},
        (batch, outputs, out, out),
        build,
        lambda chip: bounds.convolution_bound(
            chip, (batch, inputs, size, size), weights, strides=(stride,) * 2, pads=(pad,) * 4
        ),
        handwritten=handwritten,
    )


def rowwise(kind: str, name: str, rows: int, columns: int, *, handwritten: str = "") -> Operator:
    def build(graph: Graph, values: Mapping[str, str]) -> str:
        if kind == "Softmax":
            return graph.op("Softmax", values["x"], axis=-1)
        gamma = graph.weight("gamma", vector(graph.rng("gamma"), columns, 1.0, 0.1))
        beta = graph.weight("beta", vector(graph.rng("beta"), columns))
        return graph.op("LayerNormalization", values["x"], gamma, beta, axis=-1, epsilon=1e-5)

    shape, parameters = (rows, columns), 2 * columns if kind == "LayerNormalization" else 0
    return Operator(
        name,
        "rows",
        {"x": shape},
        shape,
        build,
        lambda chip: bounds.normalization_bound(chip, shape, parameters=parameters),
        handwritten,
    )


def attention(name: str, heads: int, length: int, width: int, *, handwritten: str = "") -> Operator:
    """softmax(q k^T / sqrt(width)) v of every head."""
    shape = (heads, length, width) if heads > 1 else (length, width)

    def build(graph: Graph, values: Mapping[str, str]) -> str:
        axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        scores = graph.op("MatMul", values["q"], graph.op("Transpose", values["k"], perm=axes))
        scaled = graph.op("Mul", scores, float(width) ** -0.5)
        return graph.op("MatMul", graph.op("Softmax", scaled, axis=-1), values["v"])

    return Operator(
        name,
        "attention",
        {"q": shape, "k": shape, "v": shape},
        shape,
        build,
        lambda chip: bounds.attention_bound(chip, length, length, width, batch=heads),
        handwritten=handwritten,
    )


def elementwise(name: str, kinds: Sequence[str], shape: Shape, *, operands: int = 1) -> Operator:
    """Operators one after the other; the first one takes all operands."""
    names = [f"x{index}" for index in range(operands)]

    def build(graph: Graph, values: Mapping[str, str]) -> str:
        result = graph.op(kinds[0], *(values[each] for each in names))
        for kind in kinds[1:]:
            result = graph.op(kind, result)
        return result

    inputs = dict.fromkeys(names, shape)
    return Operator(
        name,
        "elementwise",
        inputs,
        shape,
        build,
        lambda chip: bounds.elementwise_bound(chip, shape, inputs=operands),
    )


def gelu(name: str, shape: Shape) -> Operator:
    """x (1 + erf(x / sqrt 2)) / 2, as exporters write it."""

    def build(graph: Graph, values: Mapping[str, str]) -> str:
        bent = graph.op("Erf", graph.op("Div", values["x"], 2.0**0.5))
        return graph.op("Mul", graph.op("Mul", values["x"], graph.op("Add", bent, 1.0)), 0.5)

    return Operator(name, "elementwise", {"x": shape}, shape, build, lambda chip: bounds.elementwise_bound(chip, shape))


def reduction(name: str, kind: str, shape: Shape, axes: Sequence[int]) -> Operator:
    def build(graph: Graph, values: Mapping[str, str]) -> str:
        if kind == "ReduceSum":  # takes its axes as an input since opset 13, the others from 18 on
            return graph.op(kind, values["x"], list(axes), keepdims=0)
        return graph.op(kind, values["x"], axes=list(axes), keepdims=0)

    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return Operator(
        name,
        "reduction",
        {"x": shape},
        kept,
        build,
        lambda chip: bounds.reduction_bound(chip, shape, prod(kept)),
    )


def transpose(name: str, shape: Shape, order: Sequence[int]) -> Operator:
    return Operator(
        name,
        "transpose",
        {"x": shape},
        tuple(shape[axis] for axis in order),
        lambda graph, values: graph.op("Transpose", values["x"], perm=list(order)),
        lambda chip: bounds.move_bound(chip, prod(shape), prod(shape)),
    )


OPERATORS: tuple[Operator, ...] = (
    product("gemm-256", 256, 256, 256),
    product("gemm-512", 512, 512, 512),
    product("gemm-1024", 1024, 1024, 1024, handwritten="gemm-{chip}-1024"),
    product("gemm-2048", 2048, 2048, 2048),
    product("gemm-4096", 4096, 4096, 4096),
    product("gemm-6144", 6144, 6144, 6144, handwritten="gemm-{chip}-6144"),
    product("gemm-ragged", 1000, 777, 1000, handwritten="gemm-{chip}-1000x777x1000"),
    product("gemm-tall", 8192, 256, 128),
    product("gemm-skinny", 128, 4096, 128),
    product("gemm-wide", 128, 768, 3072),
    product("gemv", 1, 1024, 4096),
    product("gemm-batched", 128, 64, 128, batch=(48,)),
    convolution("conv-1x1", (256, 64), 1, 56, relu=True),
    convolution("conv-1x1-wide", (512, 2048), 1, 7),
    convolution("conv-3x3", (64, 64), 3, 56, relu=True, handwritten="conv3x3-{chip}-64x56x56"),
    convolution("conv-3x3-deep", (512, 512), 3, 7, relu=True),
    convolution("conv-3x3-batch16", (64, 64), 3, 56, batch=16, relu=True),
    convolution("conv-7x7-strided", (3, 64), 7, 224, stride=2, relu=True),
    convolution("conv-3x3-strided", (128, 128), 3, 56, stride=2, relu=True),
    convolution("conv-1x1-strided", (256, 512), 1, 56, stride=2),
    convolution("conv-depthwise", (96, 96), 3, 112, groups=96),
    convolution("conv-depthwise-strided", (96, 96), 3, 112, groups=96, stride=2),
    rowwise("Softmax", "softmax-4096x1024", 4096, 1024, handwritten="softmax-{chip}-4096x1024"),
    rowwise("Softmax", "softmax-1000x777", 1000, 777),
    rowwise("LayerNormalization", "layer-norm-4096x1024", 4096, 1024, handwritten="layer_norm-{chip}-4096x1024"),
    rowwise("LayerNormalization", "layer-norm-2048x768", 2048, 768),
    attention("attention-512x64", 1, 512, 64, handwritten="attention-{chip}-512x64"),
    attention("attention-12x512x64", 12, 512, 64),
    attention("attention-8x1024x64", 8, 1024, 64),
    elementwise("add-relu", ("Add", "Relu"), (4096, 1024), operands=2),
    elementwise("sigmoid", ("Sigmoid",), (4096, 1024)),
    elementwise("add-ragged", ("Add",), (999, 1001), operands=2),
    gelu("gelu", (4096, 1024)),
    reduction("sum-last", "ReduceSum", (4096, 1024), (1,)),
    reduction("max-first", "ReduceMax", (4096, 1024), (0,)),
    reduction("mean-pixels", "ReduceMean", (16, 512, 28, 28), (2, 3)),
    transpose("transpose-2d", (2048, 2048), (1, 0)),
    transpose("transpose-heads", (16, 128, 12, 64), (0, 2, 1, 3)),
    transpose("transpose-nhwc", (16, 64, 56, 56), (0, 2, 3, 1)),
)
