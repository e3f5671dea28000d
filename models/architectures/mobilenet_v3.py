"""MobileNet-v3: inverted residuals, hard swish, squeeze-and-excitation, Howard et al., arXiv 1905.02244."""

from __future__ import annotations

from models import initial
from models.graph import Graph
from models.layers import (
    Activation,
    conv_norm,
    hard_sigmoid,
    hard_swish,
    linear,
    relu,
    squeeze_excitation,
)

BLOCKS: tuple[
    tuple[int, int, int, bool, Activation, int], ...
] = (  # kernel, hidden, channels, gated, activation, stride
    (3, 16, 16, True, relu, 2),
    (3, 72, 24, False, relu, 2),
    (3, 88, 24, False, relu, 1),
    (5, 96, 40, True, hard_swish, 2),
    (5, 240, 40, True, hard_swish, 1),
    (5, 120, 48, True, hard_swish, 1),
    (5, 288, 96, True, hard_swish, 2),
    (5, 576, 96, True, hard_swish, 1),
)
GATE = 0.5
DEPTHWISE = 2.0  # near 1 / root mean square of hard_swish(normal): these filters keep the mean
BRANCH_SCALE = 0.5


def mobilenet_v3_small(graph: Graph, image: str, *, classes: int = 100) -> dict[str, str]:
    x = conv_norm(graph, "stem", image, (3, 16), 3, stride=2, activation=hard_swish, gain=initial.LINEAR)
    channels, side = 16, -(-graph.shape(image)[2] // 2)
    for index, (kernel, hidden, width, gated, activation, stride) in enumerate(BLOCKS):
        with graph.scope(f"blocks.{index}"):
            branch = conv_norm(graph, "expand", x, (channels, hidden), 1, activation=activation, gain=initial.LINEAR)
            branch = conv_norm(
                graph, "dw", branch, (hidden, hidden), kernel, stride=stride, groups=hidden,
                activation=activation, gain=DEPTHWISE,
            )  # fmt: skip
            if gated:
                branch = squeeze_excitation(graph, "se", branch, hidden, max(8, hidden // 4), hard_sigmoid)
            shortcut = stride == 1 and channels == width
            gain = initial.RELU / GATE if gated else initial.RELU
            scale = BRANCH_SCALE if shortcut else 1.0
            branch = conv_norm(graph, "project", branch, (hidden, width), 1, activation=None, gain=gain, scale=scale)
            x = graph.op("Add", x, branch) if shortcut else branch
        channels, side = width, -(-side // stride)
    x = conv_norm(graph, "head", x, (channels, 288), 1, activation=hard_swish, gain=initial.LINEAR)
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    x = hard_swish(graph, linear(graph, "fc1", x, (288, 256), gemm=True, gain=side / 0.58))
    return {"logits": linear(graph, "fc2", x, (256, classes), gemm=True, gain=initial.SWISH)}
