"""Arithmetic against numpy and onnxruntime: broadcasting, element types, and the corners of each operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te

from compiler.errors import InvalidError, UnsupportedError
from compiler.operators.arithmetic import div
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, integers, onnxruntime_node

SHAPES = [((3, 5), (3, 5)), ((2, 1, 7), (3, 1)), ((), (4,)), ((1,), (1, 1)), ((5,), (4, 3, 1))]


@pytest.mark.parametrize("shapes", SHAPES)
def test_operands_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (floats(seed, *shape) for seed, shape in enumerate(shapes))
    np.testing.assert_array_equal(evaluate("Sub", x, y), x - y)


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int32"])
@pytest.mark.parametrize("name, function", [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)])
def test_every_type_has_its_own_arithmetic(name: str, function: Any, dtype: str) -> None:
    make = floats if dtype.startswith("float") else integers
    x, y = make(0, 3, 7, dtype=dtype), make(1, 7, dtype=dtype)
    result = evaluate(name, x, y)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, function(x, y))


@pytest.mark.parametrize("divisor", [8.0, -0.25, 2.0**14, 3.0, 2.0**15])
def test_a_power_of_two_divides_as_a_factor(divisor: float) -> None:
    x, by = floats(0, 4, 33, dtype="float16"), np.float16(divisor)
    np.testing.assert_array_equal(evaluate("Div", x, by), x / by)
    y = te.placeholder((4,), "float16")
    stages = te.create_prim_func([y, div(y, np.array(by))]).script()
    assert ("/" in stages) == (divisor in (3.0, 2.0**15))


def test_integers_divide_towards_zero() -> None:
    x, y = np.int32([7, -7, 7, -7, 0]), np.int32([2, 2, -2, -2, 5])
    np.testing.assert_array_equal(evaluate("Div", x, y), [3, -3, -3, 3, 0])


def test_the_remainder_has_the_sign_of_the_divisor_or_with_fmod_of_the_dividend() -> None:
    x, y = np.int32([7, -7, 7, -7]), np.int32([3, 3, -3, -3])
    np.testing.assert_array_equal(evaluate("Mod", x, y), [1, 2, -2, -1])
    np.testing.assert_array_equal(evaluate("Mod", x, y, fmod=1), [1, -1, 1, -1])
    fx, fy = x.astype("float32") + np.float32(0.25), y.astype("float32")
    np.testing.assert_allclose(evaluate("Mod", fx, fy), np.mod(fx, fy), rtol=1e-6)
    np.testing.assert_allclose(evaluate("Mod", fx, fy, fmod=1), np.fmod(fx, fy), rtol=1e-6)


@pytest.mark.parametrize("exponent", [0.5, 1, 2, 3, -1, 1.7])
def test_a_power_with_a_known_exponent(exponent: float) -> None:
    x, y = floats(0, 9, low=0.1), np.float32([exponent])
    expected = x.astype("float64") ** exponent
    np.testing.assert_allclose(evaluate("Pow", x, y, constants=[1]), expected, rtol=1e-5)
    np.testing.assert_allclose(evaluate("Pow", x, y), expected, rtol=1e-5)


def test_powers_of_integers() -> None:
    x, y = np.int32([3, -2, 7, 10]), np.int32([4, 3, 0, 6])
    np.testing.assert_array_equal(evaluate("Pow", x, y), x**y)
    np.testing.assert_array_equal(evaluate("Pow", x, np.int64([2]), constants=[1]), x**2)
    assert evaluate("Pow", floats(0, 4, low=1), y).dtype == np.float32


@pytest.mark.parametrize("name", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_operands(name: str, count: int) -> None:
    inputs = [floats(seed, *((3, 1) if seed % 2 else (5,))) for seed in range(count)]
    expected = onnxruntime_node(name, inputs)[0]
    np.testing.assert_allclose(evaluate(name, *inputs), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_clip_takes_limits_as_inputs(constants: tuple[int, ...]) -> None:
    x, low, high = integers(0, 17), np.array(-9, np.int32), np.array(20, np.int32)
    np.testing.assert_array_equal(evaluate("Clip", x, low, high, constants=constants), np.clip(x, -9, 20))
    np.testing.assert_array_equal(evaluate("Clip", x, None, high, constants=constants), np.minimum(x, 20))
    np.testing.assert_array_equal(evaluate("Clip", x), x)


def test_clip_took_limits_as_attributes() -> None:
    x = floats(0, 9, dtype="float16")
    np.testing.assert_array_equal(evaluate("Clip", x, min=-0.5, max=1.0), np.clip(x, np.float16(-0.5), np.float16(1)))


def test_a_limit_outside_of_the_type_does_not_limit() -> None:
    x = np.int32([-(2**31), 0, 2**31 - 1])
    limits = np.array(-(2**63)), np.array(2**63 - 1)
    np.testing.assert_array_equal(evaluate("Clip", x, *limits, constants=(1, 2)), x)


def test_mixed_types_and_shapes_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"TW2109.*x float32, y int32"):
        evaluate("Add", floats(0, 3), integers(0, 3))
    with pytest.raises(InvalidError, match=r"TW2108.*x \[3\], y \[4\]"):
        evaluate("Add", floats(0, 3), floats(0, 4))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_nothing_times_a_zero_or_divided_by_it_is_left_out(dtype: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 3, -0.0, 0], dtype)
    zero, below = np.array(0, dtype), np.array(-0.0, dtype)
    with np.errstate(all="ignore"):
        for by in (zero, below):
            np.testing.assert_array_equal(evaluate("Mul", x, by, constants=[1]), x * by)
            np.testing.assert_array_equal(evaluate("Mul", by, x, constants=[0]), by * x)
            np.testing.assert_array_equal(evaluate("Div", x, by, constants=[1]), x / by)
            np.testing.assert_array_equal(evaluate("Div", by, x, constants=[0]), by / x)
