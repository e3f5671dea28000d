"""ConvNeXt: depthwise 7 x 7, layer norm over channels, inverted bottlenecks, Liu et al., arXiv 2201.03545."""

from __future__ import annotations

from collections.abc import Sequence

from models import initial
from models.graph import Graph
from models.layers import convolution, gelu, layer_norm, linear

CHANNELS_LAST, CHANNELS_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def convnext(
    graph: Graph, image: str, *, widths: Sequence[int], depths: Sequence[int], classes: int = 100
) -> dict[str, str]:
    side = graph.shape(image)[2] // 4
    x = convolution(graph, "stem", image, (3, widths[0]), 4, stride=4, padding=0, bias=True, gain=initial.LINEAR)
    x, channels = _norm2d(graph, "stem.norm", x, widths[0]), widths[0]
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        with graph.scope(f"stages.{stage}"):
            if stage:
                x = _norm2d(graph, "down.norm", x, channels)
                x = convolution(
                    graph, "down", x, (channels, width), 2, stride=2, padding=0, bias=True, gain=initial.LINEAR
                )
                side //= 2
            channels = width
            for index in range(depth):
                with graph.scope(f"blocks.{index}"):
                    x = _block(graph, x, channels)
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    x = layer_norm(graph, "norm", x, channels)
    return {"logits": linear(graph, "head", x, (channels, classes), gemm=True)}


def _norm2d(graph: Graph, name: str, x: str, channels: int) -> str:
    x = layer_norm(graph, name, graph.op("Transpose", x, perm=CHANNELS_LAST), channels, epsilon=1e-6)
    return graph.op("Transpose", x, perm=CHANNELS_FIRST)


def _block(graph: Graph, x: str, channels: int) -> str:
    branch = convolution(graph, "dwconv", x, (channels, channels), 7, groups=channels, bias=True, gain=initial.LINEAR)
    branch = layer_norm(graph, "norm", graph.op("Transpose", branch, perm=CHANNELS_LAST), channels, epsilon=1e-6)
    branch = gelu(graph, linear(graph, "pwconv1", branch, (channels, 4 * channels)))
    branch = linear(graph, "pwconv2", branch, (4 * channels, channels), gain=initial.GELU)
    scale = graph.weight("gamma", initial.vector(graph.rng("gamma"), channels, 0.5, 0.2))
    branch = graph.op("Transpose", graph.op("Mul", branch, scale), perm=CHANNELS_FIRST)
    return graph.op("Add", x, branch)
