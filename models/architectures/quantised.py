"""Networks written with integer operators: QLinearConv and QLinearMatMul, and products quantised while they run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from models import initial
from models.graph import Graph

STEP = np.float32(1 / 32)  # of all activations: unit variance spans a quarter of the range
WEIGHT_STEP = 1 / 127


def qlinear_cnn(graph: Graph, image: str, *, widths: Sequence[int] = (16, 32, 64), classes: int = 10) -> dict[str, str]:
    """uint8 from the first node to the last, as tools of the operator-oriented format write it."""
    zero = np.uint8(128)
    x = graph.op("QuantizeLinear", image, np.asarray(STEP), np.asarray(zero))
    channels = graph.shape(image)[1]
    for index, width in enumerate(widths):
        with graph.scope(f"conv{index}"):
            drawn = initial.filters(graph.rng("weight"), (width, channels, 3, 3), initial.RELU if index else 1.0)
            steps = (np.abs(drawn).max((1, 2, 3)) * np.float32(WEIGHT_STEP)).astype(np.float32)
            weight = graph.weight("weight", np.rint(drawn / steps.reshape(-1, 1, 1, 1)).astype(np.int8))
            bias = np.rint(initial.vector(graph.rng("bias"), width) / (steps * STEP)).astype(np.int32)
            x = graph.op(
                "QLinearConv", x, np.asarray(STEP), np.asarray(zero if index == 0 else np.uint8(0)), weight, steps,
                np.zeros(width, np.int8), np.asarray(STEP), np.asarray(np.uint8(0)), graph.weight("bias", bias),
                kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2] if index else [1, 1],
            )  # fmt: skip
        channels = width
    x = graph.op("DequantizeLinear", x, np.asarray(STEP), np.asarray(np.uint8(0)))
    pooled = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    pooled = graph.op("QuantizeLinear", pooled, np.asarray(STEP), np.asarray(np.uint8(0)))
    with graph.scope("fc"):
        drawn = initial.matrix(graph.rng("weight"), (channels, classes), 12.0)
        step = np.float32(np.abs(drawn).max() * WEIGHT_STEP)
        weight = graph.weight("weight", np.rint(drawn / step).astype(np.int8))
        x = graph.op(
            "QLinearMatMul", pooled, np.asarray(STEP), np.asarray(np.uint8(0)), weight, np.asarray(step),
            np.asarray(np.int8(0)), np.asarray(STEP), np.asarray(zero),
        )  # fmt: skip
    return {"logits": graph.op("DequantizeLinear", x, np.asarray(STEP), np.asarray(zero))}


def dynamic_mlp(graph: Graph, x: str, *, sizes: Sequence[int], classes: int = 10) -> dict[str, str]:
    """Each layer finds the range of its input while it runs: DynamicQuantizeLinear and MatMulInteger."""
    widths = [graph.shape(x)[1], *sizes, classes]
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        with graph.scope(f"layers.{index}"):
            drawn = initial.matrix(graph.rng("weight"), (inputs, outputs), initial.RELU if index else initial.LINEAR)
            step = np.float32(np.abs(drawn).max() * WEIGHT_STEP)
            weight = graph.weight("weight", np.rint(drawn / step).astype(np.int8))
            rounded, scale, zero = graph.ops("DynamicQuantizeLinear", x, outputs=3)
            total = graph.op("Cast", graph.op("MatMulInteger", rounded, weight, zero, np.asarray(np.int8(0))), to=1)
            x = graph.op("Mul", total, graph.op("Mul", scale, np.asarray(step)))
            x = graph.op("Add", x, graph.weight("bias", initial.vector(graph.rng("bias"), outputs)))
            x = graph.op("Relu", x) if index < len(sizes) else x
    return {"logits": x}
