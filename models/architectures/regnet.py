"""RegNet-Y: grouped bottlenecks with squeeze-and-excitation, Radosavovic et al., arXiv 2003.13678."""

from __future__ import annotations

from collections.abc import Sequence

from models import initial
from models.graph import Graph
from models.layers import classifier, conv_norm, sigmoid, squeeze_excitation


def regnet_y(
    graph: Graph, image: str, *, widths: Sequence[int], depths: Sequence[int], group: int, classes: int = 100
) -> dict[str, str]:
    """``group`` is how many channels a group has."""
    x = conv_norm(graph, "stem", image, (3, 32), 3, stride=2, gain=initial.LINEAR)
    channels, side = 32, -(-graph.shape(image)[2] // 2)
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for index in range(depth):
            with graph.scope(f"s{stage}.b{index}"):
                x = _block(graph, x, (channels, width), group, 1 if index else 2)
            channels = width
        side = -(-side // 2)
    return {"logits": classifier(graph, "fc", x, (channels, classes), pixels=side * side)}


def _block(graph: Graph, x: str, channels: tuple[int, int], group: int, stride: int) -> str:
    inputs, width = channels
    branch = conv_norm(graph, "a", x, (inputs, width), 1)
    branch = conv_norm(graph, "b", branch, (width, width), 3, stride=stride, groups=width // group)
    branch = squeeze_excitation(graph, "se", branch, width, max(8, inputs // 4), sigmoid)
    branch = conv_norm(graph, "c", branch, (width, width), 1, activation=None, gain=2 * initial.RELU, scale=0.5)
    if stride > 1 or inputs != width:
        x = conv_norm(graph, "proj", x, (inputs, width), 1, stride=stride, activation=None)
    return graph.op("Relu", graph.op("Add", x, branch))
