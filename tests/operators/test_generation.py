"""Tensors made of shapes and numbers."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import TilewrightError
from tests.operators.evaluate import evaluate


@pytest.mark.parametrize(("start", "limit", "delta"), [(0, 7, 1), (5, -4, -3), (3, 3, 1), (0.5, 3.1, 0.25), (2, 9, 4)])
def test_range(start: float, limit: float, delta: float) -> None:
    dtype = np.float32 if isinstance(start, float) else np.int64
    numbers = [np.array(number, dtype) for number in (start, limit, delta)]
    got = evaluate("Range", *numbers, constants=[0, 1, 2])
    assert got.dtype == (np.float32 if dtype is np.float32 else np.int32)
    np.testing.assert_allclose(got, np.arange(start, limit, delta), rtol=1e-6)


@pytest.mark.parametrize("value", [None, np.array([3], np.int64), np.array([True]), np.array([1.5], np.float16)])
def test_constant_of_shape(value: np.ndarray | None) -> None:
    got = evaluate("ConstantOfShape", np.array([2, 3]), constants=[0], value=value)
    np.testing.assert_array_equal(got, np.full((2, 3), 0 if value is None else value[0]))


@pytest.mark.parametrize("k", [-(2**63), -2, 0, 1, 2**40])
def test_eye_like(k: int) -> None:
    x = np.zeros((3, 5), np.int32)
    np.testing.assert_array_equal(evaluate("EyeLike", x, k=k), np.eye(3, 5, k, dtype=np.int32))
    assert evaluate("EyeLike", x, dtype=1).dtype == np.float32


def test_shape_and_size() -> None:
    x = np.zeros((2, 3, 5), np.float32)
    assert evaluate("Shape", x).tolist() == [2, 3, 5]
    assert evaluate("Shape", x, start=-2, end=-1).tolist() == [3]
    assert evaluate("Size", x) == 30


@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(periodic: int) -> None:
    given = {"constants": [0], "periodic": periodic}
    count = 9
    turns = 2 * np.pi * np.arange(count) / (count if periodic else count - 1)
    np.testing.assert_allclose(evaluate("HannWindow", np.array(count), **given), 0.5 - 0.5 * np.cos(turns), atol=1e-6)
    np.testing.assert_allclose(
        evaluate("BlackmanWindow", np.array(count), **given),
        0.42 - 0.5 * np.cos(turns) + 0.08 * np.cos(2 * turns),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        evaluate("HammingWindow", np.array(count), **given), 25 / 46 - 21 / 46 * np.cos(turns), atol=1e-6
    )


def test_random_numbers_are_refused() -> None:
    with pytest.raises(TilewrightError, match=r"TW2112.*RandomNormal: random numbers"):
        evaluate("RandomNormal", shape=[2, 3])
