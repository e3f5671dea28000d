"""Products that somebody writes in TE without marking them: which of them the matrix unit does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import compiler
from ci.random_cases import CHIPS
from compiler.isa.dtypes import Queue
from compiler.operators import TensorType, find_called, operator
from compiler.report.comparison import Tolerance, compare
from compiler.report.declared_reference import computed
from compiler.runtime.model import ProgramSegment
from tests.tiling.random_contractions import check

pytestmark = pytest.mark.usefixtures("forget_operators", "as_planned")
HALVES = Tolerance(2e-2, 1e-2)


def wide(value: Any) -> Any:
    return value.astype("float32")


def plain(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(wide(a[i, k]) * wide(b[k, j]), axis=k), "sums")


def of_a_vector(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[0]), "k")
    return te.compute((b.shape[1],), lambda j: te.sum(wide(a[k]) * wide(b[k, j]), axis=k), "sums")


def band(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[2]), "k")
    shape = (*a.shape[:2], b.shape[1])
    return te.compute(shape, lambda n, i, j: te.sum(wide(a[n, i, k]) * wide(b[n * 16 + k, j]), axis=k), "sums")


def row_by_row(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((a.shape[0],), lambda i: te.sum(wide(a[i, k]) * wide(b[i, k]), axis=k), "sums")


def in_halves(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "sums")


def where_data_says(a: te.Tensor, b: te.Tensor, rows: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    shape = (a.shape[0], b.shape[1])
    return te.compute(shape, lambda i, j: te.sum(wide(a[i, k]) * wide(b[rows[k], j]), axis=k), "sums")


def a_convolution(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, b.shape[0]), "k")
    shape = (a.shape[0], int(a.shape[1]) - int(b.shape[0]) + 1)
    return te.compute(shape, lambda i, j: te.sum(wide(a[i, j + k]) * wide(b[k]), axis=k), "sums")


def by_columns(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((b.shape[0], a.shape[0]), lambda j, i: te.sum(wide(a[i, k]) * wide(b[j, k]), axis=k), "sums")


def of_elements(place: Callable[[Any, Any], tuple[Any, ...]]) -> Callable[..., te.Tensor]:
    """Rows are made of elements of a that lie anywhere."""

    def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, b.shape[0]), "k")
        value = lambda i, j: te.sum(wide(a[place(i, k)]) * wide(b[k, j]), axis=k)  # noqa: E731
        return te.compute((9, b.shape[1]), value, "sums")

    return product


def of_every_second_column(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((a.shape[0], 29), lambda i, j: te.sum(wide(a[i, k]) * wide(b[k, j * 2 + 1]), axis=k), "sums")


every_second_row = of_elements(lambda i, k: (i * 2, k))
every_second_step = of_elements(lambda i, k: (i, k * 2))
backwards = of_elements(lambda i, k: (i, 36 - k))
windows = of_elements(lambda i, k: (i + k,))
in_one_row = of_elements(lambda i, k: (i * 37 + k,))
in_both_axes = of_elements(lambda i, k: (i, i + k))


@pytest.mark.parametrize("seed", range(30))
def test_random_ones_are_free_of_hazards_and_right(seed: int) -> None:
    assert check(seed, CHIPS[seed % 3]).text == ""


@pytest.mark.parametrize(
    "function, schedule, shapes, on_the_cube",
    [
        (plain, "matmul", ((37, 53), (53, 29)), True),
        (of_a_vector, "matmul", ((53,), (53, 29)), True),
        (band, "matmul", ((3, 5, 32), (64, 29)), True),
        (row_by_row, "matmul", ((37, 53), (37, 53)), False),
        (in_halves, "matmul", ((5, 37), (37, 29)), True),
        (where_data_says, "matmul", ((5, 37), (37, 29)), False),
        (by_columns, "matmul", ((37, 53), (29, 53)), True),
        (every_second_row, "matmul", ((18, 37), (37, 29)), False),
        (every_second_step, "matmul", ((9, 74), (37, 29)), False),
        (backwards, "matmul", ((9, 37), (37, 29)), False),
        (windows, "matmul", ((45,), (37, 29)), False),
        (in_one_row, "matmul", ((9 * 37,), (37, 29)), False),
        (in_both_axes, "matmul", ((9, 45), (37, 29)), False),
        (of_every_second_column, "matmul", ((9, 37), (37, 59)), False),
        (a_convolution, "convolution", ((3, 37), (5,)), False),
        (plain, "convolution", ((37, 53), (53, 29)), True),
    ],
)
def test_a_product(
    function: Callable[..., Any], schedule: str, shapes: tuple[tuple[int, ...], ...], on_the_cube: bool
) -> None:
    operator("test::Product", schedule=schedule)(function)
    declared = find_called("test::Product")
    names = [one.name for one in declared.signature.inputs]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    if "rows" in names:
        arrays.append(rng.permutation(37).astype(np.int32))
    types = {name: TensorType(array.shape, array.dtype.name) for name, array in zip(names, arrays, strict=True)}
    artifact = compiler.compile_operator(function, types, "tiny", host_kernels=False)
    (result,) = artifact.run(dict(zip(names, arrays, strict=True)), hazards=True).values()
    (expected,) = computed(declared, arrays, {})
    assert not compare("out0", expected, result, HALVES).fault
    (segment,) = artifact.model.segments
    assert isinstance(segment, ProgramSegment)
    assert any(instr.row.queue is Queue.M for instr in segment.program.instrs) == on_the_cube


@pytest.mark.parametrize("chip", CHIPS)
def test_batches_of_bytes_with_a_bias(chip: str) -> None:
    @operator("test::Biased", schedule="matmul")
    def biased(a: te.Tensor, b: te.Tensor, bias: te.Tensor) -> te.Tensor:
        k, wide = te.reduce_axis((0, 65)), lambda value: value.astype("int32")
        sums = te.compute((3, 33, 7), lambda q, i, j: te.sum(wide(a[q, i, k]) * wide(b[q, k, j]), axis=k), "sums")
        return te.compute(sums.shape, lambda q, i, j: (sums[q, i, j] + bias[j]) >> 3, "result")

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((3, 33, 65), (3, 65, 7)))
    bias = rng.integers(-1000, 1000, 7).astype(np.int32)
    types = {"a": "int8[3, 33, 65]", "b": "int8[3, 65, 7]", "bias": "int32[7]"}
    artifact = compiler.compile_operator(biased, types, chip, host_kernels=False)
    result = artifact.run({"a": a, "b": b, "bias": bias}, hazards=True)["out0"]
    np.testing.assert_array_equal(result, a.astype(np.int32) @ b.astype(np.int32) + bias >> 3)
