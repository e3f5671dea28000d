"""Speech by convolutions over time: QuartzNet 1910.10261, TCN 1803.01271, WaveNet 1609.03499, DS-CNN 1711.07128."""

from __future__ import annotations

import math

from models import initial
from models.graph import Graph
from models.layers import batch_norm, classifier, conv_norm, convolution, relu


def quartznet(graph: Graph, features: str, *, width: int = 64, blocks: int = 2, classes: int = 32) -> dict[str, str]:
    """Residual blocks of separable convolutions over [batch, features, frames], with ever longer filters."""
    inputs = graph.shape(features)[1]
    x = convolution(graph, "stem.dw", features, (inputs, inputs), (11,), stride=2, groups=inputs, gain=1.0)
    x = relu(
        graph, batch_norm(graph, "stem.bn", convolution(graph, "stem.pw", x, (inputs, width), (1,), gain=1.0), width)
    )
    for index in range(blocks):
        with graph.scope(f"block{index}"):
            branch = x
            for step in range(2):
                branch = relu(graph, branch) if step else branch
                name, kernel = f"sep{step}", (11 + 6 * index,)
                branch = convolution(graph, f"{name}.dw", branch, (width, width), kernel, groups=width, gain=1.2)
                branch = convolution(graph, f"{name}.pw", branch, (width, width), (1,), gain=initial.LINEAR)
                branch = batch_norm(graph, f"{name}.bn", branch, width)
            shortcut = batch_norm(graph, "skip.bn", convolution(graph, "skip", x, (width, width), (1,)), width)
            x = relu(graph, graph.op("Add", branch, shortcut))
    scores = convolution(graph, "decoder", x, (width, classes), (1,), bias=True)
    return {"log_probabilities": graph.op("LogSoftmax", graph.op("Transpose", scores, perm=[0, 2, 1]), axis=-1)}


def tcn(graph: Graph, x: str, *, width: int = 32, levels: int = 4, classes: int = 10) -> dict[str, str]:
    """Causal convolutions of growing dilation over [batch, channels, time]; the last step classifies."""
    channels = graph.shape(x)[1]
    for level in range(levels):
        dilation = 1 << level
        with graph.scope(f"level{level}"):
            branch, inputs = x, channels
            for step in range(2):
                gain = initial.RELU if level or step else initial.LINEAR
                branch = convolution(
                    graph, f"conv{step}", branch, (inputs, width), (3,),
                    padding=(2 * dilation, 0), dilation=dilation, bias=True, gain=gain,
                )  # fmt: skip
                branch, inputs = relu(graph, branch), width
            if channels != width:
                x = convolution(graph, "skip", x, (channels, width), (1,), bias=True, gain=initial.LINEAR)
            x, channels = relu(graph, graph.op("Add", x, graph.op("Mul", branch, 0.7))), width
    last = graph.op("Gather", x, -1, axis=2)
    with graph.scope("fc"):
        weight = graph.weight("weight", initial.filters(graph.rng("weight"), (classes, width), initial.RELU))
        return {"logits": graph.op("Gemm", last, weight, transB=1)}


def wavenet(graph: Graph, x: str, *, width: int = 32, layers: int = 5, classes: int = 64) -> dict[str, str]:
    """Gated dilated filters; what every layer skips is summed into the answer."""
    x = convolution(graph, "in", x, (graph.shape(x)[1], width), (1,), bias=True, gain=initial.LINEAR)
    skipped = ""
    for layer in range(layers):
        dilation = 1 << layer
        with graph.scope(f"layers.{layer}"):
            both = convolution(
                graph, "filter", x, (width, 2 * width), (2,),
                padding=(dilation, 0), dilation=dilation, bias=True, gain=1.5,
            )  # fmt: skip
            value, gate = graph.ops("Split", both, [width, width], outputs=2, axis=1)
            gated = graph.op("Mul", graph.op("Tanh", value), graph.op("Sigmoid", gate))
            skip = convolution(graph, "skip", gated, (width, width), (1,), bias=True, gain=2.0)
            skipped = graph.op("Add", skipped, skip) if skipped else skip
            x = graph.op("Add", x, convolution(graph, "residual", gated, (width, width), (1,), bias=True, gain=2.0))
    hidden = relu(graph, graph.op("Mul", skipped, layers**-0.5))
    hidden = relu(graph, convolution(graph, "out1", hidden, (width, width), (1,), bias=True))
    return {"logits": convolution(graph, "out2", hidden, (width, classes), (1,), bias=True)}


def ds_cnn(graph: Graph, features: str, *, width: int = 64, blocks: int = 4, classes: int = 12) -> dict[str, str]:
    """Keywords from [batch, 1, frames, coefficients]: a strided filter, then separable blocks, strided as well.

    Without these strides the mean over all positions would be nearly the same for all random inputs.
    """
    _, _, rows, columns = graph.shape(features)
    x = conv_norm(graph, "stem", features, (1, width), (10, 4), stride=(2, 2), gain=initial.LINEAR)
    side = 2 << blocks
    for index in range(blocks):
        with graph.scope(f"blocks.{index}"):
            x = conv_norm(graph, "dw", x, (width, width), 3, stride=2, groups=width, gain=math.sqrt(2))
            x = conv_norm(graph, "pw", x, (width, width), 1)
    return {"logits": classifier(graph, "fc", x, (width, classes), pixels=-(-rows // side) * -(-columns // side))}
