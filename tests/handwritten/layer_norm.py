"""Layer norm over the rows of an fp16 matrix, with gamma and beta, on all cores."""

from __future__ import annotations

import numpy as np

from tests.handwritten import Arrays, Case

ROWS, COLS = 4096, 1024
EPSILON = 1e-5


def _inputs(rng: np.random.Generator) -> Arrays:
    """Rows of different spread, with means of up to their standard deviation."""
    spread = np.exp(rng.uniform(np.log(0.01), np.log(100), (ROWS, 1)))
    mean = rng.uniform(-1, 1, (ROWS, 1)) * spread
    return {
        "x": (rng.standard_normal((ROWS, COLS)) * spread + mean).astype(np.float16),
        "gamma": rng.uniform(0.5, 1.5, COLS).astype(np.float16),
        "beta": (0.1 * rng.standard_normal(COLS)).astype(np.float16),
    }


def _expected(inputs: Arrays) -> Arrays:
    x, gamma, beta = (inputs[name].astype(np.float64) for name in ("x", "gamma", "beta"))
    difference = x - x.mean(axis=1, keepdims=True)
    variance = np.square(difference).mean(axis=1, keepdims=True)
    return {"y": difference / np.sqrt(variance + EPSILON) * gamma + beta}


CASES = [
    Case(f"layer_norm-{chip}-{ROWS}x{COLS}", "layer_norm.twasm", chip, _inputs, _expected, rtol=2e-3, atol=1e-3)
    for chip in ("tw1", "tw2")
]
