"""Encoders of text: ALBERT 1909.11942, T5's 1910.10683, FNet 2105.03824; and Vaswani's decoder 1706.03762."""

from __future__ import annotations

import math

import numpy as np

from models import initial
from models.attention import (
    attended,
    causal_mask,
    embedded_tokens,
    encoder_block,
    feed_forward,
    heads_of,
    multi_head,
)
from models.graph import Graph
from models.layers import embedding, gelu, layer_norm, linear, rms_norm


def encoder(
    graph: Graph, ids: str, *, vocabulary: int, width: int, heads: int, layers: int, classes: int = 4
) -> dict[str, str]:
    """Blocks that normalise first, and a classifier of the first token."""
    x = embedded_tokens(graph, ids, vocabulary, graph.shape(ids)[1], width)
    for index in range(layers):
        x = encoder_block(graph, f"layers.{index}", x, width, heads)
    first = graph.op("Gather", layer_norm(graph, "norm", x, width), 0, axis=1)
    hidden = graph.op("Tanh", linear(graph, "pooler", first, (width, width), gemm=True))
    return {"logits": linear(graph, "classifier", hidden, (width, classes), gemm=True, gain=2.0)}


def albert(
    graph: Graph, ids: str, *, vocabulary: int, factor: int, width: int, heads: int, layers: int
) -> dict[str, str]:
    """Narrow embeddings, widened, and one layer's weights for all layers."""
    x = embedded_tokens(graph, ids, vocabulary, graph.shape(ids)[1], factor)
    x = linear(graph, "widen", x, (factor, width))
    shared = {
        name: (
            graph.weight(f"{name}.weight", initial.matrix(graph.rng(name), sizes, gain)),
            graph.weight(f"{name}.bias", initial.vector(graph.rng(f"{name}.bias"), sizes[1])),
        )
        for name, sizes, gain in (
            ("query", (width, width), 1.0), ("key", (width, width), 1.0), ("value", (width, width), 1.0),
            ("out", (width, width), 2.0), ("fc1", (width, 2 * width), 1.0),
            ("fc2", (2 * width, width), initial.GELU / 2),
        )
    }  # fmt: skip
    scales = [graph.weight(f"norm{i}", initial.vector(graph.rng(f"norm{i}"), width, 1.0, 0.2)) for i in range(2)]

    def apply(name: str, value: str) -> str:
        weight, bias = shared[name]
        return graph.op("Add", graph.op("MatMul", value, weight), bias)

    def norm(which: int, value: str) -> str:
        return graph.op("LayerNormalization", value, scales[which], np.zeros(width, np.float32), axis=-1)

    size = width // heads
    for index in range(layers):
        with graph.scope(f"layer.{index}"):
            query, key, value = (heads_of(graph, apply(name, x), heads, size) for name in ("query", "key", "value"))
            context = attended(graph, query, key, value, width, size=size)
            x = norm(0, graph.op("Add", x, apply("out", context)))
            hidden = gelu(graph, apply("fc1", x))
            x = norm(1, graph.op("Add", x, apply("fc2", hidden)))
    return {"hidden": x}


def t5_encoder(
    graph: Graph, ids: str, *, vocabulary: int, width: int, heads: int, layers: int, buckets: int = 16
) -> dict[str, str]:
    """RMS norms, no biases, and a learned bias by bucketed distance, the same in every layer."""
    length, size = graph.shape(ids)[1], width // heads
    x = embedding(graph, "shared", ids, vocabulary, width)
    table = graph.weight("relative", graph.rng("relative").standard_normal((buckets, heads), dtype=np.float32))
    bias = graph.op("Gather", table, _buckets(length, buckets))
    bias = graph.op("Unsqueeze", graph.op("Transpose", bias, perm=[2, 0, 1]), [0])
    for index in range(layers):
        with graph.scope(f"block.{index}"):
            normal = rms_norm(graph, "norm1", x, width)
            query, key, value = (
                heads_of(graph, _plain(graph, name, normal, (width, width)), heads, size) for name in ("q", "k", "v")
            )
            context = attended(graph, query, key, value, width, size=size, mask=bias)
            x = graph.op("Add", x, _plain(graph, "o", context, (width, width), gain=2.0))
            hidden = graph.op("Relu", _plain(graph, "wi", rms_norm(graph, "norm2", x, width), (width, 2 * width)))
            x = graph.op("Add", x, _plain(graph, "wo", hidden, (2 * width, width), gain=initial.RELU / 2))
    return {"hidden": rms_norm(graph, "norm", x, width)}


def fnet(graph: Graph, ids: str, *, vocabulary: int, width: int, layers: int) -> dict[str, str]:
    """The real part of a Fourier transform over both axes in place of attention, as products with its matrices."""
    length = graph.shape(ids)[1]
    x = embedded_tokens(graph, ids, vocabulary, length, width)
    rows, columns = (
        np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n) / math.sqrt(n) for n in (length, width)
    )
    for index in range(layers):
        with graph.scope(f"layers.{index}"):
            real = graph.op(
                "MatMul", graph.op("MatMul", rows.real.astype(np.float32), x), columns.real.astype(np.float32)
            )
            imaginary = graph.op(
                "MatMul", graph.op("MatMul", rows.imag.astype(np.float32), x), columns.imag.astype(np.float32)
            )
            x = layer_norm(graph, "norm1", graph.op("Add", x, graph.op("Sub", real, imaginary)), width)
            x = graph.op("Add", x, feed_forward(graph, "mlp", x, width, 2 * width))
            x = layer_norm(graph, "norm2", x, width)
    return {"hidden": x}


def translation_decoder(
    graph: Graph, ids: str, memory: str, *, vocabulary: int, heads: int, layers: int
) -> dict[str, str]:
    """Attention to the words before, attention to the source, feed-forward; each normalised behind its sum."""
    length, width = graph.shape(ids)[1], graph.shape(memory)[2]
    x = embedded_tokens(graph, ids, vocabulary, length, width)
    for index in range(layers):
        with graph.scope(f"layers.{index}"):
            found = multi_head(graph, "self", x, width, heads, mask=causal_mask(length))
            x = layer_norm(graph, "norm1", graph.op("Add", x, found), width)
            found = multi_head(graph, "cross", x, width, heads, memory=memory, gain=3.0)
            x = layer_norm(graph, "norm2", graph.op("Add", x, found), width)
            x = layer_norm(graph, "norm3", graph.op("Add", x, feed_forward(graph, "mlp", x, width, 4 * width)), width)
    scores = linear(graph, "generator", x, (width, vocabulary))
    return {"log_probabilities": graph.op("LogSoftmax", scores, axis=-1)}


def _plain(graph: Graph, name: str, x: str, sizes: tuple[int, int], *, gain: float = initial.LINEAR) -> str:
    with graph.scope(name):
        return graph.op("MatMul", x, graph.weight("weight", initial.matrix(graph.rng("weight"), sizes, gain)))


def _buckets(length: int, count: int) -> np.ndarray:
    """T5's buckets: half for each side, near distances apart, far ones by logarithm."""
    distance = np.arange(length)[None] - np.arange(length)[:, None]
    half, exact = count // 2, count // 4
    size = np.abs(distance)
    far = exact + (np.log(np.maximum(size, 1) / exact) / math.log(128 / exact) * (half - exact)).astype(np.int64)
    near: np.ndarray = np.where(size < exact, size, np.minimum(far, half - 1))
    return near + np.where(distance > 0, half, 0)
