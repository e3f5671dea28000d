"""MobileNet: depthwise and pointwise convolutions by turns, Howard et al., arXiv 1704.04861."""

from __future__ import annotations

import math

from models import initial
from models.graph import Graph
from models.layers import classifier, conv_norm

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (1024, 2))
KEEPING_MEANS = math.sqrt(2)  # 1 / root mean square of relu(normal)


def mobilenet_v1(graph: Graph, image: str, *, multiplier: float = 1.0, classes: int = 100) -> dict[str, str]:
    """Two of the five blocks of 512 channels that are alike."""
    channels = round(32 * multiplier)
    x = conv_norm(graph, "stem", image, (3, channels), 3, stride=2, gain=initial.LINEAR)
    side = -(-graph.shape(image)[2] // 2)
    for index, (full, stride) in enumerate(BLOCKS):
        width = round(full * multiplier)
        with graph.scope(f"blocks.{index}"):
            x = conv_norm(graph, "dw", x, (channels, channels), 3, stride=stride, groups=channels, gain=KEEPING_MEANS)
            x = conv_norm(graph, "pw", x, (channels, width), 1)
        channels, side = width, -(-side // stride)
    return {"logits": classifier(graph, "fc", x, (channels, classes), pixels=side * side)}
