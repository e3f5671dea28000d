"""Xception: separable convolutions in residual blocks, Chollet, arXiv 1610.02357."""

from __future__ import annotations

from models import initial
from models.graph import Graph
from models.layers import batch_norm, classifier, conv_norm, convolution

DEPTHWISE = 1.3  # near 1 / root mean square of relu(normal): these filters keep the mean
WIDTHS = (64, 128, 182)  # of the entry blocks; the original goes on to 728


def xception(graph: Graph, image: str, *, middle: int = 2, classes: int = 100) -> dict[str, str]:
    """``middle``: blocks that keep the shape, of which the original has eight."""
    x = conv_norm(graph, "conv1", image, (3, 32), 3, stride=2, gain=initial.LINEAR)
    x, channels, side = conv_norm(graph, "conv2", x, (32, 64), 3), 64, -(-graph.shape(image)[2] // 2)
    for index, width in enumerate(WIDTHS):
        with graph.scope(f"entry{index}"):
            shortcut = conv_norm(graph, "skip", x, (channels, width), 1, stride=2, activation=None)
            x = _separable(graph, "sep1", graph.op("Relu", x), (channels, width))
            x = _separable(graph, "sep2", graph.op("Relu", x), (width, width), scale=0.5)
            x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
            x, channels, side = graph.op("Add", x, shortcut), width, -(-side // 2)
    for index in range(middle):
        with graph.scope(f"middle{index}"):
            branch = x
            for step in range(3):
                scale = 0.5 if step == 2 else 1.0
                branch = _separable(graph, f"sep{step}", graph.op("Relu", branch), (channels, channels), scale=scale)
            x = graph.op("Add", x, branch)
    x = graph.op("Relu", _separable(graph, "exit", x, (channels, 256)))
    return {"logits": classifier(graph, "fc", x, (256, classes), pixels=side * side)}


def _separable(graph: Graph, name: str, x: str, channels: tuple[int, int], *, scale: float = 1.0) -> str:
    """Depthwise, then pointwise, nothing between."""
    inputs, width = channels
    with graph.scope(name):
        x = convolution(graph, "dw", x, (inputs, inputs), 3, groups=inputs, gain=DEPTHWISE)
        return batch_norm(
            graph, "bn", convolution(graph, "pw", x, (inputs, width), 1, gain=initial.LINEAR), width, scale=scale
        )
