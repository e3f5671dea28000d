"""Functions of one element: arithmetic, roots, exponentials, trigonometry, rounding, and tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from compiler.operators.broadcast import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    element_dtype,
    require_dtype,
    result_dtype,
    shape_of,
)
from compiler.operators.registry import operator


def each(name: str, x: te.Tensor, function: Callable[[Any], Any]) -> te.Tensor:
    """``function`` of every element."""
    return te.compute(shape_of(x), lambda *i: function(x[i]), name)


def declare(onnx_name: str, function: Callable[[Any], Any], dtypes: Sequence[str] = FLOATS) -> None:
    """An operator without attributes that is ``function`` of every element; only of ``dtypes``."""

    def of_tensor(x: te.Tensor) -> te.Tensor:
        require_dtype(dtypes, x=x)
        return each(onnx_name.lower(), x, function)

    operator(onnx_name, schedule="elementwise")(of_tensor)


def sign(value: Any) -> Any:
    dtype = element_dtype(value)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    if dtype.startswith("uint"):
        return tirx.Select(value > zero, one, zero)
    return tirx.Select(value > zero, one, tirx.Select(value < zero, tirx.const(-1, dtype), zero))


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "Neg": lambda value: -value,
    "Abs": lambda value: value if "uint" in element_dtype(value) else tirx.abs(value),
    "Sqrt": tirx.sqrt,
    "Reciprocal": lambda value: tirx.const(1, element_dtype(value)) / value,
    "Exp": tirx.exp,
    "Log": tirx.log,
    "Sign": sign,
    "Floor": tirx.floor,
    "Ceil": tirx.ceil,
    "Round": tirx.nearbyint,
    "Sin": tirx.sin,
    "Cos": tirx.cos,
    "Tan": tirx.tan,
    "Asin": tirx.asin,
    "Acos": tirx.acos,
    "Atan": tirx.atan,
    "Sinh": tirx.sinh,
    "Cosh": tirx.cosh,
    "Tanh": tirx.tanh,
    "Asinh": tirx.asinh,
    "Acosh": tirx.acosh,
    "Atanh": tirx.atanh,
    "Erf": tirx.erf,
    "Not": tirx.Not,
    "BitwiseNot": tirx.bitwise_not,
    "IsNaN": lambda value: tirx.isnan(value.astype("float32")),
}

_BEYOND_FLOATS: dict[str, tuple[str, ...]] = {
    "Neg": (*FLOATS, *SIGNED),
    "Abs": NUMBERS,
    "Sign": NUMBERS,
    "Not": ("bool",),
    "BitwiseNot": INTEGERS,
}

for _name, _function in _FUNCTIONS.items():
    declare(_name, _function, _BEYOND_FLOATS.get(_name, FLOATS))


@operator("IsInf", schedule="elementwise")
def is_infinite(x: te.Tensor, *, detect_negative: bool = True, detect_positive: bool = True) -> te.Tensor:
    require_dtype(FLOATS, x=x)
    dtype = result_dtype(x)
    positive, negative = tirx.const(float("inf"), dtype), tirx.const(float("-inf"), dtype)
    tests: list[Callable[[Any], Any]] = []
    if detect_positive:
        tests.append(lambda value: value == positive)
    if detect_negative:
        tests.append(lambda value: value == negative)
    if not tests:
        return each("isinf", x, lambda value: tirx.const(False, "bool"))
    return each("isinf", x, lambda value: tirx.any(*(test(value) for test in tests)))
