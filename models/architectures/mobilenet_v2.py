"""MobileNet-v2: inverted residuals with depthwise convolutions and ReLU6, Sandler et al., arXiv 1801.04381."""

from __future__ import annotations

import math
from functools import partial

from models import initial
from models.graph import Graph
from models.layers import batch_norm, classifier, conv_norm, convolution, relu6

STAGES = (  # expansion, channels, blocks, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
BRANCH_SCALE = 0.5
DEPTHWISE = math.sqrt(2)  # 1 / root mean square of relu(normal): these filters keep the mean

_conv_norm = partial(conv_norm, names=("0", "1"), activation=relu6)


def mobilenet_v2(graph: Graph, image: str, *, classes: int = 1000) -> dict[str, str]:
    x = _conv_norm(graph, "features.0", image, (3, 32), 3, stride=2, gain=initial.LINEAR)
    channels, index = 32, 1
    for expansion, width, count, first in STAGES:
        for number in range(count):
            with graph.scope(f"features.{index}"):
                x = _inverted_residual(graph, x, (channels, width), expansion, first if number == 0 else 1)
            channels, index = width, index + 1
    x = _conv_norm(graph, f"features.{index}", x, (channels, 1280), 1, gain=initial.LINEAR)
    side = -(-graph.shape(image)[2] // 32)
    return {"logits": classifier(graph, "classifier.1", x, (1280, classes), pixels=side * side)}


def _inverted_residual(graph: Graph, x: str, channels: tuple[int, int], expansion: int, stride: int) -> str:
    inputs, outputs = channels
    hidden = inputs * expansion
    branch = x
    if expansion > 1:
        branch = _conv_norm(graph, "conv.expand", x, (inputs, hidden), 1, gain=initial.LINEAR)
    branch = _conv_norm(
        graph, "conv.depthwise", branch, (hidden, hidden), 3, stride=stride, groups=hidden, gain=DEPTHWISE
    )
    branch = convolution(graph, "conv.project", branch, (hidden, outputs), 1)
    shortcut = stride == 1 and inputs == outputs
    branch = batch_norm(graph, "conv.norm", branch, outputs, scale=BRANCH_SCALE if shortcut else 1.0)
    return graph.op("Add", x, branch) if shortcut else branch
