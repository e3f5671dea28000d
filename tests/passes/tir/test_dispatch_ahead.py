"""DispatchAhead: the loads of a turn are dispatched before the work of the turn before."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from ci.sync_count import hazards
from compiler.codegen import GraphBuffer, PlacedKernel, generate, link
from compiler.target import Chip, load_chip
from compiler.tiling import matmul
from passes.tir import dispatch_ahead
from passes.tir.allocate_memory import AllocateMemory
from passes.tir.dispatch_ahead import DispatchAhead
from passes.tir.double_buffer import DoubleBuffer
from passes.tir.insert_sync import InsertSync
from passes.tir.minimise_sync import MinimiseSync
from tests.codegen.kernels import run
from tests.codegen.random_kernels import at, call, random_kernel
from tests.tiling.kernels import run as run_kernel

TINY, TW2 = load_chip("tiny"), load_chip("tw2")
TURNS, WORDS = 9, 64


def kernel(instructions: int, *, turns: int = TURNS, outer: int = 1, reload: bool = False) -> Any:
    """``out[t] = source[t] + instructions`` in turns; with ``reload`` what is loaded last depends on the work."""
    source, out = (tirx.decl_buffer((outer * turns * WORDS,), "float32", name) for name in ("source", "out"))
    x = tirx.decl_buffer((WORDS,), "float32", "x", scope="local.ub")
    o, t, i = (tirx.Var(name, "int32") for name in "oti")
    place = (o * turns + t) * WORDS
    add = call("vadds.fp32.1d", at(x, 0), 1, at(x, 0), 1, 1.0, WORDS)
    body = [
        tirx.AllocBuffer(x),
        call("ld.ddr.ub.fp32.1d", at(x, 0), 1, at(source, place), 1, WORDS),
        tirx.For(i, 0, instructions, tirx.ForKind.SERIAL, add),
        call("st.ddr.fp32.1d", at(out, place), 1, at(x, 0), 1, WORDS),
        *([call("ld.ddr.ub.fp32.1d", at(x, 0), 1, at(out, place), 1, WORDS)] if reload else []),
    ]
    inner = tirx.For(t, 0, turns, tirx.ForKind.SERIAL, tirx.SeqStmt(body))
    return tirx.PrimFunc([source, out], tirx.For(o, 0, outer, tirx.ForKind.SERIAL, inner))


def synced(func: Any, chip: Chip) -> Any:
    """Where nothing was double buffered, the loads of a turn wait for the work of the last."""
    func = InsertSync().run(AllocateMemory().run(DoubleBuffer().run(func, chip), chip), chip)
    return MinimiseSync().run(func, chip)


def shallow(chip: Chip, depth: int) -> Chip:
    return replace(chip, queues=replace(chip.queues, depth=depth))


def cycles(func: Any, chip: Chip, turns: int, added: int) -> int:
    """Of a run that is free of hazards and right."""
    code = generate(func, chip)
    names = ("source", "out")
    buffers = [
        GraphBuffer(p.name, p.dtype, p.shape, p.size_bytes, role)
        for p, role in zip(code.parameters, ("input", "output"), strict=True)
    ]
    source = np.random.default_rng(turns).integers(0, 99, turns * WORDS).astype(np.float32)
    result = run(link([PlacedKernel("kernel", code, names)], chip, buffers), chip, {"source": source})
    np.testing.assert_array_equal(result.outputs["out"], source + added)
    return result.cycles


@pytest.mark.parametrize("turns", [2, 3, 4, 9])
@pytest.mark.parametrize("chip", [TINY, TW2], ids=lambda chip: chip.name)
def test_loads_run_beside_work_that_fills_its_queue(chip: Chip, turns: int) -> None:
    work = 2 * chip.queues.depth
    before = synced(kernel(work, turns=turns), chip)
    after = DispatchAhead().run(before, chip)
    assert not after.same_as(before)
    assert "tw.far-ahead" not in str(after.attrs), "a queue holds them"
    assert cycles(after, chip, turns, work) < cycles(before, chip, turns, work)


def test_work_that_its_queue_holds_stays() -> None:
    before = synced(kernel(TW2.queues.depth // 2), TW2)
    assert DispatchAhead().run(before, TW2).same_as(before)


def test_loads_that_need_the_work_before_them_stay() -> None:
    """A buffer with one slot, or a second load of what the work made."""
    work = 2 * TW2.queues.depth
    single = MinimiseSync().run(InsertSync().run(AllocateMemory().run(kernel(work), TW2), TW2), TW2)
    assert DispatchAhead().run(single, TW2).same_as(single)
    again = synced(kernel(work, reload=True), TW2)
    assert DispatchAhead().run(again, TW2).same_as(again)


def test_random_kernels_stay_in_order() -> None:
    """As if queues held little, so that all loads are put ahead that may be."""
    for seed in range(12):
        after = DispatchAhead().run(synced(random_kernel(seed, local=True), TINY), shallow(TINY, 3))
        assert not hazards(after, seed, TINY)


@pytest.mark.parametrize("turns", [2, 3, 5])
def test_slots_go_on_in_turn_over_the_loops_around(turns: int) -> None:
    """The first loads of the inner loop stand in front of it, in every turn of the outer one."""
    work = 2 * TINY.queues.depth
    before = synced(kernel(work, turns=turns, outer=3), TINY)
    after = DispatchAhead().run(before, TINY)
    assert not after.same_as(before)
    assert cycles(after, TINY, 3 * turns, work) < cycles(before, TINY, 3 * turns, work)


def activated(a: Any, b: Any) -> Any:
    """A product, and an activation of many instructions."""
    k = te.reduce_axis((0, a.shape[1]), "k")
    wide = te.compute(
        (a.shape[0], b.shape[1]),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k),
        "product",
        attrs={"tw.role": "matmul"},
    )
    last = te.compute(wide.shape, lambda i, j: wide[i, j].astype("float16"), "rounded")
    for step in range(2):
        last = te.compute(wide.shape, partial(step_of, last), f"step{step}")
    return last


def step_of(x: Any, i: Any, j: Any) -> Any:
    return tirx.tanh(tirx.sqrt(tirx.abs(x[i, j])))


def test_products_are_dispatched_before_the_vector_work_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays = {"a": rng.standard_normal((1024, 1024)), "b": rng.standard_normal((1024, 512))}
    given = {name: array.astype(np.float16) for name, array in arrays.items()}
    chip = shallow(load_chip("tw1"), 8)
    after = run_kernel(matmul.schedule, chip, given, activated)
    assert "tw.far-ahead" in str(after.func.attrs)
    monkeypatch.setattr(dispatch_ahead, "PRODUCTS", frozenset())
    before = run_kernel(matmul.schedule, chip, given, activated)
    assert "tw.far-ahead" not in str(before.func.attrs)
    assert after.cycles < before.cycles
    np.testing.assert_array_equal(after.output, before.output)
