"""Recommenders: Wide & Deep 1606.07792, DeepFM 1703.04247, DCN-v2 2008.13535, DIN 1706.06978, NCF 1708.05031."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.graph import Graph
from models.layers import embedding, linear, mlp


def wide_and_deep(graph: Graph, dense: str, *sparse: str, rows: Sequence[int], width: int = 16) -> dict[str, str]:
    """A weight per id, and an MLP of their embeddings."""
    wide = [
        _looked_up(graph, f"wide{i}", ids, count, 1) for i, (ids, count) in enumerate(zip(sparse, rows, strict=True))
    ]
    parts = [
        dense,
        *(_looked_up(graph, f"deep{i}", ids, n, width) for i, (ids, n) in enumerate(zip(sparse, rows, strict=True))),
    ]
    size = graph.shape(dense)[1] + width * len(rows)
    deep = mlp(graph, "deep", graph.op("Concat", *parts, axis=1), (size, 64, 32, 1))
    score = graph.op("Add", deep, graph.op("Mul", graph.op("Sum", *wide), 0.5))
    return {"click": graph.op("Sigmoid", score)}


def deepfm(graph: Graph, dense: str, *sparse: str, rows: Sequence[int], width: int = 16) -> dict[str, str]:
    """A factorisation machine beside an MLP over the same embeddings: (sum^2 - sum of squares) / 2."""
    tables = [
        _looked_up(graph, f"table{i}", ids, count, width)
        for i, (ids, count) in enumerate(zip(sparse, rows, strict=True))
    ]
    stacked = graph.op("Concat", *(graph.op("Unsqueeze", each, [1]) for each in tables), axis=1)
    total = graph.op("ReduceSum", stacked, [1], keepdims=0)
    squares = graph.op("ReduceSum", graph.op("Mul", stacked, stacked), [1], keepdims=0)
    pairs = graph.op("Sub", graph.op("Mul", total, total), squares)
    machine = graph.op("Mul", graph.op("ReduceSum", pairs, [1], keepdims=1), 0.5 / (len(rows) * width**0.5))
    size = graph.shape(dense)[1] + width * len(rows)
    deep = mlp(graph, "deep", graph.op("Concat", dense, *tables, axis=1), (size, 64, 32, 1))
    return {"click": graph.op("Sigmoid", graph.op("Add", machine, deep))}


def dcn(
    graph: Graph, dense: str, *sparse: str, rows: Sequence[int], width: int = 8, crosses: int = 3
) -> dict[str, str]:
    """Cross layers: x0 * (W x + b) + x."""
    tables = [
        _looked_up(graph, f"table{i}", ids, count, width)
        for i, (ids, count) in enumerate(zip(sparse, rows, strict=True))
    ]
    first = graph.op("Concat", dense, *tables, axis=1)
    size, x = graph.shape(dense)[1] + width * len(rows), first
    for index in range(crosses):
        crossed = linear(graph, f"cross{index}", x, (size, size), gemm=True, gain=0.4)
        x = graph.op("Add", graph.op("Mul", first, crossed), x)
    return {"click": graph.op("Sigmoid", mlp(graph, "deep", x, (size, 64, 1)))}


def din(graph: Graph, item: str, history: str, *, count: int, width: int = 16) -> dict[str, str]:
    """What was chosen before counts as much as it resembles the item, which a small MLP says."""
    batch, length = graph.shape(history)
    with graph.scope("items"):
        table = graph.weight("weight", graph.rng("weight").standard_normal((count, width), dtype=np.float32))
    wanted, before = graph.op("Gather", table, item), graph.op("Gather", table, history)
    repeated = graph.op("Expand", wanted, [batch, length, width])
    parts = (repeated, before, graph.op("Sub", repeated, before), graph.op("Mul", repeated, before))
    hidden = graph.op("Sigmoid", linear(graph, "attention.0", graph.op("Concat", *parts, axis=2), (4 * width, 32)))
    weights = linear(graph, "attention.1", hidden, (32, 1), gain=3.0)
    interest = graph.op("ReduceSum", graph.op("Mul", weights, before), [1], keepdims=0)
    joined = graph.op("Concat", interest, graph.op("Squeeze", wanted, [1]), axis=1)
    return {"click": graph.op("Sigmoid", mlp(graph, "top", joined, (2 * width, 32, 1)))}


def ncf(graph: Graph, user: str, item: str, *, users: int, items: int, width: int = 16) -> dict[str, str]:
    """Products of embeddings beside an MLP of other embeddings."""
    factors = [
        _looked_up(graph, f"mf.{name}", ids, n, width)
        for name, ids, n in (("user", user, users), ("item", item, items))
    ]
    deep = [
        _looked_up(graph, f"mlp.{name}", ids, n, width)
        for name, ids, n in (("user", user, users), ("item", item, items))
    ]
    x = mlp(graph, "mlp", graph.op("Concat", *deep, axis=1), (2 * width, 32, width))
    joined = graph.op("Concat", graph.op("Mul", *factors), x, axis=1)
    return {"score": graph.op("Sigmoid", linear(graph, "predict", joined, (2 * width, 1), gemm=True, gain=1.5))}


def _looked_up(graph: Graph, name: str, ids: str, count: int, width: int) -> str:
    """The mean row of each sample's ids."""
    rows = embedding(graph, name, ids, count, width)
    return graph.op("ReduceMean", rows, axes=[1], keepdims=0)
