"""VGG: stages of 3 x 3 convolutions, then a large MLP, Simonyan and Zisserman, arXiv 1409.1556."""

from __future__ import annotations

from collections.abc import Sequence

from models import initial
from models.graph import Graph
from models.layers import convolution, linear


def vgg(
    graph: Graph, image: str, *, stages: Sequence[Sequence[int]], hidden: int = 256, classes: int = 100
) -> dict[str, str]:
    """``stages`` are the channels of the convolutions between two poolings."""
    _, channels, side, _ = graph.shape(image)
    x, index = image, 0
    for widths in stages:
        for width in widths:
            gain = initial.RELU if index else initial.LINEAR
            x = convolution(graph, f"features.{index}", x, (channels, width), 3, bias=True, gain=gain)
            x, channels, index = graph.op("Relu", x), width, index + 1
        x = graph.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        side //= 2
    x = graph.op("Flatten", x, axis=1)
    for number, sizes in enumerate(((channels * side * side, hidden), (hidden, hidden))):
        x = graph.op("Relu", linear(graph, f"classifier.{number}", x, sizes, gemm=True, gain=initial.RELU))
        x = graph.op("Dropout", x)
    return {"logits": linear(graph, "classifier.2", x, (hidden, classes), gemm=True, gain=initial.RELU)}
