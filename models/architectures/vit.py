"""Vision transformer: patches as tokens, Dosovitskiy et al., arXiv 2010.11929; the tiny one: arXiv 2012.12877."""

from __future__ import annotations

import numpy as np

from models import initial
from models.graph import Graph
from models.layers import convolution, gelu, layer_norm, linear

EPSILON = 1e-6


def vit(
    graph: Graph,
    image: str,
    *,
    patch: int = 16,
    width: int = 192,
    layers: int = 12,
    heads: int = 3,
    classes: int = 1000,
) -> dict[str, str]:
    """The sizes are known when it is exported: every shape is a constant, as in a model without open axes."""
    batch, channels, height, _ = graph.shape(image)
    tokens = (height // patch) ** 2
    x = convolution(
        graph, "patch_embed.proj", image, (channels, width), patch,
        stride=patch, padding=0, bias=True, gain=initial.LINEAR,
    )  # fmt: skip
    x = graph.op("Transpose", graph.op("Reshape", x, [batch, width, tokens]), perm=[0, 2, 1])
    token = graph.weight("cls_token", graph.rng("cls_token").standard_normal((1, 1, width), dtype=np.float32))
    token = graph.op("Expand", token, [batch, 1, width])
    places = graph.rng("pos_embed").standard_normal((1, tokens + 1, width), dtype=np.float32)
    places *= np.float32(0.5)
    x = graph.op("Add", graph.op("Concat", token, x, axis=1), graph.weight("pos_embed", places))
    for index in range(layers):
        with graph.scope(f"blocks.{index}"):
            x = _block(graph, x, (batch, tokens + 1), width, heads)
    x = layer_norm(graph, "norm", x, width, epsilon=EPSILON)
    return {"logits": linear(graph, "head", graph.op("Gather", x, 0, axis=1), (width, classes), gemm=True)}


def _block(graph: Graph, x: str, outer: tuple[int, int], width: int, heads: int) -> str:
    normal = layer_norm(graph, "norm1", x, width, epsilon=EPSILON)
    with graph.scope("attn"):
        x = graph.op("Add", x, _attention(graph, normal, outer, width, heads))
    normal = layer_norm(graph, "norm2", x, width, epsilon=EPSILON)
    hidden = gelu(graph, linear(graph, "mlp.fc1", normal, (width, 4 * width)))
    return graph.op("Add", x, linear(graph, "mlp.fc2", hidden, (4 * width, width), gain=initial.GELU / 3))


def _attention(graph: Graph, x: str, outer: tuple[int, int], width: int, heads: int) -> str:
    """Query, key and value from one product, taken apart by Reshape, Transpose and Gather; Q is scaled, not QK."""
    size = width // heads
    joined = graph.op("Reshape", linear(graph, "qkv", x, (width, 3 * width)), [*outer, 3, heads, size])
    joined = graph.op("Transpose", joined, perm=[2, 0, 3, 1, 4])
    query, key, value = (graph.op("Gather", joined, part, axis=0) for part in range(3))
    scores = graph.op("MatMul", graph.op("Mul", query, size**-0.5), graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    context = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    context = graph.op("Reshape", graph.op("Transpose", context, perm=[0, 2, 1, 3]), [*outer, width])
    return linear(graph, "proj", context, (width, width), gain=2.0)
