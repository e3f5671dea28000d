"""What kernel code looks like, and that no kernel is too deep or too wide for the registers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

from compiler.codegen import generate
from compiler.codegen.registers import LINKERS
from compiler.errors import CapacityError, InvalidError
from compiler.isa.disassembler import instruction_text
from compiler.isa.model import REGISTERS
from compiler.target import load_chip
from tests.codegen.kernels import linked, run

TINY = load_chip("tiny")


def _int(value: int) -> tirx.IntImm:
    return tirx.IntImm("int32", value)


def test_addresses_leave_the_loops_that_they_do_not_depend_on() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((8, 4, 64), "float32")) -> None:
        bx = T.launch_thread("blockIdx.x", 2)
        ub = T.alloc_buffer((64,), scope="local.ub", annotations={"tw.address": 256})
        for i, j in T.grid(4, 3):
            T.evaluate(
                T.call_extern(
                    "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(a[bx * 4 + i, j + 1, 8]), 1, 56
                )
            )

    assert [instruction_text(instr) for instr in generate(func, TINY).instrs] == [
        "nop",  # where the kernel waits for what other cores made, if it has to
        "ldt x1, 0",
        "getsr.core x2",
        "smadd x1, x2, 4096, x1",
        "loop x2, 4, +5",
        "smadd x2, x2, 1024, x1",
        "loop x3, 3, +3",
        "smadd x3, x3, 256, x2",
        "ld.ddr.ub.fp32.1d [256; 1], [x3 + 288; 1], <56>",
    ]


def test_loops_of_one_trip_and_of_none_vanish() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(out: T.Buffer((4,), "int32")) -> None:
        for i in range(1):
            for j in range(0):
                out[j] = 1
            out[i + 2] = 7

    texts = [instruction_text(instr) for instr in generate(func, TINY).instrs]
    assert texts == ["getsr.core x1", "bne x1, 0, +3", "ldt x1, 0", "sst.ddr.int32 [x1 + 8], 7"]


def test_what_a_kernel_reads_and_writes() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(x: T.Buffer((4,), "int32"), unused: T.Buffer((2,), "float16"), out: T.Buffer((4,), "int32")) -> None:
        out[0] = x[1]

    code = generate(func, TINY, "first")
    assert [(p.name, p.dtype, p.size_bytes, p.read, p.written) for p in code.parameters] == [
        ("x", "int32", 16, True, False),
        ("unused", "fp16", 4, False, False),
        ("out", "int32", 16, False, True),
    ]
    assert code.name == "first" and code.cores == 1
    assert "out[0] = x[1]" in code.texts[code.statements[-1]]


def test_code_crosses_to_another_process() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(x: T.Buffer((4,), "int32")) -> None:
        for i in range(4):
            if T.likely(x[i] > 2):
                x[i] = 7

    code = generate(func, TINY)
    assert pickle.loads(pickle.dumps(code)) == code  # noqa: S301  our own bytes


def test_a_nest_twelve_deep() -> None:
    """More loops than the hardware nests, and an address that needs all of their counters."""
    depth = 12
    out, x = tirx.decl_buffer((2**depth,), "int32", "out"), tirx.decl_buffer((2**depth,), "int32", "x")
    loops = [tirx.Var(f"i{n}", "int32") for n in range(depth)]
    index, mirrored = _int(0), _int(0)
    for n, loop in enumerate(loops):
        index, mirrored = index + loop * 2 ** (depth - 1 - n), mirrored + loop * 2**n
    body: object = tirx.BufferStore(out, tirx.BufferLoad(x, [mirrored]) * 3 + loops[0] - loops[-1], [index])
    for loop in reversed(loops):
        body = tirx.For(loop, 0, 2, tirx.ForKind.SERIAL, body)
    data = np.arange(2**depth, dtype=np.int32)
    program = linked([(tirx.PrimFunc([x, out], body), ("x", "out"))], TINY, {"x": "input", "out": "output"})
    assert sum(instr.row.kind == "loop" for instr in program.program.instrs) == 8
    result = run(program, TINY, {"x": data})
    bits = [format(n, f"0{depth}b") for n in range(2**depth)]
    expected = [3 * int(b[::-1], 2) + int(b[0]) - int(b[-1]) for b in bits]
    np.testing.assert_array_equal(result.outputs["out"], expected)


@pytest.mark.parametrize(("count", "depth"), [(20, 1), (40, 1), (90, 1), (33, 6)])
def test_more_values_than_registers(count: int, depth: int) -> None:
    """All of the values are loaded before the first is used, within loops of both kinds."""
    x, out = tirx.decl_buffer((count,), "int32", "x"), tirx.decl_buffer((2, count), "int32", "out")
    loops = [tirx.Var(f"i{n}", "int32") for n in range(depth)]
    values = [tirx.Var(f"v{n}", "int32") for n in range(count)]
    body: list[object] = [tirx.Bind(value, tirx.BufferLoad(x, [_int(n)])) for n, value in enumerate(values)]
    index = sum((loop for loop in loops[1:]), loops[0])  # the last writer counts: all ones
    for n in range(count):
        other = values[(n * 7 + 3) % count]
        total = values[n] * 2 + other + index
        body.append(tirx.BufferStore(out, total, [tirx.Min(index, _int(1)), _int(n)]))
    nest: object = tirx.SeqStmt(body)
    for loop in reversed(loops):
        nest = tirx.For(loop, 0, 2, tirx.ForKind.SERIAL, nest)
    func = tirx.PrimFunc([x, out], nest)
    code = generate(func, TINY)
    assert code.memory.get("ub", 0) <= 8 * (count + depth)
    data = np.arange(count, dtype=np.int32) * 5 - 9
    result = run(linked([(func, ("x", "out"))], TINY, {"x": "input", "out": "output"}), TINY, {"x": data})
    expected = data * 2 + data[(np.arange(count) * 7 + 3) % count] + depth
    np.testing.assert_array_equal(result.outputs["out"][1], expected)


def test_many_invariant_addresses_are_worked_out_again_rather_than_spilled() -> None:
    count = 60
    x = tirx.decl_buffer((count, 8, 64), "float32", "x")
    ub = tirx.decl_buffer((64,), "float32", "ub", scope="local.ub")
    core, loop = tirx.Var("bx", "int32"), tirx.Var("i", "int32")

    def load(n: int) -> object:
        address = tirx.address_of(tirx.BufferLoad(x, [_int(n), core * (n % 2 + 1) + loop, _int(0)]))
        slots = (tirx.address_of(tirx.BufferLoad(ub, [_int(0)])), _int(1), address, _int(1), core * n + n + 1)
        return tirx.Evaluate(tirx.call_extern("void", "tw.ld.ddr.ub.fp32.1d", *slots))

    body = tirx.For(loop, 0, 4, tirx.ForKind.SERIAL, tirx.SeqStmt([load(n) for n in range(count)]))
    axis = tirx.IterVar((0, 2), core, tirx.IterVar.ThreadIndex, "blockIdx.x")
    split = tirx.AttrStmt(axis, "thread_extent", _int(2), body)
    func = tirx.PrimFunc([x], tirx.SeqStmt([tirx.AllocBuffer(ub, {"tw.address": 0}), split]))
    code = generate(func, TINY)
    assert not any(instr.row.mnemonic in ("sld", "sst") for instr in code.instrs)
    assert max(
        value.index for i in code.instrs for value in i.values if hasattr(value, "index")
    ) == REGISTERS - 1 - len(LINKERS)


def test_branches_and_dynamic_loops() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(n: T.Buffer((4,), "int32"), out: T.Buffer((4, 8), "int32")) -> None:
        for i in range(4):
            for j in range(8):
                out[i, j] = -1
            for j in range(n[i]):
                if j % 2 == 0 and (i < 2 or n[i] == 8):
                    out[i, j] = j
                else:
                    out[i, j] = i * 100

    for trips in ([0, 3, 8, -2], [8, 1, 5, 8]):
        roles = {"n": "input", "out": "output"}
        result = run(linked([(func, ("n", "out"))], TINY, roles), TINY, {"n": np.array(trips, np.int32)})
        expected = np.full((4, 8), -1)
        for i, count in enumerate(trips):
            for j in range(count):
                expected[i, j] = j if j % 2 == 0 and (i < 2 or count == 8) else i * 100
        np.testing.assert_array_equal(result.outputs["out"], expected)


def test_what_is_not_instruction_form_is_refused() -> None:
    @T.prim_func(s_tir=True, private=True)
    def unknown(a: T.Buffer((4,), "float32")) -> None:
        T.evaluate(T.call_extern("void", "tw.vadd.fp99.1d", T.address_of(a[0])))

    @T.prim_func(s_tir=True, private=True)
    def homeless(a: T.Buffer((4,), "float32")) -> None:
        ub = T.alloc_buffer((4,), scope="local.ub")
        ub[0] = a[0]

    @T.prim_func(s_tir=True, private=True)
    def wide(a: T.Buffer((4,), "float32")) -> None:
        bx = T.launch_thread("blockIdx.x", 3)
        a[bx] = a[bx]

    @T.prim_func(s_tir=True, private=True)
    def within(a: T.Buffer((4,), "float32")) -> None:
        for i in range(4):
            bx = T.launch_thread("blockIdx.x", 2)
            a[bx] = a[i]

    with pytest.raises(InvalidError, match=r"TW2601.*outside of all loops"):
        generate(within, TINY)
    with pytest.raises(InvalidError, match=r"TW2601.*fp99"):
        generate(unknown, TINY)
    with pytest.raises(InvalidError, match=r"TW2601.*no address"):
        generate(homeless, TINY)
    with pytest.raises(CapacityError, match=r"TW2603.*2"):
        generate(wide, TINY)
