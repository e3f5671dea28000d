"""Products whose sums begin with a bias, on a chip with a table of it, against numpy in float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler.operators.matmul import gemm, matmul
from compiler.target import load_chip
from compiler.tiling import matmul as template
from compiler.tiling.masters import masters_of
from compiler.tiling.schedule import schedule_of
from compiler.tiling.started_sums import matrix_started_with_bias
from tests.tiling.kernels import exact, random, run

TW2 = load_chip("tw2")
TOLERANCE = {"float32": 2e-6, "float16": 1e-3}


def relu(x: Any) -> Any:
    return te.compute(x.shape, lambda *i: tirx.max(x(*i), tirx.const(0, x.dtype)), "relu")


def added(x: Any, bias: Any, *, first: bool = False) -> Any:
    return te.compute(x.shape, lambda *i: bias[i[-1]] + x(*i) if first else x(*i) + bias[i[-1]], "added")


def check(define: Any, expected: Any, arrays: dict[str, Any], chip: str = "tw2") -> list[str]:
    """The names of a kernel's instructions."""
    result = run(template.schedule, chip, arrays, define)
    wanted, tolerance = expected(*exact(list(arrays.values()))), TOLERANCE[arrays["a"].dtype.name]
    np.testing.assert_allclose(result.output.astype(np.float64), wanted, rtol=tolerance, atol=tolerance * 8)
    return re.findall(r'"tw\.([a-z_0-9]+)', result.func.script())


def arrays_of(dtype: str, m: tuple[int, ...], k: int, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(k * n)
    return {name: random(rng, dtype, *shape) for name, shape in (("a", (*m, k)), ("b", (k, n)), ("bias", (n,)))}


@pytest.mark.parametrize(
    "shape", [((64,), 32, 48), ((37,), 29, 41), ((3, 20), 64, 333), ((700,), 40, 1000), ((1,), 9, 2)]
)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("chip", ["tw2", "tiny"])
def test_nothing_is_left_to_the_vector_unit(
    shape: tuple[tuple[int, ...], int, int], dtype: str, first: bool, chip: str
) -> None:
    """The bias comes to the table as wide as sums are; the fixpipe rounds once, and cuts off below zero."""

    def define(a: Any, b: Any, bias: Any) -> Any:
        return relu(added(matmul(a, b), bias, first=first))

    found = check(define, lambda a, b, bias: np.maximum(a @ b + bias, 0), arrays_of(dtype, *shape), chip)
    assert {"ldbtw" if dtype == "float16" else "ldbt", "madbias"} <= {*found}
    assert not any(name.startswith("v") for name in found)


def test_a_gemm_begins_with_its_c() -> None:
    found = check(gemm, lambda a, b, c: a @ b + c, arrays_of("float16", (70,), 40, 50))
    assert "ldbtw" in found
    assert not any(name.startswith("v") for name in found)


def test_what_else_is_computed_with_the_sum_follows() -> None:
    """Both times that it is read, it has the bias already."""

    def define(a: Any, b: Any, bias: Any) -> Any:
        product = matmul(a, b)
        return te.compute(product.shape, lambda i, j: (product[i, j] + bias[j]) * (product[i, j] + bias[j]), "square")

    arrays = arrays_of("float16", (70,), 40, 50)
    arrays["a"] *= np.float16(0.25)
    found = check(define, lambda a, b, bias: (a @ b + bias) ** 2, arrays)
    assert "ldbtw" in found
    assert "vadd" not in found


def started(define: Any, *shapes: tuple[int, ...], dtype: str = "float16") -> bool:
    inputs = [te.placeholder(shape, dtype, f"x{at}") for at, shape in enumerate(shapes)]
    func = te.create_prim_func([*inputs, define(*inputs)])
    sch = schedule_of(matrix_started_with_bias(func, TW2))
    return len(sch.get(masters_of(sch)[0].block).reads) == 3


def test_only_a_bias_of_columns_is_what_sums_begin_with() -> None:
    def also_alone(a: Any, b: Any, bias: Any) -> Any:
        product = matmul(a, b)
        return te.compute(product.shape, lambda i, j: tirx.max(product[i, j] + bias[j], product[i, j]), "both")

    def also_elsewhere(a: Any, b: Any, bias: Any) -> Any:
        product = matmul(a, b)
        return te.compute(product.shape, lambda i, j: (product[i, j] + bias[j]) * bias[j], "twice")

    def of_rows(a: Any, b: Any, bias: Any) -> Any:
        product = matmul(a, b)
        return te.compute(product.shape, lambda i, j: product[i, j] + bias[i], "rows")

    def two(a: Any, b: Any, bias: Any, other: Any) -> Any:
        return added(added(matmul(a, b), bias), other)

    plain = lambda a, b, bias: added(matmul(a, b), bias)  # noqa: E731
    assert started(plain, (32, 16), (16, 32), (32,))
    assert started(gemm, (32, 16), (16, 32), (1, 32))
    assert not started(gemm, (32, 16), (16, 32), (32, 1))
    assert not started(gemm, (32, 16), (16, 32), (32, 32))
    assert not started(gemm, (32, 16), (16, 32), (1,))
    assert not any(started(each, (32, 16), (16, 32), (32,)) for each in (also_alone, also_elsewhere, of_rows))
    assert started(two, (32, 16), (16, 32), (32,), (32,))
    assert not started(plain, (32, 16), (16,), (32,))  # of a product with a vector, the rows are the last axis


def test_without_a_table_it_is_added_behind() -> None:
    found = check(gemm, lambda a, b, c: a @ b + c, arrays_of("float16", (70,), 40, 50), "tw1")
    assert "madbias" not in found


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("chip", ["tw2", "tiny"])
def test_of_a_product_that_nobody_marked_as_one(dtype: str, chip: str) -> None:
    def define(a: Any, b: Any, bias: Any) -> Any:
        k, wide = te.reduce_axis((0, a.shape[1])), lambda value: value.astype("float32")
        sums = te.compute((37, 41), lambda i, j: te.sum(wide(a[i, k]) * wide(b[k, j]), axis=k), "sums")
        return te.compute(sums.shape, lambda i, j: (sums[i, j] + wide(bias[j])).astype(dtype), "biased")

    found = check(define, lambda a, b, bias: a @ b + bias, arrays_of(dtype, (37,), 29, 41), chip)
    assert "madbias" in found
