"""Windows that slide along axes: which positions of the input lie under them, padding not among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from compiler.report.onnx_facts import Node


@dataclass(frozen=True)
class Axis:
    """``before`` positions of padding stand in front of ``size`` others; of the outputs, all or some are needed."""

    size: int
    kernel: int
    stride: int
    before: int
    dilation: int
    outputs: int
    needed: np.ndarray | None = None  # of every output, whether it is

    @cached_property
    def _positions(self) -> np.ndarray:
        """The position under every tap of every output that is needed."""
        needed = np.arange(self.outputs) if self.needed is None else np.flatnonzero(self.needed)
        found: np.ndarray = needed[:, None] * self.stride - self.before + np.arange(self.kernel) * self.dilation
        return found

    @cached_property
    def _inside(self) -> np.ndarray:
        """Of them, which are no padding."""
        found: np.ndarray = (self._positions >= 0) & (self._positions < self.size)
        return found

    @property
    def taps(self) -> int:
        """Of all outputs that are needed."""
        return int(self._inside.sum())

    @property
    def touched(self) -> np.ndarray:
        """Of every position of the input, whether it lies under some tap."""
        found = np.zeros(self.size, bool)
        found[self._positions[self._inside]] = True
        return found

    @property
    def used(self) -> np.ndarray:
        """Of every tap, whether it ever lies on what is no padding."""
        return np.asarray(self._inside.any(axis=0))


def outputs(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return max(0, (size + padding - (kernel - 1) * dilation - 1) // stride + 1)


@dataclass(frozen=True)
class Window:
    axes: tuple[Axis, ...]

    @property
    def taps(self) -> int:
        return prod(axis.taps for axis in self.axes)

    @property
    def touched(self) -> int:
        return prod(int(axis.touched.sum()) for axis in self.axes)


def window_of(node: Node, needed: Sequence[np.ndarray] | None = None) -> Window | None:
    """Of a convolution or pooling of which these outputs are needed along each axis; None where shapes are unknown."""
    data, out = node.inputs[0], node.outputs[0]
    if data is None or out is None or data.shape is None or out.shape is None:
        return None
    kernel = node.attributes.get("kernel_shape")
    if kernel is None:
        weights = node.inputs[{"QLinearConv": 3}.get(node.operator, 1)]
        if weights is None or weights.shape is None:
            return None
        kernel = weights.shape[2:]
    rank = len(kernel)
    strides = node.attributes.get("strides") or [1] * rank
    dilations = node.attributes.get("dilations") or [1] * rank
    pads = node.attributes.get("pads") or [0] * (2 * rank)
    found = []
    for i in range(rank):
        size, made, reach = data.shape[2 + i], out.shape[2 + i], (kernel[i] - 1) * dilations[i] + 1
        before = pads[i]
        auto = bytes(node.attributes.get("auto_pad", b"NOTSET"))
        if auto.startswith(b"SAME"):
            total = max(0, (made - 1) * strides[i] + reach - size)
            before = total // 2 if auto == b"SAME_UPPER" else total - total // 2
        wanted = needed[i] if needed is not None else None
        found.append(Axis(size, kernel[i], strides[i], before, dilations[i], made, wanted))
    return Window(tuple(found))
