"""Comparisons, logic, bits, and choosing by a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.arithmetic import is_float, pairwise, same_dtype
from compiler.operators.broadcast import broadcast_shape, element_dtype, read, result_dtype
from compiler.operators.registry import operator
from compiler.operators.signature import Constant


def _equal(a: Any, b: Any) -> Any:
    if element_dtype(a) == "bool":
        return tirx.Not(tirx.bitwise_xor(a, b))
    return tirx.EQ(a, b)


_OF_ANY: dict[str, Callable[[Any, Any], Any]] = {
    "Equal": _equal,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
}
_OF_BOOL: dict[str, Callable[[Any, Any], Any]] = {"And": tirx.And, "Or": tirx.Or, "Xor": tirx.bitwise_xor}
_OF_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "BitwiseAnd": tirx.bitwise_and,
    "BitwiseOr": tirx.bitwise_or,
    "BitwiseXor": tirx.bitwise_xor,
}


def _declare(onnx_name: str, combine: Callable[[Any, Any], Any], allows: Callable[[Any], bool], allowed: str) -> None:
    def of_tensors(x: te.Tensor | Constant, y: te.Tensor | Constant) -> te.Tensor:
        same_dtype(x, y)
        if not allows(x):
            raise refusals.wrong_dtype(f"the inputs must be {allowed}", x=x, y=y)
        return pairwise(onnx_name.lower(), x, y, combine)

    operator(onnx_name, schedule="elementwise")(of_tensors)


for _name, _combine in _OF_ANY.items():
    _declare(_name, _combine, lambda x: True, "of one type")
for _name, _combine in _OF_BOOL.items():
    _declare(_name, _combine, lambda x: result_dtype(x) == "bool", "bool")
for _name, _combine in _OF_INTEGERS.items():
    _declare(_name, _combine, lambda x: not is_float(x), "integers")


@operator("BitShift", schedule="elementwise")
def bit_shift(x: te.Tensor | Constant, y: te.Tensor | Constant, *, direction: str) -> te.Tensor:
    """A shift by all the bits or more, or by a negative number, leaves nothing but the sign of a right shift."""
    if direction not in ("LEFT", "RIGHT"):
        raise refusals.wrong_value("must be LEFT or RIGHT", "direction", direction)
    dtype = same_dtype(x, y)
    if is_float(x) or dtype == "bool":
        raise refusals.wrong_dtype("the inputs must be integers", x=x, y=y)
    last = np.iinfo(dtype).bits - 1

    def shifted(a: Any, b: Any) -> Any:
        if direction == "RIGHT" and not dtype.startswith("uint"):
            return tirx.shift_right(a, tirx.Select(_in_range(b, last), b, tirx.const(last, dtype)))
        shift = tirx.shift_left if direction == "LEFT" else tirx.shift_right
        return tirx.Select(_in_range(b, last), shift(a, b), tirx.const(0, dtype))

    return pairwise("bitshift", x, y, shifted)


def _in_range(shift: Any, last: int) -> Any:
    fits = shift <= tirx.const(last, element_dtype(shift))
    return fits if element_dtype(shift).startswith("uint") else tirx.all(shift >= 0, fits)


@operator("Where", schedule="elementwise")
def where(condition: te.Tensor, x: te.Tensor | Constant, y: te.Tensor | Constant) -> te.Tensor:
    same_dtype(x, y)
    if result_dtype(condition) != "bool":
        raise refusals.wrong_dtype("the condition must be bool", condition=condition)
    shape = broadcast_shape(condition=condition, x=x, y=y)
    return te.compute(shape, lambda *i: tirx.Select(read(condition, i), read(x, i), read(y, i)), "where")
