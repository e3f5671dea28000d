"""Operators of onnxruntime's own domain on quantised tensors: what they are of floats, between two roundings."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition


@composition("com.microsoft::QuantizeLinear")
def quantize_linear(graph: Graph, x: Value, scale: Value, zero_point: Value | None = None, *, axis: int = 1) -> Any:
    return graph.call("QuantizeLinear", x, scale, zero_point, axis=axis)


@composition("com.microsoft::DequantizeLinear")
def dequantize_linear(graph: Graph, x: Value, scale: Value, zero_point: Value | None = None, *, axis: int = 1) -> Any:
    return graph.call("DequantizeLinear", x, scale, zero_point, axis=axis)


def _floats(graph: Graph, x: Value, scale: Value, zero_point: Value | None) -> Any:
    return graph.call("DequantizeLinear", x, _scalar(graph, scale), _scalar(graph, zero_point))


def _rounded(graph: Graph, x: Value, scale: Value, zero_point: Value | None) -> Any:
    return graph.call("QuantizeLinear", x, _scalar(graph, scale), _scalar(graph, zero_point))


def _scalar(graph: Graph, parameter: Value | None) -> Any:
    """Of a whole tensor there is one, which may have an axis all the same."""
    if parameter is None or not shape_of(parameter):
        return parameter
    if shape_of(parameter) != (1,):
        raise refusals.wrong_shape("scale and zero point must be those of a whole tensor", given=parameter)
    return graph.call("Reshape", parameter, np.zeros(0, np.int64))


def _declare_of_two(name: str, operator: str) -> None:
    @composition(f"com.microsoft::{name}")
    def of_two(
        graph: Graph,
        a: Value,
        a_scale: Value,
        a_zero_point: Value | None,
        b: Value,
        b_scale: Value,
        b_zero_point: Value | None,
        c_scale: Value,
        c_zero_point: Value | None = None,
    ) -> Any:
        result = graph.call(
            operator, _floats(graph, a, a_scale, a_zero_point), _floats(graph, b, b_scale, b_zero_point)
        )
        return _rounded(graph, result, c_scale, c_zero_point)


_declare_of_two("QLinearAdd", "Add")
_declare_of_two("QLinearMul", "Mul")


@composition("com.microsoft::QLinearSigmoid")
def qlinear_sigmoid(
    graph: Graph,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None = None,
) -> Any:
    return _rounded(graph, graph.call("Sigmoid", _floats(graph, x, x_scale, x_zero_point)), y_scale, y_zero_point)


@composition("com.microsoft::QLinearLeakyRelu")
def qlinear_leaky_relu(
    graph: Graph,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    alpha: float = 0.01,
) -> Any:
    result = graph.call("LeakyRelu", _floats(graph, x, x_scale, x_zero_point), alpha=alpha)
    return _rounded(graph, result, y_scale, y_zero_point)


@composition("com.microsoft::QLinearSoftmax")
def qlinear_softmax(
    graph: Graph,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    axis: int = -1,
    opset: int,
) -> Any:
    """As that of the opset: before 13, all axes from ``axis`` on are one."""
    floats = _floats(graph, x, x_scale, x_zero_point)
    if opset >= 13:
        return _rounded(graph, graph.call("Softmax", floats, axis=axis), y_scale, y_zero_point)
    rows = graph.call("Softmax", graph.call("Flatten", floats, axis=axis), axis=-1)
    result = graph.call("Reshape", rows, np.array(shape_of(x), np.int64))
    return _rounded(graph, result, y_scale, y_zero_point)


@composition("com.microsoft::QLinearWhere")
def qlinear_where(
    graph: Graph,
    condition: Value,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y: Value,
    y_scale: Value,
    y_zero_point: Value | None,
    z_scale: Value,
    z_zero_point: Value | None = None,
) -> Any:
    either = (_floats(graph, x, x_scale, x_zero_point), _floats(graph, y, y_scale, y_zero_point))
    return _rounded(graph, graph.call("Where", condition, *either), z_scale, z_zero_point)


@composition("com.microsoft::QLinearGlobalAveragePool")
def qlinear_global_average_pool(
    graph: Graph,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    channels_last: bool = False,
) -> Any:
    rank = len(shape_of(x))
    axes = np.arange(1, rank - 1) if channels_last else np.arange(2, rank)
    result = graph.call("ReduceMean", _floats(graph, x, x_scale, x_zero_point), axes, keepdims=True)
    return _rounded(graph, result, y_scale, y_zero_point)


@composition("com.microsoft::QLinearAveragePool")
def qlinear_average_pool(
    graph: Graph,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    channels_last: bool = False,
) -> Any:
    given = {
        "kernel_shape": kernel_shape, "strides": strides, "pads": pads, "auto_pad": auto_pad, "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
    }  # fmt: skip
    attributes = {name: value for name, value in given.items() if value is not None}
    first = _channels_first(graph, x) if channels_last else x
    result = graph.call("AveragePool", _floats(graph, first, x_scale, x_zero_point), **attributes)
    rounded = _rounded(graph, result, y_scale, y_zero_point)
    return _channels_last(graph, rounded) if channels_last else rounded


@composition("com.microsoft::NhwcMaxPool")
def nhwc_max_pool(
    graph: Graph,
    x: Value,
    *,
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
) -> Any:
    """Of a quantised tensor whose channels come last: its order is that of what it stands for."""
    given = {
        "kernel_shape": kernel_shape, "strides": strides, "pads": pads, "dilations": dilations, "auto_pad": auto_pad,
        "ceil_mode": ceil_mode,
    }  # fmt: skip
    attributes = {name: value for name, value in given.items() if value is not None}
    result, _ = graph.call("MaxPool", _channels_first(graph, x), **attributes)
    return _channels_last(graph, result)


@composition("com.microsoft::QLinearConv")
def qlinear_conv(
    graph: Graph,
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    w: Value,
    w_scale: Value,
    w_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
    b: Value | None = None,
    *,
    kernel_shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
    channels_last: bool = False,
) -> Any:
    """ONNX's, or of maps whose channels come last; the weights' order is the same."""
    first = _channels_first(graph, x) if channels_last else x
    parameters = (x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b)
    given = {
        "kernel_shape": kernel_shape, "strides": strides, "pads": pads, "dilations": dilations, "auto_pad": auto_pad,
        "group": group,
    }  # fmt: skip
    attributes = {name: value for name, value in given.items() if value is not None}
    result = graph.call("QLinearConv", first, *parameters, **attributes)
    return _channels_last(graph, result) if channels_last else result


def _channels_first(graph: Graph, x: Value) -> Any:
    rank = len(shape_of(x))
    return graph.call("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))


def _channels_last(graph: Graph, x: Value) -> Any:
    return graph.call("Transpose", x, perm=(0, *range(2, len(shape_of(x))), 1))


@composition("com.microsoft::QLinearConcat")
def qlinear_concat(graph: Graph, y_scale: Value, y_zero_point: Value | None, *given: Value | None, axis: int) -> Any:
    """Of tensors, each with its scale and zero point behind it."""
    if not given or len(given) % 3:
        raise refusals.wrong_value("each input must have a scale and a zero point", "inputs", len(given))
    each = [given[at : at + 3] for at in range(0, len(given), 3)]
    floats = [_floats(graph, x, scale, zero) for x, scale, zero in each if x is not None and scale is not None]
    return _rounded(graph, graph.call("Concat", *floats, axis=axis), y_scale, y_zero_point)
