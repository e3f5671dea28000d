"""Softmax and its kin against onnxruntime, over one axis and, as before opset 13, over all from an axis on."""

from __future__ import annotations

import numpy as np
import pytest

from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, integers, onnxruntime_node


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax(name: str, axis: int | None, opset: int) -> None:
    x = integers(0, 3, 5, 7, low=-3, high=3).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    expected = onnxruntime_node(name, [x], opset=opset, **attributes)[0]
    np.testing.assert_allclose(evaluate(name, x, opset=opset, **attributes), expected, rtol=1e-5, atol=1e-6)


def test_large_numbers_do_not_overflow() -> None:
    x = np.float16([[60000, 60000, -60000]])
    np.testing.assert_array_equal(evaluate("Softmax", x), np.float16([[0.5, 0.5, 0]]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_long_rows_of_16_bits_are_summed_in_float32(dtype: str) -> None:
    x = floats(0, 2, 3001, dtype=dtype)
    powers = np.exp(x.astype("float64"))
    expected = powers / powers.sum(axis=1, keepdims=True)
    result = evaluate("Softmax", x).astype("float64")
    np.testing.assert_allclose(result, expected, rtol=5e-3 if dtype == "bfloat16" else 1e-3, atol=1e-6)


def test_a_row_of_one() -> None:
    np.testing.assert_array_equal(evaluate("Softmax", floats(0, 4, 1)), np.ones((4, 1)))
