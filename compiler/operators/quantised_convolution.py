"""Integer convolutions with zero points, exact in int32, out of convolutions of int8 alone.

As for matrices, but that the sums of x are sums over windows: convolutions with weights of one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.operators.broadcast import shape_of
from compiler.operators.convolution import convolution_windows, convolve
from compiler.operators.graph import Graph, Value
from compiler.operators.quantised_product import as_signed
from compiler.operators.registry import composition
from compiler.operators.windows import Windows, check_kernel_shape


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
    check_kernel_shape(kernel_shape, w)
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

    Where the zero point of x is known, the padding has its value, and what it adds is the same in all windows: a bias.
    """
    x_signed, p = as_signed(graph, *x, "x")
    w_signed, q = as_signed(graph, *w, "w")
    known = 0 if p is None else None if p.constant is None else int(p.constant.item())
    if known:
        axes = np.arange(1, len(shape_of(w_signed)))
        total = graph.call("ReduceSum", graph.call("Cast", w_signed, to=6), axes, keepdims=False)
        if q is not None:
            elements = np.array(math.prod(shape_of(w_signed)[1:]), np.int32)
            total = graph.call("Sub", total, graph.call("Mul", q, elements))
        shift = graph.call("Mul", total, np.array(-known, np.int32))
        bias = shift if bias is None else graph.call("Add", bias, shift)
    result = _less_weights(graph, x_signed, w_signed, q, bias, windows, group, known or 0)
    if known is None:
        ones = graph.constant(np.ones((1, *shape_of(x_signed)[1:]), np.int8))
        covered = _less_weights(graph, ones, w_signed, q, None, windows, group, 0)
        result = graph.call("tilewright::SubProduct", result, p, covered)
    return result


def _less_weights(
    graph: Graph, x: Value, w: Value, q: Value | None, bias: Value | None, windows: Windows, group: int, pad_value: int
) -> Value:
    """The convolution of ``x`` with ``w - q``."""
    products: Value = convolve(graph, x, w, bias, windows, group, pad_value)
    if q is None:
        return products
    ones = graph.constant(np.ones((group, *shape_of(w)[1:]), np.int8))
    sums = convolve(graph, x, ones, None, windows, group, pad_value)
    batch, channels, *places = shape_of(products)
    flat = math.prod(places)
    grouped = np.array([batch, group, channels // group, flat])
    per_channel = np.array([group, -1, 1] if shape_of(q) not in ((), (1,)) else [1, 1, 1])
    difference = graph.call(
        "tilewright::SubProduct",
        graph.call("Reshape", products, grouped),
        graph.call("Reshape", q, per_channel),
        graph.call("Reshape", sums, np.array([batch, group, 1, flat])),
    )
    result: Value = graph.call("Reshape", difference, np.array([batch, channels, *places]))
    return result
