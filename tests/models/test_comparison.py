"""The comparison can fail: on every way in which outputs are not what they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.comparison import Match, compare
from models.manifest import Tolerance

VALUES = np.array([[1.0, -2.0, 3.0]], np.float32)
ROWS = np.arange(30).reshape(10, 3)


def match(expected: Any, actual: Any, precision: str = "fp32") -> Match:
    (found,) = compare({"y": expected}, {"y": actual}, Tolerance(), precision)
    return found


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("values", [VALUES, ROWS, np.zeros((2, 0), np.float32), np.zeros(3, np.float32)])
def test_equal_outputs_match(values: np.ndarray, precision: str) -> None:
    assert not match(values, values, precision).fault


def test_fp32_is_compared_by_element() -> None:
    assert not match(VALUES, VALUES * np.float32(1.0009)).fault
    assert "1.88 times the tolerance" in match(np.array([1.0]), np.array([1.002068])).fault


def test_fp16_is_compared_by_direction() -> None:
    assert not match(VALUES, VALUES.astype(np.float16), "fp16").fault
    assert "cosine" in match(VALUES, VALUES + 1, "fp16").fault
    assert "cosine" in match(VALUES, VALUES * 0, "fp16").fault
    assert "lengths" in match(VALUES, VALUES * 2, "fp16").fault


def test_integers_are_equal_in_fp32_and_overlap_in_fp16() -> None:
    swapped = ROWS[::-1]
    assert match(ROWS, swapped).fault
    assert not match(ROWS, swapped, "fp16").fault
    assert not match(ROWS, ROWS[:9], "fp16").fault
    assert "overlap is 0.800" in match(ROWS, ROWS[:8], "fp16").fault


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_missing_misshapen_and_infinite_outputs_are_faults(precision: str) -> None:
    (missing,) = compare({"y": VALUES}, {}, Tolerance(), precision)
    assert "missing" in missing.fault
    assert "shape" in match(VALUES, VALUES[:, :2], precision).fault
    assert "finite" in match(VALUES, VALUES * np.float32("nan"), precision).fault
