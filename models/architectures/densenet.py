"""DenseNet-121: every layer reads the concatenation of all before it, Huang et al., arXiv 1608.06993."""

from __future__ import annotations

from collections.abc import Sequence

from models import initial
from models.graph import Graph
from models.layers import batch_norm, classifier, convolution

GROWTH = 32
BOTTLENECK = 4 * GROWTH


def densenet(
    graph: Graph, image: str, *, blocks: Sequence[int] = (6, 12, 24, 16), classes: int = 1000
) -> dict[str, str]:
    x = convolution(graph, "conv0", image, (3, 64), 7, stride=2, gain=initial.LINEAR)
    x = graph.op("Relu", batch_norm(graph, "norm0", x, 64))
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    channels = 64
    for number, count in enumerate(blocks, 1):
        parts = [x]
        for layer in range(1, count + 1):
            with graph.scope(f"denseblock{number}.denselayer{layer}"):
                parts.append(_dense_layer(graph, parts, channels))
            channels += GROWTH
        x = graph.op("Concat", *parts, axis=1)
        if number < len(blocks):
            with graph.scope(f"transition{number}"):
                x = graph.op("Relu", batch_norm(graph, "norm", x, channels))
                x = convolution(graph, "conv", x, (channels, channels // 2), 1, gain=2 * initial.RELU)
                x = graph.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
            channels //= 2
    x = graph.op("Relu", batch_norm(graph, "norm5", x, channels))
    side = graph.shape(image)[2] // 32
    return {"logits": classifier(graph, "classifier", x, (channels, classes), pixels=side * side)}


def _dense_layer(graph: Graph, parts: Sequence[str], channels: int) -> str:
    x = graph.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    x = graph.op("Relu", batch_norm(graph, "norm1", x, channels))
    x = convolution(graph, "conv1", x, (channels, BOTTLENECK), 1)
    x = graph.op("Relu", batch_norm(graph, "norm2", x, BOTTLENECK))
    return convolution(graph, "conv2", x, (BOTTLENECK, GROWTH), 3)
