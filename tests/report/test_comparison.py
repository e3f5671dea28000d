"""Right is within the tolerance, whatever the values; wrong is said with its place."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.report.comparison import Tolerance, compare

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("expected", "actual", "is_right"),
    [
        ([1.0, 2.0], [1.0005, 2.0], True),
        ([1.0, 2.0], [1.002, 2.0], False),
        ([0.0], [9e-5], True),
        ([NAN, INF, -INF], [NAN, INF, -INF], True),
        ([INF], [-INF], False),
        ([INF], [3e38], False),
        ([NAN], [0.0], False),
        ([0.0], [NAN], False),
        ([1.0], [INF], False),
        ([], [], True),
    ],
)
def test_floats(expected: list[float], actual: list[float], is_right: bool) -> None:
    found = compare("x", np.array(expected, np.float32), np.array(actual, np.float32), Tolerance())
    assert (not found.fault) == is_right
    assert (found.wrong == 0) == is_right


def test_integers_and_bools_are_equal_or_wrong() -> None:
    found = compare("x", np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]]), Tolerance(10, 10, 0.0))
    assert found.fault == "1 of 4 elements are wrong, first at [1, 1]: 5, expected 4"
    assert compare("x", np.array([True]), np.array([False]), Tolerance()).fault
    assert not compare("x", np.array([True]), np.array([True]), Tolerance()).fault


def test_less_precise_floats_may_be_compared_by_direction() -> None:
    expected = np.linspace(-1, 1, 100, dtype=np.float32)
    actual = expected.astype(np.float16).astype(np.float32)
    assert compare("x", expected, actual, Tolerance(0, 0)).fault
    assert not compare("x", expected, actual, Tolerance(0, 0, 0.999)).fault
    assert compare("x", expected, -actual, Tolerance(0, 0, 0.999)).fault
    assert not compare("x", expected, 1.04 * actual, Tolerance(0, 0, 0.999)).fault
    assert compare("x", expected, 5 * actual, Tolerance(0, 0, 0.999)).fault, "the direction alone is right"
    assert not compare("x", 0 * expected, 0 * actual, Tolerance(0, 0, 0.999)).fault
    assert compare("x", 0 * expected, actual, Tolerance(0, 0, 0.999)).fault


@pytest.mark.parametrize(("expected", "actual"), [(INF, -INF), (NAN, INF), (INF, NAN)])
def test_what_is_not_finite_has_no_direction_but_its_own(expected: float, actual: float) -> None:
    right, wrong = (np.array([1.0, 2.0, one], np.float32) for one in (expected, actual))
    assert compare("x", right, wrong, Tolerance(cosine=0.999)).fault
    assert not compare("x", right, right * np.float32(1.01), Tolerance(cosine=0.999)).fault


def test_shapes_have_to_be_the_same() -> None:
    found = compare("x", np.zeros((2, 3)), np.zeros((3, 2)), Tolerance())
    assert found.fault == "has shape [3, 2]; expected is [2, 3]"


def test_integers_that_count_steps_may_be_one_off_or_near() -> None:
    expected = np.arange(100, dtype=np.uint8)
    for actual in (expected + np.uint8(1), np.where(expected == 50, 54, expected).astype(np.uint8)):
        assert compare("x", expected, actual, Tolerance(0, 0, 0.999)).fault
        assert not compare("x", expected, actual, Tolerance(0, 0, 0.999, steps=1)).fault
    assert compare("x", expected, expected[::-1], Tolerance(0, 0, 0.999, steps=1)).fault
    assert compare("x", expected, expected + np.uint8(2), Tolerance(steps=1)).wrong == 100


def test_masks_are_the_largest_number_and_have_no_length() -> None:
    expected = np.array([-3.4e38, 1.0, 3.4e38, 2.0], np.float32)
    actual = np.array([-65504.0, 1.0, 65504.0, 2.0], np.float32)
    masks = Tolerance(cosine=0.999, largest=65504.0)
    found = compare("x", expected, actual, masks)
    assert (found.fault, found.max_error, found.wrong) == ("", 0.0, 0)
    assert compare("x", expected, actual, Tolerance(cosine=0.999)).fault
    assert compare("x", expected, actual * [1, -1, 1, 1], masks).fault, "the mask is longer than all else"
    assert compare("x", expected, actual * [-1, 1, 1, 1], masks).fault
    assert compare("x", expected, np.array([-INF, 1.0, 65504.0, 2.0]), masks).fault
    assert compare("x", np.array([3 << 30]), np.array([4 << 30]), masks).fault, "integers have no such number"
