"""Nests and the instructions they become: the text of what is emitted, and what the record says of the rest."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from compiler.emission.candidates import Candidate
from compiler.emission.decisions import Decision
from compiler.target import load_chip
from passes.tir.emit_instructions import EmitInstructions
from passes.tir.loop_collapse import LoopCollapse
from passes.tir.loop_split import LoopSplit

TW2 = load_chip("tw2")


def emitted(func: Any) -> tuple[list[str], list[Decision]]:
    """The statements of instruction form, one per line without allocations, and the decisions."""
    step = EmitInstructions()
    result = step.run(func, TW2)
    lines = [line.strip() for line in result.script(show_meta=False).splitlines()]
    start = next(n for n, line in enumerate(lines) if line.startswith("def ")) + 1
    kept = [line for line in lines[start:] if "alloc_buffer" not in line and "func_attr" not in line]
    return [_short(line) for line in kept if line], step.decisions


def _short(line: str) -> str:
    for long, short in (('T.call_extern("void", "tw.', ""), ("T.address_of", "&"), ("T.float32", "f")):
        line = line.replace(long, short)
    return line.replace('", ', " ", 1)


def test_loops_that_all_operands_walk_alike_are_one_dimension() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((16, 64), "float32", scope="local.ub")
        b = T.alloc_buffer((16, 64), "float32", scope="local.ub")
        for i, j in T.grid(16, 64):
            b[i, j] = T.exp(a[i, j])

    assert emitted(LoopCollapse().run(func, TW2))[0] == ["vexp.fp32.1d &(b[0, 0]), 1, &(a[0, 0]), 1, 1024)"]


def test_broadcasts_are_strides_of_zero() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((16, 64), "float16", scope="local.ub")
        row = T.alloc_buffer((64,), "float16", scope="local.ub")
        column = T.alloc_buffer((16,), "float16", scope="local.ub")
        for i, j in T.grid(16, 64):
            a[i, j] = (a[i, j] - column[i]) * row[j]

    assert emitted(func)[0] == [
        "vsubmul.fp16.2d &(a[0, 0]), 64, 1, &(a[0, 0]), 64, 1, &(column[0]), 1, 0, &(row[0]), 0, 1, 16, 64)"
    ]


def test_dynamic_extents_are_operands_and_guarded_where_they_may_be_empty() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((64, 64), "float32", scope="local.ub")
        for o in range(8):
            for i, j in T.grid(T.min(16, 100 - o * 16), 8):
                a[i, j] = a[i, j] + T.float32(2)

    assert emitted(func)[0] == [
        "for o in range(8):",
        "if T.min(16, 100 - o * 16) > 0:",
        "vadds.fp32.2d &(a[0, 0]), 64, 1, &(a[0, 0]), 64, 1, f(2.0), T.min(16, 100 - o * 16), 8)",
    ]


def test_stores_keep_the_loops_that_make_whole_lines() -> None:
    """However short they are: of loops left to the scalar unit, each turn moves lines of its own."""

    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((4, 8, 2, 8, 2), "float16")) -> None:
        b = T.alloc_buffer((4, 2, 2, 8, 8), "float16", scope="local.ub")
        for i, j, k, m, n in T.grid(4, 8, 2, 8, 2):
            a[i, j, k, m, n] = b[i, k, n, j, m]

    assert emitted(func)[0] == [
        "for i, k in T.grid(4, 2):",
        "st.ddr.fp16.3d &(a[i, 0, k, 0, 0]), 32, 2, 1, &(b[i, k, 0, 0, 0]), 8, 1, 64, 8, 8, 2)",
    ]


def test_four_dimensions_keep_a_scalar_loop_around_three() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((4, 5, 6, 70), "float16")) -> None:
        b = T.alloc_buffer((4, 6, 5, 80), "float16", scope="local.ub")
        for i, j, k, m in T.grid(4, 5, 6, 70):
            b[i, k, j, m] = a[i, j, k, m]

    lines, _ = emitted(func)
    assert lines == [
        "for i in range(4):",
        "ld.ddr.ub.fp16.3d &(b[i, 0, 0, 0]), 80, 400, 1, &(a[i, 0, 0, 0]), 420, 70, 1, 5, 6, 70)",
    ]


def test_long_loops_are_cut() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((70000,), "int8")) -> None:
        b = T.alloc_buffer((70000,), "int8", scope="local.ub")
        for i in range(70000):
            b[i] = a[i]

    assert emitted(func)[0] == ["ld.ddr.ub.int8.2d &(b[0]), 35000, 1, &(a[0]), 35000, 1, 2, 35000)"]


def test_divided_indices_are_dimensions() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((8, 16), "float32", scope="local.ub")
        b = T.alloc_buffer((8, 32), "float32", scope="local.ub")
        for i, j in T.grid(8, 32):
            b[i, j] = a[i, j // 2]

    split = LoopCollapse().run(LoopSplit().run(func, TW2), TW2)
    assert emitted(split)[0] == ["vcopy.fp32.2d &(b[0, 0]), 1, 2, &(a[0, 0]), 0, 1, 2, 128)"]


def test_long_rows_fold_as_columns_of_blocks_first() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((16, 777), "float32", scope="local.ub")
        m = T.alloc_buffer((16,), "float32", scope="local.ub")
        for i, k in T.grid(16, 777):
            m[i] = T.max(m[i], a[i, k])

    lines, (decision,) = emitted(func)
    assert lines == [
        "vcmax.fp32.3d &(partial[0, 0]), 8, 1, &(a[0, 0]), 777, 8, 1, 16, 97, 8)",
        "vmax.fp32.2d &(partial[0, 0]), 8, 1, &(partial[0, 0]), 8, 1, &(a[0, 776]), 777, 1, 16, 1)",
        "vgmax.fp32.2d &(folded[0]), 1, 1, &(partial[0, 0]), 8, 1, 16, 8)",
        "vmax.fp32.1d &(m[0]), 1, &(m[0]), 1, &(folded[0]), 1, 16)",
    ]
    assert decision.chosen.total_cycles == min(c.total_cycles for c in decision.candidates)
    assert any(c.instruction.startswith("vrmax") for c in decision.candidates)


def test_rows_of_one_block_are_blocks() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((6, 5, 16), "float16", scope="local.ub")
        m = T.alloc_buffer((6, 5), "float16", scope="local.ub")
        for h, i, k in T.grid(6, 5, 16):
            m[h, i] = T.max(m[h, i], a[h, i, k])

    lines, (decision,) = emitted(func)
    assert lines == [
        "vgmax.fp16.3d &(folded[0, 0]), 5, 1, 1, &(a[0, 0, 0]), 80, 16, 1, 6, 5, 16)",
        "vmax.fp16.2d &(m[0, 0]), 5, 1, &(m[0, 0]), 5, 1, &(folded[0, 0]), 5, 1, 6, 5)",
    ]
    assert any(c.instruction.startswith("vrmax") for c in decision.candidates)


def test_halves_are_added_as_they_are_converted() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((4, 512), "float16", scope="local.ub")
        s = T.alloc_buffer((4,), "float32", scope="local.ub")
        for i in range(4):
            s[i] = T.float32(0)
        for i, k in T.grid(4, 512):
            s[i] = s[i] + T.Cast("float32", a[i, k])

    assert emitted(func)[0] == [
        "vaddcast.fp16.fp32.2d &(widened[0, 0]), 256, 1, &(a[0, 0]), 512, 1, &(a[0, 256]), 512, 1, 4, 256)",
        "vcsum.fp32.3d &(partial[0, 0]), 8, 1, &(widened[0, 0]), 256, 8, 1, 4, 32, 8)",
        "vgsum.fp32.2d &(s[0]), 1, 1, &(partial[0, 0]), 8, 1, 4, 8)",
    ]


def test_of_an_odd_number_the_middle_one_is_only_converted() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((77, 64), "float16", scope="local.ub")
        s = T.alloc_buffer((64,), "float32", scope="local.ub")
        for j, k in T.grid(64, 77):
            s[j] = s[j] + T.Cast("float32", a[k, j])

    assert emitted(func)[0] == [
        "vaddcast.fp16.fp32.2d &(widened[0, 0]), 64, 1, &(a[0, 0]), 64, 1, &(a[0, 2496]), 64, 1, 38, 64)",
        "vconv.fp16.fp32.rne.2d &(widened[0, 2432]), 64, 1, &(a[0, 2432]), 64, 1, 1, 64)",
        "vcsum.fp32.2d &(folded[0]), 1, &(widened[0, 0]), 64, 1, 39, 64)",
        "vadd.fp32.1d &(s[0]), 1, &(s[0]), 1, &(folded[0]), 1, 64)",
    ]


def test_squares_fold_as_columns_too() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((4, 512), "float32", scope="local.ub")
        s = T.alloc_buffer((4,), "float32", scope="local.ub")
        for i in range(4):
            s[i] = T.float32(0)
        for i, k in T.grid(4, 512):
            s[i] = s[i] + a[i, k] * a[i, k]

    assert emitted(func)[0] == [
        "vcsqsum.fp32.3d &(partial[0, 0]), 8, 1, &(a[0, 0]), 512, 8, 1, 4, 64, 8)",
        "vgsum.fp32.2d &(s[0]), 1, 1, &(partial[0, 0]), 8, 1, 4, 8)",
    ]


def test_rows_of_two_dimensions_fold_by_blocks_first() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((3, 5, 777), "float32", scope="local.ub")
        m = T.alloc_buffer((3, 9), "float32", scope="local.ub")
        for h, i, k in T.grid(3, 5, 777):
            m[h, i] = T.max(m[h, i], a[h, i, k])

    assert [line.partition(" ")[0] for line in emitted(func)[0]] == [
        "vgmax.fp32.3d",
        "vcopy.fp32.3d",
        "vrmax.fp32.3d",
        "vmax.fp32.2d",
    ]


def test_rows_that_data_chooses() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(table: T.Buffer((100, 64), "float32"), out: T.Buffer((100, 64), "float32")) -> None:
        index = T.alloc_buffer((16,), "int32", scope="local.ub")
        rows = T.alloc_buffer((16, 64), "float32", scope="local.ub")
        some = T.alloc_buffer((16,), "float32", scope="local.ub")
        for i, j in T.grid(16, 64):
            rows[i, j] = table[index[i], j]
        for i in range(16):
            some[i] = rows[3, index[i]]
        for i, j in T.grid(16, 64):
            out[index[i], j] = rows[i, j]

    assert emitted(func)[0] == [
        "ldgather.ddr.fp32 &(rows[0, 0]), &(table[0, 0]), &(index[0]), 16, 64, 64, 100, 64)",
        "vgather.fp32.1d &(some[0]), 1, &(rows[3, 0]), &(index[0]), 1, 64, 16)",
        "for i in range(16):",
        "st.ddr.fp32.1d &(out[index[i], 0]), 1, &(rows[i, 0]), 1, 64)",
    ]


def test_elements_that_data_chooses_in_each_row() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        table = T.alloc_buffer((2, 16, 64), "float16", scope="local.ub")
        index = T.alloc_buffer((16, 2, 24), "int32", scope="local.ub")
        some = T.alloc_buffer((2, 16, 32), "float16", scope="local.ub")
        for b, i, j in T.grid(2, 16, 20):
            some[b, i, j] = table[b, i, index[i, b, j]]

    assert emitted(func)[0] == [
        "vgatherlane.fp16.3d &(some[0, 0, 0]), 512, 32, 1, &(table[0, 0, 0]), 1024, 64, 1, "
        "&(index[0, 0, 0]), 24, 48, 1, 64, 2, 16, 20)",
    ]


def test_index_patterns() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((16, 64), "int32", scope="local.ub")
        for o in range(3):
            for i, j in T.grid(16, 64):
                a[i, j] = j * 2 - i + o

    assert emitted(func)[0][1:] == ["viota.int32.2d &(a[0, 0]), 64, 1, o, 2, -1, 0, 16, 64)"]


def test_what_other_iterations_write_keeps_its_order() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((64,), "float32", scope="local.ub")
        for i in range(63):
            a[i + 1] = a[i] + T.float32(1)

    lines, (decision,) = emitted(func)
    assert lines == ["for i in range(63):", "a[i + 1] = a[i] + f(1.0)"]
    assert decision.chosen.kind == "scalar"
    assert "the order of the iterations matters" in "\n".join(decision.lines())


def test_halves_of_one_buffer_do_not_meet() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((2, 64), "float32", scope="local.ub")
        for i in range(64):
            a[1, i] = a[0, i] + T.float32(1)

    assert emitted(func)[0] == ["vadds.fp32.1d &(a[1, 0]), 1, &(a[0, 0]), 1, f(1.0), 64)"]


def test_candidates_know_their_cost() -> None:
    candidate = Candidate("vadd.fp32.1d", 26, 10, lambda: tirx.Evaluate(tirx.IntImm("int32", 0)), overhead_cycles=6)
    assert candidate.total_cycles == 320


def test_a_fold_writes_what_one_loop_has_filled_for_it() -> None:
    """With as many elements as the fold has results, counted by several loops, however many there are."""

    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((64, 1024), "float16", scope="local.ub")
        b = T.alloc_buffer((64, 16), "float16", scope="local.ub")
        for o in range(8):
            for i in range(T.min(16, 100 - o * 16) * 16):
                b[i // 16, i % 16] = T.float16(0)
            for i, j, k in T.grid(T.min(16, 100 - o * 16), 16, 64):
                b[i, j] = b[i, j] + a[i, k * 16 + j]

    lines = emitted(func)[0]
    assert [line.split(" ")[0] for line in lines[-1:]] == ["vcsum.fp16.3d"], lines
    assert not any(line.startswith(("vdup", "vadd")) for line in lines), lines
