"""A multi-layer perceptron: Gemm and ReLU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from models import initial
from models.graph import Graph
from models.layers import linear


def mlp(graph: Graph, x: str, *, sizes: Sequence[int], classes: int = 10) -> dict[str, str]:
    widths = [graph.shape(x)[1], *sizes]
    gain = initial.LINEAR  # the input has no ReLU before it
    for index, pair in enumerate(pairwise(widths)):
        x = graph.op("Relu", linear(graph, f"layers.{2 * index}", x, pair, gemm=True, gain=gain))
        gain = initial.RELU
    return {"logits": linear(graph, f"layers.{2 * len(sizes)}", x, (widths[-1], classes), gemm=True, gain=gain)}
