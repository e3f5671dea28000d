"""A classifier of sequences: LSTM layers (Hochreiter and Schmidhuber, 1997) and a Gemm on the last hidden state."""

from __future__ import annotations

import numpy as np

from models import initial
from models.graph import Graph
from models.layers import embedding, linear


def lstm(
    graph: Graph,
    x: str,
    *,
    hidden: int,
    layers: int = 1,
    bidirectional: bool = False,
    vocabulary: int = 0,
    width: int = 0,
    classes: int = 10,
) -> dict[str, str]:
    """From numbers [batch, time, features], or with a ``vocabulary`` from ids [batch, time] and embeddings."""
    batch, features = graph.shape(x)[0], graph.shape(x)[-1]
    if vocabulary:
        x, features = embedding(graph, "embedding", x, vocabulary, width), width
    x = graph.op("Transpose", x, perm=[1, 0, 2])
    directions = 2 if bidirectional else 1
    last = ""
    for layer in range(layers):
        with graph.scope(f"lstm.{layer}"):
            x, last = _layer(graph, x, batch, features, hidden, directions)
        features = hidden * directions
    if bidirectional:
        last = graph.op("Concat", *(graph.op("Gather", last, each, axis=0) for each in (0, 1)), axis=1)
    else:
        last = graph.op("Squeeze", last, [0])
    return {"logits": linear(graph, "fc", last, (features, classes), gemm=True, gain=6.0)}


def _layer(graph: Graph, x: str, batch: int, features: int, hidden: int, directions: int) -> tuple[str, str]:
    """One LSTM node: its outputs of all times as [time, batch, directions * hidden], and its last hidden state."""
    gates = 4 * hidden

    def matrices(name: str, inputs: int) -> str:
        drawn = initial.filters(graph.rng(name), (directions * gates, inputs), initial.LINEAR)
        return graph.weight(name, drawn.reshape(directions, gates, inputs))

    weights, recurrent = matrices("weight", features), matrices("recurrence", hidden)
    bias = initial.vector(graph.rng("bias"), directions * 2 * gates).reshape(directions, 2 * gates)
    state = np.zeros((directions, batch, hidden), np.float32)
    outputs, last, _ = graph.ops(
        "LSTM",
        x,
        weights,
        recurrent,
        graph.weight("bias", bias),
        None,
        graph.constant(state),
        graph.constant(state),
        outputs=3,
        hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward",
    )
    joined = graph.op("Reshape", graph.op("Transpose", outputs, perm=[0, 2, 1, 3]), [0, 0, -1])
    return joined, last
