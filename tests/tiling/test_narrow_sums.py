"""Sums in the narrower type that their operator allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler.tiling import vector
from compiler.tiling.narrow_sums import narrowed
from tests.tiling.kernels import run
from tests.tiling.test_late_division import stages

ALLOWED = {"tw.sum": "bfloat16"}


def halved(attrs: dict[str, str]) -> Any:
    """Half of the sums of squares of columns."""

    def define(x: Any) -> Any:
        k = te.reduce_axis((0, x.shape[0]), "k")
        wide = lambda *i: x[i].astype("float32")  # noqa: E731
        sums = te.compute(x.shape[1:], lambda j: te.sum(wide(k, j) * wide(k, j), axis=k), "sums", attrs=attrs)
        return te.compute(x.shape[1:], lambda j: sums[j] * tirx.const(0.5, "float32"), "half")

    return define


def kernel(define: Any) -> Any:
    x = te.placeholder((64, 32), "float16", "x")
    return te.create_prim_func([x, define(x)])


def test_an_allowed_sum_is_rounded_to_its_type_and_read_from_it() -> None:
    after = stages(narrowed(kernel(halved(ALLOWED))))
    assert after["sums"].startswith('sums[v_j] = sums[v_j] + T.Cast("bfloat16", T.Cast("float32", x[v_k, v_j])')
    assert after["half"] == 'half[v_j] = T.Cast("float32", sums[v_j]) * T.float32(0.5)'


def test_other_sums_and_results_stay() -> None:
    def result(x: Any) -> Any:
        k = te.reduce_axis((0, 64), "k")
        return te.compute((32,), lambda j: te.sum(x[k, j].astype("float32"), axis=k), "sums", attrs=ALLOWED)

    for define in (halved({}), result):
        func = kernel(define)
        assert narrowed(func) is func


@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
def test_squares_of_all_numbers_in_fp16_are_summed(chip: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((64, 32)) * np.exp(rng.uniform(np.log(1e-4), np.log(1e4), (1, 32)))).astype(np.float16)
    found = run(vector.schedule, chip, {"x": x}, halved(ALLOWED))
    # What is read in pieces would be rounded for each of them.
    assert ("vmulcast.fp16.bf16" in str(found.func)) == ("pieces" not in found.description)
    # Squares and their sum are rounded to bfloat16.
    np.testing.assert_allclose(found.output, np.square(x.astype(np.float64)).sum(0) / 2, rtol=2 * 2.0**-9)


def test_squares_of_the_type_of_their_sum_are_not_rounded() -> None:
    x = (np.random.default_rng(0).standard_normal((64, 32)) * 1e-3).astype(np.float16)  # their squares are denormal
    found = run(vector.schedule, "tw2", {"x": x}, halved({"tw.sum": "float16"}))
    assert "vcsqsum.fp16" in str(found.func)
    np.testing.assert_allclose(found.output, np.square(x.astype(np.float64)).sum(0) / 2, rtol=2.0**-10)
