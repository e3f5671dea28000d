"""Networks that mix tokens without attention.

MLP-Mixer: arXiv 2105.01601, gMLP: 2105.08050, ConvMixer: 2201.09792, PoolFormer: 2111.11418.
"""

from __future__ import annotations

import numpy as np

from models import initial
from models.attention import feed_forward, patches
from models.graph import Graph
from models.layers import batch_norm, convolution, gelu, group_norm, layer_norm, linear


def mlp_mixer(
    graph: Graph, image: str, *, patch: int = 8, width: int = 64, layers: int = 2, classes: int = 100
) -> dict[str, str]:
    """An MLP over all positions of a channel, then one over all channels of a position."""
    x, tokens = _tokens(graph, image, patch, width)
    for index in range(layers):
        with graph.scope(f"blocks.{index}"):
            mixed = graph.op("Transpose", layer_norm(graph, "norm1", x, width), perm=[0, 2, 1])
            mixed = feed_forward(graph, "tokens", mixed, tokens, 2 * tokens)
            x = graph.op("Add", x, graph.op("Transpose", mixed, perm=[0, 2, 1]))
            normal = layer_norm(graph, "norm2", x, width)
            x = graph.op("Add", x, feed_forward(graph, "channels", normal, width, 4 * width))
    return _head(graph, x, tokens, width, classes)


def gmlp(
    graph: Graph, image: str, *, patch: int = 8, width: int = 64, layers: int = 2, classes: int = 100
) -> dict[str, str]:
    """Half of the channels, mixed over positions, gate the other half."""
    x, tokens = _tokens(graph, image, patch, width)
    for index in range(layers):
        with graph.scope(f"blocks.{index}"):
            hidden = gelu(graph, linear(graph, "in", layer_norm(graph, "norm", x, width), (width, 4 * width)))
            value, gate = graph.ops("Split", hidden, [2 * width] * 2, outputs=2, axis=2)
            gate = graph.op("Transpose", layer_norm(graph, "gate.norm", gate, 2 * width), perm=[0, 2, 1])
            gate = graph.op("Transpose", linear(graph, "gate", gate, (tokens, tokens), gain=0.5), perm=[0, 2, 1])
            gated = graph.op("Mul", value, graph.op("Add", gate, 1.0))
            x = graph.op("Add", x, linear(graph, "out", gated, (2 * width, width)))
    return _head(graph, x, tokens, width, classes)


def convmixer(
    graph: Graph, image: str, *, patch: int = 4, width: int = 64, layers: int = 2, kernel: int = 5, classes: int = 100
) -> dict[str, str]:
    """Depthwise convolutions with a shortcut mix positions, pointwise ones channels."""
    side = graph.shape(image)[2] // patch
    x = convolution(graph, "stem", image, (3, width), patch, stride=patch, padding=0, bias=True, gain=initial.LINEAR)
    x = batch_norm(graph, "stem.bn", gelu(graph, x), width)
    for index in range(layers):
        with graph.scope(f"blocks.{index}"):
            mixed = convolution(graph, "depthwise", x, (width, width), kernel, groups=width, bias=True, gain=1.5)
            x = graph.op("Add", x, batch_norm(graph, "bn1", gelu(graph, mixed), width))
            x = gelu(graph, convolution(graph, "pointwise", x, (width, width), 1, bias=True, gain=initial.LINEAR))
            x = batch_norm(graph, "bn2", x, width)
    pooled = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    return {"logits": linear(graph, "head", pooled, (width, classes), gemm=True, gain=side)}


def poolformer(graph: Graph, image: str, *, width: int = 48, layers: int = 2, classes: int = 100) -> dict[str, str]:
    """The mean of neighbours in place of attention."""
    side = graph.shape(image)[2] // 4
    x = convolution(graph, "stem", image, (3, width), 7, stride=4, padding=(2, 2), bias=True, gain=initial.LINEAR)
    side = (graph.shape(image)[2] + 4 - 7) // 4 + 1
    for index in range(layers):
        with graph.scope(f"blocks.{index}"):
            normal = group_norm(graph, "norm1", x, width, 1)
            pooled = graph.op("AveragePool", normal, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
            x = graph.op("Add", x, graph.op("Sub", pooled, normal))
            normal = group_norm(graph, "norm2", x, width, 1)
            hidden = gelu(graph, convolution(graph, "fc1", normal, (width, 4 * width), 1, bias=True, gain=1.0))
            x = graph.op("Add", x, convolution(graph, "fc2", hidden, (4 * width, width), 1, bias=True, gain=1.0))
    pooled = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    return {"logits": linear(graph, "head", pooled, (width, classes), gemm=True, gain=side)}


def _tokens(graph: Graph, image: str, patch: int, width: int) -> tuple[str, int]:
    batch, channels, height, side = graph.shape(image)
    count = (height // patch) * (side // patch)
    x = convolution(
        graph, "stem", image, (channels, width), patch, stride=patch, padding=0, bias=True, gain=initial.LINEAR
    )
    return patches(graph, x, batch, width, count), count


def _head(graph: Graph, x: str, tokens: int, width: int, classes: int) -> dict[str, str]:
    x = graph.op("ReduceMean", layer_norm(graph, "norm", x, width), axes=[1], keepdims=0)
    return {"logits": linear(graph, "head", x, (width, classes), gemm=True, gain=float(np.sqrt(tokens)))}
