"""Conformer: half feed-forwards around attention and a gated depthwise convolution, Gulati et al., arXiv 2005.08100."""

from __future__ import annotations

from models import initial
from models.attention import learned_positions, multi_head
from models.graph import Graph
from models.layers import batch_norm, convolution, layer_norm, linear, swish


def conformer(
    graph: Graph,
    features: str,
    *,
    width: int,
    heads: int,
    layers: int,
    kernel: int = 15,
    subsampled: bool = True,
    classes: int = 0,
) -> dict[str, str]:
    """Blocks on [batch, frames, features]; ``subsampled`` is the stem of two strided convolutions before them.

    Positions are learned ones, not relative. With ``classes`` the output is a CTC head's log-probabilities.
    """
    batch, frames, size = graph.shape(features)
    x = features
    if subsampled:
        x, frames = _stem(graph, features, (batch, frames, size), width)
        x = learned_positions(graph, "positions", x, frames, width)
    elif size != width:
        raise ValueError(f"blocks of width {width} cannot read features of size {size}")
    for index in range(layers):
        with graph.scope(f"layers.{index}"):
            x = _block(graph, x, width, heads, kernel)
    if not classes:
        return {"encoded": x}
    scores = linear(graph, "ctc", x, (width, classes))
    return {"log_probabilities": graph.op("LogSoftmax", scores, axis=-1)}


def _stem(graph: Graph, features: str, shape: tuple[int, int, int], width: int) -> tuple[str, int]:
    """A quarter of the frames; how many they are."""
    batch, frames, size = shape
    x, channels = graph.op("Unsqueeze", features, [1]), 1
    for index in range(2):
        gain = initial.RELU if index else initial.LINEAR
        with graph.scope(f"subsample.{index}"):
            x = convolution(graph, "conv", x, (channels, width // 4), 3, stride=2, bias=True, gain=gain)
            x = graph.op("Relu", x)
        channels, frames, size = width // 4, -(-frames // 2), -(-size // 2)
    x = graph.op("Reshape", graph.op("Transpose", x, perm=[0, 2, 1, 3]), [batch, frames, channels * size])
    return linear(graph, "subsample.out", x, (channels * size, width), gain=initial.RELU), frames


def _block(graph: Graph, x: str, width: int, heads: int, kernel: int) -> str:
    x = graph.op("Add", x, graph.op("Mul", _feed_forward(graph, "ff1", x, width), 0.5))
    normal = layer_norm(graph, "attn.norm", x, width)
    x = graph.op("Add", x, multi_head(graph, "attn", normal, width, heads))
    x = graph.op("Add", x, _convolution(graph, x, width, kernel))
    x = graph.op("Add", x, graph.op("Mul", _feed_forward(graph, "ff2", x, width), 0.5))
    return layer_norm(graph, "norm", x, width)


def _feed_forward(graph: Graph, name: str, x: str, width: int) -> str:
    with graph.scope(name):
        hidden = swish(graph, linear(graph, "fc1", layer_norm(graph, "norm", x, width), (width, 4 * width)))
        return linear(graph, "fc2", hidden, (4 * width, width), gain=initial.SWISH)


def _convolution(graph: Graph, x: str, width: int, kernel: int) -> str:
    """Pointwise to twice the width, gated by its own half, depthwise along the frames, pointwise back."""
    with graph.scope("conv"):
        x = graph.op("Transpose", layer_norm(graph, "norm", x, width), perm=[0, 2, 1])
        x = convolution(graph, "in", x, (width, 2 * width), (1,), bias=True, gain=initial.LINEAR)
        value, gate = graph.ops("Split", x, [width, width], outputs=2, axis=1)
        x = graph.op("Mul", value, graph.op("Sigmoid", gate))
        x = convolution(graph, "depthwise", x, (width, width), (kernel,), groups=width, bias=True, gain=2.0)
        x = swish(graph, batch_norm(graph, "bn", x, width))
        x = convolution(graph, "out", x, (width, width), (1,), bias=True, gain=initial.SWISH)
        return graph.op("Transpose", x, perm=[0, 2, 1])
