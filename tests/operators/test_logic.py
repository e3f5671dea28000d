"""Comparisons, logic, bits and choices against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError, UnsupportedError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, integers

COMPARISONS: dict[str, Any] = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}
TRUTHS = np.array([[False, False, True, True], [False, True, False, True]])


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "float16"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison(name: str, dtype: str) -> None:
    x, y = integers(0, 3, 5, low=0, high=3).astype(dtype), integers(1, 5, low=0, high=3).astype(dtype)
    result = evaluate(name, x, y)
    assert result.dtype == np.bool_
    np.testing.assert_array_equal(result, COMPARISONS[name](x, y))


@pytest.mark.parametrize(
    "name, function", [("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor), ("Equal", np.equal)]
)
def test_logic(name: str, function: Any) -> None:
    np.testing.assert_array_equal(evaluate(name, *TRUTHS), function(*TRUTHS))


@pytest.mark.parametrize(
    "name, function",
    [("BitwiseAnd", np.bitwise_and), ("BitwiseOr", np.bitwise_or), ("BitwiseXor", np.bitwise_xor)],
)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int16"])
def test_bits(name: str, function: Any, dtype: str) -> None:
    x, y = integers(0, 9, dtype=dtype), integers(1, 9, dtype=dtype)
    np.testing.assert_array_equal(evaluate(name, x, y), function(x, y))


def test_shifts_out_of_range_leave_the_sign_or_nothing() -> None:
    x, y = np.int32([-8, 4, -8, 4, -1]), np.int32([1, 1, 32, 99, -1])
    np.testing.assert_array_equal(evaluate("BitShift", x, y, direction="RIGHT"), [-4, 2, -1, 0, -1])
    np.testing.assert_array_equal(evaluate("BitShift", x, y, direction="LEFT"), [-16, 8, 0, 0, 0])
    u, v = np.uint8([200, 200, 1]), np.uint8([1, 9, 7])
    np.testing.assert_array_equal(evaluate("BitShift", u, v, direction="RIGHT"), [100, 0, 0])
    np.testing.assert_array_equal(evaluate("BitShift", u, v, direction="LEFT"), [144, 0, 128])
    with pytest.raises(InvalidError, match="TW2111"):
        evaluate("BitShift", u, v, direction="UP")


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_where_broadcasts_all_three(dtype: str) -> None:
    condition, x, y = TRUTHS[:, None, :], floats(0, 3, 4) > 0, floats(1, 1) > 0
    x, y = x.astype(dtype), y.astype(dtype)
    np.testing.assert_array_equal(evaluate("Where", condition, x, y), np.where(condition, x, y))


def test_logic_is_of_bool_and_bits_are_of_integers() -> None:
    with pytest.raises(UnsupportedError, match="TW2109"):
        evaluate("And", np.int32([1]), np.int32([1]))
    with pytest.raises(UnsupportedError, match="TW2109"):
        evaluate("BitwiseAnd", np.float32([1]), np.float32([1]))
    with pytest.raises(UnsupportedError, match=r"TW2109.*the condition must be bool"):
        evaluate("Where", np.int32([1]), np.float32([1]), np.float32([1]))
    with pytest.raises(UnsupportedError, match="TW2109"):
        evaluate("BitShift", np.float32([1]), np.float32([1]), direction="LEFT")
