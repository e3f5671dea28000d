"""Kernels become one program: DDR is planned by lifetime, and what depends is kept apart."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

from compiler.codegen import GraphBuffer, MemoryOverflow, PlacedKernel, generate, link, plan_ddr
from compiler.errors import InvalidError
from compiler.isa.program import MAX_INSTRUCTIONS
from compiler.target import load_chip
from tests.codegen.kernels import linked, place, run

TINY = load_chip("tiny")


def added(rows: int, constant: float, cores: int) -> Any:
    """o = a + constant, row by row."""
    a, o = tirx.decl_buffer((rows, 64), "float32", "a"), tirx.decl_buffer((rows, 64), "float32", "o")
    ub = tirx.decl_buffer((64,), "float32", "ub", scope="local.ub")
    core, loop = tirx.Var("bx", "int32"), tirx.Var("i", "int32")
    one, zero = tirx.IntImm("int32", 1), tirx.IntImm("int32", 0)
    row = core * (rows // cores) + loop
    count = tirx.IntImm("int32", 64)

    def at(buffer: Any, *indices: Any) -> Any:
        return tirx.address_of(tirx.BufferLoad(buffer, list(indices)))

    def call(name: str, *slots: Any) -> Any:
        return tirx.Evaluate(tirx.call_extern("void", name, *slots))

    value = tirx.FloatImm("float32", constant)
    body = tirx.SeqStmt(
        [
            call("tw.ld.ddr.ub.fp32.1d", at(ub, zero), one, at(a, row, zero), one, count),
            call("tw.vadds.fp32.1d", at(ub, zero), one, at(ub, zero), one, value, count),
            call("tw.st.ddr.fp32.1d", at(o, row, zero), one, at(ub, zero), one, count),
        ]
    )
    nest = tirx.For(loop, 0, rows // cores, tirx.ForKind.SERIAL, body)
    axis = tirx.IterVar((0, cores), core, tirx.IterVar.ThreadIndex, "blockIdx.x")
    split = tirx.AttrStmt(axis, "thread_extent", tirx.IntImm("int32", cores), nest)
    return tirx.PrimFunc([a, o], tirx.SeqStmt([tirx.AllocBuffer(ub), split]))


CHAIN = [(added(4, float(n + 1), 2 - n % 2), (f"t{n}", f"t{n + 1}")) for n in range(5)]
ROLES = {"t0": "input", "t5": "output"}
X = np.random.default_rng(1).random((4, 64), np.float32)


def _sum(x: np.ndarray, constants: list[float]) -> np.ndarray:
    for constant in constants:
        x = x + np.float32(constant)
    return x


@pytest.mark.parametrize("name", ["tiny", "tw1", "tw2"])
def test_a_chain_of_kernels(name: str) -> None:
    chip = load_chip(name)
    program = linked(CHAIN, chip, ROLES)
    for seed in range(3):
        result = run(program, chip, {"t0": X}, seed)
        np.testing.assert_array_equal(result.outputs["t5"], _sum(X, [1, 2, 3, 4, 5]))


def test_intermediates_share_ddr() -> None:
    placed, buffers = place(CHAIN, TINY, ROLES)
    offsets = plan_ddr(placed, buffers, TINY)
    assert offsets["t1"] == offsets["t3"] != offsets["t2"] == offsets["t4"]
    assert max(offsets.values()) + 1024 == 4 * 1024
    assert all(offset % 64 == 0 for offset in offsets.values())


def test_barriers_stand_between_what_depends_only() -> None:
    uses = [(added(4, 1.0, 2), ("x", "y")), (added(4, 2.0, 2), ("x", "z")), (added(4, 3.0, 2), ("y", "w"))]
    roles = {"x": "input", "y": "output", "z": "output", "w": "output"}
    program = linked(uses, TINY, roles)
    names = [i.row.mnemonic for i in program.program.instrs if i.row.mnemonic.endswith(("_barrier", "_all", "halt"))]
    assert names == ["barrier_all", "core_barrier", "halt"]
    np.testing.assert_array_equal(run(program, TINY, {"x": X}).outputs["w"], _sum(X, [1, 3]))


def test_kernels_of_one_core_need_no_barrier_of_all() -> None:
    uses = [(added(4, 1.0, 1), ("x", "y")), (added(4, 2.0, 1), ("y", "z"))]
    program = linked(uses, TINY, {"x": "input", "z": "output"})
    assert "core_barrier" not in [instr.row.mnemonic for instr in program.program.instrs]
    np.testing.assert_array_equal(run(program, TINY, {"x": X}).outputs["z"], _sum(X, [1, 2]))


def test_every_instruction_names_its_statement() -> None:
    program = linked(CHAIN[:2], TINY, {"t0": "input", "t2": "output"})
    for instr, line in zip(program.program.instrs, program.program.lines, strict=True):
        if instr.row.mnemonic == "vadds":
            assert "tw.vadds.fp32.1d(T.address_of(ub[0])" in program.listing[line - 1]
    assert program.program.labels[0] == ("kernel0", 0)
    assert program.listing[program.program.lines[-2] - 1].startswith("kernel1: ")


def test_addresses_beyond_an_immediate_are_tiling_words(monkeypatch: pytest.MonkeyPatch) -> None:
    code = generate(_copy(), TINY, "copy")
    buffers = [GraphBuffer(name, "fp32", (4, 64), 1024, role) for name, role in (("x", "input"), ("y", "output"))]
    kernels = [PlacedKernel("k", code, ("x", "y"))]
    far = link(kernels, load_chip("tw2"), buffers, offsets={"x": 64, "y": 5 << 30}).program
    assert [word.value for word in far.tiling] == [5 << 30]
    monkeypatch.setattr(sys.modules["compiler.codegen.link"], "IMMEDIATE_MAX", 1000)
    near = link(kernels, TINY, buffers, offsets={"x": 64, "y": 4096})
    assert [word.value for word in near.program.tiling] == [4096]
    np.testing.assert_array_equal(run(near, TINY, {"x": X}).outputs["y"], X)


def test_scratch_lies_in_ddr_while_its_kernel_runs() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(x: T.Buffer((8,), "int32"), out: T.Buffer((8,), "int32")) -> None:
        bx = T.launch_thread("blockIdx.x", 2)
        scratch = T.alloc_buffer((4,), "int32")
        for i in range(4):
            scratch[3 - i] = x[bx * 4 + i] * 2
        for i in range(4):
            out[bx * 4 + i] = scratch[i]

    program = linked([(func, ("x", "t")), (func, ("t", "y"))], TINY, {"x": "input", "y": "output"})
    x = np.arange(8, dtype=np.int32)
    np.testing.assert_array_equal(run(program, TINY, {"x": x}).outputs["y"], x * 4)


def test_what_does_not_fit_ddr_is_told() -> None:
    placed, _ = place(CHAIN[:1], TINY, {"t0": "input", "t1": "output"})
    huge = [GraphBuffer("t0", "fp32", (1 << 24,), 64 << 20, "input"), GraphBuffer("t1", "fp32", (256,), 1024, "output")]
    with pytest.raises(MemoryOverflow, match=r"TW2610.*ddr.*t0"):
        plan_ddr(placed, huge, TINY)


def test_arguments_must_exist_and_be_large_enough() -> None:
    placed, buffers = place(CHAIN[:1], TINY, {"t0": "input", "t1": "output"})
    with pytest.raises(InvalidError, match=r"TW2620.*no buffer is called `t1`"):
        link(placed, TINY, buffers[:1])
    small = [buffers[0], GraphBuffer("t1", "fp32", (4,), 16, "output")]
    with pytest.raises(InvalidError, match=r"TW2620.*needs 1024"):
        link(placed, TINY, small)


def test_many_kernels_link_in_linear_time() -> None:
    code = generate(_copy(), TINY, "copy")
    buffers = [GraphBuffer(f"t{n}", "fp32", (4, 64), 1024, "intermediate") for n in range(2001)]
    kernels = [PlacedKernel(f"k{n}", code, (f"t{n}", f"t{n + 1}")) for n in range(2000)]
    program = link(kernels, TINY, buffers).program
    assert len(program.instrs) < MAX_INSTRUCTIONS and len(program.buffers) <= 3


def _copy() -> Any:
    @T.prim_func(s_tir=True, private=True)
    def copy(x: T.Buffer((4, 64), "float32"), y: T.Buffer((4, 64), "float32")) -> None:
        for i, j in T.grid(4, 64):
            y[i, j] = x[i, j]

    return copy
