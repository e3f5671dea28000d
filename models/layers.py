"""The layers that several architectures are made of, as PyTorch's exporter writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from models import initial
from models.graph import Graph

Activation: TypeAlias = Callable[[Graph, str], str]


def relu(graph: Graph, x: str) -> str:
    return graph.op("Relu", x)


def convolution(
    graph: Graph,
    name: str,
    x: str,
    channels: tuple[int, int],
    kernel: int | tuple[int, ...],
    *,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | None = None,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = False,
    gain: float = initial.RELU,
) -> str:
    """Conv from channels[0] to channels[1]; padding keeps the size at stride 1 unless given.

    A kernel that is a number has two axes; other ranks are tuples. Twice as many pads as axes are those of each side.
    """
    inputs, outputs = channels
    sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
    same = tuple((size - 1) * dilation // 2 for size in sizes)
    pads = same if padding is None else (padding,) * len(sizes) if isinstance(padding, int) else padding
    with graph.scope(name):
        shape = (outputs, inputs // groups, *sizes)
        weight = graph.weight("weight", initial.filters(graph.rng("weight"), shape, gain))
        biases = [graph.weight("bias", initial.vector(graph.rng("bias"), outputs))] if bias else []
        return graph.op(
            "Conv",
            x,
            weight,
            *biases,
            dilations=[dilation] * len(sizes),
            group=groups,
            kernel_shape=list(sizes),
            pads=list(pads if len(pads) == 2 * len(sizes) else pads * 2),
            strides=[stride] * len(sizes) if isinstance(stride, int) else list(stride),
        )


def batch_norm(graph: Graph, name: str, x: str, channels: int, *, scale: float = 1.0) -> str:
    """BatchNormalization in inference form; its statistics are those of activations with unit variance, roughly."""
    with graph.scope(name):
        parts = {
            "weight": (scale, 0.2 * scale),
            "bias": (0.0, 0.1),
            "running_mean": (0.0, 0.1),
            "running_var": (1.0, 0.3),
        }
        operands = [graph.weight(p, initial.vector(graph.rng(p), channels, *parts[p])) for p in parts]
        return graph.op("BatchNormalization", x, *operands, epsilon=1e-5, momentum=0.9)


def linear(
    graph: Graph, name: str, x: str, sizes: tuple[int, int], *, gemm: bool = False, gain: float = initial.LINEAR
) -> str:
    """x W + b: as Gemm with a transposed weight (x of rank 2), or as MatMul and Add (any rank)."""
    inputs, outputs = sizes
    with graph.scope(name):
        bias = graph.weight("bias", initial.vector(graph.rng("bias"), outputs))
        if gemm:
            weight = graph.weight("weight", initial.filters(graph.rng("weight"), (outputs, inputs), gain))
            return graph.op("Gemm", x, weight, bias, alpha=1.0, beta=1.0, transB=1)
        weight = graph.weight("weight", initial.matrix(graph.rng("weight"), (inputs, outputs), gain))
        return graph.op("Add", bias, graph.op("MatMul", x, weight))


def mlp(graph: Graph, name: str, x: str, sizes: Sequence[int]) -> str:
    """Gemms with a ReLU between any two."""
    for index, pair in enumerate(pairwise(sizes)):
        x = graph.op("Relu", x) if index else x
        gain = initial.RELU if index else initial.LINEAR
        x = linear(graph, f"{name}.{index}", x, pair, gemm=True, gain=gain)
    return x


def classifier(graph: Graph, name: str, x: str, sizes: tuple[int, int], *, pixels: int, spread: float = 0.58) -> str:
    """Average over all positions, flatten and a Gemm: the end of most image classifiers.

    The average of ``pixels`` independent values of standard deviation ``spread`` (0.58: behind a ReLU) is scaled back
    to unit variance by the Gemm, as training would.
    """
    pooled = graph.op("GlobalAveragePool", x)
    flat = graph.op("Flatten", pooled, axis=1)
    return linear(graph, name, flat, sizes, gemm=True, gain=math.sqrt(pixels) / spread)


def conv_norm(
    graph: Graph,
    name: str,
    x: str,
    channels: tuple[int, int],
    kernel: int | tuple[int, ...],
    *,
    names: tuple[str, str] = ("conv", "bn"),
    activation: Activation | None = relu,
    stride: int | tuple[int, ...] = 1,
    dilation: int = 1,
    groups: int = 1,
    gain: float = initial.RELU,
    scale: float = 1.0,
) -> str:
    """A convolution, its normalisation and an activation: what most convolutional networks are made of."""
    with graph.scope(name):
        conv, norm = names
        x = convolution(graph, conv, x, channels, kernel, stride=stride, dilation=dilation, groups=groups, gain=gain)
        x = batch_norm(graph, norm, x, channels[1], scale=scale)
        return activation(graph, x) if activation else x


def squeeze_excitation(graph: Graph, name: str, x: str, channels: int, squeezed: int, gate: Activation) -> str:
    """Each channel times a gate, which two layers compute from the channels' means."""
    with graph.scope(name):
        means = graph.op("GlobalAveragePool", x)
        hidden = relu(graph, convolution(graph, "fc1", means, (channels, squeezed), 1, bias=True))
        return graph.op("Mul", x, gate(graph, convolution(graph, "fc2", hidden, (squeezed, channels), 1, bias=True)))


def relu6(graph: Graph, x: str) -> str:
    return graph.op("Clip", x, 0.0, 6.0)


def sigmoid(graph: Graph, x: str) -> str:
    return graph.op("Sigmoid", x)


def hard_sigmoid(graph: Graph, x: str) -> str:
    return graph.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


def hard_swish(graph: Graph, x: str) -> str:
    """One node where the opset has it, its parts where it is older."""
    return graph.op("HardSwish", x) if graph.opset >= 14 else graph.op("Mul", x, hard_sigmoid(graph, x))


def swish(graph: Graph, x: str) -> str:
    return graph.op("Mul", x, graph.op("Sigmoid", x))


def gelu(graph: Graph, x: str) -> str:
    """The exact form: x * (erf(x / sqrt 2) + 1) / 2."""
    erf = graph.op("Erf", graph.op("Div", x, math.sqrt(2)))
    return graph.op("Mul", graph.op("Mul", x, graph.op("Add", erf, 1.0)), 0.5)


def gelu_tanh(graph: Graph, x: str) -> str:
    """GPT-2's form: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    cubic = graph.op("Mul", graph.op("Pow", x, 3.0), 0.044715)
    tanh = graph.op("Tanh", graph.op("Mul", graph.op("Add", x, cubic), math.sqrt(2 / math.pi)))
    return graph.op("Mul", graph.op("Mul", x, 0.5), graph.op("Add", tanh, 1.0))


def layer_norm(graph: Graph, name: str, x: str, width: int, *, epsilon: float = 1e-5) -> str:
    """Over the last axis: one LayerNormalization where the opset has it, its parts where it is older."""
    with graph.scope(name):
        scale = graph.weight("weight", initial.vector(graph.rng("weight"), width, 1.0, 0.2))
        bias = graph.weight("bias", initial.vector(graph.rng("bias"), width))
        if graph.opset >= 17:
            return graph.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)
        centred = graph.op("Sub", x, graph.op("ReduceMean", x, axes=[-1], keepdims=1))
        variance = graph.op("ReduceMean", graph.op("Pow", centred, 2.0), axes=[-1], keepdims=1)
        deviation = graph.op("Sqrt", graph.op("Add", variance, epsilon))
        return graph.op("Add", graph.op("Mul", graph.op("Div", centred, deviation), scale), bias)


def rms_norm(graph: Graph, name: str, x: str, width: int, *, epsilon: float = 1e-6) -> str:
    """x / sqrt(mean(x^2)) * scale over the last axis, as decoders spell it out."""
    with graph.scope(name):
        scale = graph.weight("weight", initial.vector(graph.rng("weight"), width, 1.0, 0.2))
        squares = graph.op("ReduceMean", graph.op("Pow", x, 2.0), axes=[-1], keepdims=1)
        root = graph.op("Sqrt", graph.op("Add", squares, epsilon))
        return graph.op("Mul", graph.op("Mul", x, graph.op("Reciprocal", root)), scale)


def group_norm(graph: Graph, name: str, x: str, channels: int, groups: int, *, epsilon: float = 1e-5) -> str:
    """As PyTorch exports it: InstanceNormalization of groups as channels, then scale and bias of each channel."""
    with graph.scope(name):
        parts = graph.op("Reshape", x, [0, groups, -1])
        ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
        normal = graph.op("InstanceNormalization", parts, ones, zeros, epsilon=epsilon)
        normal = graph.op("Reshape", normal, graph.op("Shape", x))
        weight, bias = (
            graph.weight(part, initial.vector(graph.rng(part), channels, mean, 0.2).reshape(-1, 1, 1))
            for part, mean in (("weight", 1.0), ("bias", 0.0))
        )
        return graph.op("Add", graph.op("Mul", normal, weight), bias)


def embedding(graph: Graph, name: str, ids: str, count: int, width: int, *, scale: float = 1.0) -> str:
    """Rows of a table by int64 ids."""
    with graph.scope(name):
        table = graph.rng("weight").standard_normal((count, width), dtype=np.float32)
        return graph.op("Gather", graph.weight("weight", table * np.float32(scale)), ids)


def size_of(graph: Graph, x: str, axis: int) -> str:
    """A size as a scalar at run time: Shape and Gather, as exporters write x.size(axis)."""
    return graph.op("Gather", graph.op("Shape", x), axis, axis=0)


def reshape(graph: Graph, x: str, *sizes: int | str) -> str:
    """Reshape to numbers and run-time scalars: Unsqueeze, Concat and Reshape, as exporters write x.view(b, t, -1)."""
    if all(isinstance(size, int) for size in sizes):
        return graph.op("Reshape", x, np.array(sizes, np.int64))
    parts = [graph.op("Unsqueeze", size, [0]) if isinstance(size, str) else graph.constant([size]) for size in sizes]
    return graph.op("Reshape", x, graph.op("Concat", *parts, axis=0))
