"""SpreadLoads: what stays on the core comes piece by piece, beside its first use."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.script import tirx as T

from compiler.target import load_chip
from compiler.tir.loads_ahead import KEEP, SPREAD
from passes.tir.spread_loads import SpreadLoads

TW2 = load_chip("tw2")


def rewrites(before: Any, after: Any) -> None:
    tvm.ir.assert_structural_equal(SpreadLoads().run(before, TW2), after, map_free_vars=True)


def keeps(kernel: Any) -> None:
    assert SpreadLoads().run(kernel, TW2).same_as(kernel)


def test_a_held_operand_comes_with_the_chunks_of_the_first_round() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before(a: T.Buffer((32, 500), "float16"), c: T.Buffer((4, 32, 500), "float16")) -> None:
        l1 = T.alloc_buffer((32, 500), "float16", scope="shared.l1")
        with T.attr(0, "pragma_tw_cube", "operand"):
            for i, k in T.grid(32, 500):
                l1[i, k] = a[i, k]
        for t in range(4):
            for chunk in range(2):
                for i, k in T.grid(32, 256):
                    c[t, i, chunk * 256 + k] = l1[i, chunk * 256 + k]

    @T.prim_func(s_tir=True, private=True)
    def after(a: T.Buffer((32, 500), "float16"), c: T.Buffer((4, 32, 500), "float16")) -> None:
        l1 = T.alloc_buffer((32, 500), "float16", scope="shared.l1")
        for t in range(4):
            for chunk in range(2):
                if t == 0:
                    with T.attr(0, "pragma_tw_cube", "operand"):
                        for i, k in T.grid(32, T.min(256, 500 - chunk * 256)):
                            l1[i, chunk * 256 + k] = a[i, chunk * 256 + k]
                for i, k in T.grid(32, 256):
                    c[t, i, chunk * 256 + k] = l1[i, chunk * 256 + k]

    # Rows of 1000 bytes begin anywhere in a line of DDR: pieces of four lines are long enough.
    rewrites(before, after)


def test_so_does_one_matrix_of_several() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before(a: T.Buffer((8, 32, 512), "float16"), c: T.Buffer((4, 32, 512), "float16")) -> None:
        l1 = T.alloc_buffer((1, 32, 512), "float16", scope="shared.l1")
        with T.attr(0, "pragma_tw_cube", "operand"):
            for i, k in T.grid(32, 512):
                l1[0, i, k] = a[3, i, k]
        for t in range(4):
            for chunk in range(2):
                for i, k in T.grid(32, 256):
                    c[t, i, chunk * 256 + k] = l1[0, i, chunk * 256 + k]

    @T.prim_func(s_tir=True, private=True)
    def after(a: T.Buffer((8, 32, 512), "float16"), c: T.Buffer((4, 32, 512), "float16")) -> None:
        l1 = T.alloc_buffer((1, 32, 512), "float16", scope="shared.l1")
        for t in range(4):
            for chunk in range(2):
                if t == 0:
                    with T.attr(0, "pragma_tw_cube", "operand"):
                        for i, k in T.grid(32, 256):
                            l1[0, i, chunk * 256 + k] = a[3, i, chunk * 256 + k]
                for i, k in T.grid(32, 256):
                    c[t, i, chunk * 256 + k] = l1[0, i, chunk * 256 + k]

    rewrites(before, after)


def in_chunks(columns: int, length: int) -> Any:
    """32 rows that stay, used in chunks of such a length in four rounds."""

    @T.prim_func(s_tir=True, private=True)
    def kernel(a: T.Buffer((32, columns), "float16"), c: T.Buffer((4, 32, columns), "float16")) -> None:
        l1 = T.alloc_buffer((32, columns), "float16", scope="shared.l1")
        with T.attr(0, "pragma_tw_cube", "operand"):
            for i, k in T.grid(32, columns):
                l1[i, k] = a[i, k]
        for t in range(4):
            for chunk in range((columns + length - 1) // length):
                for i, k in T.grid(32, length):
                    c[t, i, chunk * length + k] = l1[i, chunk * length + k]

    return kernel


def test_what_comes_as_fast_as_its_first_byte_stays_whole() -> None:
    """16 KB take 210 cycles on the way from DDR to L1 of tw2, and 214 pass until the first of them is there."""
    keeps(in_chunks(256, 128))
    longer = in_chunks(512, 128)
    assert not SpreadLoads().run(longer, TW2).same_as(longer)


def test_short_pieces_of_rows_that_begin_anywhere_are_not_cut() -> None:
    keeps(in_chunks(500, 64))


def test_what_the_vector_unit_takes_apart_on_the_way_is_not_cut() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel(a: T.Buffer((8192,), "float32"), c: T.Buffer((4, 8192), "float32")) -> None:
        l1 = T.alloc_buffer((8192,), "float32", scope="shared.l1")
        with T.attr(0, "pragma_tw_cube", "halves"):
            for k in range(8192):
                l1[k] = a[k]
        for t in range(4):
            for chunk in range(2):
                for k in range(4096):
                    c[t, chunk * 4096 + k] = l1[chunk * 4096 + k]

    keeps(kernel)


def test_what_is_used_out_of_order_is_loaded_first() -> None:
    """Every turn reads over the border of its piece."""

    @T.prim_func(s_tir=True, private=True)
    def kernel(a: T.Buffer((32, 512), "float16"), c: T.Buffer((4, 32, 512), "float16")) -> None:
        l1 = T.alloc_buffer((32, 512), "float16", scope="shared.l1")
        with T.attr(0, "pragma_tw_cube", "operand"):
            for i, k in T.grid(32, 512):
                l1[i, k] = a[i, k]
        for t in range(4):
            for chunk in range(3):
                for i, k in T.grid(32, 129):
                    c[t, i, chunk * 128 + k] = l1[i, chunk * 128 + k]

    keeps(kernel)


def test_a_load_beside_one_round_of_pieces_stays() -> None:
    """Without loops around the pieces a smaller chunk would do the same."""

    @T.prim_func(s_tir=True, private=True)
    def kernel(a: T.Buffer((32, 512), "float16"), c: T.Buffer((32, 512), "float16")) -> None:
        l1 = T.alloc_buffer((32, 512), "float16", scope="shared.l1")
        with T.attr(0, "pragma_tw_cube", "operand"):
            for i, k in T.grid(32, 512):
                l1[i, k] = a[i, k]
        for chunk in range(4):
            for i, k in T.grid(32, 128):
                c[i, chunk * 128 + k] = l1[i, chunk * 128 + k]

    keeps(kernel)


def test_a_use_under_a_branch_on_the_way_keeps_the_load_where_it_is() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel(a: T.Buffer((32, 512), "float16"), c: T.Buffer((4, 32, 512), "float16")) -> None:
        l1 = T.alloc_buffer((32, 512), "float16", scope="shared.l1")
        with T.attr(0, "pragma_tw_cube", "operand"):
            for i, k in T.grid(32, 512):
                l1[i, k] = a[i, k]
        for t in range(4):
            if t > 0:
                for chunk in range(4):
                    for i, k in T.grid(32, 128):
                        c[t, i, chunk * 128 + k] = l1[i, chunk * 128 + k]

    keeps(kernel)


def held(turns: int) -> Any:
    """A panel in each turn, used in chunks in four rounds."""

    @T.prim_func(s_tir=True, private=True)
    def kernel(a: T.Buffer((turns * 32, 512), "float16"), c: T.Buffer((turns, 4, 32, 512), "float16")) -> None:
        for panel in range(turns):
            l1 = T.alloc_buffer((32, 512), "float16", scope="shared.l1")
            with T.attr(0, "pragma_tw_cube", "operand"):
                for i, k in T.grid(32, 512):
                    l1[i, k] = a[panel * 32 + i, k]
            for t in range(4):
                for chunk in range(2):
                    for i, k in T.grid(32, 256):
                        c[panel, t, i, chunk * 256 + k] = l1[i, chunk * 256 + k]

    return kernel


def test_what_may_come_a_turn_ahead_is_said_and_can_be_kept_whole() -> None:
    kernel = held(turns=8)
    spread = SpreadLoads().run(kernel, TW2)
    assert not spread.body.same_as(kernel.body) and spread.attrs[SPREAD] == 1
    keeps(kernel.with_attr(KEEP, 1))


def test_where_one_turn_is_all_there_is_no_choice() -> None:
    alone = SpreadLoads().run(held(turns=1).with_attr(KEEP, 1), TW2)
    assert SPREAD not in alone.attrs and not alone.body.same_as(held(turns=1).body)
