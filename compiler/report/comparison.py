"""How far arrays are from what they should be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Tolerance:
    """An element is right within ``atol + rtol * |expected|``.

    An array of less precise floats is right, too, that is no further from the expected one, as a share of its length,
    than one of the same length whose cosine with it is ``cosine``. Integers are equal, but for those that count
    ``steps`` of something that was rounded: they are right as floats are, or within so many. Floats that are finite in
    both, and the ``largest`` that a model computes with or beyond it, as masks are, are right if their signs are.
    """

    rtol: float = 1e-3
    atol: float = 1e-4
    cosine: float | None = None
    steps: int = 0
    largest: float | None = None


@dataclass(frozen=True)
class Comparison:
    """One tensor against its reference; ``fault`` is empty where it is right."""

    name: str
    shape: tuple[int, ...]
    max_error: float
    cosine: float
    wrong: int  # elements outside the tolerance
    fault: str = ""


def compare(name: str, expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance) -> Comparison:
    """NaN equals NaN, an infinity the same infinity; bools, and integers that count no steps, have to be equal."""
    if expected.shape != actual.shape:
        fault = f"has shape {list(actual.shape)}; expected is {list(expected.shape)}"
        return Comparison(name, expected.shape, float("inf"), 0.0, expected.size, fault)
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    if tolerance.largest is not None and expected.dtype.kind not in "biu":
        _mask(wide, other, tolerance.largest)
    same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    with np.errstate(all="ignore"):
        error = np.where(same, 0.0, np.abs(other - wide))
        allowed = tolerance.steps or tolerance.atol + tolerance.rtol * np.abs(wide)
    exact = expected.dtype.kind == "b" or (expected.dtype.kind in "iu" and not tolerance.steps)
    wrong = ~same if exact else ~same & ~(error <= np.where(np.isfinite(wide), allowed, 0.0))
    first = int(np.flatnonzero(wrong)[0]) if wrong.any() else -1
    similarity = _cosine(wide, other)
    finite = bool((same | (np.isfinite(wide) & np.isfinite(other))).all())
    near = not exact and finite and tolerance.cosine is not None and is_near(wide, other, tolerance.cosine)
    is_right = first < 0 or near
    fault = ""
    if not is_right:
        place = [int(i) for i in np.unravel_index(first, expected.shape)]
        count = f"{int(wrong.sum()):,} of {expected.size:,} elements are wrong"
        fault = f"{count}, first at {place}: {actual.flat[first]}, expected {expected.flat[first]}"
    largest = float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))
    return Comparison(name, expected.shape, largest, similarity, int(wrong.sum()), fault)


def _mask(expected: np.ndarray, actual: np.ndarray, largest: float) -> None:
    """Make infinities of what is at the largest number, or beyond, in both."""
    finite = np.isfinite(expected) & np.isfinite(actual)
    beyond = (np.minimum(np.abs(expected), np.abs(actual)) >= largest) & finite
    for array in (expected, actual):
        array[beyond] = np.copysign(np.inf, array[beyond])


def is_near(expected: np.ndarray, actual: np.ndarray, cosine: float) -> bool:
    """Whether arrays are as near as two of one length with that cosine, by what is finite in both."""
    finite = np.isfinite(expected) & np.isfinite(actual)
    a, b = expected[finite], actual[finite]
    return bool(np.linalg.norm(a - b) <= np.sqrt(2 * (1 - cosine)) * np.linalg.norm(a))


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Of the elements that are finite in both."""
    finite = np.isfinite(first) & np.isfinite(second)
    a, b = first[finite], second[finite]
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else float((a == b).all())
