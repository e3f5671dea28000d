"""ShuffleNet-v2: half the channels pass, half are convolved, then all are shuffled, Ma et al., arXiv 1807.11164."""

from __future__ import annotations

from models import initial
from models.graph import Graph
from models.layers import classifier, conv_norm

STAGES = ((116, 2), (232, 4), (464, 2))  # channels, units; the original has 4, 8 and 4


def shufflenet_v2(graph: Graph, image: str, *, classes: int = 100) -> dict[str, str]:
    batch, _, side, _ = graph.shape(image)
    x = conv_norm(graph, "conv1", image, (3, 24), 3, stride=2, gain=initial.LINEAR)
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels, side = 24, -(-side // 4)
    for stage, (width, units) in enumerate(STAGES):
        side = -(-side // 2)
        for unit in range(units):
            with graph.scope(f"stage{stage}.{unit}"):
                if unit == 0:
                    parts = (_left(graph, x, channels, width // 2), _right(graph, x, (channels, width // 2), 2))
                else:
                    passed, rest = graph.ops("Split", x, [width // 2] * 2, outputs=2, axis=1)
                    parts = (passed, _right(graph, rest, (width // 2, width // 2), 1))
                x = graph.op("Concat", *parts, axis=1)
                x = graph.op("Reshape", x, [batch, 2, width // 2, side, side])
                x = graph.op("Transpose", x, perm=[0, 2, 1, 3, 4])
                x = graph.op("Reshape", x, [batch, width, side, side])
        channels = width
    x = conv_norm(graph, "conv5", x, (channels, 512), 1)
    return {"logits": classifier(graph, "fc", x, (512, classes), pixels=side * side)}


def _left(graph: Graph, x: str, channels: int, width: int) -> str:
    with graph.scope("left"):
        x = conv_norm(graph, "dw", x, (channels, channels), 3, stride=2, groups=channels, activation=None, gain=1.4)
        return conv_norm(graph, "pw", x, (channels, width), 1, gain=initial.LINEAR)


def _right(graph: Graph, x: str, channels: tuple[int, int], stride: int) -> str:
    inputs, width = channels
    with graph.scope("right"):
        x = conv_norm(graph, "pw1", x, (inputs, width), 1)
        x = conv_norm(graph, "dw", x, (width, width), 3, stride=stride, groups=width, activation=None, gain=1.4)
        return conv_norm(graph, "pw2", x, (width, width), 1, gain=initial.LINEAR)
