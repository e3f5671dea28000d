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


def matmul(source: str, chip: str, m: int, k: int, n: int, *, baseline: bool = True) -> Case:
    """M x K times K x N; results are rounded once, to fp16, from sums that err by less than 1e-4."""
    name = f"{m}" if m == k == n else f"{m}x{k}x{n}"
    return Case(
        f"gemm-{chip}-{name}",
        source,
        chip,
        _inputs(m, k, n),
        _expected,
        rtol=6e-4,
        atol=2e-4,
        defines={"M": m, "K": k, "N": n},
        macs=m * k * n,
        baseline=baseline,
    )


# tw1 is bound by DDR and stores through UB, tw2 by its cube and stores from L0C: each has a text of its own. So has
# what does not fit into L1 and is only timed, for calibration.
CASES = [
    matmul("gemm_tw1.twasm", "tw1", 1024, 1024, 1024),
    matmul("gemm_tw1.twasm", "tw1", 1000, 777, 1000),
    matmul("gemm_tw2.twasm", "tw2", 1024, 1024, 1024),
    matmul("gemm_tw2.twasm", "tw2", 1000, 777, 1000),
    matmul("gemm_tw2_large.twasm", "tw2", 6144, 6144, 6144, baseline=False),
]
