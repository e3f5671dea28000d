"""SqueezeNet 1.1: fire modules, concatenation, a convolution as classifier, Iandola et al., arXiv 1602.07360."""

from __future__ import annotations

from models import initial
from models.graph import Graph
from models.layers import convolution

POOL = (0, 0)  # a 3 x 3 maximum instead of a fire module
LAYERS = (  # channels squeezed to, channels each of the two expansions has
    POOL,
    (16, 64),
    (16, 64),
    POOL,
    (32, 128),
    (32, 128),
    POOL,
    (48, 192),
    (48, 192),
    (64, 256),
    (64, 256),
)


def squeezenet(graph: Graph, image: str, *, classes: int = 1000) -> dict[str, str]:
    x = convolution(graph, "features.0", image, (3, 64), 3, stride=2, padding=0, bias=True, gain=initial.LINEAR)
    x = graph.op("Relu", x)
    side = (graph.shape(image)[2] - 3) // 2 + 1
    channels = 64
    for index, layer in enumerate(LAYERS, 2):
        if layer == POOL:
            x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
            side = -(-(side - 3) // 2) + 1
        else:
            with graph.scope(f"features.{index}"):
                x = _fire(graph, x, channels, layer)
            channels = 2 * layer[1]
    x = convolution(graph, "classifier.1", x, (channels, classes), 1, bias=True, gain=initial.RELU * side)
    x = graph.op("GlobalAveragePool", graph.op("Relu", x))
    return {"logits": graph.op("Flatten", x, axis=1)}


def _fire(graph: Graph, x: str, channels: int, widths: tuple[int, int]) -> str:
    squeezed, expanded = widths
    x = graph.op("Relu", convolution(graph, "squeeze", x, (channels, squeezed), 1, bias=True))
    one = graph.op("Relu", convolution(graph, "expand1x1", x, (squeezed, expanded), 1, bias=True))
    three = graph.op("Relu", convolution(graph, "expand3x3", x, (squeezed, expanded), 3, bias=True))
    return graph.op("Concat", one, three, axis=1)
