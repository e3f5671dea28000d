"""GuardTurns: the condition of a turn is asked once, where nothing that it does not guard is for others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from compiler.target import load_chip
from passes.tir.guard_turns import GuardTurns
from tests.codegen.kernels import linked, run
from tests.passes.tir.rewriting import keeps

TINY = load_chip("tiny")


@T.prim_func(s_tir=True, private=True)
def ragged(a: T.Buffer((7, 64), "float16"), o: T.Buffer((7, 64), "float16")) -> None:
    """Two cores have four rows each, of which the last one's last is not there."""
    bx = T.launch_thread("blockIdx.x", 2)
    for t in range(4):
        x = T.alloc_buffer((64,), "float16", scope="local.ub")
        ones = T.alloc_buffer((64,), "float16", scope="local.ub")
        y = T.alloc_buffer((64,), "float16", scope="local.ub")
        if bx * 4 + t < 7:
            T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(x[0]), 1, T.address_of(a[bx * 4 + t, 0]), 1, 64)
        T.call_extern("void", "tw.vdup.fp16.1d", T.address_of(ones[0]), 1, T.float32(1), 64)
        for i in range(2):
            if bx * 4 + t < 7:
                T.call_extern(
                    "void", "tw.vadd.fp16.1d",
                    T.address_of(y[i * 32]), 1, T.address_of(x[i * 32]), 1, T.address_of(ones[i * 32]), 1, 32,
                )  # fmt: skip
        if bx * 4 + t < 7:
            T.call_extern("void", "tw.st.ddr.fp16.1d", T.address_of(o[bx * 4 + t, 0]), 1, T.address_of(y[0]), 1, 64)


def conditions(func: Any) -> int:
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.IfThenElse, found.append))
    return len(found)


def test_a_turn_is_asked_for_once_and_does_the_same() -> None:
    guarded, a = GuardTurns().run(ragged, TINY), np.arange(448, dtype=np.float16).reshape(7, 64)
    assert (conditions(ragged), conditions(guarded)) == (3, 1)
    (loop,) = _all(guarded, tirx.For, lambda one: int(one.extent) == 4)
    assert isinstance(loop.body, tirx.IfThenElse)
    for func in (ragged, guarded):
        program = linked([(func, ("a", "o"))], TINY, {"a": "input", "o": "output"})
        np.testing.assert_array_equal(run(program, TINY, {"a": a}).outputs["o"], a + 1)


def _all(func: Any, kind: Any, where: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (kind, found.append))
    return [one for one in found if where(one)]


@pytest.mark.parametrize("where", ["first", "for others", "outside", "load", "data", "alone"])
def test_what_is_for_others_stays_outside(where: str) -> None:
    """Under a condition that the turn's follows from it may be inside."""
    bx = tirx.Var("bx", "int32")
    a, o = (tirx.decl_buffer((8, 64), "float16", name, layout=None) for name in "ao")
    rows = tirx.decl_buffer((8,), "int32", "rows", layout=None)
    x, kept = (tirx.decl_buffer((64,), "float16", name, scope="local.ub", layout=None) for name in ("x", "kept"))
    t = tirx.Var("t", "int32")

    def call(name: str, *operands: Any) -> Any:
        return tirx.Evaluate(tirx.call_extern("void", f"tw.{name}", *operands))

    def at(buffer: Any, *indices: Any) -> Any:
        return tirx.address_of(tirx.BufferLoad(buffer, [*indices]))

    condition = bx * 4 + t < (rows[t] if where == "data" else 7)
    load = call("ld.ddr.ub.fp16.1d", at(x, 0), 1, at(a, bx * 4 + t, 0), 1, 64)
    store = call("st.ddr.fp16.1d", at(o, bx * 4 + t, 0), 1, at(x, 0), 1, 64)
    other = {
        "first": tirx.IfThenElse(
            t.equal(0), call("vdup.fp16.1d", at(kept, 0), 1, tirx.const(1.0, "float32"), 64), None
        ),
        "for others": call("st.ddr.fp16.1d", at(o, t, 0), 1, at(kept, 0), 1, 64),
        "outside": call("vdup.fp16.1d", at(kept, 0), 1, tirx.const(1.0, "float32"), 64),
        "load": call("ld.ddr.ub.fp16.1d", at(x, 0), 1, at(a, t, 0), 1, 64),  # other cores may take part
        "data": call("vdup.fp16.1d", at(x, 0), 1, tirx.const(1.0, "float32"), 64),
        "alone": call("vdup.fp16.1d", at(x, 0), 1, tirx.const(1.0, "float32"), 64),
    }[where]
    guarded = [load, store] if where != "alone" else [store]
    parts = [tirx.AllocBuffer(x), other, *(tirx.IfThenElse(condition, part, None) for part in guarded)]
    loop = tirx.For(t, 0, 4, tirx.ForKind.SERIAL, tirx.SeqStmt(parts))
    axis = tirx.IterVar((0, 2), bx, tirx.IterVar.ThreadIndex, "blockIdx.x")
    threads = tirx.AttrStmt(axis, "thread_extent", tirx.const(2, "int32"), loop)
    func = tirx.PrimFunc([a, o, rows], tirx.SeqStmt([tirx.AllocBuffer(kept), threads]))
    if where == "first":
        assert conditions(GuardTurns().run(func, TINY)) == 2
    else:
        keeps(GuardTurns(), func)
