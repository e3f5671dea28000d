"""CutOperands: loads beside the cube end where the product does."""

from __future__ import annotations

from tvm.script import tirx as T

from passes.tir.cut_operands import CutOperands
from tests.passes.tir.rewriting import keeps, rewrites


def test_columns_that_no_product_reads_are_not_loaded() -> None:
    @T.prim_func(private=True)
    def before() -> None:
        a = T.alloc_buffer((16, 48), "float16", scope="local.l0a")
        b = T.alloc_buffer((48, 64), "float16", scope="local.l0b")
        held = T.alloc_buffer((48, 64), "float16", scope="shared.l1")
        c = T.alloc_buffer((16, 64), "float32", scope="local.l0c")
        for t in range(4):
            with T.attr(0, "pragma_tw_cube", "operand"):
                for k, n in T.grid(48, 64):
                    b[k, n] = held[k, n]
            with T.attr(0, "pragma_tw_cube", "product"):
                for m, n, k in T.grid(16, T.min(64, 200 - t * 64), 33):
                    c[m, n] = c[m, n] + T.Cast("float32", a[m, k]) * T.Cast("float32", b[k, n])

    @T.prim_func(private=True)
    def after() -> None:
        a = T.alloc_buffer((16, 48), "float16", scope="local.l0a")
        b = T.alloc_buffer((48, 64), "float16", scope="local.l0b")
        held = T.alloc_buffer((48, 64), "float16", scope="shared.l1")
        c = T.alloc_buffer((16, 64), "float32", scope="local.l0c")
        for t in range(4):
            with T.attr(0, "pragma_tw_cube", "operand"):
                for k, n in T.grid(33, T.min(64, 200 - t * 64)):
                    b[k, n] = held[k, n]
            with T.attr(0, "pragma_tw_cube", "product"):
                for m, n, k in T.grid(16, T.min(64, 200 - t * 64), 33):
                    c[m, n] = c[m, n] + T.Cast("float32", a[m, k]) * T.Cast("float32", b[k, n])

    rewrites(CutOperands(), before, after)


def test_what_products_read_differently_is_loaded_whole() -> None:
    """So is what a loop within the load's own decides."""

    @T.prim_func(private=True)
    def kernel() -> None:
        a = T.alloc_buffer((16, 32), "float16", scope="local.l0a")
        b = T.alloc_buffer((32, 64), "float16", scope="local.l0b")
        held = T.alloc_buffer((32, 64), "float16", scope="shared.l1")
        c = T.alloc_buffer((16, 64), "float32", scope="local.l0c")
        with T.attr(0, "pragma_tw_cube", "operand"):
            for m, k in T.grid(16, 32):
                a[m, k] = held[m, k]
        with T.attr(0, "pragma_tw_cube", "operand"):
            for k, n in T.grid(32, 64):
                b[k, n] = held[k, n]
        for t in range(2):
            with T.attr(0, "pragma_tw_cube", "product"):
                for m, n, k in T.grid(T.min(16, 20 - t * 16), 64, 32):
                    c[m, n] = c[m, n] + T.Cast("float32", a[m, k]) * T.Cast("float32", b[k, n])
        with T.attr(0, "pragma_tw_cube", "product"):
            for m, n, k in T.grid(16, 20, 32):
                c[m, n] = c[m, n] + T.Cast("float32", a[m, k]) * T.Cast("float32", b[k, n])

    keeps(CutOperands(), kernel)
