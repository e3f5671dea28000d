"""3D U-Net: volumes instead of images, Cicek et al., arXiv 1606.06650."""

from __future__ import annotations

from models import initial
from models.graph import Graph
from models.layers import conv_norm, convolution

CUBE = (3, 3, 3)


def unet3d(graph: Graph, volume: str, *, width: int = 8, classes: int = 3) -> dict[str, str]:
    """One level down and up again."""
    channels = graph.shape(volume)[1]
    first = conv_norm(graph, "down0.0", volume, (channels, width), CUBE, gain=initial.LINEAR)
    first = conv_norm(graph, "down0.1", first, (width, 2 * width), CUBE)
    x = graph.op("MaxPool", first, kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    x = conv_norm(graph, "bottom.0", x, (2 * width, 2 * width), CUBE)
    x = conv_norm(graph, "bottom.1", x, (2 * width, 4 * width), CUBE)
    with graph.scope("up"):
        columns = initial.matrix(graph.rng("weight"), (4 * width, 2 * width * 8), initial.RELU)
        weight = graph.weight("weight", columns.reshape(4 * width, 2 * width, 2, 2, 2))
        x = graph.op("ConvTranspose", x, weight, kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    x = conv_norm(graph, "up0.0", graph.op("Concat", first, x, axis=1), (4 * width, 2 * width), CUBE)
    return {"logits": convolution(graph, "out", x, (2 * width, classes), (1, 1, 1), bias=True)}
