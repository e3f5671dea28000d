"""Are a model's outputs what they should be, under the tolerance of its manifest?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from compiler.report.comparison import is_near
from models.manifest import Tolerance


@dataclass(frozen=True)
class Match:
    """How one output compares; ``fault`` is empty where it is within the tolerance."""

    output: str
    measure: str  # what ``value`` is: error, cosine or overlap
    value: float
    fault: str = ""


def compare(
    expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray], tolerance: Tolerance, precision: str
) -> Iterator[Match]:
    """One match per expected output; fp32 is compared by element, less precise types by direction."""
    for name, wanted in expected.items():
        if name not in actual:
            yield Match(name, "error", float("inf"), "is missing")
        elif wanted.dtype.kind != "f":
            yield _integers(name, wanted, actual[name], 1.0 if precision == "fp32" else tolerance.overlap)
        elif wanted.shape != actual[name].shape:
            yield Match(name, "error", float("inf"), f"has shape {actual[name].shape}, not {wanted.shape}")
        elif not np.isfinite(actual[name].astype(np.float64)).all():
            yield Match(name, "error", float("inf"), "has values that are not finite")
        elif precision == "fp32" and tolerance.elements:
            yield _elements(name, wanted, actual[name], tolerance)
        else:
            yield _direction(name, wanted, actual[name], tolerance.cosine)


def _elements(name: str, expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance) -> Match:
    """``value``: the largest error as a share of what is allowed."""
    error = np.abs(actual.astype(np.float64) - expected)
    share = float((error / (tolerance.atol + tolerance.rtol * np.abs(expected.astype(np.float64)))).max(initial=0.0))
    fault = f"error is {share:.3g} times the tolerance" if share > 1 else ""
    return Match(name, "error", share, fault)


def _direction(name: str, expected: np.ndarray, actual: np.ndarray, least: float) -> Match:
    first, second = (array.astype(np.float64).ravel() for array in (expected, actual))
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    cosine = float(first @ second) / lengths if lengths else float((first == second).all())
    if cosine < least:
        return Match(name, "cosine", cosine, f"cosine is {cosine:.5f}, below {least}")
    fault = "" if is_near(first, second, least) else f"cosine is {cosine:.5f}, but lengths are not the same"
    return Match(name, "cosine", cosine, fault)


def _integers(name: str, expected: np.ndarray, actual: np.ndarray, least: float) -> Match:
    """Rows in common; when all have to be, they have to be in the same order as well."""
    if least == 1:
        equal = expected.shape == actual.shape and bool((expected == actual).all())
        return Match(name, "overlap", float(equal), "" if equal else "is not equal")
    rows, others = ({tuple(row) for row in np.atleast_2d(array).tolist()} for array in (expected, actual))
    overlap = len(rows & others) / max(len(rows | others), 1)
    return Match(name, "overlap", overlap, f"overlap is {overlap:.3f}, below {least}" if overlap < least else "")
