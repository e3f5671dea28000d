"""Matrix multiplication C = A B on all cores: fp16 in and out, fp32 sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.handwritten import Arrays, Case


def _inputs(m: int, k: int, n: int) -> Callable[[np.random.Generator], Arrays]:
    def make(rng: np.random.Generator) -> Arrays:
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        return {"a": a.astype(np.float16), "b": b.astype(np.float16)}

    return make


def _expected(inputs: Arrays) -> Arrays:
    return {"c": inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)}


def _case(chip: str, m: int, k: int, n: int) -> Case:
    name = f"{m}" if m == k == n else f"{m}x{k}x{n}"  # M x K x N
    return Case(
        f"gemm-{chip}-{name}",
        f"gemm_{chip}.twasm",
        chip,
        _inputs(m, k, n),
        _expected,
        rtol=1e-3,
        atol=1e-3,
        defines={"M": m, "K": k, "N": n},
        macs=m * k * n,
    )


CASES = [
    _case(chip, *size) for chip in ("tw1", "tw2") for size in [(1024, 1024, 1024), (1000, 777, 1000)]
]
