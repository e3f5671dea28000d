"""AlexNet: large strided filters, local response normalisation, groups, Krizhevsky et al., NIPS 2012."""

from __future__ import annotations

from models import initial
from models.graph import Graph
from models.layers import convolution, linear


def alexnet(graph: Graph, image: str, *, width: int = 32, hidden: int = 256, classes: int = 100) -> dict[str, str]:
    """The original has 96 filters in the first layer, and two groups in the second, fourth and fifth."""
    side = (graph.shape(image)[2] + 4 - 11) // 4 + 1
    x = convolution(graph, "conv1", image, (3, width), 11, stride=4, padding=2, bias=True, gain=initial.LINEAR)
    x, side = _normalised_pool(graph, x), (side - 3) // 2 + 1
    x = convolution(graph, "conv2", x, (width, 2 * width), 5, groups=2, bias=True)
    x, side = _normalised_pool(graph, x), (side - 3) // 2 + 1
    x = graph.op("Relu", convolution(graph, "conv3", x, (2 * width, 4 * width), 3, bias=True))
    x = graph.op("Relu", convolution(graph, "conv4", x, (4 * width, 4 * width), 3, groups=2, bias=True))
    x = graph.op("Relu", convolution(graph, "conv5", x, (4 * width, 2 * width), 3, groups=2, bias=True))
    x, side = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2]), (side - 3) // 2 + 1
    x = graph.op("Flatten", x, axis=1)
    for index, sizes in enumerate(((2 * width * side * side, hidden), (hidden, hidden))):
        x = graph.op("Relu", linear(graph, f"fc{index}", x, sizes, gemm=True, gain=initial.RELU))
    return {"logits": linear(graph, "fc2", x, (hidden, classes), gemm=True, gain=initial.RELU)}


def _normalised_pool(graph: Graph, x: str) -> str:
    x = graph.op("LRN", graph.op("Relu", x), size=5, alpha=1e-4, beta=0.75, bias=1.0)
    return graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
