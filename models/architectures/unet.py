"""U-Net: down, up again, and at each size the way down beside the way up, Ronneberger et al., arXiv 1505.04597."""

from __future__ import annotations

import numpy as np

from models import initial
from models.graph import Graph
from models.layers import batch_norm, convolution


def unet(
    graph: Graph, image: str, *, width: int, depth: int = 3, transposed: bool = True, classes: int = 2
) -> dict[str, str]:
    """``transposed``: upsampling by ConvTranspose; otherwise by a linear Resize and a convolution."""
    channels = graph.shape(image)[1]
    x, skips = image, []
    for level in range(depth + 1):
        outputs = width << level
        gain = initial.LINEAR if level == 0 else initial.RELU
        with graph.scope(f"down{level}"):
            x = _double_convolution(graph, x, (channels, outputs), gain)
        if level < depth:
            skips.append(x)
            x = graph.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        channels = outputs
    for level in reversed(range(depth)):
        with graph.scope(f"up{level}"):
            upsampled = (_transposed if transposed else _resized)(graph, x, channels)
            x = graph.op("Concat", skips[level], upsampled, axis=1)
            x = _double_convolution(graph, x, (channels, channels // 2), initial.RELU)
        channels //= 2
    return {"logits": convolution(graph, "outc", x, (channels, classes), 1, bias=True)}


def _double_convolution(graph: Graph, x: str, channels: tuple[int, int], gain: float) -> str:
    inputs, outputs = channels
    x = graph.op("Relu", batch_norm(graph, "1", convolution(graph, "0", x, (inputs, outputs), 3, gain=gain), outputs))
    return graph.op("Relu", batch_norm(graph, "4", convolution(graph, "3", x, (outputs, outputs), 3), outputs))


def _transposed(graph: Graph, x: str, channels: int) -> str:
    """Twice the size, half the channels; each output pixel is made of one input pixel."""
    with graph.scope("up"):
        halved = channels // 2
        columns = initial.matrix(graph.rng("weight"), (channels, halved * 4), initial.RELU)
        weight = graph.weight("weight", columns.reshape(channels, halved, 2, 2))
        bias = graph.weight("bias", initial.vector(graph.rng("bias"), halved))
        return graph.op("ConvTranspose", x, weight, bias, kernel_shape=[2, 2], strides=[2, 2])


def _resized(graph: Graph, x: str, channels: int) -> str:
    with graph.scope("up"):
        scales = np.array([1, 1, 2, 2], np.float32)
        x = graph.op(
            "Resize", x, None, scales, coordinate_transformation_mode="half_pixel", mode="linear", cubic_coeff_a=-0.75
        )
        return convolution(graph, "conv", x, (channels, channels // 2), 1, bias=True)
