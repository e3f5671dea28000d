"""Integer products with zero points, exact in int32, out of products of int8 alone.

The cube multiplies int8. An unsigned tensor is therefore moved down by 128, and its zero point with it; what zero
points contribute to a product is added afterwards, out of sums of rows and columns:
``sum((a - p) * (b - q)) = sum(a * b) - p * sum(b) - q * sum(a) + p * q * k``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, read, shape_of
from compiler.operators.convolution import convolution_windows, convolve
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator
from compiler.operators.windows import Windows

_OFFSET = 128


@operator("tilewright::Signed", schedule="elementwise")
def signed(x: te.Tensor) -> te.Tensor:
    """uint8 as int8, 128 lower."""
    return te.compute(shape_of(x), lambda *i: (x[i].astype("int32") - _OFFSET).astype("int8"), "signed")


def as_signed(graph: Graph, x: Value, zero_point: Value | None, name: str) -> tuple[Value, Value | None]:
    """int8 and its zero point as int32, whichever type they were given in; None where that is zero."""
    if dtype_of(x) not in ("int8", "uint8"):
        raise refusals.wrong_dtype(f"{name} must be int8 or uint8", **{name: x})
    is_unsigned = dtype_of(x) == "uint8"
    lowered = graph.call("tilewright::Signed", x) if is_unsigned else x
    offset = _OFFSET if is_unsigned else 0
    if zero_point is None or zero_point.constant is not None:
        known = np.zeros((), np.int32) if zero_point is None else np.asarray(zero_point.constant, np.int32)
        return lowered, graph.constant(known - offset) if (known != offset).any() else None
    wide = graph.call("Cast", zero_point, to=6)
    return lowered, graph.call("Sub", wide, np.array(offset, np.int32)) if offset else wide


@composition("MatMulInteger")
def matmul_integer(
    graph: Graph, a: Value, b: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None
) -> Any:
    """A zero point of a is for all or for each row, one of b for all or for each column."""
    if len(shape_of(a)) < 2 or len(shape_of(b)) < 2:
        raise refusals.wrong_shape("the factors must be matrices", a=a, b=b)
    if a_zero_point is not None and len(shape_of(a_zero_point)) == 1 and shape_of(a_zero_point) != (1,):
        a_zero_point = graph.call("Unsqueeze", a_zero_point, np.array([1]))
    a, p = as_signed(graph, a, a_zero_point, "a")
    b, q = as_signed(graph, b, b_zero_point, "b")
    result = graph.call("tilewright::Product", a, b)
    if p is not None:
        columns = graph.call("ReduceSum", graph.call("Cast", b, to=6), np.array([-2]), keepdims=True)
        result = graph.call("tilewright::SubProduct", result, p, columns)
    if q is not None:
        rows = graph.call("ReduceSum", graph.call("Cast", a, to=6), np.array([-1]), keepdims=True)
        if p is not None:
            depth = np.array(shape_of(a)[-1], np.int32)
            rows = graph.call("Sub", rows, graph.call("Mul", p, depth))
        result = graph.call("tilewright::SubProduct", result, q, rows)
    return result


@operator("tilewright::SubProduct", schedule="elementwise")
def sub_product(x: te.Tensor, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """``x - a * b``, all of one type; a and b broadcast to x."""
    return te.compute(shape_of(x), lambda *i: x[i] - read(a, i) * read(b, i), "sub_product")


@composition("ConvInteger")
def conv_integer(
    graph: Graph,
    x: Value,
    w: Value,
    x_zero_point: Value | None = None,
    w_zero_point: Value | None = None,
    *,
    kernel_shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Any:
    """Padding counts as the zero point of x."""
    if kernel_shape is not None and kernel_shape != shape_of(w)[2:]:
        raise refusals.wrong_shape("kernel_shape must be that of w", kernel_shape=kernel_shape, w=w)
    windows = convolution_windows(x, w, strides, pads, dilations, auto_pad, group)
    return integer_convolution(graph, (x, x_zero_point), (w, w_zero_point), None, windows, group)


def integer_convolution(
    graph: Graph,
    x: tuple[Value, Value | None],
    w: tuple[Value, Value | None],
    bias: Value | None,
    windows: Windows,
    group: int,
) -> Value:
    """The int32 convolution of tensors with their zero points, plus ``bias``.

    A zero point that is known and the same everywhere goes into the bias, if the padding has its value; any other is
    subtracted, and what is left is split into two tensors that int8 holds.
    """
    lowered, zero = as_signed(graph, *x, "x")
    known = zero is None or (zero.constant is not None and zero.constant.size == 1)
    pad_value = 0 if zero is None or zero.constant is None or not known else int(zero.constant.reshape(-1)[0])
    xs = [lowered] if known else less_zero_point(graph, *x, channel_axis=None, name="x")
    ws = less_zero_point(graph, *w, channel_axis=0, name="w")
    if pad_value:
        sums = [_channel_sums(graph, part) for part in ws]
        total = sums[0] if len(sums) == 1 else graph.call("Add", *sums)
        shift = graph.call("Mul", total, np.array(-pad_value, np.int32))
        bias = shift if bias is None else graph.call("Add", bias, shift)
    pairs = [(x_part, w_part) for x_part in xs for w_part in ws]
    result: Value = convolve(graph, *pairs[0], bias, windows, group, pad_value)
    for x_part, w_part in pairs[1:]:
        result = graph.call("Add", result, convolve(graph, x_part, w_part, None, windows, group, pad_value))
    return result


def _channel_sums(graph: Graph, w: Value) -> Value:
    """The sum of the weights of each output channel, as int32."""
    axes = np.arange(1, len(shape_of(w)))
    result: Value = graph.call("ReduceSum", graph.call("Cast", w, to=6), axes, keepdims=False)
    return result


def less_zero_point(
    graph: Graph, x: Value, zero_point: Value | None, channel_axis: int | None, name: str
) -> list[Value]:
    """One or two int8 tensors that add up to ``x - zero_point``."""
    lowered, zero = as_signed(graph, x, zero_point, name)
    if zero is None:
        return [lowered]
    if channel_axis is not None and shape_of(zero) not in ((), (1,)):
        zero = graph.call("Reshape", zero, np.array([-1] + [1] * (len(shape_of(x)) - 1 - channel_axis)))
    difference = graph.call("Sub", graph.call("Cast", lowered, to=6), zero)
    near = graph.call("Clip", difference, np.array(-128, np.int32), np.array(127, np.int32))
    rest = graph.call("Sub", difference, near)
    return [graph.call("Cast", part, to=3) for part in (near, rest)]
