"""Buffers that cross queues become rings: free of hazards, and faster, whatever loops and branches are around them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from ci.sync_mutation import sync_instructions, without
from compiler.codegen import GraphBuffer, PlacedKernel, generate, link
from compiler.codegen.events import Reader
from compiler.codegen.instruction_form import SLOTS, read_call
from compiler.codegen.memory import SPILLED_BYTES
from compiler.codegen.ordering import Order
from compiler.codegen.rings import find_rings
from compiler.errors import HazardError
from compiler.isa.program import Program
from compiler.sim.simulator import simulate
from compiler.target import Chip, load_chip
from compiler.tir.rewriter import statements
from passes.tir.allocate_memory import AllocateMemory
from passes.tir.double_buffer import DoubleBuffer
from passes.tir.insert_sync import InsertSync
from passes.tir.minimise_sync import MinimiseSync
from tests.codegen import random_kernels
from tests.codegen.kernels import linked, run
from tests.codegen.random_kernels import ARGUMENTS, ROLES, loops_in_a_row, random_kernel

CHIPS = ("tiny", "tw1", "tw2")
TINY = load_chip("tiny")


@T.prim_func(s_tir=True, private=True)
def doubled(a: T.Buffer((6, 64), "float32"), o: T.Buffer((6, 64), "float32")) -> None:
    for i, j in T.grid(3, 2):
        x = T.alloc_buffer((64,), scope="local.ub")
        y = T.alloc_buffer((65,), scope="local.ub")
        t = T.alloc_buffer((64,), scope="local.ub")
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[i * 2 + j, 0]), 1, 64)
        )
        T.evaluate(T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(t[0]), 1, T.address_of(x[0]), 1, 64))
        T.evaluate(T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(y[1]), 1, T.address_of(t[0]), 1, 64))
        T.evaluate(
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[i * 2 + j, 0]), 1, T.address_of(y[1]), 1, 64)
        )


def test_what_crosses_queues_has_two_slots() -> None:
    """A slot is whole blocks; what only the vector unit touches stays as it is."""

    @T.prim_func(s_tir=True, private=True)
    def after(a: T.Buffer((6, 64), "float32"), o: T.Buffer((6, 64), "float32")) -> None:
        x = T.alloc_buffer(
            (2, 64), scope="local.ub", strides=(64, 1), layout=None, annotations={"tw.bytes": 512, "tw.slots": 2}
        )
        y = T.alloc_buffer(
            (2, 65), scope="local.ub", strides=(72, 1), layout=None, annotations={"tw.bytes": 576, "tw.slots": 2}
        )
        for i, j in T.grid(3, 2):
            slot: T.let[T.int32] = (i * 2 + j) % 2
            t = T.alloc_buffer((64,), scope="local.ub")
            T.evaluate(
                T.call_extern(
                    "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[slot, 0]), 1, T.address_of(a[i * 2 + j, 0]), 1, 64
                )
            )
            T.evaluate(T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(t[0]), 1, T.address_of(x[slot, 0]), 1, 64))
            T.evaluate(T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(y[slot, 1]), 1, T.address_of(t[0]), 1, 64))
            T.evaluate(
                T.call_extern(
                    "void", "tw.st.ddr.fp32.1d", T.address_of(o[i * 2 + j, 0]), 1, T.address_of(y[slot, 1]), 1, 64
                )
            )

    result = DoubleBuffer().run(doubled, TINY)
    tvm.ir.assert_structural_equal(result, after)
    assert DoubleBuffer().run(result, TINY).same_as(result)


@T.prim_func(s_tir=True, private=True)
def product(
    a: T.Buffer((48, 80), "float16"), b: T.Buffer((80, 32), "float16"), o: T.Buffer((48, 32), "float32")
) -> None:
    """A tiled matrix product whose loops turn three and five times, with a product only where there is one."""
    bx = T.launch_thread("blockIdx.x", 2)
    for i in range(3):
        c = T.alloc_buffer((16, 16), "float32", scope="local.l0c")
        r = T.alloc_buffer((16, 16), "float32", scope="local.ub")
        T.evaluate(T.call_extern("void", "tw.mfill.fp32", T.address_of(c[0, 0]), 16, 16, T.float32(0.0)))
        for k in range(3):
            a1 = T.alloc_buffer((2, 16, 16), "float16", scope="shared.l1")
            b1 = T.alloc_buffer((2, 16, 16), "float16", scope="shared.l1")
            for n in range(2):
                if k * 2 + n < 5:
                    T.evaluate(
                        T.call_extern(
                            "void", "tw.ldnz.ddr.fp16", T.address_of(a1[n, 0, 0]),
                            T.address_of(a[i * 16, (k * 2 + n) * 16]), 16, 16, 80, 16,
                        )
                    )  # fmt: skip
                    T.evaluate(
                        T.call_extern(
                            "void", "tw.ldnz.ddr.fp16", T.address_of(b1[n, 0, 0]),
                            T.address_of(b[(k * 2 + n) * 16, bx * 16]), 16, 16, 32, 16,
                        )
                    )  # fmt: skip
            for n in range(2):
                a0 = T.alloc_buffer((16, 16), "float16", scope="local.l0a")
                b0 = T.alloc_buffer((16, 16), "float16", scope="local.l0b")
                if k * 2 + n < 5:
                    T.evaluate(
                        T.call_extern(
                            "void", "tw.ldl0a.fp16", T.address_of(a0[0, 0]), T.address_of(a1[n, 0, 0]), 16, 16, 16
                        )
                    )
                    T.evaluate(
                        T.call_extern(
                            "void", "tw.ldl0b.fp16", T.address_of(b0[0, 0]), T.address_of(b1[n, 0, 0]), 16, 16, 16
                        )
                    )
                    T.evaluate(
                        T.call_extern(
                            "void", "tw.madacc.fp16", T.address_of(c[0, 0]), T.address_of(a0[0, 0]),
                            T.address_of(b0[0, 0]), 16, 16, 16,
                        )
                    )  # fmt: skip
        T.evaluate(
            T.call_extern(
                "void", "tw.fix.ub.nd.fp32.fp32.none", T.address_of(r[0, 0]), T.address_of(c[0, 0]), 16, 16, 16, 16
            )
        )
        T.evaluate(
            T.call_extern(
                "void", "tw.st.ddr.fp32.2d", T.address_of(o[i * 16, bx * 16]), 32, 1, T.address_of(r[0, 0]), 16, 1,
                16, 16,
            )
        )  # fmt: skip


KERNELS = {
    "doubled": (doubled, ("a", "o"), {"a": (6, 64)}),
    "product": (product, ("a", "b", "o"), {"a": (48, 80), "b": (80, 32)}),
}


def _program(name: str, chip: Chip, rings: bool = True) -> tuple[Program, dict[str, np.ndarray], Any]:
    """A kernel's program, its inputs, and the kernel in instruction form with or without rings."""
    func, names, shapes = KERNELS[name]
    ringed = DoubleBuffer().run(func, chip) if rings else func
    linked_program = linked([(ringed, names)], chip, {n: "input" for n in shapes} | {"o": "output"})
    types = {str(p.name): str(p.dtype) for p in func.params}
    data = np.random.default_rng(0)
    inputs = {n: data.random(shape).astype(types[n]) for n, shape in shapes.items()}
    return linked_program.program, inputs, ringed


def _slots(func: Any) -> list[int]:
    """Of every ring, in order."""
    found: list[int] = []

    def note(statement: Any) -> None:
        if SLOTS in statement.annotations:
            found.append(int(statement.annotations[SLOTS]))

    tvm_ffi.structural_walk(func.body, (tirx.AllocBuffer, note))
    return found


@pytest.mark.parametrize("chip_name", CHIPS)
@pytest.mark.parametrize("name", KERNELS)
def test_rings_take_fewer_cycles_and_compute_the_same(name: str, chip_name: str) -> None:
    chip = load_chip(chip_name)
    program, inputs, _ = _program(name, chip)
    single, _, _ = _program(name, chip, rings=False)
    result, before = simulate(program, chip, inputs, hazards=True), simulate(single, chip, inputs, hazards=True)
    assert not result.hazards and not before.hazards
    np.testing.assert_array_equal(result.outputs["o"], before.outputs["o"])
    assert result.cycles < before.cycles * 0.95


@pytest.mark.parametrize("name", KERNELS)
def test_rings_need_each_of_their_flags(name: str) -> None:
    """Whatever set or wait is taken away, the hazard checker notices."""
    chip = load_chip("tw1")
    program, inputs, ringed = _program(name, chip)
    assert _slots(ringed)
    for index in sync_instructions(program):
        try:
            assert simulate(without(program, [index]), chip, inputs, hazards=True).hazards, program.instrs[index]
        except HazardError:
            pass


@pytest.mark.parametrize("ids", [1, 2, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_slots_become_fewer_where_flags_do_not_last(name: str, ids: int) -> None:
    chip = dataclasses.replace(load_chip("tw1"), event_ids=ids)
    program, inputs, ringed = _program(name, chip)
    assert all(slots <= ids for slots in _slots(ringed))
    assert not simulate(program, chip, inputs, hazards=True).hazards


def test_slots_become_fewer_where_room_does_not_last() -> None:
    """All buffers take 800 bytes; second slots of both 544 more, of one of them 256 or 288."""
    taken = []
    for size in (1344, 1312, 1024):  # beyond what is kept for scalars
        chip = dataclasses.replace(TINY, memory=dataclasses.replace(TINY.memory, ub_bytes=size + SPILLED_BYTES))
        program, inputs, ringed = _program("doubled", chip)
        assert not simulate(program, chip, inputs, hazards=True).hazards
        taken.append(_slots(ringed))
    assert taken == [[2, 2], [2], []]


def test_what_the_scalar_unit_touches_stays_as_it_is() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((6, 64), "float32"), o: T.Buffer((6,), "float32")) -> None:
        for i in range(6):
            x = T.alloc_buffer((64,), scope="local.ub")
            T.evaluate(
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[i, 0]), 1, 64)
            )
            o[i] = x[3]

    assert DoubleBuffer().run(func, TINY).same_as(func)


@pytest.mark.parametrize("seed", range(24))
def test_random_kernels_are_free_of_hazards(seed: int) -> None:
    """Loops that may not run at all, branches, buffers of blocks at any depth, extents that depend on data."""
    chip, func = load_chip(CHIPS[seed % 3]), random_kernel(seed, local=True)
    inputs = random_kernels.inputs(seed)
    outputs = [
        run(linked([(kernel, ARGUMENTS)], chip, ROLES), chip, inputs, seed % 4).outputs["out"]
        for kernel in (func, DoubleBuffer().run(func, chip))
    ]
    np.testing.assert_array_equal(*outputs)


def test_random_kernels_have_rings() -> None:
    assert sum(bool(_slots(DoubleBuffer().run(random_kernel(seed, local=True), TINY))) for seed in range(12)) >= 4


@T.prim_func(s_tir=True, private=True)
def passed_on(a: T.Buffer((16, 4096), "float16"), o: T.Buffer((16, 4096), "float16")) -> None:
    """What is loaded is worked on in its place, and stored from there."""
    for i in range(16):
        x = T.alloc_buffer((4096,), "float16", scope="local.ub")
        T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(x[0]), 1, T.address_of(a[i, 0]), 1, 4096)
        T.call_extern("void", "tw.vexp.fp16.1d", T.address_of(x[0]), 1, T.address_of(x[0]), 1, 4096)
        T.call_extern("void", "tw.st.ddr.fp16.1d", T.address_of(o[i, 0]), 1, T.address_of(x[0]), 1, 4096)


@pytest.mark.parametrize("name", ["tw1", "tw2"])
def test_a_slot_that_three_queues_hold_in_turn_is_not_waited_for(name: str) -> None:
    """While one is loaded, one worked on and one stored, another one may be on its way."""
    chip, a = load_chip(name), np.random.default_rng(0).standard_normal((16, 4096)).astype(np.float16)
    cycles = list[int]()
    for most in (2, 3, 4):
        func = DoubleBuffer(most_slots=most).run(passed_on, chip)
        assert _slots(func) == [most]
        result = run(linked([(func, ("a", "o"))], chip, {"a": "input", "o": "output"}), chip, {"a": a})
        cycles.append(result.cycles)
    assert cycles[2] < cycles[1] < cycles[0]


@T.prim_func(s_tir=True, private=True)
def twice(a: T.Buffer((2, 6, 64), "float32"), o: T.Buffer((2, 6, 64), "float32")) -> None:
    """Two loops over rings of their own."""
    for i in range(6):
        x = T.alloc_buffer((64,), scope="local.ub")
        y = T.alloc_buffer((64,), scope="local.ub")
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[0, i, 0]), 1, 64)
        T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(y[0]), 1, T.address_of(x[0]), 1, 64)
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[0, i, 0]), 1, T.address_of(y[0]), 1, 64)
    for i in range(6):
        x = T.alloc_buffer((64,), scope="local.ub")
        y = T.alloc_buffer((64,), scope="local.ub")
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[1, i, 0]), 1, 64)
        T.call_extern("void", "tw.vrelu.fp32.1d", T.address_of(y[0]), 1, T.address_of(x[0]), 1, 64)
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[1, i, 0]), 1, T.address_of(y[0]), 1, 64)


def _flags_of(func: Any, chip: Chip) -> list[tuple[str, ...]]:
    """The queues and the id of all sets that stand outside of loops."""
    body = InsertSync().run(AllocateMemory().run(func, chip), chip).body
    calls = [read_call(part) for part in statements(body) if isinstance(part, tirx.Evaluate)]
    return [
        (*call.mods, str(call.operands[0])) for call in calls if call is not None and call.row.mnemonic == "set_flag"
    ]


def test_loops_in_a_row_do_not_wait_for_one_another() -> None:
    """Where ids last, each has its own: both are set at the beginning, so the second loads while the first works."""
    chip = load_chip("tw2")
    func = DoubleBuffer().run(twice, chip)
    flags = _flags_of(func, chip)
    assert len(flags) == len(set(flags)) > 0
    few = dataclasses.replace(chip, event_ids=4)
    shared = _flags_of(DoubleBuffer().run(twice, few), few)
    assert len(shared) > len(set(shared))
    a = np.random.default_rng(0).standard_normal((2, 6, 64)).astype(np.float32)
    roles, cycles = {"a": "input", "o": "output"}, []
    for each in (chip, few):
        result = run(linked([(DoubleBuffer().run(twice, each), ("a", "o"))], each, roles), each, {"a": a})
        cycles.append(result.cycles)
    assert cycles[0] < cycles[1]


@pytest.mark.parametrize("ids", [3, 4, 6, 8])
@pytest.mark.parametrize("seed", range(6))
def test_random_loops_in_a_row_are_free_of_hazards(seed: int, ids: int) -> None:
    """With as few flags as they may come to share: between all loops, between some, or not at all."""
    chip = dataclasses.replace(load_chip(CHIPS[seed % 3]), event_ids=ids)
    func, inputs = loops_in_a_row(seed), random_kernels.inputs(seed)
    ringed = DoubleBuffer().run(func, chip)
    outputs = [
        run(linked([(kernel, ARGUMENTS)], chip, ROLES), chip, inputs, seed % 4).outputs["out"]
        for kernel in (func, ringed)
    ]
    np.testing.assert_array_equal(*outputs)
    synced, reader = InsertSync().run(AllocateMemory().run(ringed, chip), chip), Reader(chip, synchronised=True)
    assert Order(reader.kernel(synced), reader.events, ids).holds()


def _shared(seed: int, ids: int) -> tuple[bool, bool]:
    """Whether some rings have flags of their own, and whether some share none with the next."""
    chip = dataclasses.replace(TINY, event_ids=ids)
    placed = AllocateMemory().run(DoubleBuffer().run(loops_in_a_row(seed), chip), chip)
    rings = find_rings(Reader(chip).kernel(placed), ids)
    return any(rings.apart.values()), any(rings.late.values())


def test_random_loops_in_a_row_share_flags_in_all_ways() -> None:
    apart, late = zip(*(_shared(seed, ids) for seed in range(6) for ids in (3, 4, 6, 8)), strict=True)
    assert 0 < sum(apart) < len(apart)
    assert 0 < sum(late) < len(late)


@T.prim_func(s_tir=True, private=True)
def thrice(a: T.Buffer((3, 6, 64), "float32"), o: T.Buffer((3, 6, 64), "float32")) -> None:
    """Three loops over rings of their own."""
    for i in range(6):
        x = T.alloc_buffer((64,), scope="local.ub")
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[0, i, 0]), 1, 64)
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[0, i, 0]), 1, T.address_of(x[0]), 1, 64)
    for i in range(6):
        x = T.alloc_buffer((64,), scope="local.ub")
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[1, i, 0]), 1, 64)
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[1, i, 0]), 1, T.address_of(x[0]), 1, 64)
    for i in range(6):
        x = T.alloc_buffer((64,), scope="local.ub")
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[2, i, 0]), 1, 64)
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[2, i, 0]), 1, T.address_of(x[0]), 1, 64)


def test_loops_wait_for_the_one_before_the_last_where_ids_do_not_last_for_all() -> None:
    """Two slots each: five ids are enough for two loops and one more flag, three for one loop."""
    a = np.random.default_rng(0).standard_normal((3, 6, 64)).astype(np.float32)
    cycles = []
    for ids in (8, 5, 3):
        chip = dataclasses.replace(load_chip("tw2"), event_ids=ids)
        func = DoubleBuffer(most_slots=2).run(thrice, chip)
        result = run(linked([(func, ("a", "o"))], chip, {"a": "input", "o": "output"}), chip, {"a": a})
        np.testing.assert_array_equal(result.outputs["o"], a)
        cycles.append(result.cycles)
    assert cycles[0] < cycles[1] < cycles[2]


@T.prim_func(s_tir=True, private=True)
def between(a: T.Buffer((3, 64), "float32"), o: T.Buffer((5, 64), "float32")) -> None:
    """Two loops over rings; what is loaded between them is stored without the vector unit."""
    total = T.alloc_buffer((64,), scope="local.ub")
    T.call_extern("void", "tw.vdup.fp32.1d", T.address_of(total[0]), 1, T.float32(0.0), 64)
    for i in range(2):
        y = T.alloc_buffer((64,), scope="local.ub")
        x = T.alloc_buffer((64,), scope="local.ub")
        T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(y[0]), 1, T.address_of(total[0]), 1, 64)
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[i, 0]), 1, T.address_of(y[0]), 1, 64)
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[i, 0]), 1, 64)
        T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(total[0]), 1, T.address_of(x[0]), 1, 64)
    z = T.alloc_buffer((64,), scope="local.ub")
    T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(z[0]), 1, T.address_of(a[2, 0]), 1, 64)
    T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[2, 0]), 1, T.address_of(z[0]), 1, 64)
    for i in range(2):
        y = T.alloc_buffer((64,), scope="local.ub")
        T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(y[0]), 1, T.address_of(total[0]), 1, 64)
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[i + 3, 0]), 1, T.address_of(y[0]), 1, 64)


def test_the_last_wait_for_a_ring_is_behind_all_that_its_flags_tell_of() -> None:
    """Here that is the vector unit's wait for the stores of the first loop: what the loads of that loop wait for does
    not tell of it, so the queue that first sets the same flags for the second loop has to know it from elsewhere.
    """
    few = dataclasses.replace(load_chip("tw2"), event_ids=4)
    synced = InsertSync().run(AllocateMemory().run(DoubleBuffer().run(between, few), few), few)
    a = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    for func in (synced, MinimiseSync().run(synced, few)):
        code = generate(func, few)
        buffers = [
            GraphBuffer(p.name, p.dtype, p.shape, p.size_bytes, role)
            for p, role in zip(code.parameters, ("input", "output"), strict=True)
        ]
        program = link([PlacedKernel("kernel", code, ("a", "o"))], few, buffers).program
        assert not simulate(program, few, {"a": a}, hazards=True).hazards
