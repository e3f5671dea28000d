"""The convolutional network that is trained in this repository on the digits data (models/train_digits.py)."""

from __future__ import annotations

from models.digits import dataset
from models.graph import Graph


def digits_cnn(graph: Graph, images: str) -> dict[str, str]:
    """Its weights are the trained ones, whatever the seed."""
    trained = dataset.weights()

    def layer(kind: str, name: str, x: str, **attributes: object) -> str:
        with graph.scope(name):
            parts = [graph.weight(part, trained[f"{name}.{part}"]) for part in ("weight", "bias")]
            return graph.op(kind, x, *parts, **attributes)

    x = graph.op("Relu", layer("Conv", "conv1", images, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    x = graph.op("Relu", layer("Conv", "conv2", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    x = graph.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = graph.op("Flatten", x, axis=1)
    x = graph.op("Relu", layer("Gemm", "fc1", x, transB=1))
    return {"logits": layer("Gemm", "fc2", x, transB=1)}
