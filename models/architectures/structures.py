"""Networks on other structures: PointNet 1612.00593, a graph network 1609.02907, an autoencoder 1312.6114."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from models import initial
from models.graph import Graph
from models.layers import conv_norm, linear


def pointnet(graph: Graph, points: str, *, classes: int = 40) -> dict[str, str]:
    """Points [batch, 3, n], moved by a matrix that a small network finds; the maximum over all points."""
    moved = graph.op("Transpose", points, perm=[0, 2, 1])
    matrix = graph.op("Reshape", _pooled(graph, "stn", points, (3, 16, 32, 64), 9, 0.3), [-1, 3, 3])
    matrix = graph.op("Add", matrix, np.eye(3, dtype=np.float32)[None])
    moved = graph.op("Transpose", graph.op("MatMul", moved, matrix), perm=[0, 2, 1])
    return {"logits": _pooled(graph, "features", moved, (3, 32, 64, 128), classes, 1.5)}


def gcn(graph: Graph, nodes: str, adjacency: str, *, hidden: int = 32, classes: int = 7) -> dict[str, str]:
    """Two layers of D^-1/2 (A + I) D^-1/2 X W; the graph is an input."""
    count, features = graph.shape(nodes)[-2:]
    joined = graph.op("Add", adjacency, np.eye(count, dtype=np.float32))
    degrees = graph.op("ReduceSum", joined, [-1], keepdims=1)
    scale = graph.op("Reciprocal", graph.op("Sqrt", degrees))
    normal = graph.op("Mul", graph.op("Mul", joined, scale), graph.op("Transpose", scale, perm=[1, 0]))
    x = graph.op("MatMul", normal, linear(graph, "conv1", nodes, (features, hidden)))
    x = graph.op("MatMul", normal, linear(graph, "conv2", graph.op("Relu", x), (hidden, classes), gain=3.0))
    return {"scores": graph.op("LogSoftmax", x, axis=-1)}


def vae(graph: Graph, x: str, noise: str, *, hidden: int = 96) -> dict[str, str]:
    """Encoded to a mean and a logarithm of the variance, sampled with the noise that is given, decoded."""
    size, latent = graph.shape(x)[1], graph.shape(noise)[1]
    inner = graph.op("Relu", linear(graph, "encode", x, (size, hidden), gemm=True))
    mean = linear(graph, "mean", inner, (hidden, latent), gemm=True, gain=initial.RELU)
    spread = linear(graph, "log_var", inner, (hidden, latent), gemm=True, gain=0.5)
    z = graph.op("Add", mean, graph.op("Mul", graph.op("Exp", graph.op("Mul", spread, 0.5)), noise))
    inner = graph.op("Relu", linear(graph, "decode", z, (latent, hidden), gemm=True))
    return {"image": graph.op("Sigmoid", linear(graph, "out", inner, (hidden, size), gemm=True, gain=2.0))}


def _pooled(graph: Graph, name: str, x: str, widths: tuple[int, ...], outputs: int, gain: float) -> str:
    """The same layers for every point, their maximum, and a Gemm."""
    for index, pair in enumerate(pairwise(widths)):
        x = conv_norm(graph, f"{name}.{index}", x, pair, (1,), gain=initial.RELU if index else initial.LINEAR)
    x = graph.op("ReduceMax", x, axes=[2], keepdims=0)
    return linear(graph, f"{name}.fc", x, (widths[-1], outputs), gemm=True, gain=gain)
