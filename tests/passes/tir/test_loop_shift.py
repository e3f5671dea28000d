"""LoopShift: loops count from zero by one."""

# ruff: noqa: B007 - kernels in TVMScript are data, not control flow

from __future__ import annotations

from tvm.script import tirx as T

from passes.tir.loop_shift import LoopShift
from tests.passes.tir.rewriting import rewrites


def test_a_minimum_moves_into_the_indices() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((40,), "float32"), b: T.Buffer((40,), "float32")):
        for i in range(3, 33):
            b[i] = a[i + 7]

    @T.prim_func(private=True)
    def after(a: T.Buffer((40,), "float32"), b: T.Buffer((40,), "float32")):
        for i in range(30):
            b[i + 3] = a[i + 10]

    rewrites(LoopShift(), before, after)


def test_a_step_becomes_a_factor() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((40,), "float32"), b: T.Buffer((40,), "float32")):
        for i in range(1, 10, 4):
            b[i] = a[i]

    @T.prim_func(private=True)
    def after(a: T.Buffer((40,), "float32"), b: T.Buffer((40,), "float32")):
        for i in range(3):
            b[i * 4 + 1] = a[i * 4 + 1]

    rewrites(LoopShift(), before, after)


def test_a_loop_of_one_iteration_is_its_body() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((40, 5), "float32"), b: T.Buffer((40,), "float32")):
        for i in range(2, 3):
            for j in range(5):
                for k in range(1):
                    b[i + j] = a[i + k, j]

    @T.prim_func(private=True)
    def after(a: T.Buffer((40, 5), "float32"), b: T.Buffer((40,), "float32")):
        for j in range(5):
            b[j + 2] = a[2, j]

    rewrites(LoopShift(), before, after)


def test_a_loop_that_never_runs_is_gone() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((40,), "float32")):
        for i in range(2, 2):
            b[i] = T.float32(1)
        for i in range(3):
            b[i] = T.float32(2)

    @T.prim_func(private=True)
    def after(b: T.Buffer((40,), "float32")):
        for i in range(3):
            b[i] = T.float32(2)

    rewrites(LoopShift(), before, after)


def test_a_tile_loop_of_at_most_one_iteration_is_an_if() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((40,), "float32")):
        for t in range(4):
            u = T.alloc_buffer((40,), scope="local.ub")
            for i in range(1 - t):
                for j in range(8):
                    u[i + j + t] = T.float32(1)
            for i in range(8):
                b[i] = u[i]

    @T.prim_func(private=True)
    def after(b: T.Buffer((40,), "float32")):
        for t in range(4):
            u = T.alloc_buffer((40,), scope="local.ub")
            if t == 0:
                for j in range(8):
                    u[j] = T.float32(1)
            for i in range(8):
                b[i] = u[i]

    rewrites(LoopShift(), before, after)


def test_annotated_loops_stay_loops() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((40,), "float32")):
        for i in T.serial(2, 3, annotations={"tw.double_buffer": 2}):
            b[i] = T.float32(1)

    @T.prim_func(private=True)
    def after(b: T.Buffer((40,), "float32")):
        for i in T.serial(1, annotations={"tw.double_buffer": 2}):
            b[2] = T.float32(1)

    rewrites(LoopShift(), before, after)


def test_marked_statements_follow_their_variables() -> None:
    @T.prim_func(private=True)
    def before(b: T.Buffer((40,), "float32")):
        for i in range(2, 4):
            with T.attr(0, "tw.special", 1):
                for j in range(1, 2):
                    b[i + j] = T.float32(1)

    @T.prim_func(private=True)
    def after(b: T.Buffer((40,), "float32")):
        for i in range(2):
            with T.attr(0, "tw.special", 1):
                for j in range(1, 2):
                    b[i + 2 + j] = T.float32(1)

    rewrites(LoopShift(), before, after)
