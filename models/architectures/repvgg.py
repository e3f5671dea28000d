"""RepVGG before its branches are merged: 3 x 3, 1 x 1 and identity, each normalised, Ding et al., arXiv 2101.03697."""

from __future__ import annotations

from collections.abc import Sequence

from models import initial
from models.graph import Graph
from models.layers import batch_norm, classifier, conv_norm


def repvgg(
    graph: Graph, image: str, *, widths: Sequence[int], depths: Sequence[int], classes: int = 100
) -> dict[str, str]:
    x, channels, side = image, 3, graph.shape(image)[2]
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for index in range(depth):
            gain = initial.RELU if stage or index else initial.LINEAR
            with graph.scope(f"stage{stage}.{index}"):
                x = _block(graph, x, (channels, width), 1 if index else 2, gain)
            channels = width
        side = -(-side // 2)
    return {"logits": classifier(graph, "fc", x, (channels, classes), pixels=side * side)}


def _block(graph: Graph, x: str, channels: tuple[int, int], stride: int, gain: float) -> str:
    total = graph.op(
        "Add",
        conv_norm(graph, "dense", x, channels, 3, stride=stride, activation=None, gain=gain, scale=0.7),
        conv_norm(graph, "point", x, channels, 1, stride=stride, activation=None, gain=gain, scale=0.5),
    )
    if stride == 1 and channels[0] == channels[1]:
        total = graph.op("Add", total, batch_norm(graph, "identity", x, channels[0], scale=0.5))
    return graph.op("Relu", total)
