"""GPT-2: a causal decoder, its last product with the embedding's own table, Radford et al., 2019."""

from __future__ import annotations

import math

import numpy as np

from models.graph import Graph
from models.initial import GELU
from models.layers import embedding, gelu_tanh, layer_norm, linear, reshape, size_of

MASKED = -10000.0


def gpt2(
    graph: Graph,
    input_ids: str,
    *,
    vocabulary: int,
    layers: int,
    width: int = 768,
    heads: int = 12,
    positions: int = 1024,
) -> dict[str, str]:
    length = size_of(graph, input_ids, 1)
    places = graph.op("Unsqueeze", graph.op("Range", 0, length, 1), [0])
    words = embedding(graph, "wte", input_ids, vocabulary, width)
    x = graph.op("Add", words, embedding(graph, "wpe", places, positions, width, scale=0.3))
    triangle = np.tril(np.ones((1, 1, positions, positions), bool))
    causal = graph.weight("causal_mask", triangle)
    end = graph.op("Unsqueeze", length, [0])
    for axis in (2, 3):
        causal = graph.op("Slice", causal, [0], end, [axis], [1])
    for index in range(layers):
        with graph.scope(f"h.{index}"):
            x = _block(graph, x, causal, width, heads)
    x = layer_norm(graph, "ln_f", x, width)
    x = graph.op("Mul", x, 1 / math.sqrt(width))  # the table has unit variance: keep the logits there as well
    return {"logits": graph.op("MatMul", x, graph.op("Transpose", "wte.weight", perm=[1, 0]))}


def _block(graph: Graph, x: str, causal: str, width: int, heads: int) -> str:
    normal = layer_norm(graph, "ln_1", x, width)
    with graph.scope("attn"):
        x = graph.op("Add", _attention(graph, normal, causal, width, heads), x)
    normal = layer_norm(graph, "ln_2", x, width)
    with graph.scope("mlp"):
        hidden = gelu_tanh(graph, _projected(graph, "c_fc", normal, (width, 4 * width), 1.0))
        return graph.op("Add", x, _projected(graph, "c_proj", hidden, (4 * width, width), GELU / 2))


def _attention(graph: Graph, x: str, causal: str, width: int, heads: int) -> str:
    size = width // heads
    joined = _projected(graph, "c_attn", x, (width, 3 * width), 1.0)
    parts = graph.ops("Split", joined, [width] * 3, outputs=3, axis=2)

    def split(part: str, order: list[int]) -> str:
        part = reshape(graph, part, size_of(graph, part, 0), size_of(graph, part, 1), heads, size)
        return graph.op("Transpose", part, perm=order)

    query, key, value = split(parts[0], [0, 2, 1, 3]), split(parts[1], [0, 2, 3, 1]), split(parts[2], [0, 2, 1, 3])
    scores = graph.op("Div", graph.op("MatMul", query, key), math.sqrt(size))
    weights = graph.op("Softmax", graph.op("Where", causal, scores, MASKED), axis=-1)
    context = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    context = reshape(graph, context, size_of(graph, context, 0), size_of(graph, context, 1), width)
    return _projected(graph, "c_proj", context, (width, width), 1.0)


def _projected(graph: Graph, name: str, x: str, sizes: tuple[int, int], gain: float) -> str:
    """GPT-2's Conv1D: all positions of all sequences as rows of one Gemm, and back."""
    with graph.scope(name):
        batch, length = size_of(graph, x, 0), size_of(graph, x, 1)
        rows = graph.op("Reshape", x, [-1, sizes[0]])
    rows = linear(graph, name, rows, sizes, gemm=True, gain=gain)
    with graph.scope(name):
        return reshape(graph, rows, batch, length, sizes[1])
