"""Buffers move until the vector unit's operands collide least; what was apart stays apart, and what ran still runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx
from tvm.script import tirx as T

from compiler.codegen import GraphBuffer, PlacedKernel, generate, link
from compiler.codegen.banks import conflicts
from compiler.codegen.instruction_form import physical_bytes
from compiler.isa.dtypes import Queue
from compiler.kernels import compile_kernel
from compiler.operators.normalization import layer_normalization
from compiler.pipeline import Observer
from compiler.sim.simulator import simulate
from compiler.target import load_chip
from compiler.target.chip import Chip
from compiler.timing import alone
from passes.tir.allocate_memory import AllocateMemory
from passes.tir.insert_sync import InsertSync
from passes.tir.shift_addresses import ShiftAddresses
from tests.codegen.random_kernels import ROLES, inputs, random_kernel

CHIPS = ("tw1", "tw2", "tiny")


@T.prim_func(s_tir=True, private=True)
def sums(x: T.Buffer((2, 1024), "float32"), y: T.Buffer((1024,), "float32")) -> None:
    a = T.alloc_buffer((256,), scope="local.ub")
    b = T.alloc_buffer((256,), scope="local.ub")
    c = T.alloc_buffer((256,), scope="local.ub")
    for i in range(4):
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(a[0]), 1, T.address_of(x[0, i * 256]), 1, 256)
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(b[0]), 1, T.address_of(x[1, i * 256]), 1, 256)
        T.call_extern(
            "void", "tw.vadd.fp32.1d", T.address_of(c[0]), 1, T.address_of(a[0]), 1, T.address_of(b[0]), 1, 256
        )
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i * 256]), 1, T.address_of(c[0]), 1, 256)


def addresses(func: Any) -> dict[Any, tuple[int, int]]:
    """Every buffer's address and size."""
    found: dict[Any, tuple[int, int]] = {}

    def note(statement: Any) -> None:
        found[statement.buffer] = (int(statement.annotations["tw.address"]), physical_bytes(statement))

    tvm_ffi.structural_walk(func.body, (tirx.AllocBuffer, note))
    return found


def lost(func: Any, chip: Any) -> float:
    found = {buffer: at for buffer, (at, _) in addresses(func).items()}
    return conflicts(func, chip, list(found)).cost(list(found.values())).lost


def test_two_that_are_read_together_lie_half_a_period_apart() -> None:
    chip = load_chip("tw2")
    before = AllocateMemory().run(sums, chip)
    assert lost(before, chip) == 4 * 4  # every repeat reads one group twice
    after = ShiftAddresses().run(before, chip)
    assert lost(after, chip) == 0
    a, b, c = (at for at, _ in addresses(after).values())
    assert (a - b) % 512 == 256
    assert c % 512 in (a % 512, b % 512) or c >> 16 != 0


@pytest.mark.parametrize("name", CHIPS)
def test_the_simulator_counts_what_was_predicted(name: str) -> None:
    chip = load_chip(name)
    data = {"x": np.random.default_rng(0).random((2, 1024), np.float32)}
    counted = []
    for shift in (False, True):
        func = AllocateMemory().run(sums, chip)
        func = ShiftAddresses().run(func, chip) if shift else func
        run = simulate(program(func, chip, {"x": "input", "y": "output"}), chip, data, hazards=True)
        assert not run.hazards
        np.testing.assert_array_equal(run.outputs["y"], data["x"].sum(axis=0))
        counted.append(int(run.classes.conflict[run.stream.klass].sum()))
        assert counted[-1] == pytest.approx(lost(func, chip), abs=8)
    assert counted[1] < counted[0] / 4


def program(func: Any, chip: Any, roles: dict[str, str]) -> Any:
    code = generate(InsertSync().run(func, chip), chip)
    buffers = [GraphBuffer(p.name, p.dtype, p.shape, p.size_bytes, roles[p.name]) for p in code.parameters]
    return link([PlacedKernel("kernel", code, tuple(p.name for p in code.parameters))], chip, buffers).program


def test_what_loses_nothing_stays() -> None:
    chip = load_chip("tw1")
    after = ShiftAddresses().run(AllocateMemory().run(sums, chip), chip)
    assert ShiftAddresses().run(after, chip) is after


def test_slots_of_a_ring_count_each() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(y: T.Buffer((1,), "float32")) -> None:
        a = T.alloc_buffer((2, 64), scope="local.ub")
        b = T.alloc_buffer((64,), scope="local.ub")
        for i in range(10):
            T.call_extern(
                "void",
                "tw.vadd.fp32.1d",
                T.address_of(b[0]),
                1,
                T.address_of(b[0]),
                1,
                T.address_of(a[i % 2, 0]),
                1,
                64,
            )

    chip = load_chip("tw2")
    allocated = AllocateMemory().run(func, chip)
    buffers = list(addresses(allocated))
    uses = conflicts(allocated, chip, buffers).uses
    assert {start for use in uses for _, at, start in use.places if buffers[at].name == "a"} == {0, 256}
    assert sum(use.weight for use in uses) == pytest.approx(10)


@pytest.mark.parametrize("seed", range(12))
def test_random_kernels_stay_apart_and_do_the_same(seed: int) -> None:
    chip = load_chip("tiny")
    kernel = random_kernel(seed)
    before = AllocateMemory().run(kernel, chip)
    after = ShiftAddresses().run(before, chip)
    assert lost(after, chip) <= lost(before, chip)
    old, new = addresses(before), addresses(after)
    for one in old:
        for other in old:
            if one is not other and not _meet(old[one], old[other]):
                assert not _meet(new[one], new[other])
        assert new[one][0] % 32 == 0
        assert new[one][0] + new[one][1] <= chip.memory.ub_bytes or one.scope() != "local.ub"
    run = simulate(program(after, chip, ROLES), chip, inputs(seed), hazards=True)
    assert not run.hazards


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[0] + other[1] and other[0] < one[0] + one[1]


def test_little_is_timed_where_what_is_known_is_no_better() -> None:
    chip = load_chip("tw2")
    func = AllocateMemory().run(sums, chip)
    at = [place for place, _ in addresses(func).values()]
    found = conflicts(func, chip, list(addresses(func)))
    here = found.lost(at)
    assert here == found.cost(at).lost > 0
    timed = found.timed
    elsewhere = [place + 32 * number for number, place in enumerate(at)]
    assert found.lost(elsewhere, 0.0) == 0.0  # nothing of it is known, and less than nothing it cannot cost
    assert found.timed == timed
    assert found.lost(elsewhere) == found.cost(elsewhere).lost
    assert found.timed > timed


def test_buffers_of_less_than_a_block_keep_apart() -> None:
    """Where blocks are larger than what memories ask for: none has a part of another one's."""
    tw1 = load_chip("tw1")
    chip = replace(tw1, block_bytes=64, vector=replace(tw1.vector, banks=replace(tw1.vector.banks, group_shift=6)))
    shapes: dict[str, tuple[int, ...]] = {"x": (32, 12), "scale": (12,), "bias": (12,)}
    params = [te.placeholder(shape, "float16", name) for name, shape in shapes.items()]
    norm = layer_normalization(*params, epsilon=1e-5)[0]
    kernel = compile_kernel(te.create_prim_func([*params, norm]), "norm", chip, Observer(), "norm")
    rng = np.random.default_rng(0)
    x, scale, bias = (rng.standard_normal(shape).astype(np.float16) for shape in shapes.values())
    run = simulate(alone(kernel.code, chip), chip, {"p0": x, "p1": scale, "p2": bias}, hazards=True)
    assert not run.hazards
    wide = x.astype(np.float32)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * scale + bias
    np.testing.assert_allclose(run.outputs["p3"], expected, rtol=4e-3, atol=4e-3)


def test_addresses_are_what_the_memory_asks_for_where_blocks_are_smaller() -> None:
    """The hazard checker watches whole 32 bytes: what two buffers have in them has no order."""
    tables = load_chip("tiny").to_dict()
    tables["name"], tables["block_bytes"] = "small-blocks", 16
    tables["vector"]["bytes_per_cycle"] = 16
    tables["vector"]["banks"]["group_shift"] = 4
    chip = Chip.from_dict(tables)
    before = AllocateMemory().run(sums, chip)
    assert lost(before, chip) > 0
    after = ShiftAddresses().run(before, chip)
    assert lost(after, chip) < lost(before, chip)
    assert all(at % 32 == 0 for at, _ in addresses(after).values())


def test_a_norm_with_many_buffers_loses_next_to_nothing() -> None:
    """As many operands as its rows have, and all their places in turn."""
    chip, rows = load_chip("tw1"), te.placeholder((4096, 768), "float16", "x")
    scale, bias = te.placeholder((768,), "float16", "scale"), te.placeholder((768,), "float16", "bias")
    norm = layer_normalization(rows, scale, bias, epsilon=1e-12)[0]
    kernel = compile_kernel(te.create_prim_func([rows, scale, bias, norm]), "norm", chip, Observer(), "norm")
    run = simulate(alone(kernel.code, chip), chip)
    classes = run.stream.klass[run.classes.queue[run.stream.klass] == int(Queue.V)]
    cycles = int((run.schedule.end - run.schedule.start)[run.classes.queue[run.stream.klass] == int(Queue.V)].sum())
    assert int(run.classes.conflict[classes].sum()) < 0.01 * cycles
