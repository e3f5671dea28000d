"""HoldPieces: of an operand that is loaded again and again, a part stays on the core."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.script import tirx as T

from compiler.target import load_chip
from passes.tir.hold_pieces import HoldPieces

TW1 = load_chip("tw1")


def rewrites(before: Any, after: Any) -> None:
    tvm.ir.assert_structural_equal(HoldPieces().run(before, TW1), after, map_free_vars=True)


def test_the_last_pieces_stay_from_the_first_round_on() -> None:  # noqa: C901  before and after
    @T.prim_func(s_tir=True, private=True)
    def before(a: T.Buffer((2, 32, 512), "float16"), c: T.Buffer((2, 4, 32, 64), "float16")) -> None:
        for p in range(2):
            for t in range(4):
                with T.attr(0, "pragma_held_pieces", 5):
                    for chunk in range(8):
                        x = T.alloc_buffer((32, 64), "float16", scope="shared.l1")
                        with T.attr(0, "pragma_tw_cube", "operand"):
                            for i, k in T.grid(32, 64):
                                x[i, k] = a[p, i, chunk * 64 + k]
                        for step in range(2):
                            y = T.alloc_buffer((32, 32), "float16", scope="local.l0a")
                            with T.attr(0, "pragma_tw_cube", "operand"):
                                for i, k in T.grid(32, 32):
                                    y[i, k] = x[i, step * 32 + k]
                            c[p, t, 0, 0] = y[0, 0]

    @T.prim_func(s_tir=True, private=True)
    def after(a: T.Buffer((2, 32, 512), "float16"), c: T.Buffer((2, 4, 32, 64), "float16")) -> None:
        for p in range(2):
            kept = T.alloc_buffer((32, 320), "float16", scope="shared.l1")
            for t in range(4):
                for chunk in range(8):
                    x = T.alloc_buffer((32, 64), "float16", scope="shared.l1")
                    if chunk < 3:
                        with T.attr(0, "pragma_tw_cube", "operand"):
                            for i, k in T.grid(32, 64):
                                x[i, k] = a[p, i, chunk * 64 + k]
                    else:
                        if t == 0:
                            with T.attr(0, "pragma_tw_cube", "operand"):
                                for i, k in T.grid(32, 64):
                                    kept[i, k + (chunk - 3) * 64] = a[p, i, chunk * 64 + k]
                    for step in range(2):
                        y = T.alloc_buffer((32, 32), "float16", scope="local.l0a")
                        if chunk < 3:
                            with T.attr(0, "pragma_tw_cube", "operand"):
                                for i, k in T.grid(32, 32):
                                    y[i, k] = x[i, step * 32 + k]
                        else:
                            with T.attr(0, "pragma_tw_cube", "operand"):
                                for i, k in T.grid(32, 32):
                                    y[i, k] = kept[i, step * 32 + k + (chunk - 3) * 64]
                        c[p, t, 0, 0] = y[0, 0]

    rewrites(before, after)


def test_what_every_round_loads_anew_passes_by() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before(a: T.Buffer((4, 512), "float16"), c: T.Buffer((4, 512), "float16")) -> None:
        for t in range(4):
            with T.attr(0, "pragma_held_pieces", 5):
                for chunk in range(8):
                    x = T.alloc_buffer((64,), "float16", scope="shared.l1")
                    with T.attr(0, "pragma_tw_cube", "operand"):
                        for k in range(64):
                            x[k] = a[t, chunk * 64 + k]
                    with T.attr(0, "pragma_tw_cube", "operand"):
                        for k in range(64):
                            c[t, chunk * 64 + k] = x[k]

    @T.prim_func(s_tir=True, private=True)
    def after(a: T.Buffer((4, 512), "float16"), c: T.Buffer((4, 512), "float16")) -> None:
        for t in range(4):
            for chunk in range(8):
                x = T.alloc_buffer((64,), "float16", scope="shared.l1")
                with T.attr(0, "pragma_tw_cube", "operand"):
                    for k in range(64):
                        x[k] = a[t, chunk * 64 + k]
                with T.attr(0, "pragma_tw_cube", "operand"):
                    for k in range(64):
                        c[t, chunk * 64 + k] = x[k]

    rewrites(before, after)


def test_pieces_that_overlap_pass_by() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before(a: T.Buffer((512,), "float16"), c: T.Buffer((4, 512), "float16")) -> None:
        for t in range(4):
            with T.attr(0, "pragma_held_pieces", 5):
                for chunk in range(8):
                    x = T.alloc_buffer((64,), "float16", scope="shared.l1")
                    with T.attr(0, "pragma_tw_cube", "operand"):
                        for k in range(64):
                            x[k] = a[chunk * 32 + k]
                    with T.attr(0, "pragma_tw_cube", "operand"):
                        for k in range(64):
                            c[t, chunk * 64 + k] = x[k]

    assert "kept" not in HoldPieces().run(before, TW1).script()
