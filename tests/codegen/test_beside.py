"""Kernels that run side by side: where nothing orders them, and where something does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import tirx

from compiler.codegen import Linked, link
from compiler.codegen.beside import Company, needs_of
from compiler.cost import predict_program
from compiler.runtime.kernel_cycles import kernel_cycles
from compiler.runtime.model import CompiledModel
from compiler.target import Chip, load_chip
from tests.codegen.kernels import Use, linked, place, run

TINY, TW2 = load_chip("tiny"), load_chip("tw2")
FLOATS = 64


def straight(constant: float, chip: Chip, *, wide: int = FLOATS, rows: int = 0) -> Any:
    """o = a + constant, a row on each core, without a loop; of the first ``rows``, if not of all."""
    rows = rows or chip.cores
    a, o = tirx.decl_buffer((rows, FLOATS), "float32", "a"), tirx.decl_buffer((rows, FLOATS), "float32", "o")
    ub, core = tirx.decl_buffer((wide,), "float32", "ub", scope="local.ub"), tirx.Var("bx", "int32")
    one, zero, count = (tirx.IntImm("int32", value) for value in (1, 0, FLOATS))

    def at(buffer: Any, *indices: Any) -> Any:
        return tirx.address_of(tirx.BufferLoad(buffer, list(indices)))

    def call(name: str, *slots: Any) -> Any:
        return tirx.Evaluate(tirx.call_extern("void", name, *slots))

    value = tirx.FloatImm("float32", constant)
    body = tirx.SeqStmt([
        call("tw.ld.ddr.ub.fp32.1d", at(ub, zero), one, at(a, core, zero), one, count),
        call("tw.vadds.fp32.1d", at(ub, zero), one, at(ub, zero), one, value, count),
        call("tw.st.ddr.fp32.1d", at(o, core, zero), one, at(ub, zero), one, count),
    ])  # fmt: skip
    axis = tirx.IterVar((0, rows), core, tirx.IterVar.ThreadIndex, "blockIdx.x")
    split = tirx.AttrStmt(axis, "thread_extent", tirx.IntImm("int32", rows), body)
    return tirx.PrimFunc([a, o], tirx.SeqStmt([tirx.AllocBuffer(ub), split]))


def several(count: int, chip: Chip, **sizes: int) -> tuple[list[Use], dict[str, str]]:
    """Each of the same input, to a result of its own."""
    uses = [(straight(float(n + 1), chip, **sizes), ("x", f"y{n}")) for n in range(count)]
    return uses, {"x": "input"} | {f"y{n}": "output" for n in range(count)}


def count(program: Linked, mnemonic: str) -> int:
    return sum(instr.row.mnemonic == mnemonic for instr in program.program.instrs)


def given(chip: Chip, rows: int = 0) -> np.ndarray:
    return np.random.default_rng(3).random((rows or chip.cores, FLOATS), np.float32)


def assert_right(program: Linked, chip: Chip, outputs: int, rows: int = 0) -> None:
    x = given(chip, rows)
    for seed in range(3):
        result = run(program, chip, {"x": x}, seed)
        for n in range(outputs):
            np.testing.assert_array_equal(result.outputs[f"y{n}"], x + np.float32(n + 1))


def test_they_take_turns_at_their_waits() -> None:
    uses, roles = several(3, TW2)
    program = linked(uses, TW2, roles)
    assert count(program, "barrier_all") == 0
    queues = [i.row.mnemonic for i in program.program.instrs if i.row.mnemonic in ("ld", "vadds", "st")]
    assert queues == ["ld"] * 3 + ["vadds"] * 3 + ["st"] * 3
    assert_right(program, TW2, 3)
    placed, buffers = place(uses, TW2, roles)
    apart = link(placed, TW2, buffers, overlap=False)
    assert run(program, TW2, {"x": given(TW2)}).cycles < 0.6 * run(apart, TW2, {"x": given(TW2)}).cycles


def test_so_do_those_that_some_cores_skip() -> None:
    uses, roles = several(3, TW2, rows=5)
    program = linked(uses, TW2, roles)
    queues = [i.row.mnemonic for i in program.program.instrs if i.row.mnemonic in ("ld", "vadds", "st")]
    assert queues == ["ld"] * 3 + ["vadds"] * 3 + ["st"] * 3
    assert count(program, "bge") == 9
    assert_right(program, TW2, 3, rows=5)


def test_one_alone_stays_as_it_is() -> None:
    placed, buffers = place([(straight(1.0, TW2, rows=5), ("x", "y"))], TW2, {"x": "input", "y": "output"})
    instrs = link(placed, TW2, buffers).program.instrs
    assert len(instrs) == len(placed[0].code.instrs)  # without the place of its gate, with the end of the program


@pytest.mark.parametrize("chip", [TINY, load_chip("tw1"), TW2], ids=lambda chip: chip.name)
def test_no_more_of_them_than_there_are_flags(chip: Chip) -> None:
    uses, roles = several(chip.event_ids + 1, chip)
    program = linked(uses, chip, roles)
    assert count(program, "barrier_all") == 1
    assert_right(program, chip, chip.event_ids + 1)


def test_no_more_of_them_than_ub_has_room_for() -> None:
    uses, roles = several(2, TINY, wide=TINY.memory.ub_bytes // 8 + FLOATS)
    program = linked(uses, TINY, roles)
    assert count(program, "barrier_all") == 1
    assert_right(program, TINY, 2)


@pytest.mark.parametrize("second", [("y", "z"), ("z", "x"), ("x", "y")], ids=["reads it", "writes its input", "again"])
def test_what_one_does_to_the_bytes_of_another_orders_them(second: tuple[str, str]) -> None:
    """On its own core, too."""
    uses = [(straight(1.0, TW2), ("x", "y")), (straight(2.0, TW2), second)]
    roles = {"x": "input", "y": "output"} if second == ("z", "x") else {"x": "input", "z": "output"}
    placed, buffers = place(uses, TW2, roles)
    assert count(link(placed, TW2, buffers), "barrier_all") == 1


def test_without_overlap_none_do() -> None:
    uses, roles = several(2, TW2)
    placed, buffers = place(uses, TW2, roles)
    program = link(placed, TW2, buffers, overlap=False)
    assert count(program, "barrier_all") + count(program, "core_barrier") == 1


def test_each_has_its_share_of_the_time_and_the_model_knows_it() -> None:
    uses, roles = several(3, TW2)
    program = linked(uses, TW2, roles).program
    result = run(linked(uses, TW2, roles), TW2, {"x": given(TW2)})
    model = CompiledModel.__new__(CompiledModel)
    object.__setattr__(model, "kernels", tuple((f"kernel{n}", ()) for n in range(3)))
    shares = kernel_cycles(model, [result])
    assert [share.kernel for share in shares] == ["kernel0", "kernel1", "kernel2"]
    assert sum(share.cycles for share in shares) == result.cycles
    assert predict_program(program, TW2).cycles == pytest.approx(result.cycles, rel=0.05)


def test_of_the_memories_beside_ub_one_kernel_has_all() -> None:
    (code, other), company = (kernel.code for kernel in place(several(2, TW2)[0], TW2, {})[0]), Company(TW2)
    uses = tuple(replace(use, memory="l1") for use in code.touched.uses)
    cube = replace(code, touched=replace(code.touched, uses=uses))
    company.join("cube", needs_of(cube), [])
    assert company.admits(needs_of(other))
    assert not company.admits(needs_of(cube))
    assert not company.admits(None)
