"""GoogLeNet: inception modules of four branches, Szegedy et al., arXiv 1409.4842."""

from __future__ import annotations

from models import initial
from models.graph import Graph
from models.layers import classifier, conv_norm

POOL = None  # halves the size instead of a module
MODULES = (  # channels: 1 x 1; 3 x 3 reduced, 3 x 3; 5 x 5 reduced, 5 x 5; behind the pooling
    (16, 24, 32, 4, 8, 8),
    (32, 32, 48, 8, 24, 16),
    POOL,
    (48, 24, 52, 4, 12, 16),
    (40, 28, 56, 6, 16, 16),
)


def googlenet(graph: Graph, image: str, *, classes: int = 100) -> dict[str, str]:
    """Five of the nine modules, a quarter of the channels, with batch norm as in torchvision."""
    x = conv_norm(graph, "conv1", image, (3, 16), 7, stride=2, gain=initial.LINEAR)
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    x = conv_norm(graph, "conv2", x, (16, 48), 3)
    channels, side = 48, -(-(-(-graph.shape(image)[2] // 2) - 3) // 2) + 1
    for index, module in enumerate(MODULES):
        if module is POOL:
            x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
            side = -(-(side - 3) // 2) + 1
            continue
        with graph.scope(f"inception{index}"):
            x = _module(graph, x, channels, module)
        one, _, three, _, five, pooled = module
        channels = one + three + five + pooled
    return {"logits": classifier(graph, "fc", x, (channels, classes), pixels=side * side)}


def _module(graph: Graph, x: str, channels: int, widths: tuple[int, ...]) -> str:
    one, three_in, three, five_in, five, pooled = widths
    branches = [conv_norm(graph, "branch1", x, (channels, one), 1)]
    for name, inner, outer, kernel in (("branch2", three_in, three, 3), ("branch3", five_in, five, 5)):
        reduced = conv_norm(graph, f"{name}.0", x, (channels, inner), 1)
        branches.append(conv_norm(graph, f"{name}.1", reduced, (inner, outer), kernel))
    pool = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    branches.append(conv_norm(graph, "branch4", pool, (channels, pooled), 1))
    return graph.op("Concat", *branches, axis=1)
