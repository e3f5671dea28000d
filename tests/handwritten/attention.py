"""One head of attention: softmax(Q K^T / 8) V for 512 queries and 512 keys of 64 elements, fp16 in and out."""

from __future__ import annotations

import numpy as np

from tests.handwritten import Arrays, Case

LENGTH, WIDTH = 512, 64


def _inputs(rng: np.random.Generator) -> Arrays:
    """Queries of different length: from nearly uniform weights to weights that single out a few keys."""
    spread = rng.uniform(0.1, 3, (LENGTH, 1))
    return {
        "q": (rng.standard_normal((LENGTH, WIDTH)) * spread).astype(np.float16),
        "k": rng.standard_normal((LENGTH, WIDTH)).astype(np.float16),
        "v": rng.standard_normal((LENGTH, WIDTH)).astype(np.float16),
    }


def _expected(inputs: Arrays) -> Arrays:
    q, k, v = (inputs[name].astype(np.float64) for name in "qkv")
    scores = q @ k.T / np.sqrt(WIDTH)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return {"o": weights @ v / weights.sum(axis=1, keepdims=True)}


# The scores are fp16 as in the graph: below 16 they are within 2**-8 of the exact ones, and so are the weights
# relative to theirs. Averaging over keys keeps the result within that of the values, which are below 5.
CASES = [
    Case(
        f"attention-{chip}-{LENGTH}x{WIDTH}",
        "attention.twasm",
        chip,
        _inputs,
        _expected,
        rtol=4e-3,
        atol=4e-3,
        defines=defines,
        macs=2 * LENGTH * LENGTH * WIDTH,
    )
    for chip, defines in (
        ("tw1", {"CLUSTERS": 2, "COMPUTE": 7, "COPIERS": 1, "PIECE": 64, "DIRECT": 0}),
        ("tw2", {"CLUSTERS": 1, "COMPUTE": 16, "COPIERS": 3, "PIECE": 32, "DIRECT": 5}),
    )
]
