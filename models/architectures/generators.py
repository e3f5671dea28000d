"""Generators of images: DCGAN, arXiv 1511.06434; CycleGAN's residual generator, arXiv 1703.10593."""

from __future__ import annotations

import numpy as np

from models import initial
from models.graph import Graph
from models.layers import batch_norm, convolution, relu


def dcgan(graph: Graph, noise: str, *, width: int = 16) -> dict[str, str]:
    """From [batch, n, 1, 1] to images of 32 x 32, by transposed convolutions of 4 x 4."""
    channels = graph.shape(noise)[1]
    x, stride, padding = noise, 1, 0
    for index, outputs in enumerate((8 * width, 4 * width, 2 * width)):
        gain = initial.RELU if index else initial.LINEAR
        x = _transposed(graph, f"{index}", x, (channels, outputs), 4, stride, padding, gain)
        x = relu(graph, batch_norm(graph, f"{index}.bn", x, outputs))
        channels, stride, padding = outputs, 2, 1
    return {"generated": graph.op("Tanh", _transposed(graph, "3", x, (channels, 3), 4, 2, 1, initial.RELU))}


def cyclegan(graph: Graph, image: str, *, width: int = 16, blocks: int = 2) -> dict[str, str]:
    """Reflected borders, instance norms, residual blocks at a quarter of the size."""
    x = convolution(graph, "in", _reflected(graph, image, 3), (3, width), 7, padding=0, bias=True, gain=initial.LINEAR)
    x = relu(graph, _instance_norm(graph, "in.norm", x, width))
    for index in range(2):
        name, channels = f"down{index}", (width << index, width << (index + 1))
        x = relu(graph, _instance_norm(graph, name, convolution(graph, name, x, channels, 3, stride=2), channels[1]))
    inner = 4 * width
    for index in range(blocks):
        with graph.scope(f"block{index}"):
            branch = convolution(graph, "conv1", _reflected(graph, x, 1), (inner, inner), 3, padding=0, gain=1.0)
            branch = relu(graph, _instance_norm(graph, "norm1", branch, inner))
            branch = convolution(graph, "conv2", _reflected(graph, branch, 1), (inner, inner), 3, padding=0)
            x = graph.op("Add", x, _instance_norm(graph, "norm2", branch, inner))
    for index, outputs in enumerate((2 * width, width)):
        x = _transposed(graph, f"up{index}", x, (2 * outputs, outputs), 3, 2, 1, 1.5, output_padding=1)
        x = relu(graph, _instance_norm(graph, f"up{index}.norm", x, outputs))
    x = convolution(graph, "out", _reflected(graph, x, 3), (width, 3), 7, padding=0, bias=True)
    return {"generated": graph.op("Tanh", x)}


def _transposed(
    graph: Graph,
    name: str,
    x: str,
    channels: tuple[int, int],
    kernel: int,
    stride: int,
    padding: int,
    gain: float,
    *,
    output_padding: int = 0,
) -> str:
    """Each output pixel is made of (kernel / stride)^2 input pixels, or of one if the input is one."""
    inputs, outputs = channels
    reach = kernel / stride if padding else 1
    with graph.scope(name):
        drawn = initial.matrix(graph.rng("weight"), (inputs, outputs * kernel * kernel), gain)
        weight = graph.weight("weight", (drawn / np.float32(reach)).reshape(inputs, outputs, kernel, kernel))
        return graph.op(
            "ConvTranspose", x, weight, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4,
            output_padding=[output_padding] * 2,
        )  # fmt: skip


def _reflected(graph: Graph, x: str, by: int) -> str:
    return graph.op("Pad", x, np.array([0, 0, by, by, 0, 0, by, by], np.int64), mode="reflect")


def _instance_norm(graph: Graph, name: str, x: str, channels: int) -> str:
    with graph.scope(f"{name}.instance"):
        scale = graph.weight("weight", initial.vector(graph.rng("weight"), channels, 1.0, 0.2))
        bias = graph.weight("bias", initial.vector(graph.rng("bias"), channels))
        return graph.op("InstanceNormalization", x, scale, bias, epsilon=1e-5)
