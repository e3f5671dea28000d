"""RepeatFactors: a number that a row shares is there once for each repeat, out of the way of the row's banks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te
from tvm.script import tirx as T

from compiler.target import load_chip
from compiler.tiling import vector
from passes.tir.repeat_factors import RepeatFactors
from tests.passes.tir.rewriting import keeps
from tests.tiling.kernels import run

TW2 = load_chip("tw2")


def scaled(rows: int, columns: int, dtype: str = "float16") -> Any:
    @T.prim_func(private=True)
    def kernel(y: T.Buffer((rows, columns), dtype)):
        x = T.alloc_buffer((rows, columns), dtype, scope="local.ub")
        v = T.alloc_buffer((rows,), dtype, scope="local.ub")
        f = T.alloc_buffer((rows,), dtype, scope="local.ub")
        for r in range(rows):
            f[r] = T.rsqrt(v[r])
        for r in range(rows):
            for c in range(columns):
                x[r, c] = x[r, c] * f[r]
        for r in range(rows):
            for c in range(columns):
                y[r, c] = x[r, c]

    return kernel


def scripted(kernel: Any) -> str:
    return str(RepeatFactors().run(kernel, TW2).script())


def test_a_factor_for_each_repeat() -> None:
    text = scripted(scaled(16, 1024))
    assert 'f = T.alloc_buffer((8, 128), "float16"' in text
    assert "f[repeat, r] = T.rsqrt(v[r])" in text
    assert "x[r, repeat * 128 + lane] = x[r, repeat * 128 + lane] * f[repeat, r]" in text


def test_factors_lie_side_by_side() -> None:
    @T.prim_func(private=True)
    def kernel(y: T.Buffer((20, 768), "float32")):
        x = T.alloc_buffer((20, 768), scope="local.ub")
        v = T.alloc_buffer((20,), scope="local.ub")
        f = T.alloc_buffer((20, 1), scope="local.ub")
        g = T.alloc_buffer((20,), scope="local.ub")
        for r in range(20):
            f[r, 0] = T.rsqrt(v[r])
        for r in range(20):
            g[r] = v[r] + f[r, 0]
        for r in range(20):
            for c in range(768):
                x[r, c] = (x[r, c] - g[r]) * f[r, 0]
        for r in range(20):
            for c in range(768):
                y[r, c] = x[r, c]

    text = scripted(kernel)
    assert "factors = T.alloc_buffer((12, 64)" in text and text.count("alloc_buffer") == 3
    assert "factors[repeat, r + 24] = v[r] + factors[repeat, r]" in text
    assert "(x[r, repeat * 64 + lane] - factors[repeat, r + 24]) * factors[repeat, r]" in text


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (16, 1000),  # not whole repeats
        (16, 640),  # rows begin in other groups than those before them
        (160, 512),  # more factors than a repeat has lanes
        (2, 1024),  # copies cost more than conflicts
    ],
)
def test_rows_that_stay_as_they_are(rows: int, columns: int) -> None:
    keeps(RepeatFactors(), scaled(rows, columns), TW2)


def test_factors_of_a_fold_or_from_afar_or_wider_than_the_rows_stay() -> None:
    @T.prim_func(private=True)
    def kernel(far: T.Buffer((16,), "float16"), y: T.Buffer((16, 1024), "float16")):
        x = T.alloc_buffer((16, 1024), "float16", scope="local.ub")
        z = T.alloc_buffer((16, 1024), "float32", scope="local.ub")
        f = T.alloc_buffer((16,), "float16", scope="local.ub")
        g = T.alloc_buffer((16,), "float16", scope="local.ub")
        w = T.alloc_buffer((16,), "float32", scope="local.ub")
        for r in range(16):
            for c in range(1024):
                f[r] = T.max(f[r], x[r, c])
        for r in range(16):
            g[r] = far[r]
        for r in range(16):
            w[r] = T.Cast("float32", g[r])
        for r in range(16):
            for c in range(1024):
                x[r, c] = (x[r, c] - f[r]) * g[r]
        for r in range(16):
            for c in range(1024):
                z[r, c] = T.Cast("float32", x[r, c]) * w[r]
        for r in range(16):
            for c in range(1024):
                y[r, c] = x[r, c]

    keeps(RepeatFactors(), kernel, TW2)


@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
@pytest.mark.parametrize("shape", [(300, 1024), (3, 40, 512), (33, 96)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_kernels_with_repeated_factors_compute_the_same(chip: str, shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)

    def build(given: Any) -> Any:
        column = te.reduce_axis((0, shape[-1]), "column")
        largest = te.compute(shape[:-1], lambda *i: te.max(given[(*i, column)], axis=column), "largest")
        factor = te.compute(shape[:-1], lambda *i: largest[i] * largest[i] + largest[i], "factor")
        return te.compute(shape, lambda *i: given[i] * factor[i[:-1]], "y")

    found = run(vector.schedule, chip, {"x": x}, build)
    wide = x.astype(np.float64)
    top = wide.max(axis=-1, keepdims=True)
    np.testing.assert_allclose(found.output, wide * (top * top + top), rtol=4e-3, atol=1e-3)
