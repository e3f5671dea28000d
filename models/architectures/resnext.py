"""ResNeXt: bottlenecks whose middle is grouped, Xie et al., arXiv 1611.05431."""

from __future__ import annotations

from collections.abc import Sequence

from models import initial
from models.graph import Graph
from models.layers import classifier, conv_norm


def resnext(
    graph: Graph, image: str, *, widths: Sequence[int], depths: Sequence[int], cardinality: int, classes: int = 100
) -> dict[str, str]:
    """``widths`` are the channels between the blocks; half of them are in the middle, in ``cardinality`` groups."""
    x = conv_norm(graph, "stem", image, (3, 32), 7, stride=2, gain=initial.LINEAR)
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels, side = 32, -(-graph.shape(image)[2] // 4)
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for index in range(depth):
            stride = 2 if stage and not index else 1
            with graph.scope(f"layer{stage}.{index}"):
                middle = width // 2
                branch = conv_norm(graph, "conv1", x, (channels, middle), 1)
                branch = conv_norm(graph, "conv2", branch, (middle, middle), 3, stride=stride, groups=cardinality)
                branch = conv_norm(graph, "conv3", branch, (middle, width), 1, activation=None, scale=0.5)
                if channels != width:
                    x = conv_norm(graph, "downsample", x, (channels, width), 1, stride=stride, activation=None)
                x = graph.op("Relu", graph.op("Add", branch, x))
            channels = width
        side = -(-side // 2) if stage else side
    return {"logits": classifier(graph, "fc", x, (channels, classes), pixels=side * side)}
