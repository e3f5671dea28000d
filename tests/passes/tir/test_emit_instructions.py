"""EmitInstructions: nests of a whole kernel become instructions, with a record of every decision."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm.script import tirx as T

from compiler.emission.errors import NotEmittable
from compiler.target import load_chip
from passes.tir.emit_instructions import STATISTICS, EmitInstructions

TW2 = load_chip("tw2")


def instructions(func: Any) -> list[str]:
    """The names of the instructions that a kernel calls, in the order of the text."""
    lines = EmitInstructions().run(func, TW2).script().splitlines()
    return [line.split('"tw.')[1].split('"')[0] for line in lines if '"tw.' in line and "call_extern" in line]


def test_loops_ifs_and_allocations_around_nests_stay() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before(x: T.Buffer((100, 64), "float32"), out: T.Buffer((100, 64), "float32")) -> None:
        for o in range(7):
            a = T.alloc_buffer((16, 64), "float32", scope="local.ub")
            if o < 6:
                for i, j in T.grid(16, 64):
                    a[i, j] = x[o * 16 + i, j]
                for i, j in T.grid(16, 64):
                    out[o * 16 + i, j] = a[i, j]

    @T.prim_func(s_tir=True, private=True)
    def after(x: T.Buffer((100, 64), "float32"), out: T.Buffer((100, 64), "float32")) -> None:
        T.func_attr({"tw.emission": {"copy": 2}})
        for o in range(7):
            a = T.alloc_buffer((16, 64), "float32", scope="local.ub")
            if o < 6:
                T.evaluate(
                    T.call_extern(
                        "void",
                        "tw.ld.ddr.ub.fp32.2d",
                        *(T.address_of(a[0, 0]), 64, 1),
                        *(T.address_of(x[o * 16, 0]), 64, 1),
                        *(16, 64),
                    )
                )
                T.evaluate(
                    T.call_extern(
                        "void",
                        "tw.st.ddr.fp32.2d",
                        *(T.address_of(out[o * 16, 0]), 64, 1),
                        *(T.address_of(a[0, 0]), 64, 1),
                        *(16, 64),
                    )
                )

    tvm.ir.assert_structural_equal(EmitInstructions().run(before, TW2), after)


def test_a_sum_of_rows_that_starts_from_nothing_writes_its_destination() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((16, 16), "float32", scope="local.ub")
        s = T.alloc_buffer((16,), "float32", scope="local.ub")
        for i in range(16):
            s[i] = T.float32(0)
        for i, k in T.grid(16, 16):
            s[i] = s[i] + a[i, k] * a[i, k]

    assert instructions(func) == ["vcsqsum.fp32.2d"]


def test_what_stands_between_a_fill_and_its_reduction_does_not_matter() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        x = T.alloc_buffer((16, 16), "float16", scope="local.ub")
        a = T.alloc_buffer((16, 16), "float32", scope="local.ub")
        s = T.alloc_buffer((16,), "float32", scope="local.ub")
        for i in range(16):
            s[i] = T.float32(0)
        for i, k in T.grid(16, 16):
            a[i, k] = T.Cast("float32", x[i, k])
        for i, k in T.grid(16, 16):
            s[i] = s[i] + a[i, k] * a[i, k]

    assert instructions(func) == ["vconv.fp16.fp32.rne.2d", "vcsqsum.fp32.2d"]


def test_what_nothing_does_names_the_store_and_the_reasons() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((64,), "float32", scope="local.ub")
        for i in range(63):
            a[i + 1] = T.exp(a[i])

    with pytest.raises(NotEmittable) as error:
        EmitInstructions().run(func, TW2)
    (problem,) = error.value.problems
    assert problem.code == "TW5601"
    assert "a[i + 1] = exp(a[i])" in problem.message
    assert "the scalar unit has no exp of fp32" in problem.message


def test_statistics_count_by_kind() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((64,), "float32")) -> None:
        b = T.alloc_buffer((64,), "float32", scope="local.ub")
        for i in range(64):
            b[i] = a[i]
        for i in range(64):
            b[i] = T.exp(b[i])

    counted = EmitInstructions().run(func, TW2).attrs[STATISTICS]
    assert {str(kind): int(count) for kind, count in counted.items()} == {"copy": 1, "vector": 1}


def test_a_fill_of_another_place_stays() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((16, 16), "float32", scope="local.ub")
        s = T.alloc_buffer((17,), "float32", scope="local.ub")
        for i in range(16):
            s[i + 1] = T.float32(0)
        for i, k in T.grid(16, 16):
            s[i] = s[i] + a[i, k]

    assert instructions(func)[0] == "vdup.fp32.1d"
    assert instructions(func)[-1] == "vadd.fp32.1d"


def test_a_fill_with_another_value_stays() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((16, 16), "float32", scope="local.ub")
        s = T.alloc_buffer((16,), "float32", scope="local.ub")
        for i in range(16):
            s[i] = T.float32(1)
        for i, k in T.grid(16, 16):
            s[i] = s[i] + a[i, k]

    assert instructions(func)[0] == "vdup.fp32.1d"
    assert instructions(func)[-1] == "vadd.fp32.1d"


def test_decisions_record_every_nest() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((16, 16), "float32", scope="local.ub")
        for i, j in T.grid(16, 16):
            a[i, j] = T.max(a[i, j], T.float32(0))

    step = EmitInstructions()
    step.run(func, TW2)
    (decision,) = step.decisions
    assert decision.chosen.instruction == "vrelu.fp32.2d"
    assert {c.instruction for c in decision.candidates} == {"vrelu.fp32.2d", "vmaxs.fp32.2d", "scalar"}
    assert decision.lines()[1].startswith("> ")
