"""Arithmetic that the vector rows share where numpy has no function of exactly that meaning.

Everything here is total: no data raises, and every result is defined for every input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any  # a numpy array; ufuncs on ml_dtypes and scalars are not typed further


def packed(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function on packed copies of its operands.

    numpy's vector loops may round differently from its strided ones; what a value becomes must not depend on
    where it lies. Functions that round exactly (add, multiply, divide, compare, ...) need no such care.
    """
    return lambda *inputs: function(*(np.ascontiguousarray(a) for a in inputs))


def truth(a: Array) -> Array:
    """A bool tensor's bytes as truth values: any byte but zero is true."""
    return a != 0


def wrapped(scalar: int, a: Array) -> Array:
    """An integer scalar as an element of ``a``'s type: its low bits."""
    return np.asarray(scalar, np.int64).astype(a.dtype)


def saturated(a: Array, dtype: np.dtype[Any]) -> Array:
    """Integers clipped to the range of ``dtype``."""
    limits = np.iinfo(dtype)
    return np.clip(a, limits.min, limits.max).astype(dtype)


def float_to_int(a: Array, dtype: np.dtype[Any]) -> Array:
    """Floats that hold whole numbers as integers: clipped to the range of ``dtype``, NaN as zero."""
    limits = np.iinfo(dtype)
    whole = np.where(np.isnan(a), 0.0, a.astype(np.float64))
    return np.clip(whole, limits.min, limits.max).astype(dtype)


def add_saturating(a: Array, b: Array) -> Array:
    return saturated(a.astype(np.int64) + b.astype(np.int64), a.dtype)


def subtract_saturating(a: Array, b: Array) -> Array:
    return saturated(a.astype(np.int64) - b.astype(np.int64), a.dtype)


def multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the double-width product."""
    return (a.astype(np.int64) * b.astype(np.int64) >> (8 * a.dtype.itemsize)).astype(a.dtype)


def divide(a: Array, b: Array) -> Array:
    """Floats: IEEE. Integers: toward zero, and zero where the divisor is zero."""
    if a.dtype.kind == "f":
        return np.divide(a, b)
    # The double quotient of two 32-bit integers never reaches the next whole number, so truncating it is exact.
    quotient = np.trunc(np.divide(a, b, dtype=np.float64))
    return np.where(np.equal(b, 0), 0, quotient).astype(np.int64).astype(a.dtype)


def sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def softplus(a: Array) -> Array:
    """ln(1 + e^a) without overflow."""
    return np.maximum(a, 0) + np.log1p(np.exp(-np.abs(a)))


_ERF_NUMERATOR = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_DENOMINATOR = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip


def erf(a: Array) -> Array:
    """The error function as a quotient of polynomials, in double: within 1.2e-7 and the same on every host."""
    x = np.clip(a.astype(np.float64), -4, 4)
    square = x * x
    return (x * _polynomial(_ERF_NUMERATOR, square) / _polynomial(_ERF_DENOMINATOR, square)).astype(np.float32)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= x
        value += coefficient
    return value


def gelu(a: Array) -> Array:
    return np.float32(0.5) * a * (1 + erf(a * np.float32(0.7071067811865476)))


def gelu_tanh(a: Array) -> Array:
    inner = np.float32(0.7978845608028654) * (a + np.float32(0.044715) * a * a * a)
    return np.float32(0.5) * a * (1 + np.tanh(inner))


def _unsigned(a: Array) -> Array:
    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}")


def count_ones(a: Array) -> Array:
    return np.bitwise_count(_unsigned(a))


def count_leading_zeros(a: Array) -> Array:
    length = np.frexp(_unsigned(a).astype(np.float64))[1]
    return 8 * a.dtype.itemsize - length


def fold(combine: Callable[..., Array], a: Array, axis: int = -1) -> Array:
    """Combine all elements along a negative axis as a binary tree.

    Each step combines every element of the upper part with the one that lies the largest power of two below the
    length before it; elements without a partner stay as they are. The order depends on the length only.
    """
    after = (slice(None),) * (-1 - axis)
    while (length := a.shape[axis]) > 1:
        half = 1 << (length - 1).bit_length() - 1
        paired = combine(a[(..., slice(length - half), *after)], a[(..., slice(half, None), *after)])
        if length < 2 * half:
            rest = a[(..., slice(length - half, half), *after)]
            paired = np.concatenate((paired, rest), axis=axis)
        a = paired
    return a[(..., 0, *after)]


def int_to_float(a: Array, dtype_name: str) -> Array:
    """Integers of up to 32 bits as floats that round once more to ``dtype_name`` as if they had not rounded before."""
    exact = a.astype(np.float64)
    if dtype_name != "bf16":
        return exact
    # bfloat16 is stored by way of fp32. Rounding to odd there keeps what lies below its last bit from being lost.
    nearest = exact.astype(np.float32)
    bits = nearest.view(np.int32) - (np.abs(nearest) > np.abs(exact))
    return (bits | (nearest != exact)).astype(np.int32).view(np.float32)


def round_half_away(a: Array) -> Array:
    return np.trunc(a.astype(np.float64) + np.copysign(0.5, a))


ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "rne": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "away": round_half_away,
}
