"""What nodes of onnxruntime's domain on quantised tensors need: each tensor has a scale and a zero point behind it."""

from __future__ import annotations

import numpy as np

from compiler.report.boxes import Box, Need, broadcast
from compiler.report.onnx_facts import Node

# Of each, which inputs are tensors.
QUANTISED = {
    "com.microsoft::QLinearAdd": (0, 3), "com.microsoft::QLinearMul": (0, 3), "com.microsoft::QLinearSigmoid": (0,),
    "com.microsoft::QLinearLeakyRelu": (0,), "com.microsoft::QLinearWhere": (0, 1, 4),
    "com.microsoft::QuantizeLinear": (0,), "com.microsoft::DequantizeLinear": (0,),
}  # fmt: skip


def quantised_need(node: Node, out: Box) -> list[Need]:
    slots = QUANTISED[node.operator]
    return [broadcast(value, out) if slot in slots else None for slot, value in enumerate(node.inputs)]


def quantised_concat(node: Node, out: Box) -> list[Need]:
    """Behind the scale and the zero point of the result."""
    axis = int(node.attributes["axis"]) % len(out.axes)
    found: list[Need] = [None] * len(node.inputs)
    at = 0
    for slot in range(2, len(node.inputs), 3):
        value = node.inputs[slot]
        if value is None or value.shape is None:
            return [None] * len(node.inputs)
        axes: list[np.ndarray] = list(out.axes)
        axes[axis] = out.axes[axis][at : at + value.shape[axis]]
        at += value.shape[axis]
        found[slot] = Box(tuple(axes))
    return found
