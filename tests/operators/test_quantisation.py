"""Quantisation and quantised products against onnxruntime and exact integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError, UnsupportedError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, integers, onnxruntime_node


def bytes_of(seed: int, *shape: int, dtype: str) -> np.ndarray[Any, Any]:
    return integers(seed, *shape, dtype=dtype, low=-128, high=255)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_quantize_and_dequantize(dtype: str, constants: tuple[int, ...]) -> None:
    x, scale, zero = floats(0, 3, 7, low=-200, high=200), np.float32(0.5), np.array(3, dtype)
    (expected,) = onnxruntime_node("QuantizeLinear", [x, scale, zero])
    quantised = evaluate("QuantizeLinear", x, scale, zero, constants=constants)
    assert quantised.dtype == dtype
    np.testing.assert_array_equal(quantised, expected)
    (back,) = onnxruntime_node("DequantizeLinear", [expected, scale, zero])
    np.testing.assert_array_equal(evaluate("DequantizeLinear", expected, scale, zero, constants=constants), back)


@pytest.mark.parametrize("given", [{"y_zero_point": np.int32(7)}, {"output_dtype": 6}])
def test_what_is_held_as_int32_is_uint16(given: dict[str, Any]) -> None:
    zero = given.get("y_zero_point")
    x, scale = np.float32([-1e9, -2, 0.3, 3e4, 1e9]), np.float32(0.5)
    quantised = evaluate(
        "QuantizeLinear", x, scale, *([] if zero is None else [zero]), output_dtype=given.get("output_dtype", 0)
    )
    (expected,) = onnxruntime_node("QuantizeLinear", [x, scale, np.uint16(zero or 0)])
    assert quantised.dtype == np.int32
    np.testing.assert_array_equal(quantised, expected)


@pytest.mark.parametrize("axis", [0, -1])
def test_each_place_of_an_axis_has_its_own_scale(axis: int) -> None:
    x = floats(0, 3, 2, 3, low=-200, high=200)
    scale, zero = floats(1, 3, low=0.1, high=2), bytes_of(2, 3, dtype="uint8")
    (expected,) = onnxruntime_node("QuantizeLinear", [x, scale, zero], axis=axis)
    np.testing.assert_array_equal(evaluate("QuantizeLinear", x, scale, zero, axis=axis), expected)
    (back,) = onnxruntime_node("DequantizeLinear", [expected, scale, zero], axis=axis)
    np.testing.assert_array_equal(evaluate("DequantizeLinear", expected, scale, zero, axis=axis), back)


def test_halves_round_to_even_and_the_rest_saturates() -> None:
    x = np.float32([0.5, 1.5, 2.5, -0.5, 1e9, -1e9])
    np.testing.assert_array_equal(evaluate("QuantizeLinear", x, np.float32(1)), [0, 2, 2, 0, 255, 0])


def test_without_zero_point_the_type_may_be_asked_for() -> None:
    result = evaluate("QuantizeLinear", np.float32([-3, 300]), np.float32(1), output_dtype=3)
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, [-3, 127])


def test_blocks_of_an_axis_share_a_scale() -> None:
    x, scale = bytes_of(0, 2, 6, dtype="int8"), floats(1, 2, 3, low=0.1)
    expected = x * np.repeat(scale, 2, axis=1)
    np.testing.assert_array_equal(evaluate("DequantizeLinear", x, scale, axis=1, block_size=2), expected)


@pytest.mark.parametrize("values", [[0, 2, -3, -2.5, 1.34, 0.5], [-1.0, -2.1, -1.3], [1, 2.1, 255], [0.0, 0.0]])
def test_dynamic_quantization(values: list[float]) -> None:
    x = np.float32(values)
    results = evaluate("DynamicQuantizeLinear", x)
    if not x.any():
        assert [int(results[0].sum()), float(results[1]), int(results[2])] == [0, 1.0, 0]
        return
    for result, expected in zip(results, onnxruntime_node("DynamicQuantizeLinear", [x], outputs=3), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_dynamic_quantization_in_fp16_has_scales_in_fp16() -> None:
    x = np.float16([0, 2, -3, -2.5, 1.34, 0.5])
    quantised, scale, zero_point = evaluate("DynamicQuantizeLinear", x)
    assert (scale.dtype, zero_point.dtype) == (np.float16, np.uint8)
    restored = (quantised.astype(np.int32) - int(zero_point)) * np.float32(scale)
    np.testing.assert_allclose(restored, x, atol=float(scale))


@pytest.mark.parametrize("constants", [(), (1, 2, 3)])
@pytest.mark.parametrize("zeros", [(None, None), (7, None), (None, 200), (128, 3), ("rows", "columns")])
def test_integer_products_are_exact(zeros: tuple[Any, Any], constants: tuple[int, ...]) -> None:
    a, b = bytes_of(0, 2, 3, 9, dtype="uint8"), bytes_of(1, 9, 5, dtype="uint8")
    p = bytes_of(2, 3, dtype="uint8") if zeros[0] == "rows" else None if zeros[0] is None else np.uint8(zeros[0])
    q = bytes_of(3, 5, dtype="uint8") if zeros[1] == "columns" else None if zeros[1] is None else np.uint8(zeros[1])
    left = a.astype(np.int32) - (0 if p is None else np.int32(p).reshape(-1, 1))
    right = b.astype(np.int32) - (0 if q is None else np.int32(q))
    np.testing.assert_array_equal(evaluate("MatMulInteger", a, b, p, q, constants=constants), left @ right)


def test_signed_factors_may_be_mixed_with_unsigned() -> None:
    a, b = bytes_of(0, 3, 9, dtype="int8"), bytes_of(1, 9, 5, dtype="uint8")
    expected = (a.astype(np.int32) + 5) @ (b.astype(np.int32) - 9)
    np.testing.assert_array_equal(evaluate("MatMulInteger", a, b, np.int8(-5), np.uint8(9)), expected)


def convolved(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], **attributes: Any) -> np.ndarray[Any, Any]:
    """Exact for small integers, which float32 holds."""
    return onnxruntime_node("Conv", [x.astype(np.float32), w.astype(np.float32)], **attributes)[0].astype(np.int32)


@pytest.mark.parametrize(
    "group, w_zero, constants",
    [
        (1, None, (1, 2, 3)),
        (1, "channels", (1, 2, 3)),
        (1, 250, ()),
        (2, "channels", ()),
        (2, None, ()),
        (4, 250, (1, 2, 3)),
        (4, "channels", ()),
    ],
)
def test_integer_convolutions_are_exact(group: int, w_zero: Any, constants: tuple[int, ...]) -> None:
    x, w = bytes_of(0, 1, 4, 6, 5, dtype="uint8"), bytes_of(1, 4, 4 // group, 3, 3, dtype="uint8")
    q = bytes_of(2, 4, dtype="uint8") if w_zero == "channels" else None if w_zero is None else np.uint8(w_zero)
    attributes: dict[str, Any] = {"group": group, "pads": [1, 1, 0, 1], "strides": [1, 2]}
    right = w.astype(np.int32) - (0 if q is None else np.int32(q).reshape(-1, 1, 1, 1))
    expected = convolved(x.astype(np.int32) - 9, right, **attributes)
    result = evaluate("ConvInteger", x, w, np.uint8(9), q, constants=constants, **attributes)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_convolution(per_channel: bool) -> None:
    x, w = bytes_of(0, 1, 3, 7, 7, dtype="uint8"), bytes_of(1, 4, 3, 3, 3, dtype="int8")
    w_scale = floats(2, 4, low=0.001, high=0.01) if per_channel else np.float32(0.004)
    w_zero = np.zeros(4 if per_channel else (), np.int8)
    bias = integers(3, 4, low=-2000, high=2000)
    inputs = [x, np.float32(0.02), np.uint8(120), w, w_scale, w_zero, np.float32(0.03), np.uint8(110), bias]
    attributes: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    # Not onnxruntime's QLinearConv: its sums saturate at 16 bits on processors that have AVX2 and no VNNI.
    sums = convolved(x.astype(np.int32) - 120, w.astype(np.int32), **attributes) + bias.reshape(-1, 1, 1)
    scale = (np.float32(0.02) * np.asarray(w_scale) / np.float32(0.03)).reshape(-1, 1, 1)
    expected = np.clip(np.rint(sums * scale) + 110, 0, 255).astype(int)
    result = evaluate("QLinearConv", *inputs, constants=range(3, 9), **attributes).astype(int)
    assert np.abs(result - expected).max() <= 1
    assert (result != expected).mean() < 0.02


def test_quantised_product() -> None:
    a, b = bytes_of(0, 2, 3, 9, dtype="uint8"), bytes_of(1, 9, 5, dtype="uint8")
    inputs = [a, np.float32(0.02), np.uint8(120), b, np.float32(0.01), np.uint8(99), np.float32(0.05), np.uint8(110)]
    expected = onnxruntime_node("QLinearMatMul", inputs)[0].astype(int)
    assert np.abs(evaluate("QLinearMatMul", *inputs).astype(int) - expected).max() <= 1


def test_types_and_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="TW2109"):
        evaluate("QuantizeLinear", floats(0, 3), np.float32(1), np.float32(0))
    with pytest.raises(UnsupportedError, match="TW2109"):
        evaluate("MatMulInteger", integers(0, 2, 2), integers(1, 2, 2))
    with pytest.raises(InvalidError, match=r"TW2108.*extent of axis 1"):
        evaluate("QuantizeLinear", floats(0, 3, 4), floats(1, 3))
