"""Kernels are free of hazards after InsertSync and compute what program order does; they are not before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from compiler.codegen import GraphBuffer, Linked, PlacedKernel, generate, link, registers
from compiler.errors import HazardError, InvalidError
from compiler.isa.model import Instr
from compiler.isa.table import by_mnemonic
from compiler.sim.simulator import simulate
from compiler.target import Chip, load_chip
from passes.tir.allocate_memory import AllocateMemory
from passes.tir.insert_sync import InsertSync
from tests.codegen import random_kernels
from tests.codegen.kernels import linked, run
from tests.codegen.random_kernels import ARGUMENTS, ROLES, random_kernel

CHIPS = ("tiny", "tw1", "tw2")
TINY = load_chip("tiny")


def _synced(func: Any, chip: Chip = TINY) -> list[str]:
    """The instructions in order, without operands but with flags; loops and branches as brackets."""
    lines = InsertSync().run(AllocateMemory().run(func, chip), chip).script().splitlines()
    found = []
    for line in lines:
        text = line.strip()
        if '"tw.' in text and "call_extern" in text:
            name = text.split('"tw.')[1].split('"')[0]
            queues = ".".join(name.split(".")[1:])
            flag = text.rstrip(")").split(", ")[-1]
            short = {"set_flag": f"set {queues} {flag}", "wait_flag": f"wait {queues} {flag}", "pipe_barrier": name}
            found.append(short.get(name.split(".")[0], name.split(".")[0]))
        elif text.startswith(("for ", "if ", "else")):
            found.append(text.split()[0].rstrip(":"))
    return found


@T.prim_func(s_tir=True, private=True)
def doubled(a: T.Buffer((100, 64), "float32"), o: T.Buffer((100, 64), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    for i in range(50):
        x = T.alloc_buffer((64,), scope="local.ub")
        y = T.alloc_buffer((64,), scope="local.ub")
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[bx * 50 + i, 0]), 1, 64)
        )
        T.evaluate(
            T.call_extern(
                "void", "tw.vadd.fp32.1d", T.address_of(y[0]), 1, T.address_of(x[0]), 1, T.address_of(x[0]), 1, 64
            )
        )
        T.evaluate(
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx * 50 + i, 0]), 1, T.address_of(y[0]), 1, 64)
        )


@T.prim_func(s_tir=True, private=True)
def counted(a: T.Buffer((8, 16), "float32"), o: T.Buffer((8, 4, 16), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    x = T.alloc_buffer((4, 16), scope="local.ub")
    T.evaluate(
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0, 0]), 1, T.address_of(a[bx * 4, 0]), 1, 64)
    )
    for i in range(16):
        T.evaluate(
            T.call_extern(
                "void", "tw.st.ddr.fp32.1d",
                T.address_of(o[bx * 4 + i // 4, i % 4, 0]), 1, T.address_of(x[i // 4, 0]), 1, 16,
            )
        )  # fmt: skip


def test_a_loop_that_counts_through_two_axes_is_seen_to_pass_each_byte_once() -> None:
    assert _synced(counted) == ["ld", "set mte2.mte3 0", "wait mte2.mte3 0", "for", "st"]


def test_a_loop_orders_its_iterations_too() -> None:
    assert _synced(doubled) == [
        "for",
        "set v.mte2 0",
        "wait v.mte2 0",
        "ld",
        "set mte2.v 0",
        "wait mte2.v 0",
        "set mte3.v 0",
        "wait mte3.v 0",
        "vadd",
        "set v.mte3 0",
        "wait v.mte3 0",
        "st",
    ]


def test_rows_of_one_buffer_need_no_order() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((8, 64), "float32"), o: T.Buffer((8, 64), "float32")) -> None:
        x = T.alloc_buffer((8, 64), scope="local.ub")
        for i in range(8):
            T.evaluate(
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[i, 0]), 1, T.address_of(a[i, 0]), 1, 64)
            )
        for i in range(8):
            T.evaluate(
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[i, 0]), 1, T.address_of(x[i, 0]), 1, 64)
            )

    assert _synced(func) == ["for", "ld", "set mte2.mte3 0", "wait mte2.mte3 0", "for", "st"]


def test_columns_beside_each_other_need_no_order() -> None:
    """Nor do blocks of rows, where each core's part begins at a quotient and a remainder of its number."""

    @T.prim_func(s_tir=True, private=True)
    def func(o: T.Buffer((32, 64), "float32")) -> None:
        bx = T.launch_thread("blockIdx.x", 2)
        x = T.alloc_buffer((8, 16), scope="local.ub")
        for i, j in T.grid(2, 4):
            T.evaluate(
                T.call_extern(
                    "void", "tw.st.ddr.fp32.2d", T.address_of(o[bx % 2 * 16 + i * 8, j * 16]), 64, 1,
                    T.address_of(x[0, 0]), 16, 1, 8, 16,
                )
            )  # fmt: skip

    assert _synced(func) == ["for", "st"]


def _columns_of_ub(columns: int, first: int = 0) -> Any:
    """Results of a product that leave L0C in pieces, side by side."""

    @T.prim_func(s_tir=True, private=True)
    def func(o: T.Buffer((16, 64), "float16")) -> None:
        x = T.alloc_buffer((16, 64), "float16", scope="local.ub")
        c = T.alloc_buffer((2, 16, 16), scope="local.l0c")
        for j in range(2):
            T.evaluate(
                T.call_extern(
                    "void", "tw.fix.ub.nd.fp16.fp32.none", T.address_of(x[0, first + j * columns]),
                    T.address_of(c[j, 0, 0]), 16, columns, 16, 64,
                )
            )  # fmt: skip

    return func


def test_columns_beside_each_other_on_chip_need_order_where_they_share_blocks() -> None:
    tw2 = load_chip("tw2")
    assert _synced(_columns_of_ub(16), tw2) == ["for", "fix"]
    assert _synced(_columns_of_ub(8), tw2) == ["for", "pipe_barrier.fix", "fix"]
    assert _synced(_columns_of_ub(16, first=8), tw2) == ["for", "pipe_barrier.fix", "fix"]


def _columns_of_some_rows(more: int) -> Any:
    """Columns of as many rows as a core has, their distance more by so many elements on each core."""

    @T.prim_func(s_tir=True, private=True)
    def func(o: T.Buffer((16, 64), "float16")) -> None:
        core = T.launch_thread("blockIdx.x", 2)
        x = T.alloc_buffer((16, 64), "float16", scope="local.ub")
        c = T.alloc_buffer((2, 16, 16), scope="local.l0c")
        for j in range(2):
            T.evaluate(
                T.call_extern(
                    "void", "tw.fix.ub.nd.fp16.fp32.none", T.address_of(x[0, j * 16]), T.address_of(c[j, 0, 0]),
                    16 - core * 8, 16, 16, 48 + core * more,
                )
            )  # fmt: skip

    return func


def test_how_many_rows_columns_have_need_not_be_known() -> None:
    """How far apart rows are decides."""
    tw2 = load_chip("tw2")
    assert _synced(_columns_of_some_rows(0), tw2) == ["for", "fix"]
    assert _synced(_columns_of_some_rows(16), tw2) == ["for", "pipe_barrier.fix", "fix"]


def test_columns_that_overlap_do() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(o: T.Buffer((8, 64), "float32")) -> None:
        x = T.alloc_buffer((8, 17), scope="local.ub")
        for j in range(3):
            T.evaluate(
                T.call_extern(
                    "void", "tw.st.ddr.fp32.2d", T.address_of(o[0, j * 16]), 64, 1, T.address_of(x[0, 0]), 17, 1, 8, 17
                )
            )

    assert _synced(func) == ["for", "pipe_barrier.mte3", "st"]


def test_rows_that_share_a_block_do() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((8, 12), "float32")) -> None:
        x = T.alloc_buffer((8, 12), scope="local.ub")
        for i in range(8):
            T.evaluate(
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[i, 0]), 1, T.address_of(a[i, 0]), 1, 12)
            )

    assert _synced(func) == ["for", "pipe_barrier.mte2", "ld"]


def test_a_set_stands_behind_the_event_that_is_needed() -> None:
    """The second load does not hold up what only needs the first."""

    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((2, 64), "float32"), o: T.Buffer((2, 64), "float32")) -> None:
        x = T.alloc_buffer((2, 64), scope="local.ub")
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0, 0]), 1, T.address_of(a[0, 0]), 1, 64)
        )
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[1, 0]), 1, T.address_of(a[1, 0]), 1, 64)
        )
        T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[0, 0]), 1, T.address_of(x[0, 0]), 1, 64))
        T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[1, 0]), 1, T.address_of(x[1, 0]), 1, 64))

    assert _synced(func) == [
        "ld",
        "set mte2.mte3 0",
        "ld",
        "wait mte2.mte3 0",
        "st",
        "set mte2.mte3 1",
        "wait mte2.mte3 1",
        "st",
    ]


def test_what_only_the_first_turn_needs_is_waited_for_before_the_loop() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((64,), "float32"), o: T.Buffer((8, 64), "float32")) -> None:
        x = T.alloc_buffer((64,), scope="local.ub")
        T.evaluate(T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[0]), 1, 64))
        for i, j in T.grid(4, 2):
            T.evaluate(
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[i * 2 + j, 0]), 1, T.address_of(x[0]), 1, 64)
            )

    assert _synced(func) == ["ld", "set mte2.mte3 0", "wait mte2.mte3 0", "for", "st"]


def test_what_a_branch_does_in_the_first_turn_of_a_loop_is_told_within_it() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((4, 64), "float32"), o: T.Buffer((8, 4, 64), "float32")) -> None:
        x = T.alloc_buffer((4, 64), scope="local.ub")
        for i, j in T.grid(8, 4):
            if i == 0:
                T.evaluate(
                    T.call_extern(
                        "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[j, 0]), 1, T.address_of(a[j, 0]), 1, 64
                    )
                )
            T.evaluate(
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[i, j, 0]), 1, T.address_of(x[j, 0]), 1, 64)
            )

    lines = InsertSync().run(AllocateMemory().run(func, TINY), TINY).script().splitlines()
    branch, wait, store = (
        next(line for line in lines if what in line) for what in ("if ", "wait_flag.mte2.mte3", "tw.st")
    )
    assert _indent(wait) > _indent(branch) == _indent(store)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def test_what_a_guard_needs_is_waited_for_in_front_of_it() -> None:
    """Where it is passed by, what follows would not know what happened, and wait again."""

    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((4, 64), "float32"), o: T.Buffer((4, 64), "float32")) -> None:
        x = T.alloc_buffer((64,), scope="local.ub")
        for i in range(4):
            T.evaluate(
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[i, 0]), 1, 64)
            )
            for _ in range(1):
                if 3 - i > 0:
                    T.evaluate(
                        T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(x[0]), 1, T.address_of(x[0]), 1, 3 - i)
                    )
                if i == 7:
                    T.evaluate(
                        T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(x[0]), 1, T.address_of(x[0]), 1, 64)
                    )
            T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[i, 0]), 1, T.address_of(x[0]), 1, 64))

    found = _synced(func)
    assert found.index("wait mte2.v 0") < found.index("if")
    assert found.count("wait mte2.v 0") == 1


@T.prim_func(s_tir=True, private=True)
def product(
    a: T.Buffer((64, 64), "float16"), b: T.Buffer((64, 32), "float16"), o: T.Buffer((64, 32), "float32")
) -> None:
    """A tiled matrix product through all memories around the cube."""
    bx = T.launch_thread("blockIdx.x", 2)
    for i in range(2):
        c = T.alloc_buffer((16, 32), "float32", scope="local.l0c", annotations={"tw.bytes": 2048})
        r = T.alloc_buffer((16, 32), "float32", scope="local.ub")
        for k in range(4):
            a1 = T.alloc_buffer((16, 16), "float16", scope="shared.l1")
            b1 = T.alloc_buffer((16, 32), "float16", scope="shared.l1")
            a0 = T.alloc_buffer((16, 16), "float16", scope="local.l0a")
            b0 = T.alloc_buffer((16, 32), "float16", scope="local.l0b")
            T.evaluate(
                T.call_extern(
                    "void", "tw.ldnz.ddr.fp16", T.address_of(a1[0, 0]),
                    T.address_of(a[bx * 32 + i * 16, k * 16]), 16, 16, 64, 16,
                )
            )  # fmt: skip
            T.evaluate(
                T.call_extern(
                    "void", "tw.ldnz.ddr.fp16", T.address_of(b1[0, 0]), T.address_of(b[k * 16, 0]), 16, 32, 32, 16
                )
            )
            T.evaluate(
                T.call_extern("void", "tw.ldl0a.fp16", T.address_of(a0[0, 0]), T.address_of(a1[0, 0]), 16, 16, 16)
            )
            T.evaluate(
                T.call_extern("void", "tw.ldl0b.fp16", T.address_of(b0[0, 0]), T.address_of(b1[0, 0]), 16, 32, 16)
            )
            if k == 0:
                T.evaluate(
                    T.call_extern(
                        "void", "tw.mad.fp16", T.address_of(c[0, 0]), T.address_of(a0[0, 0]), T.address_of(b0[0, 0]),
                        16, 32, 16,
                    )
                )  # fmt: skip
            else:
                T.evaluate(
                    T.call_extern(
                        "void", "tw.madacc.fp16", T.address_of(c[0, 0]), T.address_of(a0[0, 0]),
                        T.address_of(b0[0, 0]), 16, 32, 16,
                    )
                )  # fmt: skip
        T.evaluate(
            T.call_extern(
                "void", "tw.fix.ub.nd.fp32.fp32.none", T.address_of(r[0, 0]), T.address_of(c[0, 0]), 16, 32, 16, 32
            )
        )
        T.evaluate(
            T.call_extern(
                "void", "tw.st.ddr.fp32.2d", T.address_of(o[bx * 32 + i * 16, 0]), 32, 1, T.address_of(r[0, 0]), 32, 1,
                16, 32,
            )
        )  # fmt: skip


@pytest.mark.parametrize("name", CHIPS)
def test_a_matrix_product(name: str) -> None:
    chip = load_chip(name)
    data = np.random.default_rng(0)
    a, b = data.random((64, 64)).astype(np.float16), data.random((64, 32)).astype(np.float16)
    program = linked([(product, ("a", "b", "o"))], chip, {"a": "input", "b": "input", "o": "output"})
    for seed in (0, 1, 2):
        result = run(program, chip, {"a": a, "b": b}, seed)
        np.testing.assert_allclose(result.outputs["o"], a.astype(np.float64) @ b, rtol=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_random_kernels_are_free_of_hazards(seed: int) -> None:
    chip = load_chip(CHIPS[seed % 3])
    run(linked([(random_kernel(seed), ARGUMENTS)], chip, ROLES), chip, random_kernels.inputs(seed), seed % 2)


@pytest.mark.parametrize("seed", range(8))
def test_they_are_with_few_registers_and_loops_of_branches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = random_kernels.inputs(seed)
    expected = run(linked([(random_kernel(seed), ARGUMENTS)], TINY, ROLES), TINY, inputs).outputs["out"]
    monkeypatch.setattr(registers, "_FREE", tuple(range(1, 7)))
    monkeypatch.setattr(registers, "LOOP_DEPTH", 1)
    result = run(linked([(random_kernel(seed), ARGUMENTS)], TINY, ROLES), TINY, inputs)
    np.testing.assert_array_equal(result.outputs["out"], expected)


def test_they_are_not_without() -> None:
    for seed in range(10):
        allocated = AllocateMemory().run(random_kernel(seed), TINY)
        assert _hazards(_program(allocated), random_kernels.inputs(seed))


@pytest.mark.parametrize("func", [doubled, product], ids=["doubled", "product"])
def test_every_flag_is_needed(func: Any) -> None:
    """Of a small program, each flag is one that the hazard checker asks for."""
    program = linked(
        [(func, tuple(str(p.name) for p in func.params))], TINY, {"o": "output", "a": "input", "b": "input"}
    )
    instrs = program.program.instrs
    data = {
        b.name: np.zeros(b.shape, np.float32 if b.dtype == "fp32" else np.float16)
        for b in program.program.buffers
        if b.role == "input"
    }
    pairs = list(_flag_pairs(instrs))
    assert pairs
    for pair in pairs:
        without = [Instr(by_mnemonic()["nop"], (), ()) if at in pair else instr for at, instr in enumerate(instrs)]
        mutant = replace(program, program=replace(program.program, instrs=tuple(without)))
        assert _hazards(mutant, data), f"{[i.mods for i in (instrs[pair[0]],)]} is not needed"


def test_a_kernel_is_synchronised_once() -> None:
    allocated = AllocateMemory().run(doubled, TINY)
    with pytest.raises(InvalidError, match="synchronised already"):
        InsertSync().run(InsertSync().run(allocated, TINY), TINY)


def test_a_kernel_that_needs_no_order_stays_as_it_is() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((64,), "float32")) -> None:
        x = T.alloc_buffer((64,), scope="local.ub", annotations={"tw.address": 0})
        T.evaluate(T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[0]), 1, 64))

    assert InsertSync().run(func, TINY) is func


def _flag_pairs(instrs: tuple[Instr, ...]) -> list[tuple[int, int]]:
    pairs = []
    for wait, instr in enumerate(instrs):
        if instr.row.mnemonic == "wait_flag":
            sets = [
                at
                for at, other in enumerate(instrs[:wait])
                if other.row.mnemonic == "set_flag" and (other.mods, other.values) == (instr.mods, instr.values)
            ]
            pairs.append((sets[-1], wait))
    return pairs


def _program(func: Any) -> Linked:
    code = generate(func, TINY)
    buffers = [GraphBuffer(p.name, p.dtype, p.shape, p.size_bytes, ROLES[p.name]) for p in code.parameters]
    return link([PlacedKernel("kernel", code, ARGUMENTS)], TINY, buffers)


def _hazards(program: Linked, inputs: dict[str, np.ndarray]) -> bool:
    try:
        return bool(simulate(program.program, TINY, inputs, hazards=True).hazards)
    except HazardError:
        return True
