"""Kernels become one program: DDR is planned by lifetime, and what depends is kept apart."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

from compiler.codegen import GraphBuffer, Linked, MemoryOverflow, Place, PlacedKernel, generate, link, plan
from compiler.codegen.residence import (
    LEAST_COPIED_BYTES,
    LEAST_GATHERED_BYTES,
    LEAST_READERS,
    RESTS,
    Foreseen,
    far_results,
    foresee,
)
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
    chain = [(added(4, 1.0, 2), (f"t{n}", f"t{n + 1}")) for n in range(9)]
    placed, buffers = place(chain, TINY, {"t0": "input", "t9": "output"})
    places = plan(placed, buffers, TINY, llb=False)
    distinct = [places[f"t{n}"] for n in range(1, 2 + RESTS[0] + 1)]
    assert len(set(distinct)) == len(distinct)  # left alone for a while: who writes the next one need not wait
    assert places[f"t{2 + RESTS[0] + 1}"] == places["t1"]
    assert max(place.offset for place in places.values()) + 1024 == (2 + len(distinct)) * 1024
    assert all(place.memory == "ddr" and place.offset % 64 == 0 for place in places.values())


def test_it_is_foreseen_what_will_lie_in_llb() -> None:
    """Tensors of a third of LLB each: while one is made of another, a third one has to lie elsewhere."""
    size = TINY.memory_bytes("llb") // 3
    buffers = [GraphBuffer(f"t{n}", "uint8", (size,), size, "intermediate") for n in range(4)]
    found = foresee([("t0", "t1"), ("t1", "t2"), ("t2", "t3")], buffers, TINY)
    assert found.near == {"t0", "t1", "t2", "t3"}
    assert all(TINY.memory_bytes("llb") // 8 < room <= TINY.memory_bytes("llb") // 4 for room in found.room_bytes)
    found = foresee([("t0", "t1", "t2"), ("t2", "t3")], buffers, TINY)
    assert len(found.near) == 3 and "t3" in found.near
    part = GraphBuffer("p", "uint8", (8,), 8, "intermediate", whole="t0", offset=8)
    assert foresee([("t0", "p")], [buffers[0], part], TINY).near == {"t0", "p"}
    huge = GraphBuffer("t0", "uint8", (4 * size,), 4 * size, "intermediate")
    assert foresee([("t0",)], [huge], TINY) == Foreseen(frozenset(), (TINY.memory_bytes("llb"),))


def test_kernels_have_less_room_where_all_else_then_stays_in_llb() -> None:
    llb = TINY.memory_bytes("llb")
    chain, room = [("t0", "t1"), ("t1", "t2")], []
    for share in (0.7, 0.9, 1.0):
        size = int(llb * share / 2)
        buffers = [GraphBuffer(f"t{n}", "uint8", (size,), size, "intermediate") for n in range(3)]
        found = foresee(chain, buffers, TINY)
        assert (found.near == {"t0", "t1", "t2"}) is (share < 1.0)
        room.append(min(found.room_bytes))
    assert 0 < room[1] < room[0] < room[2]


def test_a_table_of_few_rows_that_are_read_often_is_worth_a_copy() -> None:
    few = GraphBuffer("few", "uint8", (256,), 256, "constant")
    for times, expected in ((LEAST_GATHERED_BYTES // 256, ("few",)), (LEAST_READERS, ())):
        found = foresee([("few",)], [few], TINY, copies={"few"}, gathered={"few": 256 * times})
        assert found.copied == expected
    many = GraphBuffer("many", "uint8", (LEAST_GATHERED_BYTES,), LEAST_GATHERED_BYTES, "constant")
    assert not foresee([("many",)], [many], TINY, copies={"many"}, gathered={"many": LEAST_GATHERED_BYTES}).copied


def test_constants_that_many_kernels_read_are_worth_a_copy() -> None:
    size = TINY.memory_bytes("llb") // 8
    given = {"w": size, "v": size, "small": LEAST_COPIED_BYTES // 2, "huge": 8 * size}
    buffers = [GraphBuffer(name, "uint8", (bytes_,), bytes_, "constant") for name, bytes_ in given.items()]
    steps = [("w", "v", "small", "huge")] * (LEAST_READERS - 1)
    assert not foresee(steps, buffers, TINY, copies=given).copied
    found = foresee([*steps, ("w", "small", "huge")], buffers, TINY, copies=given)
    assert found.copied == ("w",) and not found.near
    without = foresee([*steps, ("w", "small", "huge")], buffers, TINY)
    assert not without.copied and min(without.room_bytes) > min(found.room_bytes)
    between = GraphBuffer("t", "uint8", (6 * size,), 6 * size, "intermediate")
    found = foresee([(*names, "t") for names in [*steps, ("w",)] * 3], [*buffers, between], TINY, copies=given)
    assert found.near == {"t"} and len(found.copied) < 2, "what lives between kernels comes first"


def test_a_copy_takes_only_what_nothing_else_needs() -> None:
    rows = 180  # of 256 bytes: three buffers of them are more than LLB has
    kernels = [
        (added(rows, 1.0, 2), arguments) for arguments in (("w", "c"), ("x", "t"), ("t", "u"), ("c", "y"), ("u", "z"))
    ]
    roles = {"w": "constant", "x": "input", "y": "output", "z": "output"}
    placed, buffers = place(kernels, TINY, roles)
    memories = [
        {name: where.memory for name, where in plan(placed, each, TINY).items() if name in ("c", "t", "u")}
        for each in (buffers, [replace(b, copy_of="w" if b.name == "c" else "") for b in buffers])
    ]
    assert sorted(memories[0].values()) == ["ddr", "llb", "llb"]
    assert memories[1] == {"c": "ddr", "t": "llb", "u": "llb"}


def test_what_lives_between_kernels_lies_in_llb() -> None:
    placed, buffers = place(CHAIN, TINY, ROLES)
    places = plan(placed, buffers, TINY)
    assert {name for name, where in places.items() if where.memory == "llb"} == {"t1", "t2", "t3", "t4"}
    program = linked(CHAIN, TINY, ROLES)
    forms = {".".join([i.row.mnemonic, *i.mods]) for i in program.program.instrs if i.row.mnemonic in ("ld", "st")}
    assert forms == {"ld.ddr.ub.fp32.1d", "st.llb.fp32.1d", "ld.llb.ub.fp32.1d", "st.ddr.fp32.1d"}
    in_ddr = link(placed, TINY, buffers, llb=False)
    assert {buffer.memory for buffer in in_ddr.program.buffers} == {"ddr"}


def test_llb_holds_what_fits() -> None:
    rows = 300  # of 256 bytes: two buffers of them are more than LLB has
    chain = [(added(rows, 1.0, 2), (f"t{n}", f"t{n + 1}")) for n in range(4)]
    placed, buffers = place(chain, TINY, {"t0": "input", "t4": "output"})
    places = plan(placed, buffers, TINY)
    assert [places[f"t{n}"].memory for n in range(1, 4)] == ["llb", "ddr", "llb"]


def test_what_lies_askew_is_reached_in_llb() -> None:
    """Rows that begin at any element: what a map of 7x7 looks like to a core that takes some of its rows."""

    @T.prim_func(s_tir=True, private=True)
    def shifted(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
        ub = T.alloc_buffer((64,), "float32", scope="local.ub")
        T.evaluate(T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(x[1]), 1, 63))
        T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[1]), 1, T.address_of(ub[0]), 1, 63))

    chain = [(added(1, 1.0, 1), ("x", "t")), (shifted, ("t", "u")), (added(1, 2.0, 1), ("u", "y"))]
    placed, buffers = place(chain, TINY, {"x": "input", "y": "output"})
    assert {plan(placed, buffers, TINY)[name].memory for name in ("t", "u")} == {"llb"}


def test_what_the_scalar_unit_reads_stays_in_ddr() -> None:
    @T.prim_func(s_tir=True, private=True)
    def picked(index: T.Buffer((1,), "int32"), x: T.Buffer((8, 64), "float32")) -> None:
        ub = T.alloc_buffer((64,), scope="local.ub")
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(x[index[0], 0]), 1, 64)
        )

    assert place([(picked, ("i", "x"))], TINY, {"i": "input", "x": "input"})[0][0].code.touched.movable == (1,)


def test_barriers_stand_between_what_depends_only() -> None:
    uses = [(added(4, 1.0, 2), ("x", "y")), (added(4, 2.0, 2), ("x", "z")), (added(4, 3.0, 2), ("y", "w"))]
    roles = {"x": "input", "y": "output", "z": "output", "w": "output"}
    program = linked(uses, TINY, roles)
    names = [i.row.mnemonic for i in program.program.instrs if i.row.mnemonic.endswith(("_barrier", "_all", "halt"))]
    assert names == ["barrier_all", "halt"]  # every core reads what it wrote itself
    np.testing.assert_array_equal(run(program, TINY, {"x": X}).outputs["w"], _sum(X, [1, 3]))


def test_what_crosses_cores_is_ordered_by_flags_where_they_cost_less_than_a_barrier() -> None:
    tw1 = load_chip("tw1")
    uses = [(added(8, 1.0, 2), ("x", "y")), (added(8, 2.0, 4), ("y", "z"))]
    placed, buffers = place(uses, tw1, {"x": "input", "z": "output"})
    with_flags, with_barrier = link(placed, tw1, buffers), link(placed, tw1, buffers, overlap=False)
    assert _count(with_flags, "core_barrier") == 0 and _count(with_flags, "cross_wait") > 0
    assert _count(with_barrier, "core_barrier") == 1 and _count(with_barrier, "cross_wait") == 0
    x = np.random.default_rng(2).random((8, 64), np.float32)
    runs = [run(program, tw1, {"x": x}, seed) for program in (with_flags, with_barrier) for seed in range(3)]
    for result in runs:
        np.testing.assert_array_equal(result.outputs["z"], _sum(x, [1, 2]))
    assert runs[0].cycles < runs[-1].cycles


def _count(linked: Linked, mnemonic: str) -> int:
    return sum(instr.row.mnemonic == mnemonic for instr in linked.program.instrs)


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
    far = link(kernels, load_chip("tw2"), buffers, places=_places(64, 5 << 30)).program
    assert [word.value for word in far.tiling] == [5 << 30]
    monkeypatch.setattr(sys.modules["compiler.codegen.link"], "IMMEDIATE_MAX", 1000)
    near = link(kernels, TINY, buffers, places=_places(64, 4096))
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
        plan(placed, huge, TINY)


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
    assert len(program.instrs) < MAX_INSTRUCTIONS and len(program.buffers) <= 2 + RESTS[0]


def _places(x: int, y: int) -> dict[str, Place]:
    return {"x": Place("ddr", x), "y": Place("ddr", y)}


def _copy() -> Any:
    @T.prim_func(s_tir=True, private=True)
    def copy(x: T.Buffer((4, 64), "float32"), y: T.Buffer((4, 64), "float32")) -> None:
        for i, j in T.grid(4, 64):
            y[i, j] = x[i, j]

    return copy


def test_what_goes_through_ddr_between_kernels_says_why() -> None:
    rows = 300  # of 256 bytes: two buffers of them are more than LLB has
    chain = [(added(rows, 1.0, 2), (f"t{n}", f"t{n + 1}")) for n in range(4)]
    placed, buffers = place(chain, TINY, {"t0": "input", "t4": "output"})
    (far,) = link(placed, TINY, buffers).far_results
    full = f"LLB is full while it lives: {2 * rows * 256} bytes live at once, it has {TINY.memory_bytes('llb')}"
    assert (far.buffer, far.size_bytes, far.reason) == ("t2", rows * 256, full)
    assert far.kernel == placed[1].name
    alone = {name: Place("ddr", 0) for name in ("t0", "t1", "t2", "t4")} | {"t3": Place("llb", 0)}
    short, few = place(
        [(added(8, 1.0, 2), (f"t{n}", f"t{n + 1}")) for n in range(4)], TINY, {"t0": "input", "t4": "output"}
    )
    _, torn = far_results(short, few, alone, TINY)
    assert torn.reason.startswith(f"LLB, where at most {2 * 8 * 256} of {TINY.memory_bytes('llb')} bytes live with it")
    several = load_chip("tw1")
    placed, buffers = place(chain, several, {"t0": "input", "t4": "output"})
    assert {each.reason for each in link(placed, several, buffers).far_results} == {
        "its 4 clusters have no LLB in common"
    }
