"""Super-resolution: SRCNN 1501.00092, FSRCNN 1608.00367, ESPCN 1609.05158, EDSR 1707.02921, ESRGAN 1809.00219."""

from __future__ import annotations

import numpy as np

from models import initial
from models.graph import Graph
from models.layers import convolution, relu


def srcnn(graph: Graph, image: str) -> dict[str, str]:
    """Upsampled first, by a cubic Resize, then three large filters."""
    channels = graph.shape(image)[1]
    x = graph.op(
        "Resize", image, None, np.array([1, 1, 2, 2], np.float32),
        coordinate_transformation_mode="half_pixel", mode="cubic", cubic_coeff_a=-0.75,
    )  # fmt: skip
    x = relu(graph, convolution(graph, "conv1", x, (channels, 32), 9, bias=True, gain=initial.LINEAR))
    x = relu(graph, convolution(graph, "conv2", x, (32, 16), 1, bias=True))
    return {"enlarged": convolution(graph, "conv3", x, (16, channels), 5, bias=True)}


def fsrcnn(graph: Graph, image: str) -> dict[str, str]:
    """Shrinks, maps, expands, and upsamples last by a transposed convolution of 9 x 9; PReLU between."""
    channels = graph.shape(image)[1]
    x = _prelu(graph, "feature", convolution(graph, "feature", image, (channels, 32), 5, gain=initial.LINEAR), 32)
    x = _prelu(graph, "shrink", convolution(graph, "shrink", x, (32, 12), 1, bias=True), 12)
    for index in range(2):
        x = _prelu(graph, f"map{index}", convolution(graph, f"map{index}", x, (12, 12), 3, bias=True), 12)
    x = _prelu(graph, "expand", convolution(graph, "expand", x, (12, 32), 1, bias=True), 32)
    with graph.scope("deconv"):
        drawn = initial.matrix(graph.rng("weight"), (32, channels * 81), initial.RELU)
        weight = graph.weight("weight", drawn.reshape(32, channels, 9, 9) * np.float32(0.3))
        return {
            "enlarged": graph.op(
                "ConvTranspose", x, weight, kernel_shape=[9, 9], strides=[2, 2], pads=[4] * 4, output_padding=[1, 1]
            )
        }


def espcn(graph: Graph, image: str, *, factor: int = 3) -> dict[str, str]:
    """All work at the low resolution; channels become pixels at the end."""
    channels = graph.shape(image)[1]
    x = graph.op("Tanh", convolution(graph, "conv1", image, (channels, 64), 5, bias=True, gain=initial.LINEAR))
    x = graph.op("Tanh", convolution(graph, "conv2", x, (64, 32), 3, bias=True, gain=1.5))
    x = convolution(graph, "conv3", x, (32, channels * factor * factor), 3, bias=True, gain=1.5)
    return {"enlarged": graph.op("DepthToSpace", x, blocksize=factor, mode="CRD")}


def edsr(graph: Graph, image: str, *, width: int = 32, blocks: int = 4) -> dict[str, str]:
    """Residual blocks without normalisation, scaled, around one long shortcut."""
    channels = graph.shape(image)[1]
    first = convolution(graph, "head", image, (channels, width), 3, bias=True, gain=initial.LINEAR)
    x = first
    for index in range(blocks):
        with graph.scope(f"body.{index}"):
            branch = relu(graph, convolution(graph, "0", x, (width, width), 3, bias=True, gain=initial.LINEAR))
            x = graph.op("Add", x, graph.op("Mul", convolution(graph, "2", branch, (width, width), 3, bias=True), 0.3))
    x = graph.op("Add", first, convolution(graph, "body.out", x, (width, width), 3, bias=True, gain=initial.LINEAR))
    x = convolution(graph, "up", x, (width, 4 * width), 3, bias=True, gain=0.7)
    x = graph.op("DepthToSpace", x, blocksize=2, mode="CRD")
    return {"enlarged": convolution(graph, "tail", x, (width, channels), 3, bias=True, gain=initial.LINEAR)}


def esrgan(graph: Graph, image: str, *, width: int = 32, growth: int = 16, blocks: int = 1) -> dict[str, str]:
    """Dense blocks inside residual ones; upsampled by nearest neighbour and a convolution."""
    channels = graph.shape(image)[1]
    first = convolution(graph, "conv_first", image, (channels, width), 3, bias=True, gain=initial.LINEAR)
    x = first
    for index in range(blocks):
        with graph.scope(f"body.{index}"):
            inner = x
            for part in range(3):
                inner = _dense(graph, f"rdb{part + 1}", inner, width, growth)
            x = graph.op("Add", graph.op("Mul", inner, 0.2), x)
    x = graph.op("Add", first, convolution(graph, "conv_body", x, (width, width), 3, bias=True, gain=initial.LINEAR))
    x = graph.op(
        "Resize", x, None, np.array([1, 1, 2, 2], np.float32),
        coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor",
    )  # fmt: skip
    x = _leaky(graph, convolution(graph, "conv_up", x, (width, width), 3, bias=True, gain=0.7))
    return {"enlarged": convolution(graph, "conv_last", x, (width, channels), 3, bias=True)}


def _dense(graph: Graph, name: str, x: str, width: int, growth: int) -> str:
    """Each convolution reads all before it."""
    with graph.scope(name):
        parts = [x]
        for index in range(4):
            joined = graph.op("Concat", *parts, axis=1) if index else x
            channels = (width + index * growth, growth)
            parts.append(_leaky(graph, convolution(graph, f"conv{index}", joined, channels, 3, bias=True)))
        joined = graph.op("Concat", *parts, axis=1)
        last = convolution(graph, "conv4", joined, (width + 4 * growth, width), 3, bias=True)
        return graph.op("Add", graph.op("Mul", last, 0.2), x)


def _leaky(graph: Graph, x: str) -> str:
    return graph.op("LeakyRelu", x, alpha=0.2)


def _prelu(graph: Graph, name: str, x: str, channels: int) -> str:
    with graph.scope(name):
        slope = initial.vector(graph.rng("slope"), channels, 0.25, 0.1).reshape(-1, 1, 1)
        return graph.op("PRelu", x, graph.weight("slope", slope))
