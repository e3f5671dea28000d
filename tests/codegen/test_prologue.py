"""Loads of constants run under the tail of the kernel before, where L1 has room for both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from compiler.codegen import GraphBuffer, KernelCode, Linked, PlacedKernel, generate, link
from compiler.codegen.beside import moved
from compiler.codegen.storage import from_tables, to_tables
from compiler.isa.disassembler import instruction_text
from compiler.target import load_chip
from compiler.tir.near import CONSTANTS
from passes.tir.insert_sync import InsertSync
from tests.codegen.kernels import run

TINY = load_chip("tiny")
TW1 = load_chip("tw1")
TW2 = load_chip("tw2")


def product(ring: int = 0) -> Any:
    """y = (w[0] + ... + w[3]) beside x, over L1: the weights in four turns, from ``ring`` on."""

    @T.prim_func(s_tir=True, private=True)
    def func(w: T.Buffer((4, 64), "float32"), x: T.Buffer((2, 64), "float32"), y: T.Buffer((2, 5, 64), "float32")):
        bx = T.launch_thread("blockIdx.x", 2)
        l1 = T.alloc_buffer((192,), scope="shared.l1", annotations={"tw.address": ring})
        ub = T.alloc_buffer((64,), scope="local.ub", annotations={"tw.address": 0})
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.l1.fp32.1d", T.address_of(l1[128]), 1, T.address_of(x[bx, 0]), 1, 64)
        )
        T.evaluate(T.call_extern("void", "tw.l1ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(l1[128]), 1, 64))
        T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[bx, 4, 0]), 1, T.address_of(ub[0]), 1, 64))
        for i in range(4):
            T.evaluate(
                T.call_extern(
                    "void", "tw.ld.ddr.l1.fp32.1d", T.address_of(l1[i % 2 * 64]), 1, T.address_of(w[i, 0]), 1, 64
                )
            )
            T.evaluate(
                T.call_extern("void", "tw.l1ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(l1[i % 2 * 64]), 1, 64)
            )
            T.evaluate(
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[bx, i, 0]), 1, T.address_of(ub[0]), 1, 64)
            )

    return func


def code(chip: Any, ring: int = 0, constants: tuple[int, ...] = (0,)) -> KernelCode:
    func = InsertSync().run(product(ring), chip)
    return generate(func.with_attr(CONSTANTS, list(constants)), chip, "product")


def test_the_first_turns_of_a_load_of_constants_are_code_of_their_own() -> None:
    """The third one writes where the loop reads in the first one."""
    first, second = code(TINY).prologue
    for load, offset, at in ((first, "x1", 0), (second, "x1 + 256", 256)):
        assert [instruction_text(instr) for instr in load.instrs] == [
            "ldt x1, 0",
            f"ld.ddr.l1.fp32.1d [{at}; 1], [{offset}; 1], <64>",
        ]
        assert (load.parameter, load.low, load.high, load.scratch) == (0, at, at + 256, -1)
    assert [load.number for load in (first, second)] == [0, 1]


def test_what_other_kernels_write_is_loaded_in_its_turn() -> None:
    assert not code(TINY, constants=()).prologue


def test_a_load_over_what_the_kernel_used_before_it_stays() -> None:
    first, second = (code(TINY, constants=given).prologue for given in ((0, 1), (1,)))
    assert [load.parameter for load in first] == [1, 0, 0] and [load.parameter for load in second] == [1]


def chain(chip: Any, ring: int, **options: Any) -> Linked:
    buffers = [GraphBuffer(name, "fp32", (4, 64), 1024, "constant") for name in ("w0", "w1")]
    buffers += [GraphBuffer("x", "fp32", (2, 64), 512, "input"), GraphBuffer("z", "fp32", (2, 5, 64), 2560, "output")]
    buffers.append(GraphBuffer("y", "fp32", (2, 5, 64), 2560, "intermediate"))
    kernels = [
        PlacedKernel("k0", code(chip, ring), ("w0", "x", "y")),
        PlacedKernel("k1", code(chip, ring), ("w1", "y", "z")),
    ]
    return link(kernels, chip, buffers, **options)


@pytest.mark.parametrize("chip", [TINY, TW1], ids=lambda chip: chip.name)
@pytest.mark.parametrize("ring", [0, 32000], ids=["beside", "over"])
def test_the_results_stay(chip: Any, ring: int) -> None:
    rng = np.random.default_rng(0)
    given = {name: rng.random(shape, np.float32) for name, shape in (("w0", (4, 64)), ("w1", (4, 64)), ("x", (2, 64)))}
    for options in ({}, {"overlap": False}, {"llb": False}):
        program = chain(chip, ring, **options)
        for seed in range(3):
            z = run(program, chip, given, seed).outputs["z"]
            for core in range(2):
                np.testing.assert_array_equal(z[core, :4], given["w1"])
                np.testing.assert_array_equal(z[core, 4], given["w0"][core])


def test_a_kernel_that_runs_ahead_lies_beside_the_one_before() -> None:
    program = chain(TW1, 0).program
    border = [instr.row.mnemonic for instr in program.instrs[: program.labels[1][1]]]
    assert "barrier_all" not in border and border.count("ld") == 4  # two of the kernel, two ahead
    loads = [instr.values[0] for instr in program.instrs if instr.row.mnemonic == "ld"]
    assert 1024 in loads  # the first slot of the second kernel's ring, moved behind the first kernel's


def test_where_l1_is_full_nothing_runs_ahead() -> None:
    program = chain(TINY, 32000).program
    assert "barrier_all" in [instr.row.mnemonic for instr in program.instrs]


def staged(waits_first: bool = False) -> Any:
    """y = w beside x: the cores bring the weights to LLB, the second one more of them."""

    @T.prim_func(s_tir=True, private=True)
    def func(w: T.Buffer((128,), "float32"), x: T.Buffer((2, 64), "float32"), y: T.Buffer((2, 192), "float32")):
        bx = T.launch_thread("blockIdx.x", 2)
        near = T.alloc_buffer((128,), scope="shared.llb")
        ub = T.alloc_buffer((192,), scope="local.ub", annotations={"tw.address": 0})
        if T.bool(waits_first):
            T.evaluate(T.call_extern("void", "tw.cross_set.mte2", 1 - bx, 0))
            T.evaluate(T.call_extern("void", "tw.cross_wait.mte2", 1 - bx, 0))
        T.evaluate(
            T.call_extern(
                "void", "tw.ld.ddr.llb.fp32.1d", T.address_of(near[bx * 32]), 1, T.address_of(w[bx * 32]), 1, 32
            )
        )
        if bx == 1:
            T.evaluate(
                T.call_extern("void", "tw.ld.ddr.llb.fp32.1d", T.address_of(near[64]), 1, T.address_of(w[64]), 1, 64)
            )
        for other in range(2):
            T.evaluate(T.call_extern("void", "tw.cross_set.mte2", other, 0))
        for other in range(2):
            T.evaluate(T.call_extern("void", "tw.cross_wait.mte2", other, 0))
        T.evaluate(T.call_extern("void", "tw.ld.llb.ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(near[0]), 1, 128))
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[128]), 1, T.address_of(x[bx, 0]), 1, 64)
        )
        T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[bx, 0]), 1, T.address_of(ub[0]), 1, 192))

    return func


def staged_code(chip: Any, *, waits_first: bool = False) -> KernelCode:
    func = InsertSync().run(staged(waits_first), chip).with_attr(CONSTANTS, [0])
    return generate(func, chip, "staged")


def staged_chain(chip: Any, **options: Any) -> Linked:
    buffers = [GraphBuffer(name, "fp32", (128,), 512, "constant") for name in ("w0", "w1", "w2")]
    buffers += [GraphBuffer("x", "fp32", (2, 64), 512, "input"), GraphBuffer("z", "fp32", (2, 192), 1536, "output")]
    buffers += [GraphBuffer(name, "fp32", (2, 192), 1536, "intermediate") for name in ("y0", "y1")]
    uses = [("w0", "x", "y0"), ("w1", "y0", "y1"), ("w2", "y1", "z")]
    return link(
        [PlacedKernel(f"k{n}", staged_code(chip), names) for n, names in enumerate(uses)], chip, buffers, **options
    )


def test_what_cores_share_in_bringing_to_llb_is_brought_ahead() -> None:
    loads = staged_code(TINY).prologue
    assert [(load.parameter, load.scratch, load.low, load.high) for load in loads] == [(0, 3, 0, 256), (0, 3, 256, 512)]
    for overlap, expected in ((True, [4, 6, 6]), (False, [2, 4, 6])):
        program = staged_chain(TINY, overlap=overlap).program
        ends = [at for _, at in program.labels[1:]] + [len(program.instrs)]
        brings = [instr.mods[:2] == ("ddr", "llb") for instr in program.instrs]
        assert [sum(brings[:end]) for end in ends] == expected


def test_what_another_core_was_waited_for_stays_in_its_turn() -> None:
    assert not staged_code(TINY, waits_first=True).prologue


@pytest.mark.parametrize("chip", [TINY, TW1, TW2], ids=lambda chip: chip.name)
def test_results_that_came_through_llb_stay(chip: Any) -> None:
    rng = np.random.default_rng(0)
    given = {name: rng.random(128, np.float32) for name in ("w0", "w1", "w2")} | {"x": rng.random((2, 64), np.float32)}
    for options in ({}, {"overlap": False}, {"llb": False}):
        program = staged_chain(chip, **options)
        for seed in range(3):
            z = run(program, chip, given, seed).outputs["z"]
            np.testing.assert_array_equal(z[:, :128], [given["w2"]] * 2)


def test_moving_changes_addresses_of_l1_only() -> None:
    before = code(TINY)
    texts = ((instr, moved(instr, "l1", 4096)) for instr in before.instrs)
    changed = {old.row.mnemonic for old, new in texts if old != new}
    assert changed == {"ld", "l1ub"}


def test_a_stored_kernel_keeps_its_prologue() -> None:
    kernel = code(TINY)
    assert from_tables(to_tables(kernel)) == kernel
