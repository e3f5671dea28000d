"""LoopCollapse: loops that walk all operands without a gap become one."""

# ruff: noqa: C901 - kernels in TVMScript are data, not control flow

from __future__ import annotations

from tvm.script import tirx as T

from passes.tir.loop_collapse import LoopCollapse
from tests.passes.tir.rewriting import keeps, rewrites


def test_rows_that_are_whole_in_every_operand() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((5, 16, 77), "float32"), c: T.Buffer((1232,), "float32"), b: T.Buffer((16, 77), "float32")):
        for t in range(5):
            u = T.alloc_buffer((16, 77), scope="local.ub")
            for i in range(16):
                for j in range(77):
                    u[i, j] = a[t, i, j] + c[i * 77 + j]
            for i in range(16):
                for j in range(77):
                    b[i, j] = u[i, j]

    @T.prim_func(private=True)
    def after(a: T.Buffer((5, 16, 77), "float32"), c: T.Buffer((1232,), "float32"), b: T.Buffer((16, 77), "float32")):
        for t in range(5):
            u = T.alloc_buffer((16, 77), scope="local.ub")
            for ij in range(1232):
                u[ij // 77, ij % 77] = a[t, ij // 77, ij % 77] + c[ij]
            for ij in range(1232):
                b[ij // 77, ij % 77] = u[ij // 77, ij % 77]

    rewrites(LoopCollapse(), before, after)


def test_a_dynamic_number_of_whole_rows() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((40, 7), "float32"), b: T.Buffer((16, 7), "float32")):
        for t in range(3):
            for i in range(T.min(16, 40 - t * 16)):
                for j in range(7):
                    b[i, j] = a[t * 16 + i, j]

    @T.prim_func(private=True)
    def after(a: T.Buffer((40, 7), "float32"), b: T.Buffer((16, 7), "float32")):
        for t in range(3):
            for ij in range(T.min(16, 40 - t * 16) * 7):
                b[ij // 7, ij % 7] = a[t * 16 + ij // 7, ij % 7]

    rewrites(LoopCollapse(), before, after)


def test_only_the_loops_that_fit() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((4, 6, 8), "float32"), b: T.Buffer((4, 7, 8), "float32"), s: T.Buffer((4,), "float32")):
        for i in range(4):
            for j in range(6):
                for k in range(8):
                    b[i, j, k] = a[i, j, k]
        for i in range(4):
            for j in range(6):
                for k in range(8):
                    s[i] = s[i] + a[i, j, k]

    @T.prim_func(private=True)
    def after(a: T.Buffer((4, 6, 8), "float32"), b: T.Buffer((4, 7, 8), "float32"), s: T.Buffer((4,), "float32")):
        for i in range(4):
            for jk in range(48):
                b[i, jk // 8, jk % 8] = a[i, jk // 8, jk % 8]
        for i in range(4):
            for jk in range(48):
                s[i] = s[i] + a[i, jk // 8, jk % 8]

    rewrites(LoopCollapse(), before, after)


def test_broadcasts_transposes_gathers_and_values_of_loops() -> None:
    @T.prim_func(private=True)
    def kernel(
        a: T.Buffer((8, 8), "float32"),
        b: T.Buffer((8, 8), "float32"),
        r: T.Buffer((8,), "float32"),
        x: T.Buffer((8,), "int32"),
    ):
        for i in range(8):
            for j in range(8):
                b[i, j] = a[i, j] + r[j]
        for i in range(8):
            for j in range(8):
                b[i, j] = a[j, i]
        for i in range(8):
            for j in range(8):
                b[i, j] = a[x[i], j]
        for i in range(8):
            for j in range(8):
                b[i, j] = T.Cast("float32", i * 8 + j)

    keeps(LoopCollapse(), kernel)


def test_fractal_scopes_and_long_loops() -> None:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((300, 300), "float32"), b: T.Buffer((300, 300), "float32")):
        m = T.alloc_buffer((300, 300), scope="shared.l1")
        for i in range(300):
            for j in range(300):
                m[i, j] = a[i, j]
        for i in range(300):
            for j in range(300):
                b[i, j] = a[i, j]

    keeps(LoopCollapse(), kernel)


def test_rows_with_gaps_between_them() -> None:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((16, 6), "float32"), b: T.Buffer((16, 6), "float32")):
        u = T.alloc_buffer((16, 6), scope="local.ub", strides=(8, 1))
        for i in range(16):
            for j in range(6):
                u[i, j] = a[i, j]
        for i in range(16):
            for j in range(6):
                b[i, j] = u[i, j]

    keeps(LoopCollapse(), kernel)
