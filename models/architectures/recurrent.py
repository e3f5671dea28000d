"""Recurrent networks beside the LSTM: GRU 1406.1078, Elman's, DeepSpeech 2 1512.02595, CRNN 1507.05717."""

from __future__ import annotations

from models import initial
from models.graph import Graph
from models.layers import conv_norm, embedding, linear

GATES = {"GRU": 3, "RNN": 1, "LSTM": 4}


def gru(graph: Graph, x: str, *, hidden: int, layers: int = 1, classes: int = 10) -> dict[str, str]:
    """A classifier of [batch, time, features]."""
    return _classifier(graph, "GRU", x, graph.shape(x)[-1], hidden, layers, classes)


def elman(graph: Graph, ids: str, *, vocabulary: int, hidden: int, classes: int = 10) -> dict[str, str]:
    """The simplest recurrence, on embedded tokens."""
    x = embedding(graph, "embedding", ids, vocabulary, hidden)
    return _classifier(graph, "RNN", x, hidden, hidden, 1, classes)


def deepspeech2(graph: Graph, features: str, *, hidden: int = 48, classes: int = 29) -> dict[str, str]:
    """Two strided convolutions over [batch, 1, frequencies, frames], GRUs in both directions, a score per frame."""
    _, _, rows, _ = graph.shape(features)
    x = conv_norm(graph, "conv0", features, (1, 16), (11, 5), stride=(2, 2), gain=initial.LINEAR)
    x = conv_norm(graph, "conv1", x, (16, 16), (11, 5), stride=(2, 1))
    size = 16 * -(-rows // 4)
    x = graph.op("Transpose", x, perm=[3, 0, 1, 2])
    x = graph.op("Reshape", x, [0, 0, size])
    for layer in range(2):
        x = layer_of(graph, "GRU", f"gru{layer}", x, (size, hidden), both=True)[0]
        size = 2 * hidden
    scores = linear(graph, "fc", x, (size, classes), gain=3.0)
    return {"log_probabilities": graph.op("LogSoftmax", scores, axis=-1)}


def crnn(graph: Graph, image: str, *, hidden: int = 48, classes: int = 37) -> dict[str, str]:
    """Text in an image: convolutions that end one row high, and an LSTM along it."""
    x, channels = image, graph.shape(image)[1]
    for index, (width, pool) in enumerate(((16, (2, 2)), (32, (2, 2)), (48, (2, 1)), (64, (2, 1)))):
        gain = initial.RELU if index else initial.LINEAR
        x = conv_norm(graph, f"conv{index}", x, (channels, width), 3, gain=gain)
        x = graph.op("MaxPool", x, kernel_shape=list(pool), strides=list(pool))
        channels = width
    rows = graph.shape(image)[2] // 16
    x = conv_norm(graph, "conv4", graph.op("ReduceMean", x, axes=[2]) if rows > 1 else x, (64, 64), 1)
    x = graph.op("Transpose", graph.op("Squeeze", x, [2]), perm=[2, 0, 1])
    x, _ = layer_of(graph, "LSTM", "lstm", x, (64, hidden), both=True)
    return {"scores": linear(graph, "fc", x, (2 * hidden, classes), gain=3.0)}


def layer_of(
    graph: Graph, kind: str, name: str, x: str, sizes: tuple[int, int], *, both: bool = False
) -> tuple[str, str]:
    """One recurrent node over [time, batch, features]: all its outputs side by side, and the last state."""
    inputs, hidden = sizes
    directions, gates = 2 if both else 1, GATES[kind] * hidden
    with graph.scope(name):
        weights = initial.filters(graph.rng("weight"), (directions * gates, inputs), initial.LINEAR)
        recurrent = initial.filters(graph.rng("recurrence"), (directions * gates, hidden), initial.LINEAR)
        bias = initial.vector(graph.rng("bias"), directions * 2 * gates)
        outputs, last, *_ = graph.ops(
            kind,
            x,
            graph.weight("weight", weights.reshape(directions, gates, inputs)),
            graph.weight("recurrence", recurrent.reshape(directions, gates, hidden)),
            graph.weight("bias", bias.reshape(directions, 2 * gates)),
            outputs=3 if kind == "LSTM" else 2,
            hidden_size=hidden,
            direction="bidirectional" if both else "forward",
            **({"linear_before_reset": 1} if kind == "GRU" else {}),
        )
        joined = graph.op("Transpose", outputs, perm=[0, 2, 1, 3])
        return graph.op("Reshape", joined, [0, 0, directions * hidden]), last


def _classifier(
    graph: Graph, kind: str, x: str, features: int, hidden: int, layers: int, classes: int
) -> dict[str, str]:
    x, last = graph.op("Transpose", x, perm=[1, 0, 2]), ""
    for layer in range(layers):
        x, last = layer_of(graph, kind, f"{kind.lower()}{layer}", x, (features, hidden))
        features = hidden
    last = graph.op("Squeeze", last, [0])
    return {"logits": linear(graph, "fc", last, (hidden, classes), gemm=True, gain=3.0)}
