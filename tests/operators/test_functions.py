"""Functions of one element against float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from compiler.errors import UnsupportedError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, integers

# The function in float64, and the range in which it is asked.
FUNCTIONS: dict[str, tuple[Any, float, float]] = {
    "Neg": (np.negative, -9, 9),
    "Abs": (np.abs, -9, 9),
    "Sqrt": (np.sqrt, 0, 9),
    "Reciprocal": (np.reciprocal, 0.1, 9),
    "Exp": (np.exp, -9, 9),
    "Log": (np.log, 0.01, 9),
    "Sign": (np.sign, -1, 1),
    "Floor": (np.floor, -9, 9),
    "Ceil": (np.ceil, -9, 9),
    "Round": (np.rint, -9, 9),
    "Sin": (np.sin, -4, 4),
    "Cos": (np.cos, -4, 4),
    "Tan": (np.tan, -1.2, 1.2),
    "Asin": (np.arcsin, -1, 1),
    "Acos": (np.arccos, -1, 1),
    "Atan": (np.arctan, -4, 4),
    "Sinh": (np.sinh, -4, 4),
    "Cosh": (np.cosh, -4, 4),
    "Tanh": (np.tanh, -4, 4),
    "Asinh": (np.arcsinh, -4, 4),
    "Acosh": (np.arccosh, 1, 4),
    "Atanh": (np.arctanh, -0.9, 0.9),
    "Erf": (np.vectorize(math.erf), -3, 3),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str, dtype: str) -> None:
    function, low, high = FUNCTIONS[name]
    x = floats(0, 3, 13, dtype=dtype, low=low, high=high)
    result = evaluate(name, x)
    tolerance = 3e-6 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(result, function(x.astype("float64")), rtol=tolerance, atol=tolerance)
    assert result.dtype == dtype


def test_bfloat16() -> None:
    x = floats(0, 9, dtype="bfloat16")
    np.testing.assert_allclose(evaluate("Exp", x).astype("float64"), np.exp(x.astype("float64")), rtol=1e-2)


def test_halves_round_to_even() -> None:
    x = np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    np.testing.assert_array_equal(evaluate("Round", x), [-2, -2, 0, 0, 2, 2])


def test_integers() -> None:
    x = integers(0, 11)
    np.testing.assert_array_equal(evaluate("Abs", x), np.abs(x))
    np.testing.assert_array_equal(evaluate("Sign", x), np.sign(x))
    np.testing.assert_array_equal(evaluate("Sign", np.uint8([0, 3])), [0, 1])
    np.testing.assert_array_equal(evaluate("BitwiseNot", x), ~x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_infinities_and_nan_are_told(dtype: str) -> None:
    x = np.array([1, np.inf, -np.inf, np.nan, 0]).astype(dtype)
    np.testing.assert_array_equal(evaluate("IsNaN", x), [0, 0, 0, 1, 0])
    np.testing.assert_array_equal(evaluate("IsInf", x), [0, 1, 1, 0, 0])
    np.testing.assert_array_equal(evaluate("IsInf", x, detect_negative=0), [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(evaluate("IsInf", x, detect_positive=0), [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(evaluate("IsInf", x, detect_positive=0, detect_negative=0), np.zeros(5))


def test_not() -> None:
    x = np.array([True, False])
    np.testing.assert_array_equal(evaluate("Not", x), ~x)


def test_a_tensor_without_axes() -> None:
    np.testing.assert_allclose(evaluate("Exp", np.float32(1.5)), np.exp(1.5), rtol=1e-6)


@pytest.mark.parametrize("name", ["Sqrt", "Tanh", "Not", "Neg"])
def test_types_that_a_function_does_not_have_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"TW2109.*{name}: x must be of .*; given: x uint8"):
        evaluate(name, np.uint8([1, 2]))
