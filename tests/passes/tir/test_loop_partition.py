"""LoopPartition: loops split where their ifs change, until no if is left."""

# ruff: noqa: C901 - kernels in TVMScript are data, not control flow

from __future__ import annotations

from tvm.script import tirx as T

from passes.tir.loop_partition import LoopPartition
from tests.passes.tir.rewriting import keeps, rewrites


def test_a_ragged_tile_has_an_extent_of_its_own() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((40, 7), "float32"), b: T.Buffer((16, 7), "float32")):
        for t in T.thread_binding(3, "blockIdx.x"):
            for i in range(16):
                if t * 16 + i < 40:
                    for j in range(7):
                        b[i, j] = a[t * 16 + i, j]

    @T.prim_func(private=True)
    def after(a: T.Buffer((40, 7), "float32"), b: T.Buffer((16, 7), "float32")):
        for t in T.thread_binding(3, "blockIdx.x"):
            for i in range(T.min(16, 40 - t * 16)):
                for j in range(7):
                    b[i, j] = a[t * 16 + i, j]

    rewrites(LoopPartition(), before, after)


def test_padding_splits_in_three() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8,), "float32"), b: T.Buffer((11,), "float32")):
        for i in range(11):
            if i >= 1:
                if i < 9:
                    b[i] = a[i - 1]
                else:
                    b[i] = T.float32(0)
            else:
                b[i] = T.float32(0)

    @T.prim_func(private=True)
    def after(a: T.Buffer((8,), "float32"), b: T.Buffer((11,), "float32")):
        for i in range(1):
            b[i] = T.float32(0)
        for i in range(1, 9):
            b[i] = a[i - 1]
        for i in range(9, 11):
            b[i] = T.float32(0)

    rewrites(LoopPartition(), before, after)


def test_factors_signs_and_divisions() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((40,), "float32"), c: T.Buffer((40,), "float32"), d: T.Buffer((40,), "float32")):
        for i in range(30):
            if 3 * i < 20:
                b[i] = T.float32(1)
        for i in range(30):
            if 20 - 3 * i > 0:
                c[i] = T.float32(1)
        for i in range(30):
            if 2 <= i // 4:
                d[i] = T.float32(1)

    @T.prim_func(private=True)
    def after(b: T.Buffer((40,), "float32"), c: T.Buffer((40,), "float32"), d: T.Buffer((40,), "float32")):
        for i in range(7):
            b[i] = T.float32(1)
        for i in range(7):
            c[i] = T.float32(1)
        for i in range(8, 30):
            d[i] = T.float32(1)

    rewrites(LoopPartition(), before, after)


def test_equalities() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((40,), "float32"), c: T.Buffer((40,), "float32")):
        for i in range(30):
            if i == 4:
                b[i] = T.float32(1)
        for i in range(30):
            if i * 2 != 7:
                c[i] = T.float32(1)

    @T.prim_func(private=True)
    def after(b: T.Buffer((40,), "float32"), c: T.Buffer((40,), "float32")):
        for i in range(4, 5):
            b[i] = T.float32(1)
        for i in range(4):
            c[i] = T.float32(1)
        for i in range(4, 30):
            c[i] = T.float32(1)

    result = LoopPartition().run(before, None)
    rewrites(LoopPartition(), before, result)
    assert "if " not in result.script()
    assert "range(4, 5)" in after.script() and "range(4, 5)" in result.script()


def test_a_window_is_split_where_the_inner_loop_decides_little() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((20,), "float32"), b: T.Buffer((10,), "float32")):
        for i in range(10):
            for k in range(3):
                if i * 2 + k >= 1:
                    b[i] = T.max(b[i], a[i * 2 + k - 1])

    @T.prim_func(private=True)
    def after(a: T.Buffer((20,), "float32"), b: T.Buffer((10,), "float32")):
        for i in range(1):
            for k in range(T.max(0, 1 - i * 2), T.max(0, 1 - i * 2) + (3 - T.max(0, 1 - i * 2))):
                b[i] = T.max(b[i], a[i * 2 + k - 1])
        for i in range(1, 10):
            for k in range(3):
                b[i] = T.max(b[i], a[i * 2 + k - 1])

    result = LoopPartition().run(before, None)
    assert "if " not in result.script()
    assert result.script().count("in range(3)") == after.script().count("in range(3)") == 1


def test_a_slope_is_left_to_the_inner_loop() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((10, 10), "float32")):
        for i in range(10):
            for j in range(10):
                if i + j < 12:
                    b[i, j] = T.float32(1)

    @T.prim_func(private=True)
    def after(b: T.Buffer((10, 10), "float32")):
        for i in range(10):
            for j in range(T.min(10, 12 - i)):
                b[i, j] = T.float32(1)

    rewrites(LoopPartition(), before, after)


def test_a_tile_loop_is_cut_short_but_never_copied() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        for c in T.thread_binding(4, "blockIdx.x"):
            for t in range(4):
                if c * 4 + t < 13:
                    u = T.alloc_buffer((4,), scope="local.ub")
                    for i in range(4):
                        u[i] = a[c * 16 + t * 4 + i]
                    if t == 1:
                        for i in range(4):
                            b[c * 16 + t * 4 + i] = u[i]

    @T.prim_func(private=True)
    def after(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        for c in T.thread_binding(4, "blockIdx.x"):
            for t in range(T.min(4, 13 - c * 4)):
                u = T.alloc_buffer((4,), scope="local.ub")
                for i in range(4):
                    u[i] = a[c * 16 + t * 4 + i]
                if t == 1:
                    for i in range(4):
                        b[c * 16 + t * 4 + i] = u[i]

    rewrites(LoopPartition(), before, after)


def test_parts_are_bounded_and_the_rest_stays_guarded() -> None:
    @T.prim_func(private=True)
    def kernel(b: T.Buffer((40,), "float32")):
        for i in range(30):
            if i < 4:
                b[i] = T.float32(1)

    keeps(LoopPartition(parts=0), kernel)


def test_conditions_on_data_stay() -> None:
    @T.prim_func(private=True)
    def kernel(m: T.Buffer((40,), "int32"), b: T.Buffer((40,), "float32")):
        for i in range(30):
            if i < m[0]:
                b[i] = T.float32(1)

    keeps(LoopPartition(), kernel)
