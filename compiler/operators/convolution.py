"""Convolutions over one to three (or more) spatial axes, channels first."""

from __future__ import annotations

from typing import Any

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
    """The call of the operator that fits: one input channel per group is no product of matrices."""
    return graph.call(
        "tilewright::DepthwiseConvolution" if group == shape_of(x)[1] else "tilewright::Convolution",
        x,
        w,
        b,
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        group=group,
        pad_value=pad_value,
    )


@operator("tilewright::Convolution", schedule="convolution")
def convolution(
    x: te.Tensor,
    w: te.Tensor,
    b: te.Tensor | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    pad_value: int = 0,
) -> te.Tensor:
    """Integers give int32; floating-point sums are cast back to the type of x."""
    windows = convolution_windows(x, w, strides, pads, dilations, "NOTSET", group)
    sums = product_dtype(x=x, w=w)
    channels_out, channels_in = shape_of(w)[:2]
    per_group = channels_out // group
    c = te.reduce_axis((0, channels_in), "c")
    offsets = windows.reduce_axes()

    def sum_of_products(n: Any, o: Any, *place: Any) -> Any:
        channel = c if group == 1 else tirx.floordiv(o, per_group) * channels_in + c
        positions = windows.positions(place, offsets)
        element = windows.padded(x, (n, channel), positions, tirx.const(pad_value, dtype_of(x)))
        return te.sum(element.astype(sums) * w[(o, c, *offsets)].astype(sums), axis=[c, *offsets])

    shape = (shape_of(x)[0], channels_out, *windows.outputs)
    products = te.compute(shape, sum_of_products, "convolution", attrs={"tw.role": "convolution"})
    return _biased(products, b, dtype_of(x) if sums == "float32" else sums)


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
