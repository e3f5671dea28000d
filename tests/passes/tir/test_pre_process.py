"""PreProcess: stores of compound values become stores that one instruction each can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm.script import tirx as T

from compiler.target import load_chip
from passes.tir.pre_process import PreProcess

TW2 = load_chip("tw2")
TINY = load_chip("tiny")


def rewrites(before: Any, after: Any) -> None:
    result = PreProcess().run(before, TW2)
    tvm.ir.assert_structural_equal(result, after)
    tvm.tirx.analysis.verify_well_formed(result)


def keeps(kernel: Any) -> None:
    assert PreProcess().run(kernel, TW2).same_as(kernel)


def test_a_value_is_worked_out_in_its_destination() -> None:
    @T.prim_func(private=True)
    def before() -> None:
        a = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        s = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        for i, j in T.grid(4, 64):
            s[i, j] = T.sqrt(T.exp(a[i, j])) * T.float32(2)

    @T.prim_func(private=True)
    def after() -> None:
        a = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        s = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        for i, j in T.grid(4, 64):
            s[i, j] = T.exp(a[i, j])
            s[i, j] = T.sqrt(s[i, j])
            s[i, j] = s[i, j] * T.float32(2)

    rewrites(before, after)


def test_rows_are_multiplied_by_reciprocals_of_what_divides_them() -> None:
    @T.prim_func(private=True)
    def before() -> None:
        a = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        s = T.alloc_buffer((4, 64), "float16", scope="local.ub")
        m = T.alloc_buffer((4,), "float32", scope="local.ub")
        for i, j in T.grid(4, 64):
            s[i, j] = T.Cast("float16", a[i, j] / m[i])

    @T.prim_func(private=True)
    def after() -> None:
        a = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        s = T.alloc_buffer((4, 64), "float16", scope="local.ub")
        m = T.alloc_buffer((4,), "float32", scope="local.ub")
        s_div = T.alloc_buffer((4,), "float32", scope="local.ub")
        for i in range(4):
            s_div[i] = T.float32(1) / m[i]
        for i, j in T.grid(4, 64):
            s[i, j] = T.Cast("float16", a[i, j] * s_div[i])

    rewrites(before, after)


def test_what_one_row_does_in_half_precision_is_not_converted() -> None:
    @T.prim_func(private=True)
    def before() -> None:
        a = T.alloc_buffer((64,), "float16", scope="local.ub")
        m = T.alloc_buffer((64,), "float16", scope="local.ub")
        s = T.alloc_buffer((64,), "float16", scope="local.ub")
        for i in range(64):
            s[i] = T.Cast("float16", T.exp(T.Cast("float32", a[i]) - T.Cast("float32", m[i])))

    @T.prim_func(private=True)
    def after() -> None:
        a = T.alloc_buffer((64,), "float16", scope="local.ub")
        m = T.alloc_buffer((64,), "float16", scope="local.ub")
        s = T.alloc_buffer((64,), "float16", scope="local.ub")
        for i in range(64):
            s[i] = T.exp(a[i] - m[i])

    rewrites(before, after)


def test_what_would_be_rounded_between_two_rows_is_converted() -> None:
    @T.prim_func(private=True)
    def before() -> None:
        a = T.alloc_buffer((64,), "float16", scope="local.ub")
        s = T.alloc_buffer((64,), "float16", scope="local.ub")
        for i in range(64):
            s[i] = T.Cast("float16", T.exp(T.sqrt(T.Cast("float32", a[i]))))

    @T.prim_func(private=True)
    def after() -> None:
        a = T.alloc_buffer((64,), "float16", scope="local.ub")
        s = T.alloc_buffer((64,), "float16", scope="local.ub")
        s_exp = T.alloc_buffer((64,), "float32", scope="local.ub")
        for i in range(64):
            s_exp[i] = T.Cast("float32", a[i])
            s_exp[i] = T.sqrt(s_exp[i])
            s_exp[i] = T.exp(s_exp[i])
            s[i] = T.Cast("float16", s_exp[i])

    rewrites(before, after)


def test_a_destination_that_is_read_holds_nothing_else() -> None:
    @T.prim_func(private=True)
    def before() -> None:
        a = T.alloc_buffer((64,), "float32", scope="local.ub")
        s = T.alloc_buffer((64,), "float32", scope="local.ub")
        for i in range(64):
            s[i] = T.exp(T.sin(a[i])) + T.cos(s[i])

    @T.prim_func(private=True)
    def after() -> None:
        a = T.alloc_buffer((64,), "float32", scope="local.ub")
        s = T.alloc_buffer((64,), "float32", scope="local.ub")
        s_exp = T.alloc_buffer((64,), "float32", scope="local.ub")
        s_cos = T.alloc_buffer((64,), "float32", scope="local.ub")
        for i in range(64):
            s_exp[i] = T.sin(a[i])
            s_exp[i] = T.exp(s_exp[i])
            s_cos[i] = T.cos(s[i])
            s[i] = s_exp[i] + s_cos[i]

    rewrites(before, after)


def test_what_one_instruction_does_stays() -> None:
    @T.prim_func(private=True)
    def kernel() -> None:
        a = T.alloc_buffer((64,), "float32", scope="local.ub")
        s = T.alloc_buffer((64,), "float32", scope="local.ub")
        m = T.alloc_buffer((1,), "float32", scope="local.ub")
        for i in range(64):
            s[i] = s[i] + a[i] * T.float32(0.5)
        for i in range(64):
            s[i] = a[i] / (T.float32(1) + T.exp(a[i] * T.float32(-1)))
        for i in range(64):
            m[0] = m[0] + a[i] * s[i]

    keeps(kernel)


def test_what_ddr_holds_is_staged_once_and_apart() -> None:
    @T.prim_func(private=True)
    def before(g: T.Buffer((64,), "float32")) -> None:
        s = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        for i, j in T.grid(4, 64):
            s[i, j] = s[i, j] * g[j] + T.exp(g[j])

    @T.prim_func(private=True)
    def after(g: T.Buffer((64,), "float32")) -> None:
        s = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        s_staged = T.alloc_buffer((64,), "float32", scope="local.ub")
        s_exp = T.alloc_buffer((64,), "float32", scope="local.ub")
        for j in range(64):
            s_staged[j] = g[j]
        for j in range(64):
            s_exp[j] = T.exp(s_staged[j])
        for i, j in T.grid(4, 64):
            s[i, j] = s[i, j] * s_staged[j] + s_exp[j]

    rewrites(before, after)


def test_a_result_for_ddr_passes_through_ub() -> None:
    @T.prim_func(private=True)
    def before(out: T.Buffer((64,), "float16")) -> None:
        a = T.alloc_buffer((64,), "float32", scope="local.ub")
        for i in range(64):
            out[i] = T.Cast("float16", a[i])

    @T.prim_func(private=True)
    def after(out: T.Buffer((64,), "float16")) -> None:
        a = T.alloc_buffer((64,), "float32", scope="local.ub")
        out_cast = T.alloc_buffer((64,), "float16", scope="local.ub")
        for i in range(64):
            out_cast[i] = T.Cast("float16", a[i])
            out[i] = out_cast[i]

    rewrites(before, after)


def test_copies_stay() -> None:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((64,), "float32"), out: T.Buffer((64,), "float32")) -> None:
        s = T.alloc_buffer((64,), "float32", scope="local.ub")
        for i in range(64):
            s[i] = a[i]
        for i in range(64):
            out[i] = s[63 - i]

    keeps(kernel)


def test_what_a_reduction_folds_is_a_temporary() -> None:
    @T.prim_func(private=True)
    def before() -> None:
        a = T.alloc_buffer((8, 64), "float32", scope="local.ub")
        s = T.alloc_buffer((8,), "float32", scope="local.ub")
        for i, k in T.grid(8, 64):
            if k == 0:
                s[i] = T.float32(0)
            s[i] = s[i] + T.exp(a[i, k])

    @T.prim_func(private=True)
    def after() -> None:
        a = T.alloc_buffer((8, 64), "float32", scope="local.ub")
        s = T.alloc_buffer((8,), "float32", scope="local.ub")
        s_exp = T.alloc_buffer((8, 64), "float32", scope="local.ub")
        for i, k in T.grid(8, 64):
            if k == 0:
                s[i] = T.float32(0)
            s_exp[i, k] = T.exp(a[i, k])
            s[i] = s[i] + s_exp[i, k]

    rewrites(before, after)


def test_a_sum_of_what_is_only_converted_stays() -> None:
    @T.prim_func(private=True)
    def kernel() -> None:
        a = T.alloc_buffer((8, 64), "float16", scope="local.ub")
        s = T.alloc_buffer((8,), "float32", scope="local.ub")
        for i, k in T.grid(8, 64):
            s[i] = s[i] + T.Cast("float32", a[i, k])

    keeps(kernel)


def test_a_reduction_into_ddr_is_kept_in_ub() -> None:
    @T.prim_func(private=True)
    def before(out: T.Buffer((8,), "float32")) -> None:
        a = T.alloc_buffer((8, 64), "float32", scope="local.ub")
        for i, k in T.grid(8, 64):
            if k == 0:
                out[i] = T.float32(0)
            out[i] = out[i] + a[i, k]

    @T.prim_func(private=True)
    def after(out: T.Buffer((8,), "float32")) -> None:
        a = T.alloc_buffer((8, 64), "float32", scope="local.ub")
        out_sum = T.alloc_buffer((8,), "float32", scope="local.ub")
        for i, k in T.grid(8, 64):
            if k == 0:
                out_sum[i] = T.float32(0)
            out_sum[i] = out_sum[i] + a[i, k]
        for i in range(8):
            out[i] = out_sum[i]

    rewrites(before, after)


def test_padding_is_a_fill_and_a_smaller_nest() -> None:
    @T.prim_func(private=True)
    def before() -> None:
        a = T.alloc_buffer((64,), "float32", scope="local.ub")
        s = T.alloc_buffer((68,), "float32", scope="local.ub")
        for i in range(68):
            s[i] = T.exp(T.if_then_else(i >= 2 and i < 66, a[i - 2], T.float32(1)))

    @T.prim_func(private=True)
    def after() -> None:
        a = T.alloc_buffer((64,), "float32", scope="local.ub")
        s = T.alloc_buffer((68,), "float32", scope="local.ub")
        s_choice = T.alloc_buffer((68,), "float32", scope="local.ub")
        for i in range(68):
            s_choice[i] = T.float32(1)
            if i >= 2 and i < 66:
                s_choice[i] = a[i - 2]
            s[i] = T.exp(s_choice[i])

    rewrites(before, after)


def test_conditions_that_tie_loops_together_are_masks() -> None:
    @T.prim_func(private=True)
    def before() -> None:
        a = T.alloc_buffer((64, 64), "float32", scope="local.ub")
        for i, j in T.grid(64, 64):
            a[i, j] = T.if_then_else(j <= i, a[i, j], T.float32(-1))

    @T.prim_func(private=True)
    def after() -> None:
        a = T.alloc_buffer((64, 64), "float32", scope="local.ub")
        a_le = T.alloc_buffer((64, 64), "bool", scope="local.ub")
        a_staged = T.alloc_buffer((64, 64), "int32", scope="local.ub")
        for i, j in T.grid(64, 64):
            a_staged[i, j] = j - i
            a_le[i, j] = a_staged[i, j] <= 0
            a[i, j] = T.Select(a_le[i, j], a[i, j], T.float32(-1))

    rewrites(before, after)


def chosen(rows: Callable[[Any], Any], where: Callable[[Any, Any, Any], Any]) -> Any:
    """n rows are loaded; of so many rows, the elements are taken where a condition of their place and n holds."""

    @T.prim_func(private=True)
    def kernel(x: T.Buffer((64, 64), "float32"), n: T.int32) -> None:
        a = T.alloc_buffer((64, 64), "float32", scope="local.ub")
        s = T.alloc_buffer((64, 64), "float32", scope="local.ub")
        for i, j in T.grid(T.min(64, n), 64):
            a[i, j] = x[i, j]
        for i, j in T.grid(rows(n), 64):
            s[i, j] = T.if_then_else(where(i, j, n), a[i, j], T.float32(-1))

    return kernel


def test_a_mask_reads_nothing_that_was_not_loaded() -> None:
    @T.prim_func(private=True)
    def after(x: T.Buffer((64, 64), "float32"), n: T.int32) -> None:
        a = T.alloc_buffer((64, 64), "float32", scope="local.ub")
        s = T.alloc_buffer((64, 64), "float32", scope="local.ub")
        for i, j in T.grid(T.min(64, n), 64):
            a[i, j] = x[i, j]
        for i, j in T.grid(64, 64):
            s[i, j] = T.float32(-1)
            if i + j < n:
                s[i, j] = a[i, j]

    rewrites(chosen(lambda n: 64, lambda i, j, n: i + j < n), after)


def test_rows_that_are_loaded_and_read_alike_are_masked() -> None:
    kernel = chosen(lambda n: T.min(64, n), lambda i, j, n: j <= i)
    assert "T.Select(s_le[i, j], a[i, j], T.float32(-1.0))" in PreProcess().run(kernel, TW2).script()


def test_indices_worked_out_from_data_become_data() -> None:
    @T.prim_func(private=True)
    def before(x: T.Buffer((16,), "int32"), table: T.Buffer((100, 64), "float32")) -> None:
        s = T.alloc_buffer((16, 64), "float32", scope="local.ub")
        for i, j in T.grid(16, 64):
            s[i, j] = table[T.max(x[i], 0), j]

    @T.prim_func(private=True)
    def after(x: T.Buffer((16,), "int32"), table: T.Buffer((100, 64), "float32")) -> None:
        s = T.alloc_buffer((16, 64), "float32", scope="local.ub")
        s_max = T.alloc_buffer((16,), "int32", scope="local.ub")
        for i in range(16):
            s_max[i] = x[i]
            s_max[i] = T.max(s_max[i], 0)
        for i, j in T.grid(16, 64):
            s[i, j] = table[s_max[i], j]

    rewrites(before, after)


def test_nests_too_large_for_ub_are_tiled() -> None:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((100, 1000), "float32"), out: T.Buffer((100, 1000), "float32")) -> None:
        for i, j in T.grid(100, 1000):
            out[i, j] = T.exp(a[i, j])

    text = PreProcess().run(kernel, TINY).script()
    assert "for i in range(100):" in text
    assert "T.alloc_buffer((1000,)" in text
    long = PreProcess().run(_long(), TINY).script()
    assert "a_tile" not in long
    assert "for i_tile in range(" in long


def _long() -> Any:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((100003,), "float32"), out: T.Buffer((100003,), "float32")) -> None:
        for i in range(100003):
            out[i] = T.exp(a[i])

    return kernel


def test_what_other_iterations_write_stays_in_order() -> None:
    @T.prim_func(private=True)
    def kernel() -> None:
        s = T.alloc_buffer((64,), "float32", scope="local.ub")
        for i in range(63):
            s[i + 1] = T.exp(T.sin(s[i]))

    keeps(kernel)


def test_a_part_that_is_worked_out_before_keeps_its_own_guard() -> None:
    @T.prim_func(private=True)
    def before(n: T.int32, m: T.int32) -> None:
        a = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        b = T.alloc_buffer((64,), "float16", scope="local.ub")
        s = T.alloc_buffer((4, 64), "float32", scope="local.ub")
        for i, j in T.grid(4, 64):
            if i < n and j < m:
                s[i, j] = a[i, j] + T.Cast("float32", b[j])

    text = PreProcess().run(before, TW2).script()
    cast = text.index("Cast(")
    assert "if j < m" in text[:cast]
