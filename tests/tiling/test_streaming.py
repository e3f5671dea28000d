"""Rows that do not fit UB are read piece by piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler.operators.softmax import softmax_of
from compiler.tiling import vector
from tests.tiling.kernels import run
from tests.tiling.test_vector import exact_softmax, softmax


@pytest.mark.parametrize("shape", [(3, 9001), (1, 5000)])
def test_softmax_of_long_rows(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    result = run(vector.schedule, "tiny", {"x": x}, softmax)
    assert "pieces" in result.description
    np.testing.assert_allclose(result.output, exact_softmax(x), rtol=5e-5)


def test_a_sum_over_the_outer_axis() -> None:
    x = np.random.default_rng(6).standard_normal((3001, 7)).astype(np.float32)

    def define(x: Any) -> Any:
        k = te.reduce_axis((0, 3001), "k")
        return te.compute((7,), lambda j: te.sum(x[k, j] * tirx.const(2, "float32"), axis=k), "sum")

    result = run(vector.schedule, "tiny", {"x": x}, define)
    assert "pieces" in result.description
    np.testing.assert_allclose(result.output, 2 * x.astype(np.float64).sum(0), rtol=1e-4, atol=1e-3)


def test_two_reduced_axes() -> None:
    x = np.random.default_rng(7).standard_normal((2, 53, 101)).astype(np.float32)

    def define(x: Any) -> Any:
        a, b = te.reduce_axis((0, 53), "a"), te.reduce_axis((0, 101), "b")
        return te.compute((2,), lambda i: te.max(x[i, a, b], axis=[a, b]), "largest")

    result = run(vector.schedule, "tiny", {"x": x}, define)
    assert "pieces" in result.description
    assert np.array_equal(result.output, x.max((1, 2)))


def test_softmax_of_long_columns_reads_each_column_once_per_stage() -> None:
    """The axes that are reduced lie outside those that are not: they are columns of the tiles nevertheless."""
    x = np.random.default_rng(9).standard_normal((3001, 2)).astype(np.float32)

    def define(data: Any) -> Any:
        rows = [te.reduce_axis((0, 3001), f"k{stage}") for stage in range(2)]
        top = te.compute((2,), lambda j: te.max(data[rows[0], j], axis=rows[0]), "top")
        total = te.compute((2,), lambda j: te.sum(te.exp(data[rows[1], j] - top[j]), axis=rows[1]), "total")
        return te.compute((3001, 2), lambda i, j: te.exp(data[i, j] - top[j]) / total[j], "softmax")

    result = run(vector.schedule, "tiny", {"x": x}, define)
    assert "1 rows of tiles" in result.description or "2 rows of tiles" in result.description
    np.testing.assert_allclose(result.output, exact_softmax(x.T).T, rtol=5e-5)


def test_columns_that_do_not_fit_are_moved_side_by_side() -> None:
    x = np.random.default_rng(10).standard_normal((1, 700, 16)).astype(np.float32)
    found = run(vector.schedule, "tiny", {"x": x}, lambda given: softmax_of(given, axis=1))
    assert "pieces" in found.description
    np.testing.assert_allclose(found.output[0], exact_softmax(x[0].T).T, rtol=5e-5)
    element = run(vector.schedule, "tiny", {"x": x[:, :, :1].copy()}, lambda given: softmax_of(given, axis=1))
    assert found.cycles < 16 * element.cycles  # less than one column after the other
