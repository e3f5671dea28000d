"""Views hold the same bytes: against numpy's reshape, every kind of grouping of axes."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import TilewrightError
from compiler.operators import TensorType, find_called
from tests.operators.evaluate import evaluate

DTYPES = ["float32", "float16", "int32", "int8", "bool"]


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.arange(int(np.prod(shape))) % 101).reshape(shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "wanted", "expected"),
    [
        ((2, 3, 5), [-1], (30,)),
        ((2, 3, 5), [0, -1], (2, 15)),
        ((2, 3, 5), [5, 6], (5, 6)),
        ((4, 6), [2, 12], (2, 12)),
        ((4, 6), [3, 2, 4], (3, 2, 4)),
        ((1, 7, 1), [7], (7,)),
        ((7,), [1, 7, 1, 1], (1, 7, 1, 1)),
        ((1,), [], ()),
        ((), [1, 1], (1, 1)),
        ((2, 6, 7), [4, 3, 1, 7], (4, 3, 1, 7)),
    ],
)
def test_reshape(shape: tuple[int, ...], wanted: list[int], expected: tuple[int, ...]) -> None:
    x = numbers(*shape)
    got = evaluate("Reshape", x, np.array(wanted, np.int64), constants=[1])
    np.testing.assert_array_equal(got, x.reshape(expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_element_types(dtype: str) -> None:
    x = numbers(3, 4, dtype=dtype)
    got = evaluate("Reshape", x, np.array([2, 6]), constants=[1])
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x.reshape(2, 6))


@pytest.mark.parametrize("axis", [-3, -1, 0, 1, 2, 3])
def test_flatten(axis: int) -> None:
    x = numbers(2, 3, 5)
    got = evaluate("Flatten", x, axis=axis)
    np.testing.assert_array_equal(got, x.reshape(int(np.prod(x.shape[:axis])) if axis else 1, -1))


def test_squeeze_takes_its_axes_from_the_input_the_attribute_or_the_shape() -> None:
    x = numbers(1, 3, 1, 5)
    assert evaluate("Squeeze", x).shape == (3, 5)
    assert evaluate("Squeeze", x, np.array([-2]), constants=[1]).shape == (1, 3, 5)
    assert evaluate("Squeeze", x, axes=[0]).shape == (3, 1, 5)
    with pytest.raises(TilewrightError, match="TW2108"):
        evaluate("Squeeze", x, axes=[1])


def test_unsqueeze() -> None:
    x = numbers(3, 5)
    assert evaluate("Unsqueeze", x, np.array([0, -1, 2]), constants=[1]).shape == (1, 3, 1, 5, 1)[:5]
    np.testing.assert_array_equal(evaluate("Unsqueeze", x, axes=[1])[:, 0], x)
    with pytest.raises(TilewrightError, match="TW2111"):
        evaluate("Unsqueeze", x, axes=[0, -3, 0])


def test_reshape_refuses_another_number_of_elements() -> None:
    with pytest.raises(TilewrightError, match=r"Reshape: .*as many elements"):
        evaluate("Reshape", numbers(2, 3), np.array([4, -1]), constants=[1])


def test_dropout_keeps_everything() -> None:
    x = numbers(2, 3)
    kept, mask = evaluate("Dropout", x)
    np.testing.assert_array_equal(kept, x)
    assert mask.all()


def test_bit_cast() -> None:
    x = np.array([0, 1, -1, 1.5, np.inf], np.float32)
    np.testing.assert_array_equal(evaluate("BitCast", x, to=6), x.view(np.int32))
    np.testing.assert_array_equal(evaluate("BitCast", x.view(np.int32), to=1), x)
    truth = np.array([True, False])
    np.testing.assert_array_equal(evaluate("BitCast", truth, to=2), truth.view(np.uint8))
    np.testing.assert_array_equal(evaluate("BitCast", truth.view(np.uint8), to=9), truth)
    with pytest.raises(TilewrightError, match="TW2109"):
        evaluate("BitCast", x, to=10)
    with pytest.raises(TilewrightError, match="TW2109"):
        evaluate("BitCast", x, to=7)


@pytest.mark.parametrize(
    ("name", "known", "attributes", "is_view"),
    [
        ("ReduceSum", [np.array([1])], {"keepdims": 0}, True),
        ("ReduceMax", [np.array([1, 3])], {}, True),
        ("ReduceMean", [np.array([], np.int64)], {"noop_with_empty_axes": 1}, True),
        ("ReduceL1", [np.array([1])], {}, False),  # makes negative numbers positive
        ("ReduceSum", [np.array([2])], {}, False),
        ("Transpose", [], {"perm": (1, 0, 3, 2)}, True),
        ("Transpose", [], {"perm": (2, 1, 0, 3)}, False),
        ("Slice", [np.array([0]), np.array([99]), np.array([2])], {}, True),
        ("Slice", [np.array([1]), np.array([99]), np.array([2])], {}, False),
        ("Gather", [np.array(0)], {"axis": 1}, True),
        ("Gather", [np.array(0)], {"axis": 0}, False),
    ],
)
def test_what_leaves_elements_in_order_is_a_view(
    name: str, known: list[np.ndarray], attributes: dict[str, object], is_view: bool
) -> None:
    x = TensorType((2, 1, 3, 1), "float16")
    (function,) = find_called(name).kernels([x, *known], attributes)
    assert (function.attrs["tw.schedule"] == "view") == is_view
