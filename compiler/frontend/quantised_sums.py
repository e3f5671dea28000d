"""Products of dequantised numbers as sums of the integers that these were, scaled once.

matmul(dequantise(a), dequantise(b))  ->  dequantise(matmul_integer(a, b))
conv(dequantise(x), dequantise(w))    ->  dequantise(conv_integer(x, w))
quantise(relu(x))                     ->  quantise(x), where zero is the least there is

The cube takes half as long for them as for fp16, and of what is known half of the bytes come from DDR. Where it does
not scale sums channel by channel, the vector unit has to: in 16 bits, maps of more elements than weights stay floats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.frontend.graph import Array, GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite, Values
from compiler.frontend.types import onnx_type
from compiler.frontend.whole_numbers import FLOATS
from compiler.operators.convolution import convolution_windows
from compiler.operators.quantised_convolution import integer_convolution

_INTEGERS = ("int8", "uint8")
_EXACT = 1e-3  # of a step: what is nearer to a whole number of them was one, but for rounding
_MOST_TERMS = 2**15  # of a sum that int32 holds beside its bias
_MOST_STEPS = 2**29


@dataclass(frozen=True)
class _Quantised:
    """What a value was before it was dequantised: integers, and the scale of all or of each column or channel."""

    integers: Value
    scale: Array
    zero_point: Value | None


def note_dequantised(
    graph: GraphBuilder, operator: str, values: Values, attributes: Mapping[str, Any], result: Value
) -> None:
    """Remember what a value is made of that was dequantised just now, or is one that was and is turned."""
    x = values[0]
    if operator == "Transpose" and x in graph.dequantised:
        order = attributes.get("perm")
        integers, scale, zero = (np.transpose(array, order) for array in graph.dequantised[x])
        graph.dequantised[result] = integers, scale, zero
    elif operator == "DequantizeLinear" and x is not None and x.dtype in _INTEGERS and not attributes.get("block_size"):
        axis = attributes.get("axis", 1)
        own, *parameters = (None if value is None else value.constant for value in values)
        if own is not None:
            scale, zero = (_for_each(array, own.shape, axis) for array in (*parameters, None)[:2])
            graph.dequantised[result] = own, scale, zero


def _for_each(parameter: Array | None, shape: tuple[int, ...], axis: int) -> Array:
    """Of each element; a zero point that is not there is zero."""
    if parameter is None or parameter.size == 1:
        return np.broadcast_to(np.zeros((), np.int32) if parameter is None else parameter.reshape(()), shape)
    return np.broadcast_to(np.moveaxis(parameter.reshape(*(1,) * (len(shape) - 1), -1), -1, axis), shape)


def of_quantisation(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    """What saturates cuts off below zero by itself; one scale is as exact as it is given; sums are scaled once."""
    x, scale, zero = (*values, None)[:3]
    if x is None or scale is None or scale.constant is None:
        return None
    maker, bare = graph.maker(x), x
    if maker is not None and maker.operator == "Relu" and _is_least(zero) and (scale.constant > 0).all():
        bare = maker.operands[0]
    requantised = _requantised(graph, bare, scale, zero)
    if requantised is not None:
        return requantised
    exact = graph.wide(scale) if scale.constant.size == 1 else scale
    if bare is x and exact is scale:
        return None
    result: Value = graph.call("QuantizeLinear", bare, exact, zero, **attributes)
    return result


def _requantised(graph: GraphBuilder, x: Value, scale: Value, zero: Value | None) -> Value | None:
    """quantise(dequantise(sums)), by one factor for all of them or for each place on an axis."""
    maker = graph.maker(x)
    if maker is None or maker.operator != "DequantizeLinear" or zero is None or zero.constant is None:
        return None
    if scale.constant is None or scale.constant.size > 1 or zero.constant.size > 1 or zero.dtype not in _INTEGERS:
        return None
    sums, *others = maker.operands
    known = others[0].constant if others else maker.attributes.get("x_scale")
    is_plain = len(others) <= 1 and maker.attributes.get("x_zero_point") is None
    if sums.dtype != "int32" or known is None or not is_plain or maker.attributes.get("block_size"):
        return None
    with np.errstate(all="ignore"):
        factor = (np.asarray(known, np.float64) / scale.constant.reshape(())).astype(np.float32)
    if not factor.any() or not np.isfinite(factor).all():
        return None  # no sum is zero steps of those
    axis = maker.attributes.get("axis", 1)
    behind = len(sums.shape) - 1 - axis % max(1, len(sums.shape))
    each = factor.reshape(-1, *(1,) * behind) if factor.size > 1 else factor.reshape(())
    result: Value = graph.call(
        "tilewright::Requantize", sums, graph.wide(graph.constant(each)), zero, to=onnx_type(zero.dtype)
    )
    return result


def _is_least(zero: Value | None) -> bool:
    """Whether nothing is below a zero point."""
    if zero is None or zero.constant is None or zero.dtype not in _INTEGERS:
        return False
    return bool((zero.constant == np.iinfo(zero.dtype).min).all())


def of_one_scale(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    """One scale is as exact as it is given, whatever type it makes results of; of none at all everything is zero."""
    x, scale, zero = (*values, None)[:3]
    if x is None or scale is None or scale.constant is None or scale.constant.size > 1:
        return None
    if not scale.constant.any() and not attributes.get("output_dtype"):
        return graph.constant(np.zeros(x.shape, scale.constant.dtype))
    if scale.dtype not in FLOATS:
        return None
    to = {"output_dtype": attributes.get("output_dtype") or onnx_type(scale.dtype)}
    result: Value = graph.call("DequantizeLinear", x, graph.wide(scale), zero, **{**attributes, **to})
    return result


def of_product(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    a, b = values
    return None if a is None or b is None else _scaled(graph, a, _known(graph, b), None)


def of_gemm(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    a, b, *others = values
    if a is None or b is None or attributes.get("transA") or {attributes.get(k, 1.0) for k in ("alpha", "beta")} != {1}:
        return None
    known, bias = _known(graph, b, turned=bool(attributes.get("transB"))), others[0] if others else None
    return _scaled(graph, a, known, bias)


def of_convolution(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    x, w, *others = values
    if x is None or w is None or w not in graph.dequantised or attributes.get("group", 1) != 1:
        return None
    given, known = _given(graph, x), _around_zero(graph, *graph.dequantised[w], axis=0)
    outputs, channels, *kernel = w.shape
    bias = others[0].constant if others and others[0] is not None else np.zeros(outputs)
    if given is None or known is None or bias is None or math.prod(w.shape[1:]) > _MOST_TERMS:
        return None
    is_well_formed = (x.shape[1:2], bias.shape) == ((channels,), (outputs,)) and len(x.shape) == len(w.shape)
    if not is_well_formed or list(attributes.get("kernel_shape") or kernel) != kernel:
        return None  # the operator says what is wrong
    strides, pads, dilations = (attributes.get(name) for name in ("strides", "pads", "dilations"))
    automatic = attributes.get("auto_pad", "NOTSET")
    windows = convolution_windows(given.integers, known.integers, strides, pads, dilations, automatic, 1)
    is_left_to_vectors = known.scale.size > 1 and not graph.scales_columns
    if is_left_to_vectors and math.prod(w.shape) < math.prod(x.shape) and x.dtype in FLOATS:
        return None
    scale = (given.scale.astype(np.float64) * known.scale).astype(np.float32)
    if not scale.any():
        return None
    steps = _steps(bias, scale, x.dtype)
    added = None if steps is None or not steps.any() else graph.constant(steps)
    sums = integer_convolution(graph, (given.integers, given.zero_point), (known.integers, None), added, windows, 1)
    result = _dequantised(graph, sums, scale, 1, x.dtype)
    if steps is None:
        result = graph.call("Add", result, bias.reshape(-1, *(1,) * (len(x.shape) - 2)))
    return result


def _scaled(graph: GraphBuilder, value: Value, b: _Quantised | None, bias: Value | None) -> Value | None:
    """Their product, plus a bias; integers are added before, other numbers behind."""
    a = None if b is None else _given(graph, value)
    if a is None or b is None or len(a.integers.shape) < 2 or a.integers.shape[-1] > _MOST_TERMS:
        return None
    if a.integers.shape[-1] != b.integers.shape[0]:
        return None  # the operator says what is wrong
    scale = (a.scale.astype(np.float64) * b.scale).astype(np.float32)
    if not scale.any():
        return None
    sums = graph.call("MatMulInteger", a.integers, b.integers, a.zero_point, b.zero_point)
    steps = None if bias is None or bias.constant is None else _steps(bias.constant, scale, value.dtype)
    if steps is not None:
        sums, bias = _plus(graph, sums, steps), None
    result = _dequantised(graph, sums, scale, len(sums.shape) - 1, value.dtype)
    return result if bias is None else graph.call("Add", result, bias)


def _plus(graph: GraphBuilder, sums: Any, steps: Array) -> Any:
    """Sums and a bias for each column; where zero points have made one already, both are added as one."""
    maker = graph.maker(sums)
    if maker is not None and maker.operator == "Add" and len(maker.operands) == 2:
        bare, other = maker.operands
        if other.constant is not None:
            return graph.call("Add", bare, other.constant + steps)
    return graph.call("Add", sums, steps)


def _steps(bias: Array, scale: Array, dtype: str) -> Array | None:
    """A bias as whole steps of sums, if it was some, or where results are rounded further, to 16 bits."""
    with np.errstate(divide="ignore"):
        steps = np.divide(bias, scale, out=np.zeros(bias.shape), where=bias != 0, dtype=np.float64)
    if not np.abs(steps).max(initial=0) < _MOST_STEPS:
        return None
    whole = np.round(steps)
    return whole.astype(np.int32) if dtype in FLOATS or np.abs(steps - whole).max(initial=0) < _EXACT else None


def _dequantised(graph: GraphBuilder, sums: Any, scale: Array, axis: int, dtype: str) -> Value:
    known = graph.wide(graph.constant(scale if scale.size > 1 else scale.reshape(())))
    result: Value = graph.call("DequantizeLinear", sums, known, axis=axis, output_dtype=onnx_type(dtype))
    return result


def _given(graph: GraphBuilder, value: Value) -> _Quantised | None:
    """Of what runs find out: one scale and zero point for all."""
    maker = graph.maker(value)
    if maker is None or maker.operator != "DequantizeLinear" or maker.operands[0].dtype not in _INTEGERS:
        return None
    scale, zero = (maker.attributes.get(name) for name in ("x_scale", "x_zero_point"))
    if len(maker.operands) != 1 or scale is None:
        return None
    integers = maker.operands[0]
    zero_point = None if zero is None else graph.constant(np.array(zero, integers.dtype).reshape(()))
    return _Quantised(integers, np.array(scale, np.float32).reshape(()), zero_point)


def _known(graph: GraphBuilder, value: Value, *, turned: bool = False) -> _Quantised | None:
    """Of known matrices, whose columns may have scales of their own; around zero, or so near it that they fit there."""
    if value not in graph.dequantised or len(value.shape) != 2:
        return None
    integers, scale, zero = (array.T if turned else array for array in graph.dequantised[value])
    return _around_zero(graph, integers, scale, zero, axis=1)


def _around_zero(graph: GraphBuilder, integers: Array, scale: Array, zero: Array, axis: int) -> _Quantised | None:
    """Those with a scale for each place on an axis, or for all."""
    centred = integers.astype(np.int32) - zero
    limits = np.iinfo(np.int8)
    if not centred.size or centred.min() < limits.min or centred.max() > limits.max:
        return None
    of_places = np.moveaxis(scale, axis, 0).reshape(scale.shape[axis], -1)
    if (of_places != of_places[:, :1]).any():
        return None
    each = of_places[:, 0]
    known = graph.constant(np.ascontiguousarray(centred.astype(np.int8)))
    return _Quantised(known, each if (each != each[0]).any() else each[0], None)


QUANTISED: Mapping[str, Rewrite] = {
    "Conv": of_convolution,
    "Gemm": of_gemm,
    "MatMul": of_product,
    "DequantizeLinear": of_one_scale,
    "QuantizeLinear": of_quantisation,
}
