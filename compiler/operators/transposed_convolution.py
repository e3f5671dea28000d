"""ConvTranspose: the input spread out by the strides, convolved with the weights turned around."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of
from compiler.operators.convolution import convolve
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition
from compiler.operators.windows import Windows


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
    if kernel_shape is not None and kernel_shape != w_shape[2:]:
        raise refusals.wrong_shape("kernel_shape must be that of w", kernel_shape=kernel_shape, w=w)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    extra = output_padding or (0,) * rank
    for name, values in (("strides", strides), ("dilations", dilations), ("output_padding", extra)):
        if len(values) != rank:
            raise refusals.wrong_value(f"needs one value for each of {rank} spatial axes", name, values)
    spans = tuple((k - 1) * d + 1 for k, d in zip(w_shape[2:], dilations, strict=True))
    begins, ends = _cut(x_shape[2:], strides, spans, extra, pads, auto_pad, output_shape)
    spread = x if max(strides) == 1 else graph.call("tilewright::Dilate", x, strides=strides)
    windows = Windows.of(
        shape_of(spread)[2:],
        w_shape[2:],
        None,
        (
            *(span - 1 - cut for span, cut in zip(spans, begins, strict=True)),
            *(span - 1 - cut + more for span, cut, more in zip(spans, ends, extra, strict=True)),
        ),
        dilations,
    )
    turned = _turned(graph, w, group)
    return convolve(graph, spread, turned, b, windows, group)


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


def _turned(graph: Graph, w: Value, group: int) -> Value:
    """[channels, outputs per group, ...] -> [outputs, channels per group, ...], the spatial axes back to front.

    By ONNX's own operators, which the importer folds.
    """
    channels, outputs, *kernel = shape_of(w)
    rank = len(kernel)
    split = graph.call("Reshape", w, np.array([group, channels // group, outputs, *kernel]))
    swapped = graph.call("Transpose", split, perm=(0, 2, 1, *range(3, 3 + rank)))
    joined = graph.call("Reshape", swapped, np.array([group * outputs, channels // group, *kernel]))
    axes = np.arange(2, 2 + rank)
    ends = np.full(rank, np.iinfo(np.int32).min)
    result: Value = graph.call("Slice", joined, np.full(rank, -1), ends, axes, np.full(rank, -1))
    return result
