"""EfficientNet-B0: inverted residuals with swish and squeeze-and-excitation, Tan and Le, arXiv 1905.11946."""

from __future__ import annotations

from functools import partial

from models import initial
from models.graph import Graph
from models.layers import batch_norm, classifier, conv_norm, convolution, swish

STAGES = (  # expansion, channels, blocks, stride of the first, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
BRANCH_SCALE = 0.5
GATE = 0.55  # of a squeeze-and-excitation gate, its root mean square
DEPTHWISE = 1.68  # 1 / root mean square of swish(normal): these filters keep the mean

_conv_norm_swish = partial(conv_norm, names=("conv", "norm"), activation=swish)


def efficientnet_b0(graph: Graph, image: str, *, classes: int = 1000) -> dict[str, str]:
    x = _conv_norm_swish(graph, "stem", image, (3, 32), 3, stride=2, gain=initial.LINEAR)
    channels, index = 32, 0
    for expansion, width, count, first, kernel in STAGES:
        for number in range(count):
            with graph.scope(f"blocks.{index}"):
                stride = first if number == 0 else 1
                x = _block(graph, x, (channels, width), expansion=expansion, kernel=kernel, stride=stride)
            channels, index = width, index + 1
    x = _conv_norm_swish(graph, "head", x, (channels, 1280), 1, gain=initial.LINEAR)
    side = -(-graph.shape(image)[2] // 32)
    return {"logits": classifier(graph, "classifier", x, (1280, classes), pixels=side * side)}


def _block(graph: Graph, x: str, channels: tuple[int, int], *, expansion: int, kernel: int, stride: int) -> str:
    inputs, outputs = channels
    hidden = inputs * expansion
    branch = x
    if expansion > 1:
        branch = _conv_norm_swish(graph, "expand", x, (inputs, hidden), 1, gain=initial.LINEAR)
    branch = _conv_norm_swish(
        graph, "depthwise", branch, (hidden, hidden), kernel, stride=stride, groups=hidden, gain=DEPTHWISE
    )
    branch = _excited(graph, branch, hidden, inputs // 4)
    branch = convolution(graph, "project", branch, (hidden, outputs), 1, gain=initial.SWISH / GATE)
    shortcut = stride == 1 and inputs == outputs
    branch = batch_norm(graph, "project_norm", branch, outputs, scale=BRANCH_SCALE if shortcut else 1.0)
    return graph.op("Add", branch, x) if shortcut else branch


def _excited(graph: Graph, x: str, channels: int, squeezed: int) -> str:
    """Squeeze-and-excitation: each channel times a gate, which two layers compute from the channels' means."""
    with graph.scope("se"):
        gate = graph.op("ReduceMean", x, axes=[2, 3], keepdims=1)
        gate = swish(graph, convolution(graph, "reduce", gate, (channels, squeezed), 1, bias=True))
        gate = convolution(graph, "expand", gate, (squeezed, channels), 1, bias=True)
        return graph.op("Mul", x, graph.op("Sigmoid", gate))
