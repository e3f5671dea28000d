"""Convolutions over one to three (or more) spatial axes, channels first."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.matmul import cast_stage, product_dtype
from compiler.operators.registry import composition, operator
from compiler.operators.windows import Windows


@composition("Conv")
def conv(
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
) -> Any:
    if kernel_shape is not None and kernel_shape != shape_of(w)[2:]:
        raise refusals.wrong_shape("kernel_shape must be that of w", kernel_shape=kernel_shape, w=w)
    windows = convolution_windows(x, w, strides, pads, dilations, auto_pad, group)
    return convolve(graph, x, w, b, windows, group)


def convolve(
    graph: Graph, x: Value, w: Value, b: Value | None, windows: Windows, group: int, pad_value: int = 0
) -> Any:
    """The call of the operator that fits: one input channel per group is no product of matrices.

    The cube pads with zeros only, so other paddings are put around the input first.
    """
    attributes = {"strides": windows.strides, "dilations": windows.dilations, "group": group}
    if group == shape_of(x)[1]:
        return graph.call(
            "tilewright::DepthwiseConvolution", x, w, b, pads=windows.pads, pad_value=pad_value, **attributes
        )
    pads = windows.pads
    if pad_value and any(pads):
        around = (0, 0, *windows.begins, 0, 0, *windows.ends)
        value = np.array([pad_value], dtype_of(x))
        x, pads = graph.call("Pad", x, np.array(around, np.int64), value), (0,) * len(pads)
    packed = packed_weights(graph, w, group)
    return graph.call("tilewright::Convolution", x, packed, b, kernel=windows.kernel, pads=pads, **attributes)


def packed_weights(graph: Graph, w: Value, group: int) -> Value:
    """As the cube loads them: [outputs, channels, *kernel] -> [group, depth, c1, height, width, outputs, c0].

    Channel ``c1 * extent of c0 + c0``; a block of c0 takes 32 bytes, the last one has zeros behind its channels. By
    calls of ONNX's own operators, which are folded where the weights are constant.
    """
    outputs, channels, *kernel = shape_of(w)
    if len(kernel) > 3:
        raise refusals.wrong_shape("w must have one to three spatial axes", w=w)
    block = channel_block(dtype_of(w))
    blocks = -(-channels // block)
    if channels % block:
        ends = [0, blocks * block - channels] + [0] * len(kernel)
        w = graph.call("Pad", w, np.array([0] * len(shape_of(w)) + ends, np.int64))
    kernel_3d = [1] * (3 - len(kernel)) + kernel
    split = np.array([group, outputs // group, blocks, block, *kernel_3d], np.int64)
    return graph.call("Transpose", graph.call("Reshape", w, split), perm=(0, 4, 2, 5, 6, 1, 3))


def channel_block(dtype: str) -> int:
    """Channels in 32 bytes."""
    return 32 // np.dtype(dtype if dtype != "bfloat16" else "float16").itemsize


def zero(dtype: str) -> Any:
    return tirx.const(0, dtype)


@operator("tilewright::Convolution", schedule="convolution")
def convolution(
    x: te.Tensor,
    packed: te.Tensor,
    b: te.Tensor | None = None,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
) -> te.Tensor:
    """A product of the windows' matrix with packed weights. Integers give int32; sums are cast back to floats' type.

    The stages: "windows" [n, group, do, ho, wo, kd, c1, kh, kw, c0], the product "convolution" [n, group, do, ho, wo,
    o], bias and cast in the same order of axes, and "channels_first".
    """
    rank = len(kernel)
    windows = Windows.of(shape_of(x)[2:], kernel, strides, pads, dilations)
    sums = product_dtype(x=x, w=packed)
    channels = shape_of(x)[1] // group
    missing = 3 - rank
    outputs = (1,) * missing + windows.outputs
    c1_extent, block, per_group = shape_of(packed)[2], shape_of(packed)[6], shape_of(packed)[5]

    def window(n: Any, g: Any, do: Any, ho: Any, wo: Any, kd: Any, c1: Any, kh: Any, kw: Any, c0: Any) -> Any:
        channel = c1 * block + c0
        positions = windows.positions((do, ho, wo)[missing:], (kd, kh, kw)[missing:])
        conditions = windows.inside(positions)
        if channels % block:
            conditions.append(channel < channels)
        value = x[(n, g * channels + channel, *positions)]
        return tirx.if_then_else(tirx.all(*conditions), value, zero(dtype_of(x))) if conditions else value

    places = (shape_of(x)[0], group, *outputs)
    kernel_3d = (1,) * missing + tuple(kernel)
    matrix = te.compute((*places, kernel_3d[0], c1_extent, *kernel_3d[1:], block), window, "windows")
    extents = {"kd": kernel_3d[0], "c1": c1_extent, "kh": kernel_3d[1], "kw": kernel_3d[2], "c0": block}
    kd, c1, kh, kw, c0 = axes = [te.reduce_axis((0, extent), name) for name, extent in extents.items()]

    def sum_of_products(n: Any, g: Any, do: Any, ho: Any, wo: Any, o: Any) -> Any:
        element = matrix[n, g, do, ho, wo, kd, c1, kh, kw, c0].astype(sums)
        return te.sum(element * packed[g, kd, c1, kh, kw, o, c0].astype(sums), axis=axes)

    products = te.compute((*places, per_group), sum_of_products, "convolution", attrs={"tw.role": "convolution"})
    rounded = _biased_rows(products, b, dtype_of(x) if sums == "float32" else sums)

    def channel_first(n: Any, o: Any, *place: Any) -> Any:
        position = (0,) * missing + place
        g, own = (0, o) if group == 1 else (tirx.floordiv(o, per_group), tirx.floormod(o, per_group))
        return rounded[(n, g, *position, own)]

    return te.compute((shape_of(x)[0], group * per_group, *windows.outputs), channel_first, "channels_first")


def _biased_rows(products: te.Tensor, b: te.Tensor | None, dtype: str) -> te.Tensor:
    """The bias of each column added in the type of the sums, then cast to ``dtype``."""
    if b is None:
        return cast_stage(products, dtype)
    group, per_group = shape_of(products)[1], shape_of(products)[-1]
    if shape_of(b) != (group * per_group,):
        raise refusals.wrong_shape("the bias must have one element for each output channel", b=b, output=products)
    sums = dtype_of(products)
    return te.compute(
        shape_of(products), lambda *i: (products[i] + b[i[1] * per_group + i[5]].astype(sums)).astype(dtype), "biased"
    )


@operator("tilewright::DepthwiseConvolution", schedule="pooling")
def depthwise_convolution(
    x: te.Tensor,
    w: te.Tensor,
    b: te.Tensor | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int,
    pad_value: int = 0,
) -> te.Tensor:
    """One input channel per group: every output channel is a weighted window of one channel."""
    windows = convolution_windows(x, w, strides, pads, dilations, "NOTSET", group)
    sums = product_dtype(x=x, w=w)
    channels_out = shape_of(w)[0]
    multiplier = channels_out // group
    offsets = windows.reduce_axes()

    def weighted_window(n: Any, o: Any, *place: Any) -> Any:
        channel = o if multiplier == 1 else tirx.floordiv(o, multiplier)
        positions = windows.positions(place, offsets)
        element = windows.padded(x, (n, channel), positions, tirx.const(pad_value, dtype_of(x)))
        return te.sum(element.astype(sums) * w[(o, 0, *offsets)].astype(sums), axis=offsets)

    shape = (shape_of(x)[0], channels_out, *windows.outputs)
    products = te.compute(shape, weighted_window, "depthwise")
    return _biased(products, b, dtype_of(x) if sums == "float32" else sums)


def convolution_windows(
    x: Any,
    w: Any,
    strides: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    auto_pad: str,
    group: int,
) -> Windows:
    """The windows of ``w`` over ``x``, once their shapes agree."""
    x_shape, w_shape = shape_of(x), shape_of(w)
    if len(x_shape) < 3 or len(x_shape) != len(w_shape):
        raise refusals.wrong_shape("x must be [batch, channels, ...] and w [outputs, channels, ...]", x=x, w=w)
    if group < 1 or w_shape[0] % group:
        raise refusals.wrong_value(f"must divide the {w_shape[0]} output channels", "group", group)
    if x_shape[1] != w_shape[1] * group:
        raise refusals.wrong_shape(f"x must have {group} times the channels of w", x=x, w=w)
    return Windows.of(x_shape[2:], w_shape[2:], strides, pads, dilations, auto_pad)


def _biased(products: te.Tensor, b: te.Tensor | None, dtype: str) -> te.Tensor:
    """The bias of each channel added in the type of the sums, then cast to ``dtype``."""
    if b is None:
        return cast_stage(products, dtype)
    if shape_of(b) != shape_of(products)[1:2]:
        raise refusals.wrong_shape("the bias must have one element for each output channel", b=b, output=products)
    sums = dtype_of(products)
    return te.compute(shape_of(products), lambda *i: (products[i] + b[i[1]].astype(sums)).astype(dtype), "biased")
