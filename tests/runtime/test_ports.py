"""What a caller gives becomes what the chip takes, or an error that says what was expected and what was given."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.errors import InvalidError, UsageError
from compiler.runtime.model import Port
from compiler.runtime.ports import ONNX_DTYPES, convertible, from_chip, to_buffers

WIDE = Port("ids", "in0", "int64", "int32", (2, 2))
HALF = Port("x", "in0", "float32", "fp16", (3,))


def given(port: Port, array: Any) -> np.ndarray:
    return to_buffers([port], {port.name: array})[port.buffer]


@pytest.mark.parametrize(
    ("onnx_dtype", "dtype", "values", "back"),
    [
        ("int64", "int32", [-(2**31), 0, 2**31 - 1], [-(2**31), 0, 2**31 - 1]),
        ("uint32", "int32", [0, 5, 2**31 - 1], [0, 5, 2**31 - 1]),
        ("uint64", "int32", [0, 5, 9], [0, 5, 9]),
        ("uint16", "int32", [0, 5, 65535], [0, 5, 65535]),
        ("int4", "int8", [-8, 0, 7], [-8, 0, 7]),
        ("float32", "fp16", [1.0, 1 / 3, 1e9], [1.0, np.float16(1 / 3), np.inf]),
        ("float64", "fp32", [1.0, 0.1, 1e300], [1.0, np.float32(0.1), np.inf]),
        ("float32", "bf16", [1.0, -2.5, np.inf], [1.0, -2.5, np.inf]),
        ("bool", "bool", [True, False, True], [True, False, True]),
        ("float32", "fp32", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    ],
)
def test_values_go_to_the_chip_and_come_back(onnx_dtype: str, dtype: str, values: list[Any], back: list[Any]) -> None:
    port = Port("x", "in0", onnx_dtype, dtype, (3,))
    on_chip = given(port, np.array(values).astype(ONNX_DTYPES[onnx_dtype]))
    returned = from_chip(port, on_chip)
    assert returned.dtype == ONNX_DTYPES[onnx_dtype]
    assert returned.astype(np.float64).tolist() == [float(value) for value in back]


def test_an_integer_that_the_chip_cannot_hold_is_named() -> None:
    for value in (2**31, -(2**31) - 1):
        with pytest.raises(InvalidError, match=rf"input ids has {value} at \[1, 0\]; the model computes it in int32"):
            given(WIDE, np.array([[0, 1], [value, 2]]))


def test_the_bits_of_bfloat16_stand_for_it() -> None:
    port = Port("x", "in0", "bfloat16", "bf16", (2,))
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    assert given(port, values.view(np.uint16)).tolist() == given(port, values).tolist() == [1.5, -2.0]


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        to_buffers([WIDE, HALF], {"y": np.zeros(3), "z": np.zeros(3)})
    text = str(caught.value)
    assert "no input y" in text and "no input z" in text
    assert "inputs: ids: int64 [2, 2], x: float32 [3]" in text
    assert "no array is given for input ids: int64 [2, 2]" in text
    with pytest.raises(InvalidError) as wrong:
        to_buffers([WIDE, HALF], {"ids": np.zeros((2, 3), np.int32), "x": np.zeros(3, np.float64)})
    text = str(wrong.value)
    assert "input ids has type int64; the array has int32" in text
    assert "input ids has shape [2, 2]; the array has [2, 3]" in text
    assert "input x has type float32; the array has float64" in text


@pytest.mark.parametrize("inputs", [None, [np.zeros(3, np.float32)]])
def test_inputs_have_names(inputs: Any) -> None:
    with pytest.raises(UsageError, match="inputs must be arrays by name"):
        to_buffers([HALF], inputs)


def test_lists_of_different_lengths_are_no_array() -> None:
    with pytest.raises(InvalidError, match="input ids is no array: its rows differ in length"):
        given(WIDE, [[1], [1, 2]])


def test_only_types_of_one_family_become_each_other() -> None:
    assert convertible("int64", "int32") and convertible("float64", "bf16") and convertible("bool", "bool")
    for onnx_dtype, dtype in (("int64", "fp32"), ("float32", "int32"), ("bool", "uint8"), ("uint8", "bool")):
        assert not convertible(onnx_dtype, dtype)
