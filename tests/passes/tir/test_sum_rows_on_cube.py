"""SumRowsOnCube: sums of rows become products with ones, sums of squares the diagonal of products with themselves."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx
from tvm.script import tirx as T

from compiler.target import load_chip
from compiler.tir.row_sums import ON_CUBE
from compiler.tir.structure import structural_walk
from passes.tir.sum_rows_on_cube import SumRowsOnCube
from tests.passes.tir.rewriting import keeps

TW1, TW2 = load_chip("tw1"), load_chip("tw2")
UB, L0A, L0B, L0C = "local.ub", "local.l0a", "local.l0b", "local.l0c"


def asked(kernel: Any, steps: int = 1) -> Any:
    return kernel.with_attr(ON_CUBE, steps)


def summed(rows: int, columns: int, dtype: str = "float16", *, read: int = 0) -> Any:
    """Sums of the first ``read`` columns, or of all."""
    width = read or columns

    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((64 * rows, columns), dtype), y: T.Buffer((64 * rows,), "float32")):
        core = T.launch_thread("blockIdx.x", 32)
        for t in range(2):
            u = T.alloc_buffer((rows, columns), dtype, scope=UB)
            s = T.alloc_buffer((rows, 1), scope=UB)
            for r, c in T.grid(rows, columns):
                if core * 2 * rows + t * rows + r < 1000:
                    u[r, c] = x[core * 2 * rows + t * rows + r, c]
            for r in range(rows):
                s[r, 0] = T.float32(7.0)
            for r, k in T.grid(rows, width):
                if core * 2 * rows + t * rows + r < 1000:
                    if k == 0:
                        s[r, 0] = T.float32(0.0)
                    s[r, 0] = s[r, 0] + T.Cast("float32", u[r, k])
            for r in range(rows):
                y[core * 2 * rows + t * rows + r] = s[r, 0]

    return kernel


def squares(*, read_twice: bool = False) -> Any:
    """By the 16 places of a block, then of all."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((32, 256), "float16"), y: T.Buffer((32,), "float32"), z: T.Buffer((32, 16), "bfloat16")):
        u = T.alloc_buffer((32, 256), "float16", scope=UB)
        p = T.alloc_buffer((32, 16), "bfloat16", scope=UB)
        s = T.alloc_buffer((32, 1), scope=UB)
        for r, c in T.grid(32, 256):
            u[r, c] = x[r, c]
        for r, j, k in T.grid(32, 16, 16):
            if k == 0:
                p[r, j] = T.bfloat16(0.0)
            p[r, j] = p[r, j] + T.Cast(
                "bfloat16", T.Cast("float32", u[r, k * 16 + j]) * T.Cast("float32", u[r, k * 16 + j])
            )
        for r, k in T.grid(32, 16):
            if k == 0:
                s[r, 0] = T.float32(0.0)
            s[r, 0] = s[r, 0] + T.Cast("float32", p[r, k])
        for r in range(32):
            y[r] = s[r, 0]
        if read_twice:
            for r, j in T.grid(32, 16):
                z[r, j] = p[r, j]

    return kernel


def marks(func: Any) -> list[str]:
    found: list[str] = []
    structural_walk(func.body, (tirx.AttrStmt, lambda mark: found.append(str(mark.attr_key) + " " + _text(mark))))
    return [text.removeprefix("pragma_tw_cube ") for text in found if text.startswith("pragma_tw_cube")]


def _text(mark: Any) -> str:
    return str(getattr(mark.value, "value", ""))


def shapes(func: Any, scope: str) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []

    def note(statement: Any) -> None:
        if statement.buffer.scope() == scope:
            found.append(tuple(int(extent) for extent in statement.buffer.shape))

    structural_walk(func.body, (tirx.AllocBuffer, note))
    return found


def test_rows_are_multiplied_with_ones_that_are_made_once() -> None:
    made = SumRowsOnCube().run(asked(summed(16, 256)), TW1)
    assert marks(made) == ["operand"] * 3 + ["product", "operand", "product", "result"]
    depth = TW1.memory.l0b_bytes // 8 // 32
    assert shapes(made, L0B) == [(depth, 16)]
    assert shapes(made, L0C) == [(16, 16)]
    loops = [part for part in made.body.body.seq if isinstance(part, tirx.For) and int(part.extent) == 2]
    assert len(loops) == 1
    assert len(marks(made.with_body(loops[0]))) == 5


def test_what_multiplies_stands_right_behind_what_fills_the_rows() -> None:
    made = SumRowsOnCube().run(asked(summed(16, 256)), TW1)
    trip = next(part for part in made.body.body.seq if isinstance(part, tirx.For) and int(part.extent) == 2)
    parts = [part for part in trip.body.seq if not isinstance(part, tirx.AllocBuffer)]
    kinds = [type(part).__name__ for part in parts]
    assert kinds == ["For", "AttrStmt", "AttrStmt", "For", "AttrStmt", "For", "For", "For"]


@pytest.mark.parametrize(("steps", "depth"), [(1, 256), (2, 128), (3, 80)])
def test_squares_by_places_are_the_diagonal_of_one_product(steps: int, depth: int) -> None:
    made = SumRowsOnCube().run(asked(squares(), steps), TW1)
    assert marks(made) == ["operand", "product", "operand transposed", "operand", "product", "result"]
    assert shapes(made, L0C) == [(32, 32)]
    # The longest even part of whole fractals: of 256 columns there is none between 64 and 128.
    assert shapes(made, L0A) == shapes(made, L0B) == [(32, 64 if depth == 80 else depth)]
    assert (32, 16) in shapes(made, UB)


def test_places_that_somebody_else_reads_stay() -> None:
    keeps(SumRowsOnCube(), asked(squares(read_twice=True)), TW2)


@pytest.mark.parametrize(("rows", "columns", "dtype", "read"), [
    (16, 256, "float32", 0),
    (16, 250, "float16", 0),  # no whole fractals
    (16, 256, "float16", 240),  # a part of the rows
])  # fmt: skip
def test_other_sums_are_left_to_the_vector_unit(rows: int, columns: int, dtype: str, read: int) -> None:
    keeps(SumRowsOnCube(), asked(summed(rows, columns, dtype, read=read)), TW1)


def test_who_does_not_ask_is_left_alone() -> None:
    keeps(SumRowsOnCube(), summed(16, 256), TW1)
