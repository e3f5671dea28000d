"""Pooling against onnxruntime: paddings, holes, and windows that hang over the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, integers, onnxruntime_node

WINDOWS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), {"kernel_shape": [3]}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 7, 6), {"kernel_shape": [2, 2], "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    ((1, 1, 8, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((1, 1, 6, 7), {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    ((1, 2, 2, 3), {"kernel_shape": [3, 4], "strides": [2, 3], "ceil_mode": 1}),
    ((1, 2, 9, 8), {"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [1, 1, 0, 1]}),
    ((1, 2, 4, 5, 3), {"kernel_shape": [2, 2, 2], "strides": [1, 2, 1], "pads": [0, 1, 1, 0, 1, 0]}),
    ((1, 1, 1, 1), {"kernel_shape": [1, 1]}),
]


@pytest.mark.parametrize("shape, attributes", WINDOWS)
def test_max_pool_and_where_the_maxima_are(shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    x = floats(0, *shape)
    expected = onnxruntime_node("MaxPool", [x], outputs=2, **attributes)
    values, places = evaluate("MaxPool", x, outputs=2, **attributes)
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(places, expected[1])


@pytest.mark.parametrize("includes", [0, 1])
@pytest.mark.parametrize("shape, attributes", WINDOWS)
def test_average_pool(shape: tuple[int, ...], attributes: dict[str, Any], includes: int) -> None:
    x = floats(0, *shape)
    given = {**attributes, "count_include_pad": includes}
    expected = onnxruntime_node("AveragePool", [x], **given)[0]
    np.testing.assert_allclose(evaluate("AveragePool", x, **given), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [1, 2, 3, 9, 200])
def test_lp_pool(p: int) -> None:
    x = floats(0, 1, 2, 7, 6)
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "p": p}
    expected = onnxruntime_node("LpPool", [x], **attributes)[0]
    np.testing.assert_allclose(evaluate("LpPool", x, **attributes), expected, rtol=1e-5, atol=1e-6)


def test_places_may_be_counted_in_columns() -> None:
    x = floats(0, 1, 2, 5, 4)
    attributes = {"kernel_shape": [2, 3], "storage_order": 1}
    expected = onnxruntime_node("MaxPool", [x], outputs=2, **attributes)
    np.testing.assert_array_equal(evaluate("MaxPool", x, outputs=2, **attributes)[1], expected[1])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_maxima_of_integers(dtype: str) -> None:
    x = integers(0, 1, 2, 6, 5, dtype=dtype, low=-128, high=255)
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    expected = onnxruntime_node("MaxPool", [x], **attributes)[0]
    np.testing.assert_array_equal(evaluate("MaxPool", x, outputs=1, **attributes), expected)


def test_averages_of_float16_are_summed_in_float32() -> None:
    x = np.full((1, 1, 65, 65), 17, np.float16)
    np.testing.assert_array_equal(evaluate("AveragePool", x, kernel_shape=[65, 65]), np.full((1, 1, 1, 1), 17))


@pytest.mark.parametrize(
    "attributes, rule",
    [
        ({"kernel_shape": [3]}, "one extent for each spatial axis"),
        ({"kernel_shape": [3, 9]}, "must fit the padded input"),
        ({"kernel_shape": [3, 0]}, "at least 1"),
        ({"kernel_shape": [3, 3], "strides": [1]}, "one value for each of 2"),
        ({"kernel_shape": [3, 3], "pads": [1, 1]}, "a begin and an end"),
        ({"kernel_shape": [3, 3], "auto_pad": "SAME"}, "NOTSET"),
    ],
)
def test_windows_that_cannot_be_are_refused(attributes: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidError, match=rule):
        evaluate("MaxPool", floats(0, 1, 1, 5, 5), **attributes)
