"""LoopSplit: quotients and remainders of loop variables become loops of their own."""

# ruff: noqa: B007 - kernels in TVMScript are data, not control flow

from __future__ import annotations

from tvm.script import tirx as T

from compiler.tir_check import differs
from passes.tir.loop_split import LoopSplit
from tests.passes.tir.rewriting import TINY, keeps, rewrites


def test_a_quotient_with_a_tail() -> None:
    @T.prim_func(private=True)
    def before(x: T.Buffer((11,), "float32"), y: T.Buffer((3,), "float32")):
        for v in range(11):
            x[v] = y[v // 4]

    @T.prim_func(private=True)
    def after(x: T.Buffer((11,), "float32"), y: T.Buffer((3,), "float32")):
        for vo in range(2):
            for vi in range(4):
                x[vo * 4 + vi] = y[vo]
        for v in range(3):
            x[v + 8] = y[2]

    rewrites(LoopSplit(), before, after)


def test_a_quotient_that_starts_in_the_middle_of_a_tile() -> None:
    @T.prim_func(private=True)
    def before(x: T.Buffer((64,), "float32"), y: T.Buffer((33,), "float32")):
        for t in range(4):
            for v in range(16):
                x[t * 16 + v] = y[(t * 16 + v + 1) // 2]

    @T.prim_func(private=True)
    def after(x: T.Buffer((64,), "float32"), y: T.Buffer((33,), "float32")):
        for t in range(4):
            for v in range(1):
                x[t * 16] = y[t * 8]
            for vo in range(7):
                for vi in range(2):
                    x[t * 16 + vo * 2 + vi + 1] = y[t * 8 + vo + 1]
            for v in range(1):
                x[t * 16 + 15] = y[t * 8 + 8]

    rewrites(LoopSplit(), before, after)


def test_a_condition_on_a_remainder() -> None:
    @T.prim_func(private=True)
    def before(x: T.Buffer((12,), "float32")):
        for v in range(12):
            if v % 3 == 1:
                x[v] = T.float32(1)

    @T.prim_func(private=True)
    def after(x: T.Buffer((12,), "float32")):
        for vo in range(4):
            for vi in range(3):
                if vi == 1:
                    x[vo * 3 + vi] = T.float32(1)

    rewrites(LoopSplit(), before, after)


def test_what_is_affine_in_the_flat_view_stays() -> None:
    @T.prim_func(private=True)
    def kernel(x: T.Buffer((12,), "float32"), y: T.Buffer((3, 4), "float32"), z: T.Buffer((40,), "float32")):
        for v in range(12):
            x[v] = y[v // 4, v % 4]
        for v in range(12):
            x[v] = z[v * 3 // 2]

    keeps(LoopSplit(), kernel)


def test_a_transposed_reshape() -> None:
    @T.prim_func(private=True)
    def before(x: T.Buffer((12,), "float32"), y: T.Buffer((4, 3), "float32")):
        for v in range(12):
            x[v] = y[v % 4, v // 4]

    @T.prim_func(private=True)
    def after(x: T.Buffer((12,), "float32"), y: T.Buffer((4, 3), "float32")):
        for vo in range(3):
            for vi in range(4):
                x[vo * 4 + vi] = y[vi, vo]

    rewrites(LoopSplit(), before, after)


def test_an_extent_that_may_end_before_the_first_period() -> None:
    @T.prim_func(private=True)
    def before(x: T.Buffer((40,), "float32"), y: T.Buffer((40,), "float32")):
        for t in range(9):
            for v in range(T.min(12, 20 - t * 4)):
                x[v] = y[(v + 2) // 4]

    after = LoopSplit().run(before, TINY)
    assert not after.same_as(before)
    assert differs(before, after, seed=0) is None


def test_a_quotient_that_changes_with_every_iteration_is_left_alone() -> None:
    @T.prim_func(private=True)
    def kernel(x: T.Buffer((12,), "float32")):
        for v in range(12):
            if (v * 2 + 4) // 2 < 9:
                x[v] = T.float32(1)

    keeps(LoopSplit(), kernel)
