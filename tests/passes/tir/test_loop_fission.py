"""LoopFission: one store per nest, wherever the order of reads and writes allows."""

# ruff: noqa: C901 - kernels in TVMScript are data, not control flow

from __future__ import annotations

from tvm.script import tirx as T

from passes.tir.loop_fission import LoopFission
from tests.passes.tir.rewriting import keeps, rewrites


def test_the_init_of_a_reduction_leaves_its_update() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8, 9), "float32"), s: T.Buffer((8,), "float32")):
        for i in range(8):
            for k in range(9):
                if k == 0:
                    s[i] = T.float32(0)
                s[i] = s[i] + a[i, k]

    @T.prim_func(private=True)
    def after(a: T.Buffer((8, 9), "float32"), s: T.Buffer((8,), "float32")):
        for i in range(8):
            for k in range(9):
                if k == 0:
                    s[i] = T.float32(0)
        for i in range(8):
            for k in range(9):
                s[i] = s[i] + a[i, k]

    rewrites(LoopFission(), before, after)


def test_an_init_guarded_by_a_split_axis() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8, 36), "float32"), s: T.Buffer((8,), "float32")):
        for ko in range(4):
            for i in range(8):
                for k in range(9):
                    if ko * 9 + k == 0:
                        s[i] = T.float32(0)
                    s[i] = s[i] + a[i, ko * 9 + k]

    @T.prim_func(private=True)
    def after(a: T.Buffer((8, 36), "float32"), s: T.Buffer((8,), "float32")):
        for ko in range(4):
            for i in range(8):
                for k in range(9):
                    if ko * 9 + k == 0:
                        s[i] = T.float32(0)
        for ko in range(4):
            for i in range(8):
                for k in range(9):
                    s[i] = s[i] + a[i, ko * 9 + k]

    rewrites(LoopFission(), before, after)


def test_an_init_that_comes_again_stays() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8, 36), "float32"), s: T.Buffer((1,), "float32"), o: T.Buffer((8,), "float32")):
        for i in range(8):
            s[0] = T.float32(0)
            for k in range(36):
                s[0] = s[0] + a[i, k]
            o[i] = s[0]

    keeps(LoopFission(), before)


def test_a_value_used_in_its_own_iteration() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")):
        for i in range(8):
            b[i] = a[i] + T.float32(1)
            c[i] = b[i] * T.float32(2)

    @T.prim_func(private=True)
    def after(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")):
        for i in range(8):
            b[i] = a[i] + T.float32(1)
        for i in range(8):
            c[i] = b[i] * T.float32(2)

    rewrites(LoopFission(), before, after)


def test_a_value_used_in_the_next_iteration() -> None:
    @T.prim_func(private=True)
    def forward(b: T.Buffer((9,), "float32"), c: T.Buffer((9,), "float32")):
        for i in range(8):
            b[i + 1] = T.float32(1)
            c[i] = b[i] * T.float32(2)

    @T.prim_func(private=True)
    def forward_after(b: T.Buffer((9,), "float32"), c: T.Buffer((9,), "float32")):
        for i in range(8):
            b[i + 1] = T.float32(1)
        for i in range(8):
            c[i] = b[i] * T.float32(2)

    @T.prim_func(private=True)
    def backward(b: T.Buffer((9,), "float32"), c: T.Buffer((9,), "float32")):
        for i in range(8):
            c[i] = b[i] * T.float32(2)
            b[i + 1] = c[i]

    rewrites(LoopFission(), forward, forward_after)
    keeps(LoopFission(), backward)


def test_tiles_of_a_buffer_do_not_meet() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((64,), "float32"), u: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        for t in range(4):
            for i in range(16):
                u[t * 16 + i] = a[t * 16 + i]
            for i in range(16):
                b[t * 16 + i] = u[t * 16 + i] + u[t * 16]

    @T.prim_func(private=True)
    def after(a: T.Buffer((64,), "float32"), u: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        for t in range(4):
            for i in range(16):
                u[t * 16 + i] = a[t * 16 + i]
        for t in range(4):
            for i in range(16):
                b[t * 16 + i] = u[t * 16 + i] + u[t * 16]

    rewrites(LoopFission(), before, after)


def test_steps_of_one_reduction_may_change_places() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((64,), "float32"), s: T.Buffer((4,), "float32"), m: T.Buffer((4,), "float32")):
        for i in range(4):
            for k in range(16):
                s[i] = s[i] + a[k]
                s[i] = s[i] + a[k + 16]
                m[i] = m[i] + a[k]
                m[i] = T.max(m[i], a[k])

    @T.prim_func(private=True)
    def after(a: T.Buffer((64,), "float32"), s: T.Buffer((4,), "float32"), m: T.Buffer((4,), "float32")):
        for i in range(4):
            for k in range(16):
                s[i] = s[i] + a[k]
        for i in range(4):
            for k in range(16):
                s[i] = s[i] + a[k + 16]
        for i in range(4):
            for k in range(16):
                m[i] = m[i] + a[k]
                m[i] = T.max(m[i], a[k])

    rewrites(LoopFission(), before, after)


def test_gathers_and_definitions_keep_a_loop_together() -> None:
    @T.prim_func(private=True)
    def gather(x: T.Buffer((9,), "int32"), b: T.Buffer((9,), "float32"), c: T.Buffer((9,), "float32")):
        for i in range(8):
            b[i] = T.float32(1)
            c[i] = b[x[i]]

    @T.prim_func(private=True)
    def definition(a: T.Buffer((9,), "float32"), b: T.Buffer((9,), "float32")):
        for i in range(8):
            u = T.alloc_buffer((1,), scope="local.ub")
            u[0] = a[i]
            b[i] = u[0]

    keeps(LoopFission(), gather)
    keeps(LoopFission(), definition)
