"""Decoders of text beside GPT-2: LLaMA 2302.13971, BLOOM 2211.05100, GPT-NeoX 2204.06745, Mixtral 2401.04088."""

from __future__ import annotations

import math
from itertools import starmap

import numpy as np

from models import initial
from models.attention import attended, causal_mask, embedded_tokens, feed_forward, heads_of
from models.graph import Graph
from models.layers import embedding, layer_norm, linear, rms_norm, swish


def llama(
    graph: Graph, ids: str, *, vocabulary: int, width: int, heads: int, groups: int, layers: int
) -> dict[str, str]:
    """RMS norms, rotated positions, ``groups`` of heads that share keys and values, SwiGLU."""
    batch, length = graph.shape(ids)
    size = width // heads
    x = embedding(graph, "embed", ids, vocabulary, width)
    for index in range(layers):
        with graph.scope(f"layers.{index}"):
            normal = rms_norm(graph, "attn_norm", x, width)
            query = _rotated(
                graph, heads_of(graph, _product(graph, "q", normal, width, width), heads, size), length, size
            )
            shared = [_product(graph, name, normal, width, groups * size) for name in ("k", "v")]
            key, value = (heads_of(graph, each, groups, size) for each in shared)
            key = _repeated(graph, _rotated(graph, key, length, size), (batch, groups, heads, length, size))
            value = _repeated(graph, value, (batch, groups, heads, length, size))
            context = attended(graph, query, key, value, width, size=size, mask=causal_mask(length))
            x = graph.op("Add", x, _product(graph, "o", context, width, width, gain=2.0))
            x = graph.op("Add", x, _swiglu(graph, rms_norm(graph, "mlp_norm", x, width), width, 2 * width))
    return {"logits": _product(graph, "lm_head", rms_norm(graph, "norm", x, width), width, vocabulary)}


def bloom(graph: Graph, ids: str, *, vocabulary: int, width: int, heads: int, layers: int) -> dict[str, str]:
    """Positions as a slope per head that is added to the scores (ALiBi)."""
    length = graph.shape(ids)[1]
    x = layer_norm(graph, "embed_norm", embedding(graph, "embed", ids, vocabulary, width), width)
    slopes = 2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)
    distance = np.arange(length)[None] - np.arange(length)[:, None]
    bias = (slopes[:, None, None] * np.minimum(distance, 0)).astype(np.float32)[None] + causal_mask(length)
    for index in range(layers):
        with graph.scope(f"h.{index}"):
            normal = layer_norm(graph, "norm1", x, width)
            x = graph.op("Add", x, _joined_attention(graph, normal, bias, (width, heads)))
            x = graph.op("Add", x, feed_forward(graph, "mlp", layer_norm(graph, "norm2", x, width), width, 4 * width))
    return {"logits": linear(graph, "lm_head", layer_norm(graph, "norm", x, width), (width, vocabulary))}


def neox(graph: Graph, ids: str, *, vocabulary: int, width: int, heads: int, layers: int) -> dict[str, str]:
    """Attention and feed-forward side by side, on the same input; half of each head is rotated."""
    length = graph.shape(ids)[1]
    x = embedding(graph, "embed", ids, vocabulary, width)
    for index in range(layers):
        with graph.scope(f"layers.{index}"):
            beside = feed_forward(graph, "mlp", layer_norm(graph, "norm2", x, width), width, 4 * width)
            normal = layer_norm(graph, "norm1", x, width)
            attention = _joined_attention(graph, normal, causal_mask(length), (width, heads), rotated=length)
            x = graph.op("Add", x, graph.op("Add", attention, beside))
    return {"logits": linear(graph, "lm_head", layer_norm(graph, "norm", x, width), (width, vocabulary))}


def mixture(
    graph: Graph, ids: str, *, vocabulary: int, width: int, heads: int, experts: int, chosen: int = 2
) -> dict[str, str]:
    """One layer with a mixture of experts: all are computed, those that TopK chooses are summed."""
    length = graph.shape(ids)[1]
    x = embedded_tokens(graph, ids, vocabulary, length, width)
    normal = layer_norm(graph, "norm1", x, width)
    x = graph.op("Add", x, _joined_attention(graph, normal, causal_mask(length), (width, heads)))
    normal = layer_norm(graph, "norm2", x, width)
    scores = linear(graph, "router", normal, (width, experts), gain=2.0)
    best, which = graph.ops("TopK", scores, np.array([chosen], np.int64), outputs=2, axis=-1)
    zeros = graph.op("Mul", scores, 0.0)
    weights = graph.op("ScatterElements", zeros, which, graph.op("Softmax", best, axis=-1), axis=-1)
    parts = graph.ops("Split", weights, [1] * experts, outputs=experts, axis=-1)
    for index in range(experts):
        with graph.scope(f"experts.{index}"):
            x = graph.op("Add", x, graph.op("Mul", _swiglu(graph, normal, width, width), parts[index]))
    return {"logits": linear(graph, "lm_head", layer_norm(graph, "norm", x, width), (width, vocabulary))}


def _joined_attention(graph: Graph, x: str, mask: np.ndarray, sizes: tuple[int, int], *, rotated: int = 0) -> str:
    """Query, key and value from one product; ``rotated`` is the length where half of each head is rotated."""
    width, heads = sizes
    size = width // heads
    with graph.scope("attn"):
        parts = graph.ops("Split", linear(graph, "qkv", x, (width, 3 * width)), [width] * 3, outputs=3, axis=2)
        query, key, value = starmap(heads_of, ((graph, part, heads, size) for part in parts))
        if rotated:
            query, key = (_half_rotated(graph, each, rotated, size) for each in (query, key))
        return linear(
            graph, "out", attended(graph, query, key, value, width, size=size, mask=mask), (width, width), gain=2.0
        )


def _half_rotated(graph: Graph, x: str, length: int, size: int) -> str:
    turned, kept = graph.ops("Split", x, [size // 2] * 2, outputs=2, axis=3)
    return graph.op("Concat", _rotated(graph, turned, length, size // 2), kept, axis=3)


def _rotated(graph: Graph, x: str, length: int, size: int) -> str:
    """x * cos + rotate_half(x) * sin, as exporters spell rotary embeddings."""
    frequencies = 10000.0 ** (-np.arange(0, size, 2) / size)
    angles = np.arange(length)[:, None] * frequencies[None]
    cosines, sines = (np.tile(part, (1, 2))[None, None].astype(np.float32) for part in (np.cos(angles), np.sin(angles)))
    first, second = graph.ops("Split", x, [size // 2] * 2, outputs=2, axis=3)
    turned = graph.op("Concat", graph.op("Neg", second), first, axis=3)
    return graph.op("Add", graph.op("Mul", x, cosines), graph.op("Mul", turned, sines))


def _repeated(graph: Graph, x: str, sizes: tuple[int, int, int, int, int]) -> str:
    """Each group's keys for all its heads."""
    batch, groups, heads, length, size = sizes
    wide = graph.op("Expand", graph.op("Unsqueeze", x, [2]), [batch, groups, heads // groups, length, size])
    return graph.op("Reshape", wide, [batch, heads, length, size])


def _swiglu(graph: Graph, x: str, width: int, hidden: int) -> str:
    gate = swish(graph, _product(graph, "gate", x, width, hidden))
    value = graph.op("Mul", gate, _product(graph, "up", x, width, hidden))
    return _product(graph, "down", value, hidden, width, gain=math.sqrt(2))


def _product(graph: Graph, name: str, x: str, inputs: int, outputs: int, *, gain: float = initial.LINEAR) -> str:
    """A layer without bias."""
    with graph.scope(name):
        weight = graph.weight("weight", initial.matrix(graph.rng("weight"), (inputs, outputs), gain))
        return graph.op("MatMul", x, weight)
