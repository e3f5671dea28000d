"""Activations: piecewise linear ones in the tensor's own type, those with exponentials in float32, rounded once."""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import (
    FLOATS,
    SIGNED,
    broadcast_shape,
    element_dtype,
    in_float32,
    literal,
    read,
    result_dtype,
    shape_of,
)
from compiler.operators.functions import declare, each
from compiler.operators.registry import operator


def _zero(value: Any) -> Any:
    return tirx.const(0, element_dtype(value))


def softplus(value: Any) -> Any:
    """``log(1 + exp(value))`` without overflow."""
    return tirx.max(value, _zero(value)) + tirx.log1p(tirx.exp(-tirx.abs(value)))


def _mish(value: Any) -> Any:
    return value * tirx.tanh(softplus(value))


declare("Relu", lambda value: tirx.max(value, _zero(value)), (*FLOATS, *SIGNED))
declare("Sigmoid", tirx.sigmoid)
declare("Softplus", lambda value: in_float32(softplus, value))
declare("Softsign", lambda value: value / (tirx.const(1, element_dtype(value)) + tirx.abs(value)))
declare("Mish", lambda value: in_float32(_mish, value))


@operator("LeakyRelu", schedule="elementwise")
def leaky_relu(x: te.Tensor, *, alpha: float = 0.01) -> te.Tensor:
    return each("leakyrelu", x, lambda value: tirx.Select(value < 0, value * literal(alpha, result_dtype(x)), value))


@operator("PRelu", schedule="elementwise")
def prelu(x: te.Tensor, slope: te.Tensor) -> te.Tensor:
    if broadcast_shape(x=x, slope=slope) != shape_of(x):
        raise refusals.wrong_shape("slope must broadcast to x", x=x, slope=slope)
    return te.compute(shape_of(x), lambda *i: tirx.Select(x[i] < 0, x[i] * read(slope, i), x[i]), "prelu")


def _exponential(name: str, x: te.Tensor, alpha: float, inner: float, outer: float) -> te.Tensor:
    """``outer * (x if x > 0 else alpha * (exp(x / inner) - 1))``."""

    def function(value: Any) -> Any:
        scaled = value if inner == 1 else value * literal(1 / inner, "float32")
        negative = (tirx.exp(scaled) - literal(1, "float32")) * literal(alpha, "float32")
        found = tirx.Select(value > 0, value, negative)
        return found if outer == 1 else found * literal(outer, "float32")

    return each(name, x, lambda value: in_float32(function, value))


@operator("Elu", schedule="elementwise")
def elu(x: te.Tensor, *, alpha: float = 1.0) -> te.Tensor:
    return _exponential("elu", x, alpha, 1, 1)


@operator("Selu", schedule="elementwise")
def selu(x: te.Tensor, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> te.Tensor:
    return _exponential("selu", x, alpha, 1, gamma)


@operator("Celu", schedule="elementwise")
def celu(x: te.Tensor, *, alpha: float = 1.0) -> te.Tensor:
    return _exponential("celu", x, alpha, alpha, 1)


def _hard_sigmoid(value: Any, alpha: float, beta: float) -> Any:
    dtype = element_dtype(value)
    line = value * literal(alpha, dtype) + literal(beta, dtype)
    return tirx.min(tirx.max(line, literal(0, dtype)), literal(1, dtype))


@operator("HardSigmoid", schedule="elementwise")
def hard_sigmoid(x: te.Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> te.Tensor:
    return each("hardsigmoid", x, lambda value: _hard_sigmoid(value, alpha, beta))


@operator("HardSwish", schedule="elementwise")
def hard_swish(x: te.Tensor) -> te.Tensor:
    return each("hardswish", x, lambda value: value * _hard_sigmoid(value, 1 / 6, 0.5))


@operator("Swish", schedule="elementwise")
def swish(x: te.Tensor, *, alpha: float = 1.0) -> te.Tensor:
    def function(value: Any) -> Any:
        return value * tirx.sigmoid(value if alpha == 1 else value * literal(alpha, "float32"))

    return each("swish", x, lambda value: in_float32(function, value))


@operator("SwiGLU", schedule="elementwise")
def swiglu(x: te.Tensor, y: te.Tensor, *, alpha: float = 1.0) -> te.Tensor:
    """The swish of x gates y; nothing broadcasts."""
    if shape_of(x) != shape_of(y):
        raise refusals.wrong_shape("both inputs must have one shape", x=x, y=y)

    def function(gate: Any, value: Any) -> Any:
        return gate * tirx.sigmoid(gate if alpha == 1 else gate * literal(alpha, "float32")) * value

    return te.compute(shape_of(x), lambda *i: in_float32(function, x[i], y[i]), "swiglu")


@operator("Gelu", schedule="elementwise")
def gelu(x: te.Tensor, *, approximate: str = "none") -> te.Tensor:
    if approximate not in ("none", "tanh"):
        raise refusals.wrong_value("must be none or tanh", "approximate", approximate)
    function = _gelu_tanh if approximate == "tanh" else _gelu
    return each("gelu", x, lambda value: in_float32(function, value))


def _gelu(value: Any) -> Any:
    half, one = literal(0.5, "float32"), literal(1, "float32")
    return value * half * (one + tirx.erf(value * literal(math.sqrt(0.5), "float32")))


def _gelu_tanh(value: Any) -> Any:
    half, one = literal(0.5, "float32"), literal(1, "float32")
    cubic = value + literal(0.044715, "float32") * value * value * value
    return value * half * (one + tirx.tanh(literal(math.sqrt(2 / math.pi), "float32") * cubic))


@operator("ThresholdedRelu", schedule="elementwise")
def thresholded_relu(x: te.Tensor, *, alpha: float = 1.0) -> te.Tensor:
    dtype = result_dtype(x)
    return each(
        "thresholdedrelu", x, lambda value: tirx.Select(value > literal(alpha, dtype), value, literal(0, dtype))
    )


@operator("Shrink", schedule="elementwise")
def shrink(x: te.Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> te.Tensor:
    dtype = result_dtype(x)

    def function(value: Any) -> Any:
        pulled_up = tirx.Select(value < literal(-lambd, dtype), value + literal(bias, dtype), literal(0, dtype))
        return tirx.Select(value > literal(lambd, dtype), value - literal(bias, dtype), pulled_up)

    return each("shrink", x, function)
