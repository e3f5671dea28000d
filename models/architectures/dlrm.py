"""DLRM: an MLP for numbers, tables for ids, and the products of all pairs of them, Naumov et al., arXiv 1906.00091."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.graph import Graph
from models.layers import embedding, mlp


def dlrm(
    graph: Graph,
    dense: str,
    *sparse: str,
    rows: Sequence[int],
    width: int = 16,
    bottom: Sequence[int] = (64, 32),
    top: Sequence[int] = (64, 32),
) -> dict[str, str]:
    """Each of ``sparse`` is [batch, lookups]: the rows of one table, of which there are ``rows``, are summed."""
    x = mlp(graph, "bottom", dense, (graph.shape(dense)[1], *bottom, width))
    features = [graph.op("Relu", x)]
    for index, (ids, count) in enumerate(zip(sparse, rows, strict=True)):
        lookups = graph.shape(ids)[1]
        table = embedding(graph, f"table{index}", ids, count, width, scale=lookups**-0.5)
        features.append(graph.op("ReduceSum", table, [1], keepdims=0))
    stacked = graph.op("Concat", *(graph.op("Unsqueeze", each, [1]) for each in features), axis=1)
    products = graph.op("MatMul", stacked, graph.op("Transpose", stacked, perm=[0, 2, 1]))
    count = len(features)
    flat = graph.op("Reshape", products, [-1, count * count])
    lower = np.flatnonzero(np.tril(np.ones((count, count)), -1)).astype(np.int64)
    pairs = graph.op("Mul", graph.op("Gather", flat, lower, axis=1), width**-0.5)
    joined = graph.op("Concat", features[0], pairs, axis=1)
    score = mlp(graph, "top", joined, (width + len(lower), *top, 1))
    return {"click": graph.op("Sigmoid", score)}
