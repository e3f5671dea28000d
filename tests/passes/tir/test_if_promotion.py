"""IfPromotion: ifs stand outside the loops that do not decide them."""

# ruff: noqa: B007, C901 - kernels in TVMScript are data, not control flow

from __future__ import annotations

from tvm.script import tirx as T

from passes.tir.if_promotion import IfPromotion
from tests.passes.tir.rewriting import keeps, rewrites


def test_parts_of_a_condition_go_as_far_out_as_each_can() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8, 9), "float32"), b: T.Buffer((8, 9), "float32")):
        for t in T.thread_binding(4, "blockIdx.x"):
            for i in range(8):
                for j in range(9):
                    if j < 5 and t * 3 + i < 11 and t < 3:
                        b[i, j] = a[i, j]

    @T.prim_func(private=True)
    def after(a: T.Buffer((8, 9), "float32"), b: T.Buffer((8, 9), "float32")):
        for t in T.thread_binding(4, "blockIdx.x"):
            if t < 3:
                for i in range(8):
                    if t * 3 + i < 11:
                        for j in range(9):
                            if j < 5:
                                b[i, j] = a[i, j]

    rewrites(IfPromotion(), before, after)


def test_an_else_is_copied_to_both_branches() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8, 9), "float32"), b: T.Buffer((8, 9), "float32")):
        for i in range(8):
            for j in range(9):
                if i < 7 and j >= 1:
                    b[i, j] = a[i, j - 1]
                else:
                    b[i, j] = T.float32(0)

    @T.prim_func(private=True)
    def after(a: T.Buffer((8, 9), "float32"), b: T.Buffer((8, 9), "float32")):
        for i in range(8):
            if i < 7:
                for j in range(9):
                    if j >= 1:
                        b[i, j] = a[i, j - 1]
                    else:
                        b[i, j] = T.float32(0)
            else:
                for j in range(9):
                    b[i, j] = T.float32(0)

    rewrites(IfPromotion(), before, after)


def test_alternatives_and_negations() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((9,), "float32"), c: T.Buffer((9,), "float32")):
        for j in range(9):
            if j < 2 or not (j < 6):
                b[j] = T.float32(1)
            else:
                c[j] = T.float32(2)

    @T.prim_func(private=True)
    def after(b: T.Buffer((9,), "float32"), c: T.Buffer((9,), "float32")):
        for j in range(9):
            if j >= 2:
                if j < 6:
                    c[j] = T.float32(2)
                else:
                    b[j] = T.float32(1)
            else:
                b[j] = T.float32(1)

    rewrites(IfPromotion(), before, after)


def test_padding_becomes_an_if_and_loads_stay_guarded() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8,), "float32"), b: T.Buffer((10,), "float32")):
        for j in range(10):
            b[j] = T.if_then_else(1 <= j, a[j - 1], T.float32(0)) * T.float32(2)

    @T.prim_func(private=True)
    def after(a: T.Buffer((8,), "float32"), b: T.Buffer((10,), "float32")):
        for j in range(10):
            if 1 <= j:
                b[j] = a[j - 1] * T.float32(2)
            else:
                b[j] = T.float32(0)

    rewrites(IfPromotion(), before, after)


def test_padding_of_a_reduction_is_nothing() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8,), "float32"), w: T.Buffer((3,), "float32"), b: T.Buffer((8,), "float32")):
        for j in range(8):
            for k in range(3):
                b[j] = b[j] + T.if_then_else(1 <= j + k, a[j + k - 1], T.float32(0)) * w[k]

    @T.prim_func(private=True)
    def after(a: T.Buffer((8,), "float32"), w: T.Buffer((3,), "float32"), b: T.Buffer((8,), "float32")):
        for j in range(8):
            for k in range(3):
                if 1 <= j + k:
                    b[j] = b[j] + a[j + k - 1] * w[k]

    rewrites(IfPromotion(), before, after)


def test_clamped_indices_are_choices() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8,), "float32"), b: T.Buffer((10,), "float32")):
        for j in range(10):
            b[j] = a[T.max(j - 2, 0)]

    @T.prim_func(private=True)
    def after(a: T.Buffer((8,), "float32"), b: T.Buffer((10,), "float32")):
        for j in range(10):
            if j - 2 >= 0:
                b[j] = a[j - 2]
            else:
                b[j] = a[0]

    rewrites(IfPromotion(), before, after)


def test_an_equality_at_the_end_of_its_range_is_one_per_variable() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((10,), "float32")):
        for k in range(3):
            for i in range(10):
                for j in range(8):
                    if k * 8 + j == 0:
                        b[i] = T.float32(0)

    @T.prim_func(private=True)
    def after(b: T.Buffer((10,), "float32")):
        for k in range(3):
            if k == 0:
                for i in range(10):
                    for j in range(8):
                        if j == 0:
                            b[i] = T.float32(0)

    rewrites(IfPromotion(), before, after)


def test_what_ranges_settle_is_no_if() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((10,), "float32")):
        for t in range(4):
            for i in range(10):
                if T.likely(t * 10 + i < 40):
                    b[i] = T.float32(0)

    @T.prim_func(private=True)
    def after(b: T.Buffer((10,), "float32")):
        for t in range(4):
            for i in range(10):
                b[i] = T.float32(0)

    rewrites(IfPromotion(), before, after)


def test_neighbours_under_one_condition_share_an_if() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((10,), "float32"), b: T.Buffer((10,), "float32")):
        for t in range(4):
            u = T.alloc_buffer((10,), scope="local.ub")
            for i in range(10):
                if t < 3:
                    u[i] = a[i]
            for i in range(10):
                if t < 3:
                    b[i] = u[i]

    @T.prim_func(private=True)
    def after(a: T.Buffer((10,), "float32"), b: T.Buffer((10,), "float32")):
        for t in range(4):
            u = T.alloc_buffer((10,), scope="local.ub")
            if t < 3:
                for i in range(10):
                    u[i] = a[i]
                for i in range(10):
                    b[i] = u[i]

    rewrites(IfPromotion(), before, after)


def test_conditions_on_data_stay() -> None:
    @T.prim_func(private=True)
    def kernel(m: T.Buffer((10,), "int32"), a: T.Buffer((10,), "float32"), b: T.Buffer((10,), "float32")):
        for i in range(10):
            for j in range(3):
                if m[i] < 3:
                    b[i] = T.Select(m[0] > 1, a[j], T.float32(1))

    keeps(IfPromotion(), kernel)


def test_marked_statements_are_not_entered() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((10,), "float32")):
        for t in range(4):
            for i in range(10):
                if t < 2:
                    with T.attr(0, "tw.matrix", 1):
                        for j in range(3):
                            if t < 1:
                                b[i] = T.float32(0)

    @T.prim_func(private=True)
    def after(b: T.Buffer((10,), "float32")):
        for t in range(4):
            if t < 2:
                for i in range(10):
                    with T.attr(0, "tw.matrix", 1):
                        for j in range(3):
                            if t < 1:
                                b[i] = T.float32(0)

    rewrites(IfPromotion(), before, after)


def test_copies_are_bounded() -> None:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((4, 10), "float32"), b: T.Buffer((10,), "float32")):
        for j in range(10):
            b[j] = (
                T.if_then_else(j < 2, a[0, j], T.float32(1))
                + T.if_then_else(j < 3, a[1, j], T.float32(2))
                + T.if_then_else(j < 4, a[2, j], T.float32(3))
            )

    keeps(IfPromotion(copies=0), kernel)
