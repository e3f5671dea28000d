"""ConvTranspose: a convolution that steps by one and makes all phases of the strides, which are then interleaved.

Of the outputs, each stride-th sees the same elements of the weights. Those that do are a phase, and have channels of
their own in the convolution: no zeros are put between the elements of the input, and none are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of
from compiler.operators.convolution import convolve
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition
from compiler.operators.windows import Windows, check_auto_pad, check_kernel_shape, check_steps


@composition("ConvTranspose")
def conv_transpose(
    graph: Graph,
    x: Value,
    w: Value,
    b: Value | None = None,
    *,
    kernel_shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
    output_padding: tuple[int, ...] | None = None,
    output_shape: tuple[int, ...] | None = None,
) -> Any:
    x_shape, w_shape = shape_of(x), shape_of(w)
    rank = len(x_shape) - 2
    if rank < 1 or len(w_shape) != len(x_shape) or w_shape[0] != x_shape[1] or group < 1 or w_shape[0] % group:
        raise refusals.wrong_shape(
            f"x must be [batch, channels, ...] and w [channels, outputs of one of {group} groups, ...]", x=x, w=w
        )
    check_kernel_shape(kernel_shape, w)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    extra = output_padding or (0,) * rank
    for name, values in (("strides", strides), ("dilations", dilations), ("output_padding", extra)):
        if len(values) != rank:
            raise refusals.wrong_value(f"needs one value for each of {rank} spatial axes", name, values)
    check_steps(strides=strides, dilations=dilations)
    check_auto_pad(auto_pad)
    spans = tuple((k - 1) * d + 1 for k, d in zip(w_shape[2:], dilations, strict=True))
    begins, ends = _cut(x_shape[2:], strides, spans, extra, pads, auto_pad, output_shape)
    lengths = tuple(
        stride * (extent - 1) + more + span - begin - end
        for extent, stride, more, span, begin, end in zip(x_shape[2:], strides, extra, spans, begins, ends, strict=True)
    )
    if min(lengths) < 1:
        raise refusals.wrong_shape("the pads must leave something of the result", x=x, w=w, result=lengths)
    phases = [_Phases.of(*axis) for axis in zip(w_shape[2:], strides, dilations, begins, lengths, strict=True)]
    windows = Windows.of(
        x_shape[2:],
        tuple(each.taps.shape[1] for each in phases),
        None,
        (
            *(-each.first for each in phases),
            *(each.reach - extent for each, extent in zip(phases, x_shape[2:], strict=True)),
        ),
        tuple(each.apart for each in phases),
    )
    count = prod(strides)
    if b is not None and count > 1:
        b = graph.call("Expand", graph.call("Reshape", b, np.array([-1, 1])), np.array([1, count]))
        b = graph.call("Reshape", b, np.array([-1]))
    result = convolve(graph, x, _phase_weights(graph, w, group, phases), b, windows, group)
    return result if count == 1 else _interleaved(graph, result, strides, lengths)


@dataclass(frozen=True)
class _Phases:
    """One axis: output ``q * stride + phase`` is a sum over taps t of what the input has at ``q + first + t * apart``.

    ``taps`` [phase, t]: the element of the weights; behind their last where the phase sees none there.
    """

    taps: np.ndarray[Any, Any]
    first: int
    apart: int
    count: int  # outputs of a phase

    @staticmethod
    def of(kernel: int, stride: int, dilation: int, begin: int, length: int) -> _Phases:
        """Output p of the whole result, of which ``begin`` are cut off, sums ``x[i] * w[k]`` with i * stride +
        k * dilation = p."""
        steps = [
            ((phase + begin - k * dilation) // stride, phase, k)
            for phase in range(stride)
            for k in range(kernel)
            if (phase + begin - k * dilation) % stride == 0
        ]
        first = min(step for step, *_ in steps)
        apart = gcd(*(step - first for step, *_ in steps)) or 1
        reach = max(step for step, *_ in steps) - first
        taps = np.full((stride, reach // apart + 1), kernel)
        for step, phase, k in steps:
            taps[phase, (step - first) // apart] = k
        return _Phases(taps, first, apart, -(-length // stride))

    @property
    def reach(self) -> int:
        """Behind the last position of the input that is seen."""
        return self.count + self.first + (self.taps.shape[1] - 1) * self.apart


def _cut(
    extents: tuple[int, ...],
    strides: tuple[int, ...],
    spans: tuple[int, ...],
    extra: tuple[int, ...],
    pads: tuple[int, ...] | None,
    auto_pad: str,
    output_shape: tuple[int, ...] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What ONNX calls the pads: how much of the whole result is cut off at each end."""
    rank = len(extents)
    same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    if output_shape is None and not same:
        pads = pads or (0,) * (2 * rank)
        if auto_pad == "VALID":
            pads = (0,) * (2 * rank)
        if len(pads) != 2 * rank:
            raise refusals.wrong_value("needs a begin and an end for each spatial axis", "pads", pads)
        return pads[:rank], pads[rank:]
    wanted = output_shape or tuple(extent * stride for extent, stride in zip(extents, strides, strict=True))
    begins, ends = [], []
    for axis, length in enumerate(wanted[-rank:]):
        total = strides[axis] * (extents[axis] - 1) + extra[axis] + spans[axis] - length
        begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        begins.append(begin)
        ends.append(total - begin)
    return tuple(begins), tuple(ends)


def _phase_weights(graph: Graph, w: Value, group: int, phases: list[_Phases]) -> Value:
    """[channels, outputs per group, ...] -> [outputs and phases of them, channels per group, taps of each axis].

    By ONNX's own operators, which the importer folds.
    """
    channels, outputs, *kernel = shape_of(w)
    rank = len(kernel)
    none = [int((each.taps == extent).any()) for each, extent in zip(phases, kernel, strict=True)]
    if any(none):
        w = graph.call("Pad", w, np.array([0] * (rank + 4) + none))
    for axis, each in enumerate(phases):
        w = graph.call("Gather", w, each.taps.ravel(), axis=axis + 2)
    split = [extent for each in phases for extent in each.taps.shape]
    w = graph.call("Reshape", w, np.array([channels, outputs, *split]))
    strides, taps = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
    w = graph.call("Transpose", w, perm=(1, *strides, 0, *taps))
    windows = [each.taps.shape[1] for each in phases]
    if group > 1:  # apart, for no tensor has more than eight axes
        w = graph.call("Reshape", w, np.array([-1, group, channels // group * prod(windows)]))
        w = graph.call("Transpose", w, perm=(1, 0, 2))
    result: Value = graph.call("Reshape", w, np.array([-1, channels // group, *windows]))
    return result


def _interleaved(graph: Graph, x: Value, strides: tuple[int, ...], lengths: tuple[int, ...]) -> Value:
    """[batch, outputs and phases of them, ...] -> [batch, outputs, ...], of each axis the first of ``lengths``."""
    batch, channels, *counts = shape_of(x)
    rank = len(counts)
    apart = graph.call("Reshape", x, np.array([batch, channels // prod(strides), *strides, *counts]))
    pairs = [axis for each in range(rank) for axis in (2 + rank + each, 2 + each)]
    together = graph.call("Transpose", apart, perm=(0, 1, *pairs))
    whole = [count * stride for count, stride in zip(counts, strides, strict=True)]
    result: Value = graph.call("Reshape", together, np.array([batch, channels // prod(strides), *whole]))
    if tuple(whole) != lengths:
        axes = np.arange(2, 2 + rank)
        result = graph.call("Slice", result, np.zeros(rank, np.int64), np.array(lengths), axes)
    return result
