"""Arithmetic of two tensors or of any number of them, by numpy's broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import (
    FLOATS,
    NUMBERS,
    broadcast_shape,
    element_dtype,
    in_float32,
    literal,
    read,
    require_dtype,
    result_dtype,
    shape_of,
)
from compiler.operators.registry import operator
from compiler.operators.signature import Constant


def pairwise(name: str, x: Any, y: Any, combine: Callable[[Any, Any], Any]) -> te.Tensor:
    """``combine`` of the elements at each position."""
    shape = broadcast_shape(x=x, y=y)
    return te.compute(shape, lambda *i: combine(read(x, i), read(y, i)), name)


def same_dtype(x: Any, y: Any) -> str:
    """The element type of both."""
    if result_dtype(x) != result_dtype(y):
        raise refusals.wrong_dtype("both inputs must have one element type", x=x, y=y)
    return result_dtype(x)


def number_dtype(x: Any, y: Any) -> str:
    """The element type of both, which calculate."""
    require_dtype(NUMBERS, x=x, y=y)
    return same_dtype(x, y)


def is_float(tensor: Any) -> bool:
    return result_dtype(tensor) in FLOATS


@operator("Add", schedule="elementwise")
def add(x: te.Tensor | Constant, y: te.Tensor | Constant) -> te.Tensor:
    number_dtype(x, y)
    return pairwise("add", x, y, lambda a, b: a + b)


@operator("Sub", schedule="elementwise")
def sub(x: te.Tensor | Constant, y: te.Tensor | Constant) -> te.Tensor:
    number_dtype(x, y)
    return pairwise("sub", x, y, lambda a, b: a - b)


@operator("Mul", schedule="elementwise")
def mul(x: te.Tensor | Constant, y: te.Tensor | Constant) -> te.Tensor:
    number_dtype(x, y)
    if is_float(x) and (_is_zero(x) or _is_zero(y)):
        return pairwise("mul", x, y, _times_zero)
    return pairwise("mul", x, y, lambda a, b: a * b)


def _is_zero(given: Any) -> bool:
    return isinstance(given, np.ndarray) and not given.any()


def _times_zero(a: Any, b: Any) -> Any:
    """TVM takes it for zero, but of infinities it is NaN."""
    of = b if isinstance(a, tirx.FloatImm) else a
    return of + (literal(0, element_dtype(of)) - of)


@operator("Div", schedule="elementwise")
def div(x: te.Tensor | Constant, y: te.Tensor | Constant) -> te.Tensor:
    """Integers truncate towards zero."""
    if number_dtype(x, y) in FLOATS:
        if _is_zero(x):
            return pairwise("div", x, y, _zero_divided)
        factor = _exact_reciprocal(y)
        return pairwise("div", x, y, lambda a, b: a / b if factor is None else a * literal(factor, element_dtype(b)))
    return pairwise("div", x, y, tirx.truncdiv)


def _zero_divided(a: Any, b: Any) -> Any:
    """TVM takes it for zero, but of zero it is NaN, and so it is of NaN."""
    return tirx.Select(tirx.abs(b) > a, a, literal(math.nan, element_dtype(b)))


def _exact_reciprocal(divisor: Any) -> float | None:
    """The factor that is as good as a divisor, and takes a quarter of its cycles: that of a power of two, or
    of zero.

    None is a denormal number in any type of floats.
    """
    if not isinstance(divisor, np.ndarray):
        return None
    value = float(divisor.reshape(-1)[0])
    if value == 0:
        return math.copysign(math.inf, value)
    return 1 / value if abs(math.frexp(value)[0]) == 0.5 and 2.0**-14 <= abs(value) <= 2.0**14 else None


@operator("Mod", schedule="elementwise")
def mod(x: te.Tensor | Constant, y: te.Tensor | Constant, *, fmod: bool = False) -> te.Tensor:
    """The remainder has the sign of the divisor, with ``fmod`` that of the dividend."""
    if number_dtype(x, y) not in FLOATS:
        return pairwise("mod", x, y, tirx.truncmod if fmod else tirx.floormod)
    return pairwise("mod", x, y, tirx.fmod if fmod else _floored_mod)


def _floored_mod(a: Any, b: Any) -> Any:
    rest = tirx.fmod(a, b)
    return tirx.Select(tirx.all(rest != 0, tirx.bitwise_xor(rest < 0, b < 0)), rest + b, rest)


# Exponents for which another instruction is exact and cheaper.
_POWERS: dict[float, Callable[[Any], Any]] = {
    1.0: lambda a: a,
    2.0: lambda a: a * a,
    3.0: lambda a: a * a * a,
    0.5: tirx.sqrt,
    -1.0: lambda a: 1 / a,
}


@operator("Pow", schedule="elementwise")
def power(x: te.Tensor | Constant, y: te.Tensor | Constant) -> te.Tensor:
    """The result is of the type of x. A power of integers is rounded from float32."""
    require_dtype(NUMBERS, x=x, y=y)
    dtype = result_dtype(x)
    if isinstance(y, np.ndarray):
        exponent = float(y.reshape(-1)[0])
        if exponent in _POWERS and (dtype in FLOATS or exponent >= 1):
            return pairwise("pow", x, y, lambda a, _: _POWERS[exponent](a))
    if dtype in FLOATS:
        return pairwise("pow", x, y, lambda a, b: in_float32(raised, a, b.astype(dtype)))
    return pairwise("pow", x, y, lambda a, b: _integer_power(a, b).astype(dtype))


def raised(base: Any, exponent: Any) -> Any:
    """``base ** exponent`` of floats; ``tirx.pow`` would warn of constant exponents, which are right for any base."""
    return tirx.call_intrin(element_dtype(base), "tirx.pow", base, exponent)


def _integer_power(a: Any, b: Any) -> Any:
    """Rounded where the exponent is an integer; a fraction's power truncates, as the cast does."""
    result = raised(a.astype("float32"), b.astype("float32"))
    return result if "float" in element_dtype(b) else tirx.nearbyint(result)


def combined(name: str, tensors: tuple[te.Tensor, ...], combine: Callable[[list[Any]], Any]) -> te.Tensor:
    """``combine`` of all the elements at each position."""
    for tensor in tensors:
        number_dtype(tensors[0], tensor)
    shape = broadcast_shape(**{f"x{position}": tensor for position, tensor in enumerate(tensors)})
    return te.compute(shape, lambda *i: combine([read(tensor, i) for tensor in tensors]), name)


@operator("Max", schedule="elementwise")
def maximum(*x: te.Tensor | Constant) -> te.Tensor:
    return combined("max", x, lambda values: reduce(tirx.max, values))


@operator("Min", schedule="elementwise")
def minimum(*x: te.Tensor | Constant) -> te.Tensor:
    return combined("min", x, lambda values: reduce(tirx.min, values))


@operator("Sum", schedule="elementwise")
def total(*x: te.Tensor | Constant) -> te.Tensor:
    return combined("sum", x, lambda values: reduce(lambda a, b: a + b, values))


@operator("Mean", schedule="elementwise")
def mean(*x: te.Tensor | Constant) -> te.Tensor:
    scale = 1 / len(x)
    return combined(
        "mean", x, lambda values: reduce(lambda a, b: a + b, values) * tirx.const(scale, result_dtype(x[0]))
    )


@operator("Clip", schedule="elementwise")
def clip(x: te.Tensor, min: te.Tensor | Constant | None = None, max: te.Tensor | Constant | None = None) -> te.Tensor:
    """A limit left out does not limit; a lower limit above the upper one gives the upper."""
    require_dtype(NUMBERS, x=x)
    dtype = result_dtype(x)

    def clipped(*i: Any) -> Any:
        value = x[i]
        if min is not None:
            value = tirx.max(value, _limit(min, dtype))
        if max is not None:
            value = tirx.min(value, _limit(max, dtype))
        return value

    return te.compute(shape_of(x), clipped, "clip")


def _limit(bound: te.Tensor | np.ndarray[Any, Any], dtype: str) -> Any:
    """The one element of ``bound``."""
    if isinstance(bound, np.ndarray):
        return literal(bound, dtype)
    if any(extent != 1 for extent in shape_of(bound)):
        raise refusals.wrong_shape("a limit must be a scalar", limit=bound)
    return bound[(0,) * len(shape_of(bound))]
