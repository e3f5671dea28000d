"""Operators of onnxruntime's own domain on products of integers: alone, in attention and in recurrent networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, result_dtype, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.contributed_attention import HIDDEN, attention_of_product
from compiler.operators.graph import Graph, Value
from compiler.operators.quantisation import requantised, wide_scale
from compiler.operators.registry import composition


@composition("com.microsoft::MatMulIntegerToFloat")
def matmul_integer_to_float(
    graph: Graph,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero_point: Value | None = None,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Any:
    """Exact in int32, then scaled; scales of b may differ by column."""
    return _scaled(graph, graph.call("MatMulInteger", a, b, a_zero_point, b_zero_point), a_scale, b_scale, bias)


@composition("com.microsoft::DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    graph: Graph,
    a: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Any:
    """Of a matrix that is rounded to uint8 by its own extremes."""
    rounded, scale, zero_point = graph.call("DynamicQuantizeLinear", a)
    return _scaled(graph, graph.call("MatMulInteger", rounded, b, zero_point, b_zero_point), scale, b_scale, bias)


def _scaled(graph: Graph, sums: Value, a_scale: Value, b_scale: Value, bias: Value | None) -> Any:
    scales = (wide_scale(graph, scale) for scale in (a_scale, b_scale))
    result = _times(graph, sums, graph.call("Mul", *scales), result_dtype(a_scale))
    return result if bias is None else graph.call("Add", result, bias)


def _times(graph: Graph, sums: Value, factor: Value, dtype: str) -> Any:
    """Sums in int32 times a factor, in fp32 before they are rounded."""
    return as_dtype(graph, graph.call("Mul", as_dtype(graph, sums, "float32"), wide_scale(graph, factor)), dtype)


@composition("com.microsoft::QGemm")
def qgemm(
    graph: Graph,
    a: Value,
    a_scale: Value,
    a_zero_point: Value | None,
    b: Value,
    b_scale: Value,
    b_zero_point: Value | None,
    c: Value | None = None,
    y_scale: Value | None = None,
    y_zero_point: Value | None = None,
    *,
    alpha: float = 1.0,
    transA: bool = False,
    transB: bool = False,
) -> Any:
    """Exact in int32, where ``c`` is added, then scaled; rounded where the result has a scale."""
    turned = [graph.call("Transpose", x, perm=(1, 0)) if turn else x for x, turn in ((a, transA), (b, transB))]
    sums = graph.call("MatMulInteger", *turned, a_zero_point, b_zero_point)
    sums = sums if c is None else graph.call("Add", sums, c)
    b_scale = graph.call("Mul", wide_scale(graph, b_scale), np.array(alpha, np.float32))
    if y_scale is None:
        return _times(graph, sums, graph.call("Mul", wide_scale(graph, a_scale), b_scale), result_dtype(a_scale))
    zero_point = graph.constant(np.zeros((), dtype_of(a))) if y_zero_point is None else y_zero_point
    return requantised(graph, sums, a_scale, b_scale, y_scale, zero_point)


@composition("com.microsoft::QAttention")
def qattention(
    graph: Graph,
    x: Value,
    weights: Value,
    bias: Value | None,
    x_scale: Value,
    weights_scale: Value,
    mask_index: Value | None = None,
    x_zero_point: Value | None = None,
    weights_zero_point: Value | None = None,
    past: Value | None = None,
    *,
    num_heads: int,
    unidirectional: bool = False,
    scale: float | None = None,
    mask_filter_value: float = HIDDEN,
    do_rotary: bool = False,
    past_present_share_buffer: bool = False,
) -> tuple[Any, ...]:
    """Attention whose queries, keys and values are one product of integers."""
    if do_rotary or past_present_share_buffer:
        raise refusals.unsupported("do_rotary and past_present_share_buffer")
    sums = graph.call("MatMulInteger", x, weights, x_zero_point, weights_zero_point)
    product = _scaled(graph, sums, x_scale, weights_scale, bias)
    sizes = (shape_of(weights)[1] // 3,) * 3
    return attention_of_product(
        graph, product, sizes, mask_index, past, None, num_heads, unidirectional, scale, mask_filter_value
    )


@composition("com.microsoft::DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    graph: Graph,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    p: Value | None,
    w_scale: Value,
    w_zero_point: Value,
    r_scale: Value,
    r_zero_point: Value,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    clip: float = 0.0,
    input_forget: bool = False,
    activations: tuple[str, ...] | None = None,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
) -> tuple[Any, ...]:
    """The LSTM of what the weights stand for. Its states and inputs are not rounded to bytes, as onnxruntime does."""
    given = {
        "hidden_size": hidden_size, "activations": activations, "activation_alpha": activation_alpha,
        "activation_beta": activation_beta,
    }  # fmt: skip
    attributes = {name: value for name, value in given.items() if value is not None}
    weights = [_rows(graph, *each) for each in ((w, w_scale, w_zero_point), (r, r_scale, r_zero_point))]
    return graph.call(
        "LSTM", x, *weights, b, sequence_lens, initial_h, initial_c, p, direction=direction, clip=clip,
        input_forget=input_forget, **attributes,
    )  # fmt: skip


def _rows(graph: Graph, weights: Value, scale: Value, zero_point: Value) -> Any:
    """What weights stand for, which are [directions, inputs, outputs], by outputs: parameters may differ by output."""
    turned = graph.call("Transpose", weights, perm=(0, 2, 1))
    directions, outputs, inputs = shape_of(turned)
    whole = np.array([directions, outputs, inputs], np.int64)
    each = []
    for parameter in (scale, zero_point):
        own = np.array([directions, outputs if len(shape_of(parameter)) == 2 else 1, 1], np.int64)
        each.append(graph.call("Expand", graph.call("Reshape", parameter, own), whole))
    return graph.call("DequantizeLinear", turned, *each, axis=2, block_size=1)
