"""BoundMarkedNests: guards of marked nests become bounds."""

from __future__ import annotations

from tvm.script import tirx as T

from passes.tir.bound_marked_nests import BoundMarkedNests
from tests.passes.tir.rewriting import rewrites


def test_guards_become_extents_and_shifts() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((100, 8), "float32"), b: T.Buffer((100, 8), "float32")):
        for t in range(7):
            with T.attr(0, "pragma_tw_cube", "map"):
                for i in range(16):
                    for j in range(8):
                        if t * 16 + i < 100 and 1 <= t + j:
                            b[t * 16 + i, j] = a[t * 16 + i, j]

    @T.prim_func(private=True)
    def after(a: T.Buffer((100, 8), "float32"), b: T.Buffer((100, 8), "float32")):
        for t in range(7):
            with T.attr(0, "pragma_tw_cube", "map"):
                for i in range(T.min(16, 100 - t * 16)):
                    for j in range(8 - T.max(0, 1 - t)):
                        b[t * 16 + i, T.max(0, 1 - t) + j] = a[t * 16 + i, T.max(0, 1 - t) + j]

    rewrites(BoundMarkedNests(), before, after)


def test_a_guard_of_no_loop_goes_outside() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        for t in range(7):
            with T.attr(0, "pragma_tw_cube", "result"):
                for i in range(16):
                    if t < 5:
                        b[i] = a[i]

    @T.prim_func(private=True)
    def after(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        for t in range(7):
            if t < 5:
                with T.attr(0, "pragma_tw_cube", "result"):
                    for i in range(16):
                        b[i] = a[i]

    rewrites(BoundMarkedNests(), before, after)


def test_a_guard_of_two_loops_stays() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((16, 16), "float32"), b: T.Buffer((16, 16), "float32")):
        with T.attr(0, "pragma_tw_cube", "result"):
            for i in range(16):
                for j in range(16):
                    if i + j < 20:
                        b[i, j] = a[i, j]

    rewrites(BoundMarkedNests(), before, before)


def test_nests_without_a_mark_are_not_touched() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        for i in range(16):
            if i < 10:
                b[i] = a[i]

    rewrites(BoundMarkedNests(), before, before)
