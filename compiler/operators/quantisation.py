"""Quantisation: numbers as integers with a scale and a zero point, and the operators on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, literal, normalised_axis, read, result_dtype, shape_of
from compiler.operators.cast import as_dtype, onnx_dtype, onnx_number
from compiler.operators.convolution import convolution_windows
from compiler.operators.graph import Graph, Value
from compiler.operators.quantised_convolution import integer_convolution
from compiler.operators.quantised_product import matmul_integer
from compiler.operators.registry import composition, operator
from compiler.operators.signature import Constant
from compiler.operators.windows import check_kernel_shape

_QUANTISED = ("int8", "uint8", "int16", "uint16")
# uint16 is held as int32, to which ONNX quantises nothing itself.
_HELD = {"int32": "uint16"}


def parameter_at(parameter: Any, indices: tuple[Any, ...], axis: int, block_size: int) -> Any:
    """The scale or zero point for one element: one for all, for each place on ``axis``, or for blocks along it."""
    if isinstance(parameter, np.ndarray):
        return read(parameter, indices)
    shape = shape_of(parameter)
    if all(extent == 1 for extent in shape):
        return parameter[(0,) * len(shape)]
    if block_size:
        return parameter[tuple(tirx.floordiv(i, block_size) if a == axis else i for a, i in enumerate(indices))]
    return parameter[indices[axis]]


def check_parameter(x: Any, name: str, parameter: Any, axis: int, block_size: int) -> int:
    """The axis along which ``parameter`` varies, once its shape is one that quantisation has."""
    shape, own = shape_of(x), shape_of(parameter)
    if all(extent == 1 for extent in own) and len(own) <= 1:
        return 0
    axis = normalised_axis(axis, len(shape))
    blocked = tuple(-(-n // block_size) if a == axis else n for a, n in enumerate(shape)) if block_size else None
    if own != (blocked or shape[axis : axis + 1]):
        raise refusals.wrong_shape(
            f"{name} must be a scalar, or have the extent of axis {axis}", x=x, **{name: parameter}
        )
    return axis


@operator("QuantizeLinear", schedule="elementwise")
def quantize_linear(
    x: te.Tensor,
    y_scale: te.Tensor | Constant,
    y_zero_point: te.Tensor | Constant | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: bool = True,
) -> te.Tensor:
    """``x / scale`` rounded half to even, plus the zero point, saturated. Divided in float32."""
    dtype = dtype_of(y_zero_point) if y_zero_point is not None else onnx_dtype(output_dtype or 2)
    if _HELD.get(dtype, dtype) not in _QUANTISED:
        raise refusals.wrong_dtype(f"quantised types are {', '.join(_QUANTISED)}", zero_point=dtype)
    axis = check_parameter(x, "y_scale", y_scale, axis, block_size)
    if isinstance(y_scale, np.ndarray) and not y_scale.all():
        raise refusals.wrong_value("must not be 0", "y_scale", 0)

    def quantised(*i: Any) -> Any:
        steps = x[i].astype("float32") / parameter_at(y_scale, i, axis, block_size).astype("float32")
        zero = None if y_zero_point is None else parameter_at(y_zero_point, i, axis, block_size)
        return rounded(steps, zero, dtype)

    return te.compute(shape_of(x), quantised, "quantize")


def rounded(steps: Any, zero_point: Any, dtype: str) -> Any:
    value = tirx.nearbyint(steps)
    if zero_point is not None:
        value = value + zero_point.astype("float32")
    limits = np.iinfo(_HELD.get(dtype, dtype))
    low, high = literal(int(limits.min), "float32"), literal(int(limits.max), "float32")
    return tirx.min(tirx.max(value, low), high).astype(dtype)


@operator("DequantizeLinear", schedule="elementwise")
def dequantize_linear(
    x: te.Tensor,
    x_scale: te.Tensor | Constant,
    x_zero_point: te.Tensor | Constant | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> te.Tensor:
    """``(x - zero point) * scale``; the difference is exact."""
    dtype = onnx_dtype(output_dtype) if output_dtype else result_dtype(x_scale)
    axis = check_parameter(x, "x_scale", x_scale, axis, block_size)

    def dequantised(*i: Any) -> Any:
        value = x[i].astype("int32")
        if x_zero_point is not None:
            value = value - parameter_at(x_zero_point, i, axis, block_size).astype("int32")
        scale = parameter_at(x_scale, i, axis, block_size).astype("float32")
        return (value.astype("float32") * scale).astype(dtype)

    return te.compute(shape_of(x), dequantised, "dequantize")


@composition("DynamicQuantizeLinear")
def dynamic_quantize_linear(graph: Graph, x: Value) -> tuple[Any, Any, Any]:
    """To uint8, with the scale and zero point that the extremes of x and zero ask for."""
    axes = np.arange(len(shape_of(x)))
    low = graph.call("ReduceMin", x, axes, keepdims=False)
    high = graph.call("ReduceMax", x, axes, keepdims=False)
    scale = graph.call("tilewright::DynamicScale", low, high)
    zero_point = graph.call("tilewright::DynamicZeroPoint", low, scale)
    return graph.call("QuantizeLinear", x, scale, zero_point), scale, zero_point


@operator("tilewright::DynamicScale", schedule="elementwise")
def dynamic_scale(low: te.Tensor, high: te.Tensor) -> te.Tensor:
    """Of uint8, such that ``low``, ``high`` and zero can be told; 1 where all are zero. Of their type: with a model's
    floats in fp16 its scales are, too."""

    def scale(*i: Any) -> Any:
        span = tirx.max(high[i].astype("float32"), 0.0) - tirx.min(low[i].astype("float32"), 0.0)
        found = tirx.Select(span > 0.0, span / literal(255, "float32"), literal(1, "float32"))
        return found.astype(str(low.dtype))

    return te.compute(shape_of(low), scale, "dynamic_scale")


@operator("tilewright::DynamicZeroPoint", schedule="elementwise")
def dynamic_zero_point(low: te.Tensor, scale: te.Tensor) -> te.Tensor:
    def zero_point(*i: Any) -> Any:
        below = -tirx.min(low[i].astype("float32"), 0.0)
        return rounded(below / scale[i].astype("float32"), None, "uint8")

    return te.compute(shape_of(low), zero_point, "dynamic_zero_point")


@operator("tilewright::Requantize", schedule="elementwise")
def requantize(x: te.Tensor, factor: te.Tensor | Constant, zero_point: te.Tensor | Constant, *, to: int) -> te.Tensor:
    """``x * factor`` rounded half to even, plus the zero point, saturated; factor and zero point broadcast to x."""
    dtype = onnx_dtype(to)
    return te.compute(
        shape_of(x),
        lambda *i: rounded(x[i].astype("float32") * read(factor, i), read(zero_point, i), dtype),
        "requantize",
    )


@composition("QLinearMatMul")
def qlinear_matmul(
    graph: Graph,
    a: Value,
    a_scale: Value,
    a_zero_point: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
) -> Any:
    """Exact in int32, then scaled once and rounded. Parameters of a may differ by row, those of b by column."""
    products = matmul_integer(graph, a, b, a_zero_point, b_zero_point)
    a_scale, y_scale, y_zero_point = (_per_row(graph, value) for value in (a_scale, y_scale, y_zero_point))
    return requantised(graph, products, a_scale, b_scale, y_scale, y_zero_point)


@composition("QLinearConv")
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
) -> Any:
    """Exact in int32, then scaled once and rounded. Parameters of w may differ by output channel."""
    check_kernel_shape(kernel_shape, w)
    windows = convolution_windows(x, w, strides, pads, dilations, auto_pad, group)
    sums = integer_convolution(graph, (x, x_zero_point), (w, w_zero_point), b, windows, group)
    if shape_of(w_scale) not in ((), (1,)):
        w_scale = graph.call("Reshape", w_scale, np.array([-1] + [1] * windows.rank))
    return requantised(graph, sums, x_scale, w_scale, y_scale, y_zero_point)


def _per_row(graph: Graph, value: Value) -> Value:
    if len(shape_of(value)) != 1 or shape_of(value) == (1,):
        return value
    result: Value = graph.call("Unsqueeze", value, np.array([1]))
    return result


def wide_scale(graph: Graph, scale: Value) -> Value:
    """In fp32: a product of scales may be smaller than 16 bits tell from zero."""
    return as_dtype(graph, graph.wide(scale), "float32")


def requantised(graph: Graph, sums: Value, a_scale: Value, b_scale: Value, y_scale: Value, y_zero_point: Value) -> Any:
    scales = [wide_scale(graph, scale) for scale in (a_scale, b_scale, y_scale)]
    factor = graph.wide(graph.call("Div", graph.call("Mul", *scales[:2]), scales[2]))
    to = onnx_number(dtype_of(y_zero_point))
    return graph.call("tilewright::Requantize", sums, factor, y_zero_point, to=to)
