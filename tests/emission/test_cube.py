"""The instructions that nests of matrices become."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx

from compiler.emission.cube.places import ROWS
from compiler.emission.cube.sizes import physical_sizes, rows_of_one
from compiler.emission.nest import Surroundings
from tests.emission.nests import buffer, emitted, load, nest, outer, reasons


def product(a: Any, b: Any, c: Any, m: Any, n: Any, k: Any, wide: str = "float32") -> Any:
    def body(i: Any, j: Any, r: Any) -> tuple[Any, Any]:
        one, other = load(a, i, r), load(b, r, j)
        if str(a.dtype) != wide:
            one, other = tirx.Cast(wide, one), tirx.Cast(wide, other)
        return (i, j), load(c, i, j) + one * other

    return nest([m, n, k], c, body, "product")


@pytest.mark.parametrize(
    ("dtype", "wide", "name"),
    [
        ("float16", "float32", "fp16"),
        ("bfloat16", "float32", "bf16"),
        ("float32", "float32", "fp32"),
        ("int8", "int32", "int8"),
    ],
)
def test_a_product(dtype: str, wide: str, name: str) -> None:
    a, b = buffer("local.l0a", dtype, 20, 40), buffer("local.l0b", dtype, 40, 30)
    statement = product(a, b, buffer("local.l0c", wide, 20, 30), 20, 30, 40, wide)
    assert emitted(statement) == f"madacc.{name} l0c[0, 0], l0a[0, 0], l0b[0, 0], 20, 30, 40"


def test_a_ragged_product_has_registers_for_sizes_and_does_not_run_on_nothing() -> None:
    surroundings = Surroundings()
    t = outer("t", 5, surroundings)
    a, b = buffer("local.l0a", "float16", 16, 32), buffer("local.l0b", "float16", 32, 16)
    rows = tirx.min(tirx.IntImm("int32", 16), 50 - t * 16)
    statement = product(a, b, buffer("local.l0c", "float32", 16, 16), rows, 16, 32)
    assert emitted(statement, surroundings=surroundings) == (
        "if T.min(16, 50 - t * 16) > 0: madacc.fp16 l0c[0, 0], l0a[0, 0], l0b[0, 0], T.min(16, 50 - t * 16), 16, 32"
    )


def test_the_cube_does_not_multiply_every_type() -> None:
    a, b = buffer("local.l0a", "uint8", 16, 32), buffer("local.l0b", "uint8", 32, 16)
    statement = product(a, b, buffer("local.l0c", "int32", 16, 16), 16, 16, 32, "int32")
    assert "madacc: the cube does not multiply uint8 and uint8" in reasons(statement)


def test_a_sum_starts() -> None:
    c = buffer("local.l0c", "float32", 1, 20, 30)
    zero = tirx.FloatImm("float32", 0.0)
    assert emitted(nest([20, 30], c, lambda i, j: ((0, i, j), zero), "start")) == "mfill.fp32 l0c[0, 0, 0], 20, 30, 0"
    column = buffer("local.l0c", "float32", 20)
    assert emitted(nest([20], column, lambda i: ((i,), zero), "start rows")) == "mfill.fp32 l0c[0], 20, 1, 0"


def test_a_block_of_ddr_to_l1() -> None:
    far, near = buffer("global", "float16", 100, 200, name="far"), buffer("shared.l1", "float16", 32, 64)
    plain = nest([30, 50], near, lambda i, j: ((i, j), load(far, i + 3, j + 7)), "operand")
    assert emitted(plain) == "ldnz.ddr.fp16 l1[0, 0], far[3, 7], 30, 50, 200, 32"
    turned = nest([30, 50], near, lambda i, j: ((i, j), load(far, j, i)), "operand")
    assert emitted(turned) == "ldnzt.ddr.fp16 l1[0, 0], far[0, 0], 30, 50, 200, 32"


def test_a_block_without_contiguous_elements_is_refused() -> None:
    far, near = buffer("global", "float16", 10, 10, 10, name="far"), buffer("shared.l1", "float16", 8, 8)
    statement = nest([8, 8], near, lambda i, j: ((i, j), load(far, i, j, 0)), "operand")
    assert "ldnz: elements are 10 apart along a row, 100 along a column" in reasons(statement)


@pytest.mark.parametrize(
    ("scope", "mark", "transposed", "expected"),
    [
        ("local.l0a", "operand", False, "ldl0a.fp16 l0a[0, 0], l1+6144, 20, 30, 64"),
        ("local.l0a", "operand", True, "ldl0at.fp16 l0a[0, 0], l1+6144, 20, 30, 64"),
        ("local.l0b", "operand", False, "ldl0b.fp16 l0b[0, 0], l1+6144, 20, 30, 64"),
        ("local.l0b", "operand transposed", False, "ldl0bt.fp16 l0b[0, 0], l1+6144, 30, 20, 64"),
    ],
)
def test_l1_to_the_cube(scope: str, mark: str, transposed: bool, expected: str) -> None:
    """From column 48, the third block of 64 rows of 32 bytes."""
    held, operand = buffer("shared.l1", "float16", 64, 128), buffer(scope, "float16", 20, 30)

    def body(i: Any, j: Any) -> tuple[Any, Any]:
        return (i, j), load(held, *((j, i + 48) if transposed else (i, j + 48)))

    assert emitted(nest([20, 30], operand, body, mark)) == expected


def test_a_block_that_begins_inside_a_fractal_row_is_refused() -> None:
    held, operand = buffer("shared.l1", "float16", 64, 128), buffer("local.l0a", "float16", 20, 30)
    statement = nest([20, 30], operand, lambda i, j: ((i, j), load(held, i, j + 5)), "operand")
    assert any("begins with whole fractal rows" in reason for reason in reasons(statement))


def test_a_vector_is_one_row_and_one_column() -> None:
    held = buffer("shared.l1", "float16", 96)
    row = nest([32], buffer("local.l0a", "float16", 32), lambda i: ((i,), load(held, i + 64)), "operand")
    assert emitted(row) == "ldl0a.fp16 l0a[0], l1+128, 1, 32, 1"
    column = nest([32], buffer("local.l0b", "float16", 32), lambda i: ((i,), load(held, i + 64)), "operand")
    assert emitted(column) == "ldl0bt.fp16 l0b[0], l1+128, 32, 1, 1"


def test_rows_of_ub_to_l1() -> None:
    rows, near = buffer("local.ub", "float16", 1, 20, 70), buffer("shared.l1", "float16", 1, 20, 32)
    statement = nest([20, 32], near, lambda i, j: ((0, i, j), load(rows, 0, i, j + 32)), "operand")
    assert emitted(statement) == "stnz.fp16 l1[0, 0, 0], ub[0, 0, 32], 20, 32, 70, 20"


def test_results_leave_l0c_rounded_and_activated() -> None:
    c, near = buffer("local.l0c", "float32", 20, 30), buffer("local.ub", "float16", 20, 32)
    plain = nest([20, 30], near, lambda i, j: ((i, j), tirx.Cast("float16", load(c, i, j))), "result")
    assert emitted(plain) == "fix.ub.nd.fp16.fp32.none ub[0, 0], l0c[0, 0], 20, 30, 32, 32"

    def activated(i: Any, j: Any) -> tuple[Any, Any]:
        return (i, j), tirx.Cast("float16", tirx.max(load(c, i, j), tirx.FloatImm("float32", 0.0)))

    assert emitted(nest([20, 30], near, activated, "result")).startswith("fix.ub.nd.fp16.fp32.relu ")


def test_results_leave_l0c_scaled() -> None:
    c, near = buffer("local.l0c", "float32", 20, 30), buffer("local.ub", "float16", 20, 32)
    half = tirx.FloatImm("float16", 0.5)
    scaled = nest([20, 30], near, lambda i, j: ((i, j), tirx.Cast("float16", load(c, i, j)) * half), "result")
    assert emitted(scaled) == "fixscale.ub.nd.fp16.fp32.none ub[0, 0], l0c[0, 0], 20, 30, 32, 32, 0.5, 0"


def test_sums_of_integers_leave_l0c_requantised() -> None:
    """By one scale, or by those of the columns; integers are saturated behind their zero point."""
    c, near = buffer("local.l0c", "int32", 20, 30), buffer("local.ub", "int8", 20, 32)
    scales = buffer("local.fb", "float32", 40, name="fb")
    low, high, zero = (tirx.FloatImm("float32", value) for value in (-128.0, 127.0, -3.0))

    def requantised(scale: Any, i: Any, j: Any) -> tuple[Any, Any]:
        steps = tirx.nearbyint(tirx.Cast("float32", load(c, i, j)) * scale) + zero
        return (i, j), tirx.Cast("int8", tirx.min(tirx.max(steps, low), high))

    half = tirx.FloatImm("float32", 0.5)
    assert emitted(nest([20, 30], near, lambda i, j: requantised(half, i, j), "result")) == (
        "fixscale.ub.nd.int8.int32.none ub[0, 0], l0c[0, 0], 20, 30, 32, 32, 0.5, -3"
    )
    assert emitted(nest([20, 30], near, lambda i, j: requantised(load(scales, j + 4), i, j), "result")) == (
        "fixquant.ub.nd.int8.int32.none ub[0, 0], l0c[0, 0], fb[4], 20, 30, 32, 32, -3"
    )
    by_row = nest([20, 30], near, lambda i, j: requantised(load(scales, i), i, j), "result")
    assert any("one for each column" in reason for reason in reasons(by_row))


def test_columns_leave_l0c_from_the_start_of_a_block() -> None:
    c, near = buffer("local.l0c", "float32", 20, 64), buffer("local.ub", "float16", 20, 32)
    later = nest([20, 32], near, lambda i, j: ((i, j), tirx.Cast("float16", load(c, i, j + 32))), "result")
    assert emitted(later) == "fix.ub.nd.fp16.fp32.none ub[0, 0], l0c+4096, 20, 32, 32, 32"
    inside = nest([20, 32], near, lambda i, j: ((i, j), tirx.Cast("float16", load(c, i, j + 8))), "result")
    assert any("block" in reason for reason in reasons(inside))


def test_a_chip_without_the_path_keeps_results_in_ub() -> None:
    c, far = buffer("local.l0c", "float32", 20, 30), buffer("global", "float32", 20, 30, name="far")
    statement = nest([20, 30], far, lambda i, j: ((i, j), load(c, i, j)), "result")
    assert emitted(statement, "tw2") == "fix.ddr.nd.fp32.fp32.none far[0, 0], l0c[0, 0], 20, 30, 32, 30"
    assert any("path" in reason for reason in reasons(statement, "tw1"))


def test_fractal_buffers_are_larger_than_their_elements() -> None:
    a, b, c = (
        buffer("local.l0a", "float16", 20, 30),
        buffer("local.l0b", "float16", 30, 10),
        buffer("local.l0c", "float32", 20, 10),
    )
    assert physical_sizes(product(a, b, c, 20, 10, 30)) == {a: 32 * 32 * 2, b: 32 * 16 * 2, c: 32 * 16 * 4}
    near, far = buffer("shared.l1", "float16", 20, 30), buffer("global", "float16", 20, 30)
    block = nest([20, 30], near, lambda i, j: ((i, j), load(far, i, j)), "operand")
    assert physical_sizes(block) == {near: 20 * 32 * 2}


def test_the_last_of_several_products_has_the_room_and_the_place_of_any() -> None:
    a, b = buffer("local.l0a", "float32", 2, 3, 30), buffer("local.l0b", "float32", 30, 10)
    c = buffer("local.l0c", "float32", 3, 3, 10)
    surroundings = Surroundings()
    h = outer("h", 2, surroundings) * 2

    def body(i: Any, j: Any, n: Any, k: Any) -> tuple[Any, Any]:
        return (h + i, j, n), load(c, h + i, j, n) + load(a, i, j, k) * load(b, k, n)

    assert physical_sizes(nest([2, 3, 10, 30], c, body, "product"))[c] == 2 * 16 * 16 * 4
    assert rows_of_one(nest([2, 3, 10, 30], c, body, "product")) == {c: 6}
    last = tirx.AttrStmt(tirx.IntImm("int32", 0), ROWS, 6, nest([1, 3, 10, 30], c, body, "product"))
    assert emitted(last, surroundings=surroundings) == "madacc.fp32 l0c+h * 1024, l0a[0, 0, 0], l0b[0, 0], 3, 10, 30"
