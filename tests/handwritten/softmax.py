"""Softmax over the rows of an fp16 matrix on all cores."""

from __future__ import annotations

import numpy as np

from tests.handwritten import Arrays, Case

ROWS, COLS = 4096, 1024


def _inputs(rng: np.random.Generator) -> Arrays:
    """Rows of different spread and offset: from nearly uniform results to results near one."""
    spread = rng.uniform(0.1, 8, (ROWS, 1))
    offset = rng.uniform(-20, 20, (ROWS, 1))
    return {"x": (rng.standard_normal((ROWS, COLS)) * spread + offset).astype(np.float16)}


def _expected(inputs: Arrays) -> Arrays:
    x = inputs["x"].astype(np.float64)
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    return {"y": exponentials / exponentials.sum(axis=1, keepdims=True)}


# Three roundings to fp16 reach every result, each within 2**-11 of its value; below 2**-14 fp16 is spaced by 2**-24.
CASES = [
    Case(f"softmax-{chip}-{ROWS}x{COLS}", "softmax.twasm", chip, _inputs, _expected, rtol=2e-3, atol=1.2e-7)
    for chip in ("tw1", "tw2")
]
