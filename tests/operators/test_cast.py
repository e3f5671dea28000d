"""Casts against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from compiler.errors import UnsupportedError
from tests.operators.evaluate import evaluate

VALUES = [0.0, 0.5, -0.75, 1.0, 2.999, 100.0, -0.0]
TYPES = ["float32", "float16", "int8", "uint8", "int16", "int32", "bool"]


def number(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("to", TYPES)
def test_cast(source: str, to: str) -> None:
    x = np.abs(VALUES).astype(source)
    result = evaluate("Cast", x, to=number(to))
    assert result.dtype == to
    np.testing.assert_array_equal(result, x.astype(to))


def test_floats_truncate_towards_zero() -> None:
    x = np.float32([-1.9, -0.9, 0.9, 1.9])
    np.testing.assert_array_equal(evaluate("Cast", x, to=number("int32")), [-1, 0, 0, 1])


def test_bfloat16_rounds_to_nearest_even() -> None:
    x = np.float32([1.00390625, 1.01171875, -3.14159, 1e30])
    np.testing.assert_array_equal(evaluate("Cast", x, to=16), x.astype("bfloat16"))


def test_64_bits_are_32_on_the_machine() -> None:
    assert evaluate("Cast", np.float32([1.5]), to=7).dtype == np.int32
    assert evaluate("Cast", np.int32([1]), to=11).dtype == np.float32


def test_cast_like_takes_the_type_of_its_second_input() -> None:
    assert evaluate("CastLike", np.float32([1.5]), np.zeros(3, np.int8)).dtype == np.int8


def test_types_that_the_machine_lacks_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"TW2112.*element type 17"):
        evaluate("Cast", np.float32([1]), to=17)
