"""Attention as the architectures share it: heads from a projection, softmax(Q K^T / sqrt(d) + mask) V, and back.

Reshape copies the batch and the length (sizes of 0), so that neither needs to be known here.
"""

from __future__ import annotations

import math

import numpy as np

from models import initial
from models.graph import Graph, Operand
from models.layers import embedding, gelu, layer_norm, linear


def heads_of(graph: Graph, x: str, heads: int, size: int) -> str:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    return graph.op("Transpose", graph.op("Reshape", x, [0, 0, heads, size]), perm=[0, 2, 1, 3])


def attended(graph: Graph, query: str, key: str, value: str, width: int, *, size: int, mask: Operand = None) -> str:
    """All heads [batch, heads, length, size] attend, and are joined again: [batch, length, width]."""
    scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.op("Mul", scores, 1 / math.sqrt(size))
    if mask is not None:
        scores = graph.op("Add", scores, mask)
    context = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    return graph.op("Reshape", graph.op("Transpose", context, perm=[0, 2, 1, 3]), [0, 0, width])


def multi_head(
    graph: Graph,
    name: str,
    x: str,
    width: int,
    heads: int,
    *,
    memory: str = "",
    memory_width: int = 0,
    mask: Operand = None,
    gain: float = 2.0,
) -> str:
    """Attention of ``x`` [batch, length, width] to itself, or to ``memory``; ``gain`` is the output projection's."""
    source, source_width, size = memory or x, memory_width or width, width // heads
    with graph.scope(name):
        query = heads_of(graph, linear(graph, "query", x, (width, width)), heads, size)
        key = heads_of(graph, linear(graph, "key", source, (source_width, width)), heads, size)
        value = heads_of(graph, linear(graph, "value", source, (source_width, width)), heads, size)
        context = attended(graph, query, key, value, width, size=size, mask=mask)
        return linear(graph, "out", context, (width, width), gain=gain)


def feed_forward(graph: Graph, name: str, x: str, width: int, hidden: int) -> str:
    with graph.scope(name):
        inner = gelu(graph, linear(graph, "fc1", x, (width, hidden)))
        return linear(graph, "fc2", inner, (hidden, width), gain=initial.GELU / 2)


def encoder_block(
    graph: Graph, name: str, x: str, width: int, heads: int, *, ratio: int = 4, mask: Operand = None
) -> str:
    """Attention and a feed-forward layer, each behind a layer norm and beside its input."""
    with graph.scope(name):
        normal = layer_norm(graph, "norm1", x, width)
        x = graph.op("Add", x, multi_head(graph, "attn", normal, width, heads, mask=mask))
        normal = layer_norm(graph, "norm2", x, width)
        return graph.op("Add", x, feed_forward(graph, "mlp", normal, width, ratio * width))


def causal_mask(length: int) -> np.ndarray:
    """What is added to the scores of positions that come later."""
    return np.triu(np.full((1, 1, length, length), -10000.0, np.float32), 1)


def learned_positions(graph: Graph, name: str, x: str, length: int, width: int, *, scale: float = 0.5) -> str:
    with graph.scope(name):
        places = graph.rng("weight").standard_normal((1, length, width), dtype=np.float32)
        return graph.op("Add", x, graph.weight("weight", places * np.float32(scale)))


def embedded_tokens(graph: Graph, ids: str, vocabulary: int, length: int, width: int) -> str:
    words = embedding(graph, "tokens", ids, vocabulary, width)
    return learned_positions(graph, "positions", words, length, width)


def patches(graph: Graph, x: str, batch: int, channels: int, pixels: int) -> str:
    """An image's pixels as tokens: [batch, channels, height, width] as [batch, height * width, channels]."""
    return graph.op("Transpose", graph.op("Reshape", x, [batch, channels, pixels]), perm=[0, 2, 1])
