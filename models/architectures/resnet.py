"""Residual networks: basic blocks (ResNet-18, -34) and bottlenecks (ResNet-50), He et al., arXiv 1512.03385."""

from __future__ import annotations

from collections.abc import Sequence

from models import initial
from models.graph import Graph
from models.layers import batch_norm, classifier, convolution

BRANCH_SCALE = 0.3  # of a residual branch's last normalisation, so that the sums do not grow with depth
WIDTHS = (64, 128, 256, 512)


def resnet(
    graph: Graph, image: str, *, blocks: Sequence[int], bottleneck: bool = False, classes: int = 1000
) -> dict[str, str]:
    x = convolution(graph, "conv1", image, (3, 64), 7, stride=2, gain=initial.LINEAR)
    x = graph.op("Relu", batch_norm(graph, "bn1", x, 64))
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    block, expansion = (_bottleneck, 4) if bottleneck else (_basic_block, 1)
    channels = 64
    for stage, (count, width) in enumerate(zip(blocks, WIDTHS, strict=True)):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            with graph.scope(f"layer{stage + 1}.{index}"):
                x = block(graph, x, channels, width, stride)
            channels = width * expansion
    side = -(-graph.shape(image)[2] // 32)
    return {"logits": classifier(graph, "fc", x, (channels, classes), pixels=side * side)}


def residual_block(graph: Graph, x: str) -> dict[str, str]:
    """One basic block alone, with its shortcut as it is."""
    channels = graph.shape(x)[1]
    return {"output": _basic_block(graph, x, channels, channels, 1)}


def _basic_block(graph: Graph, x: str, channels: int, width: int, stride: int) -> str:
    branch = convolution(graph, "conv1", x, (channels, width), 3, stride=stride)
    branch = graph.op("Relu", batch_norm(graph, "bn1", branch, width))
    branch = convolution(graph, "conv2", branch, (width, width), 3)
    branch = batch_norm(graph, "bn2", branch, width, scale=BRANCH_SCALE)
    return graph.op("Relu", graph.op("Add", branch, _shortcut(graph, x, channels, width, stride)))


def _bottleneck(graph: Graph, x: str, channels: int, width: int, stride: int) -> str:
    branch = convolution(graph, "conv1", x, (channels, width), 1)
    branch = graph.op("Relu", batch_norm(graph, "bn1", branch, width))
    branch = convolution(graph, "conv2", branch, (width, width), 3, stride=stride)
    branch = graph.op("Relu", batch_norm(graph, "bn2", branch, width))
    branch = convolution(graph, "conv3", branch, (width, 4 * width), 1)
    branch = batch_norm(graph, "bn3", branch, 4 * width, scale=BRANCH_SCALE)
    return graph.op("Relu", graph.op("Add", branch, _shortcut(graph, x, channels, 4 * width, stride)))


def _shortcut(graph: Graph, x: str, channels: int, outputs: int, stride: int) -> str:
    """The input itself, or where the shape changes its projection."""
    if stride == 1 and channels == outputs:
        return x
    x = convolution(graph, "downsample.0", x, (channels, outputs), 1, stride=stride)
    return batch_norm(graph, "downsample.1", x, outputs)
