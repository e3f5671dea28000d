"""Rows of places cut anew, in lengths of DDR's lines or in one: where that happens, and that results are the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any

import pytest
from tvm import te, tirx

from compiler.operators.arithmetic import add
from compiler.operators.convolution import convolution
from compiler.operators.matmul import matmul
from compiler.target import load_chip
from compiler.tiling import convolution as template
from compiler.tiling import matmul as products
from compiler.tiling.convolution_tiles import HO, WO
from compiler.tir.near import strided, strides_of_parameters
from tests.tiling.test_convolution import check, name_of

CHIPS = ("tw1", "tw2", "tiny")

CASES: list[dict[str, Any]] = [
    {"x": (1, 20, 12, 12), "w": (18, 20, 1, 1)},
    {"x": (2, 40, 9, 32), "w": (24, 20, 1, 1), "group": 2},
    {"x": (1, 9, 3, 4, 8), "w": (6, 9, 1, 1, 1)},
]


def rows_and_columns(
    size: tuple[int, int],
    dtype: str = "float16",
    kernel: int = 1,
    sides: int = 0,
    result_strides: tuple[int, ...] = (),
    **windows: Any,
) -> tuple[int, int]:
    """Of the result as tiles are cut from it, that of a convolution to which so many tensors are added."""
    block = 16 if dtype == "float16" else 32
    x = te.placeholder((1, 20, *size), dtype, "x")
    packed = te.placeholder((1, 1, -(-20 // block), kernel, kernel, 18, block), dtype, "packed")
    attributes: dict[str, Any] = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), **windows}
    result = convolution(x, packed, kernel=(kernel, kernel), channels=20, outputs=18, **attributes)
    added = [te.placeholder(result.shape, str(result.dtype), f"side{number}") for number in range(sides)]
    total = reduce(_sum, added, result)
    cut = te.compute(total.shape, lambda *i: te.max(total(*i), tirx.const(0, str(total.dtype))), "relu")
    func = te.create_prim_func([x, packed, *added, cut])
    if result_strides:
        func = strided(func, {len(func.params) - 1: result_strides})
    found = template.space(func, load_chip("tw1"))
    extents = found.problem.extents
    if result_strides:
        assert strides_of_parameters(found.func)[len(func.params) - 1][2:] == (extents[WO], 1)
    return extents[HO], extents[WO]


def _sum(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return te.compute(a.shape, lambda *i: a(*i) + b(*i), "add")


@pytest.mark.parametrize("sides", [0, 2])
def test_rows_are_lines_or_parts_of_one(sides: int) -> None:
    assert rows_and_columns((56, 56), sides=sides) == (49, 64)
    assert rows_and_columns((28, 28), sides=sides) == (49, 16)


def test_rows_are_cut_anew_in_a_band_of_channels() -> None:
    channels = 56 * 56
    assert rows_and_columns((56, 56), result_strides=(40 * channels, channels, 56, 1)) == (49, 64)


def test_rows_stay_where_they_would_fill_no_block() -> None:
    assert rows_and_columns((14, 14)) == (14, 14)  # 196 places are four times 49
    assert rows_and_columns((28, 28), "int8") == (28, 28)  # 16 of them are half a block
    assert rows_and_columns((56, 56), "int8") == (49, 64)


@pytest.mark.parametrize(
    "windows", [{"kernel": 3, "pads": (1, 1, 1, 1)}, {"strides": (2, 2)}, {"pads": (0, 8, 0, 0)}], ids=str
)
def test_windows_of_several_elements_keep_their_rows(windows: dict[str, Any]) -> None:
    (rows, columns), (_, stride) = rows_and_columns((24, 24), **windows), windows.get("strides", (1, 1))
    assert (rows, columns) in ((24 // stride, 24 // stride), (24, 32))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
@pytest.mark.parametrize("side", [False, True], ids=["alone", "added"])
def test_results_are_the_same(chip: str, case: dict[str, Any], side: bool) -> None:
    check(chip, case, "float16", bias="float32", relu=True, side=side)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_results_of_other_types(dtype: str) -> None:
    check("tw2", {"x": (1, 20, 16, 12), "w": (18, 20, 1, 1)}, dtype)


def batches_of_a_product(
    define: Callable[..., te.Tensor], *shapes: tuple[int, ...], strides: dict[int, tuple[int, ...]] | None = None
) -> tuple[int, int]:
    """How many matrices are multiplied, of how many rows each, as tiles are cut from the result."""
    inputs = [te.placeholder(shape, "float16", f"x{at}") for at, shape in enumerate(shapes)]
    func = te.create_prim_func([*inputs, define(*inputs)])
    problem = products.space(strided(func, strides) if strides else func, load_chip("tw1")).problem
    return prod(problem.batch), problem.m


def added(x: te.Tensor, w: te.Tensor, other: te.Tensor) -> te.Tensor:
    product = matmul(x, w)
    back = len(product.shape) - len(other.shape)
    shape = [int(n) for n in other.shape]
    return te.compute(
        product.shape,
        lambda *i: product(*i) + other(*(0 if n == 1 else at for at, n in zip(i[back:], shape, strict=True))),
        "added",
    )


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(4, 197, 64), (64, 48), (4, 197, 48)], (1, 788)),
        ([(2, 3, 5, 64), (64, 48), (48,)], (1, 30)),
        ([(4, 1, 64), (64, 48), (1, 48)], (1, 4)),
        ([(4, 7, 64), (64, 48), (4, 1, 48)], (4, 7)),  # something is the same for the rows of a matrix
        ([(4, 7, 64), (64, 48), (7, 48)], (4, 7)),  # or for all matrices
        ([(4, 7, 64), (4, 64, 48), (48,)], (4, 7)),
    ],
)
def test_rows_of_many_matrices_are_those_of_one(shapes: list[tuple[int, ...]], expected: tuple[int, int]) -> None:
    assert batches_of_a_product(added, *shapes) == expected


def test_matrices_that_are_work_for_all_cores_stay_apart_but_single_rows() -> None:
    assert batches_of_a_product(matmul, (100, 2, 64), (64, 64)) == (100, 2)
    assert batches_of_a_product(matmul, (100, 1, 64), (64, 64)) == (1, 100)


def test_single_rows_are_those_of_one_matrix_where_what_follows_broadcasts() -> None:
    def moved(x: te.Tensor, w: te.Tensor, bias: te.Tensor, other: te.Tensor) -> te.Tensor:
        return add(add(bias, matmul(x, w)), other)

    assert batches_of_a_product(moved, (40, 1, 64), (64, 48), (48,), (40, 1, 48)) == (1, 40)
    assert batches_of_a_product(moved, (2, 20, 1, 64), (64, 48), (48,), (2, 20, 1, 48)) == (1, 40)
    assert batches_of_a_product(moved, (40, 1, 64), (64, 48), (48,), (40, 48)) == (40, 1)  # by another axis


def test_rows_of_a_band_are_those_of_one_matrix_where_they_lie_evenly() -> None:
    shapes = (4, 7, 64), (64, 48)
    assert batches_of_a_product(matmul, *shapes, strides={0: (7 * 192, 192, 1)}) == (1, 28)
    assert batches_of_a_product(matmul, *shapes, strides={0: (9 * 192, 192, 1)}) == (4, 7)
