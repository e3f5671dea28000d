"""BERT: an encoder with absolute positions, segments and an attention mask, Devlin et al., arXiv 1810.04805."""

from __future__ import annotations

import math

import numpy as np

from models.graph import Graph
from models.initial import GELU
from models.layers import embedding, gelu, layer_norm, linear, reshape, size_of

MASKED = -10000.0  # what the original program adds to a score: also representable in fp16
EPSILON = 1e-12


def bert(
    graph: Graph,
    input_ids: str,
    attention_mask: str,
    token_type_ids: str,
    *,
    vocabulary: int,
    layers: int,
    width: int = 768,
    heads: int = 12,
    positions: int = 512,
) -> dict[str, str]:
    x = _embedded(graph, input_ids, token_type_ids, vocabulary, positions, width)
    mask = graph.op("Unsqueeze", graph.op("Unsqueeze", attention_mask, [1]), [2])
    mask = graph.op("Mul", graph.op("Sub", 1.0, graph.op("Cast", mask, to=1)), MASKED)
    for index in range(layers):
        with graph.scope(f"encoder.layer.{index}"):
            x = _layer(graph, x, mask, width, heads)
    first = graph.op("Gather", x, 0, axis=1)
    pooled = graph.op("Tanh", linear(graph, "pooler.dense", first, (width, width), gemm=True))
    return {"last_hidden_state": x, "pooler_output": pooled}


def _embedded(graph: Graph, ids: str, segments: str, vocabulary: int, positions: int, width: int) -> str:
    """The sum of the rows for token, segment and position, normalised."""
    with graph.scope("embeddings"):
        every = graph.weight("position_ids", np.arange(positions, dtype=np.int64)[None])
        length = graph.op("Unsqueeze", size_of(graph, ids, 1), [0])
        used = graph.op("Slice", every, [0], length, [1], [1])
        words = embedding(graph, "word_embeddings", ids, vocabulary, width)
        kinds = embedding(graph, "token_type_embeddings", segments, 2, width, scale=0.3)
        places = embedding(graph, "position_embeddings", used, positions, width, scale=0.5)
        total = graph.op("Add", graph.op("Add", words, kinds), places)
        return layer_norm(graph, "LayerNorm", total, width, epsilon=EPSILON)


def _layer(graph: Graph, x: str, mask: str, width: int, heads: int) -> str:
    with graph.scope("attention"):
        context = _attention(graph, x, mask, width, heads)
        attended = linear(graph, "output.dense", context, (width, width), gain=2.0)
        x = layer_norm(graph, "output.LayerNorm", graph.op("Add", attended, x), width, epsilon=EPSILON)
    hidden = gelu(graph, linear(graph, "intermediate.dense", x, (width, 4 * width)))
    output = linear(graph, "output.dense", hidden, (4 * width, width), gain=GELU / 2)
    return layer_norm(graph, "output.LayerNorm", graph.op("Add", output, x), width, epsilon=EPSILON)


def _attention(graph: Graph, x: str, mask: str, width: int, heads: int) -> str:
    """Softmax(Q K^T / sqrt(d) + mask) V; heads are split and joined by shapes computed at run time."""
    size = width // heads

    def split(name: str, order: list[int]) -> str:
        part = linear(graph, f"self.{name}", x, (width, width))
        with graph.scope(f"self.{name}"):
            part = reshape(graph, part, size_of(graph, part, 0), size_of(graph, part, 1), heads, size)
        return graph.op("Transpose", part, perm=order)

    query, key, value = split("query", [0, 2, 1, 3]), split("key", [0, 2, 3, 1]), split("value", [0, 2, 1, 3])
    scores = graph.op("Div", graph.op("MatMul", query, key), math.sqrt(size))
    weights = graph.op("Softmax", graph.op("Add", scores, mask), axis=-1)
    context = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    return reshape(graph, context, size_of(graph, context, 0), size_of(graph, context, 1), width)
