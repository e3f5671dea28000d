"""Products of matrices, as tiled for every chip, against numpy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

from compiler.operators.matmul import gemm, matmul, uncast_product
from compiler.target import load_chip
from compiler.tiling import matmul as template
from compiler.tiling.matmul_problem import Problem
from compiler.tiling.matmul_tiles import candidates
from compiler.tiling.matmul_work import work_of
from compiler.tiling.template import NoFeasibleTile
from tests.tiling.kernels import exact, random, run

CHIPS = ("tw1", "tw2", "tiny")
# One rounding of a sum of K products of numbers around one.
TOLERANCE = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


def check(chip: str, arrays: dict[str, Any], define: Any, expected: Any, tolerance: float, attempt: int = 0) -> Any:
    result = run(template.schedule, chip, arrays, define, attempt)
    wanted = expected(*exact(list(arrays.values())))
    assert result.output.shape == wanted.shape
    np.testing.assert_allclose(result.output.astype(np.float64), wanted, rtol=tolerance, atol=tolerance * 8)
    return result


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 64, 50), (50, 64, 1), (37, 29, 41), (17, 1, 19), (64, 128, 48)])
def test_shapes(chip: str, dtype: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m * k * n)
    of = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays = {"a": random(rng, of, m, k), "b": random(rng, of, k, n)}
    check(chip, arrays, matmul, np.matmul, TOLERANCE[dtype])


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("transposed", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_transposed(chip: str, transposed: tuple[bool, bool], dtype: str) -> None:
    rng = np.random.default_rng(1)
    a = random(rng, dtype, *((29, 37) if transposed[0] else (37, 29)))
    b = random(rng, dtype, *((41, 29) if transposed[1] else (29, 41)))

    def define(a: Any, b: Any) -> Any:
        return uncast_product(a, b, transpose_a=transposed[0], transpose_b=transposed[1])

    def expected(a: Any, b: Any) -> Any:
        return (a.T if transposed[0] else a) @ (b.T if transposed[1] else b)

    check(chip, {"a": a, "b": b}, define, expected, 0 if dtype == "int8" else 2e-6)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 37, 20), (3, 20, 33)),
        ((2, 3, 17, 20), (20, 33)),
        ((2, 1, 17, 20), (3, 20, 33)),
        ((17, 20), (5, 20, 33)),
        ((20,), (20, 33)),
        ((33, 20), (20,)),
        ((20,), (20,)),
    ],
)
def test_batches_and_vectors(chip: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(2)
    arrays = {"a": random(rng, "float16", *shapes[0]), "b": random(rng, "float16", *shapes[1])}
    check(chip, arrays, matmul, np.matmul, TOLERANCE["float16"])


@pytest.mark.parametrize("chip", CHIPS)
def test_int8_is_exact(chip: str) -> None:
    rng = np.random.default_rng(3)
    arrays = {"a": random(rng, "int8", 29, 100), "b": random(rng, "int8", 100, 41)}
    check(chip, arrays, uncast_product, np.matmul, 0)


@pytest.mark.parametrize("chip", CHIPS)
def test_slaves_follow_in_ub(chip: str) -> None:
    rng = np.random.default_rng(4)
    arrays = {
        "a": random(rng, "float16", 50, 37),
        "b": random(rng, "float16", 37, 70),
        "row": random(rng, "float16", 70),
        "residual": random(rng, "float16", 50, 70),
    }

    def define(a: Any, b: Any, row: Any, residual: Any) -> Any:
        product = matmul(a, b)
        biased = te.compute(product.shape, lambda i, j: product[i, j] + row[j], "biased")
        added = te.compute(product.shape, lambda i, j: biased[i, j] + residual[i, j], "added")
        return te.compute(product.shape, lambda i, j: tirx.max(added[i, j], tirx.const(0, "float16")), "relu")

    check(chip, arrays, define, lambda a, b, row, residual: np.maximum(a @ b + row + residual, 0), 2e-3)


@pytest.mark.parametrize("chip", CHIPS)
def test_gemm(chip: str) -> None:
    rng = np.random.default_rng(5)
    arrays = {name: random(rng, "float32", *s) for name, s in (("a", (29, 37)), ("b", (37, 41)), ("c", (29, 1)))}
    check(chip, arrays, gemm, lambda a, b, c: a @ b + c, 2e-6)


@pytest.mark.parametrize("chip", CHIPS)
def test_transposed_result(chip: str) -> None:
    rng = np.random.default_rng(6)
    arrays = {"a": random(rng, "float16", 50, 37), "b": random(rng, "float16", 37, 70)}

    def define(a: Any, b: Any) -> Any:
        product = matmul(a, b)
        return te.compute((70, 50), lambda i, j: product[j, i], "transposed")

    check(chip, arrays, define, lambda a, b: (a @ b).T, TOLERANCE["float16"])


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_results_leave_in_groups_of_columns(chip: str) -> None:
    """Where UB holds less than L0C, with what is added to the product."""
    rng = np.random.default_rng(8)
    arrays = {
        "a": random(rng, "float16", 200, 48),
        "b": random(rng, "float16", 48, 1000),
        "row": random(rng, "float16", 1000),
    }

    def define(a: Any, b: Any, row: Any) -> Any:
        product = matmul(a, b)
        return te.compute(product.shape, lambda i, j: product[i, j] + row[j], "biased")

    check(chip, arrays, define, lambda a, b, row: a @ b + row, 2e-3)


def test_later_attempts_take_less() -> None:
    rng = np.random.default_rng(7)
    arrays = {"a": random(rng, "float16", 1000, 64), "b": random(rng, "float16", 64, 960)}
    tiles = {check("tw1", arrays, matmul, np.matmul, 1e-3, attempt).description for attempt in range(3)}
    assert len(tiles) == 3


def test_no_tile_is_said_so() -> None:
    a, b = te.placeholder((32, 32), "float16", "a"), te.placeholder((32, 32), "float16", "b")
    with pytest.raises(NoFeasibleTile, match="no tile fits"):
        template.schedule(te.create_prim_func([a, b, matmul(a, b)]), load_chip("tiny"), 50)


@pytest.mark.parametrize("chip_name", CHIPS)
def test_every_candidate_fits(chip_name: str) -> None:
    chip = load_chip(chip_name)
    problem = Problem((2,), ("",), 333, 700, 1001, "fp16", 8)
    tiles = candidates(problem, chip)
    assert tiles
    for tile in tiles:
        assert tile.grid.count <= chip.cores
        assert all(taken <= chip.memory_bytes(name) for name, taken in tile.bytes_of(problem).items())
        assert tile.step % problem.k0 == 0


@pytest.mark.parametrize("chip_name", ["tw1", "tw2"])
def test_the_work_of_a_tile_is_at_least_the_least_there_is(chip_name: str) -> None:
    """All products, and every byte of both operands and the result once."""
    chip = load_chip(chip_name)
    problem = Problem((), (), 512, 768, 256, "fp16", 2, result_bytes=2)
    for tile in candidates(problem, chip):
        work = work_of(tile, problem, chip)
        assert work.cube_cycles * work.cores >= 512 * 768 * 256 / chip.macs_per_cycle("fp16")
        assert work.ddr_bytes >= (512 * 256 + 256 * 768 + 512 * 768) * 2
        assert work.first_cycles > 0
        assert work.last_cycles >= 0


def test_a_product_bound_by_ddr_keeps_to_few_clusters() -> None:
    """Every cluster more reads one of the operands again."""
    problem = Problem((), (), 256, 256, 256, "fp16", 2, result_bytes=2)
    best = candidates(problem, load_chip("tw1"))[0]
    assert best.grid.count <= load_chip("tw1").cores_per_cluster


def test_ragged_rows_are_kept_out_of_most_loads() -> None:
    """777 columns of a would be loaded at half the rate as a whole: chunks leave the odd ones to the last."""
    problem = Problem((), (), 1000, 1024, 777, "fp16", 0, result_bytes=2)
    best = candidates(problem, load_chip("tw2"))[0]
    assert best.step * best.steps < 777
