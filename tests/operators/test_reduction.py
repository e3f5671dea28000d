"""Reductions against onnxruntime and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, integers, onnxruntime_node

REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]
AXES = [((1,), True), ((-1, 0), False), ((0, 1, 2), True), ((2,), False)]


@pytest.mark.parametrize("axes, keepdims", AXES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str, axes: tuple[int, ...], keepdims: bool) -> None:
    x = floats(0, 3, 1, 7, low=0.1)
    given = np.array(axes, np.int64)
    expected = onnxruntime_node(f"Reduce{name}", [x, given], opset=18, keepdims=int(keepdims))[0]
    result = evaluate(f"Reduce{name}", x, given, constants=[1], keepdims=keepdims)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_no_axes_mean_all_of_them_or_none(name: str) -> None:
    x = floats(0, 2, 3, low=0.1)
    whole = evaluate(f"Reduce{name}", x)
    np.testing.assert_allclose(whole, onnxruntime_node(f"Reduce{name}", [x], opset=18)[0], rtol=1e-5, atol=1e-6)
    if name in ("Sum", "Mean", "Max", "Min", "Prod"):
        np.testing.assert_array_equal(evaluate(f"Reduce{name}", x, noop_with_empty_axes=1), x)


def test_axes_were_an_attribute() -> None:
    x = floats(0, 2, 3)
    np.testing.assert_allclose(evaluate("ReduceSum", x, axes=[1], keepdims=0), x.sum(axis=1), rtol=1e-6)


def test_sums_of_16_bits_are_kept_in_float32() -> None:
    x = np.full((1, 4099), 1.0, np.float16)  # in float16 the sum would stay at 2048
    np.testing.assert_array_equal(evaluate("ReduceSum", x, np.array([1]), constants=[1]), np.float16([[4099]]))
    assert evaluate("ReduceMean", x.astype("bfloat16")).astype(np.float32).item() == 1


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
@pytest.mark.parametrize("name, function", [("Sum", np.sum), ("Max", np.max), ("Min", np.min), ("Prod", np.prod)])
def test_integers(name: str, function: Any, dtype: str) -> None:
    x = integers(0, 3, 5, dtype=dtype, low=-3, high=3)
    result = evaluate(f"Reduce{name}", x, np.array([1]), constants=[1], keepdims=0)
    np.testing.assert_array_equal(result, function(x.astype(np.int32), axis=1).astype(dtype))


def test_the_extreme_of_nothing_but_infinity_is_infinity() -> None:
    x = np.full((2, 3), -np.inf, np.float32)
    np.testing.assert_array_equal(evaluate("ReduceMax", x, np.array([1]), constants=[1], keepdims=0), x[:, 0])
    np.testing.assert_array_equal(evaluate("ReduceLogSumExp", x, np.array([1]), constants=[1], keepdims=0), x[:, 0])


def test_exponents_do_not_overflow() -> None:
    x = np.float32([[1000, 1000], [-1000, -1000]])
    result = evaluate("ReduceLogSumExp", x, np.array([1]), constants=[1], keepdims=0)
    np.testing.assert_allclose(result, [1000 + np.log(2), -1000 + np.log(2)], rtol=1e-6)


def test_a_row_without_elements() -> None:
    x = np.zeros((2, 0), np.float32)
    for name, value in (("Sum", 0), ("Prod", 1), ("Max", -np.inf), ("Min", np.inf), ("LogSumExp", -np.inf)):
        np.testing.assert_array_equal(
            evaluate(f"Reduce{name}", x, np.array([1]), constants=[1], keepdims=0), [value] * 2
        )


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis, keepdims", [(0, 1), (-1, 0), (1, 1)])
@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_the_place_of_an_extreme(name: str, axis: int, keepdims: int, last: int) -> None:
    x = integers(0, 4, 3, 5, low=-2, high=2).astype(np.float32)  # with ties
    attributes = {"axis": axis, "keepdims": keepdims, "select_last_index": last}
    result = evaluate(name, x, **attributes)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, onnxruntime_node(name, [x], **attributes)[0])


@pytest.mark.parametrize(
    "name, attributes", [("GlobalAveragePool", {}), ("GlobalMaxPool", {}), ("GlobalLpPool", {"p": 3})]
)
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 2, 3, 4), (1, 1, 2, 1, 3)])
def test_global_pooling(name: str, attributes: dict[str, Any], shape: tuple[int, ...]) -> None:
    x = floats(0, *shape)
    expected = onnxruntime_node(name, [x], **attributes)[0]
    np.testing.assert_allclose(evaluate(name, x, **attributes), expected, rtol=1e-5, atol=1e-6)


def test_an_axis_must_exist() -> None:
    with pytest.raises(InvalidError, match=r"TW2110.*axis 2 does not exist in a tensor of rank 2"):
        evaluate("ReduceSum", floats(0, 2, 3), np.array([2]), constants=[1])
