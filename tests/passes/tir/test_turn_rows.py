"""TurnRows: short rows that are summed lie by columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te
from tvm.script import tirx as T

from compiler.target import load_chip
from compiler.tiling import vector
from passes.tir.turn_rows import TurnRows
from tests.passes.tir.rewriting import keeps
from tests.passes.tir.test_pad_rows import strides
from tests.tiling.kernels import random, run

TW1, TW2 = load_chip("tw1"), load_chip("tw2")


def summed(rows: int, columns: int, dtype: str = "float16") -> Any:
    @T.prim_func(private=True)
    def kernel(x: T.Buffer((rows, columns), dtype), y: T.Buffer((rows,), dtype)):
        s = T.alloc_buffer((rows, columns), dtype, scope="local.ub")
        t = T.alloc_buffer((rows,), dtype, scope="local.ub")
        for r in range(rows):
            for c in range(columns):
                s[r, c] = x[r, c]
        for r in range(rows):
            t[r] = T.Cast(dtype, 0.0)
        for r in range(rows):
            for c in range(columns):
                t[r] = t[r] + s[r, c]
        for r in range(rows):
            y[r] = t[r]

    return kernel


def summed_and_stored() -> Any:
    @T.prim_func(private=True)
    def kernel(x: T.Buffer((256, 49), "float16"), z: T.Buffer((256, 49), "float16")):
        s = T.alloc_buffer((256, 49), "float16", scope="local.ub")
        t = T.alloc_buffer((256,), "float16", scope="local.ub")
        for r, c in T.grid(256, 49):
            s[r, c] = x[r, c]
        for r, c in T.grid(256, 49):
            t[r] = t[r] + s[r, c]
        for r, c in T.grid(256, 49):
            z[r, c] = s[r, c]

    return kernel


@pytest.mark.parametrize(("rows", "columns", "dtype", "pitch"), [
    (256, 49, "float16", 256),
    (250, 49, "float16", 256),  # columns begin with a block
    (64, 9, "float32", 64),
    (63, 2, "float32", 64),
])  # fmt: skip
def test_short_rows_of_which_there_are_many_are_turned(rows: int, columns: int, dtype: str, pitch: int) -> None:
    result = TurnRows().run(summed(rows, columns, dtype), TW1)
    assert strides(result) == {"s": (1, pitch)}
    keeps(TurnRows(), result, TW1)


@pytest.mark.parametrize(("rows", "columns"), [(16, 49), (256, 200), (256, 1)])
def test_few_rows_and_long_ones_stay_as_they_are(rows: int, columns: int) -> None:
    keeps(TurnRows(), summed(rows, columns), TW1)


def test_rows_that_something_else_reads_stay_as_they_are() -> None:
    keeps(TurnRows(), summed_and_stored(), TW1)


def test_a_full_memory_stays_as_it_is() -> None:
    rows = TW1.memory.ub_bytes // (2 * 2 * 49) - 12  # what is summed fits twice; sums are there as well
    keeps(TurnRows(), summed(rows, 49), TW1)


@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
@pytest.mark.parametrize(("shape", "dtype"), [((2, 200, 7, 7), "float16"), ((3, 130, 5), "float32")])
@pytest.mark.parametrize("fold", ["sum", "max"])
def test_results_are_the_same(chip: str, shape: tuple[int, ...], dtype: str, fold: str) -> None:
    x, is_sum = random(np.random.default_rng(2), dtype, *shape), fold == "sum"

    def define(x: te.Tensor) -> te.Tensor:
        axes = [te.reduce_axis((0, extent)) for extent in shape[2:]]
        folded = te.sum if is_sum else te.max
        return te.compute(
            shape[:2],
            lambda n, c: folded(x[(n, c, *axes)].astype("float32") if is_sum else x[(n, c, *axes)], axis=axes),
            "folded",
        )

    result = run(vector.schedule, chip, {"x": x}, define)
    expected = getattr(np, fold)(x.astype(np.float64), axis=tuple(range(2, len(shape))))
    np.testing.assert_allclose(result.output, expected, rtol=1e-4, atol=1e-3)
