"""VectorFirst: the vector unit's part of a turn is dispatched before work that fills other queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import tirx

from ci.sync_count import hazards
from compiler.codegen import GraphBuffer, PlacedKernel, generate, link
from compiler.codegen.dispatch import queues
from compiler.isa.dtypes import Queue
from compiler.target import Chip, load_chip
from compiler.tir.rewriter import statements
from compiler.tir.structure import structural_walk
from passes.tir.allocate_memory import AllocateMemory
from passes.tir.cut_trips import CutTrips
from passes.tir.double_buffer import DoubleBuffer
from passes.tir.insert_sync import InsertSync
from passes.tir.minimise_sync import MinimiseSync
from passes.tir.vector_first import VectorFirst
from passes.tir.work_in_place import WorkInPlace
from tests.codegen.kernels import run
from tests.codegen.random_kernels import random_kernel
from tests.passes.tir.test_cut_trips import Chain

TINY, TW1, TW2 = (load_chip(name) for name in ("tiny", "tw1", "tw2"))


def shallow(chip: Chip, depth: int) -> Chip:
    return replace(chip, queues=replace(chip.queues, depth=depth))


def synced(kernel: Any, chip: Chip) -> Any:
    for each in (WorkInPlace(), CutTrips(), DoubleBuffer(), AllocateMemory(), InsertSync(), MinimiseSync()):
        kernel = each.run(kernel, chip)
    return kernel


def of_queues(func: Any) -> list[set[Queue]]:
    """The queues of each condition in a loop, in order."""
    found: list[set[Queue]] = []

    def visit(loop: Any) -> None:
        found.extend(queues(part) for part in statements(loop.body) if isinstance(part, tirx.IfThenElse))

    structural_walk(func.body, (tirx.For, visit))
    return found


@pytest.mark.parametrize("chip", [TW1, TW2], ids=lambda chip: str(chip.name))
@pytest.mark.parametrize(("outer", "turns"), [(1, 2), (1, 5), (3, 3)])
def test_softmax_of_a_turn_stands_before_the_scores_of_the_next(chip: Chip, outer: int, turns: int) -> None:
    before = synced(Chain(32).kernel(outer, turns), chip)
    after = VectorFirst().run(before, shallow(chip, 4))
    assert of_queues(before)[1] == of_queues(after)[0] == {Queue.V}
    assert of_queues(before)[0] == of_queues(after)[1] >= {Queue.MTE2, Queue.MTE1, Queue.M, Queue.FIX}
    square = np.random.default_rng(turns).standard_normal((outer * turns, 32, 32)).astype(np.float16) / 4
    results = []
    for func in (before, after):
        code = generate(func, chip)
        roles = ("input", "output")
        buffers = [
            GraphBuffer(p.name, p.dtype, p.shape, p.size_bytes, role)
            for p, role in zip(code.parameters, roles, strict=True)
        ]
        linked = link([PlacedKernel("kernel", code, ("a", "o"))], chip, buffers)
        results.append(run(linked, chip, {"a": square}).outputs["o"])
    np.testing.assert_array_equal(*results)


def test_work_that_fills_no_queue_is_not_passed() -> None:
    before = synced(Chain(32).kernel(1, 5), TW2)
    assert VectorFirst().run(before, TW2).same_as(before)


def test_a_turn_that_waits_for_its_own_scores_stays() -> None:
    """Without room for two turns, each softmax needs what stands before it."""
    func = Chain(32).kernel(1, 5)
    for each in (AllocateMemory(), InsertSync(), MinimiseSync()):
        func = each.run(func, TW2)
    assert VectorFirst().run(func, shallow(TW2, 1)).same_as(func)


def test_random_kernels_stay_in_order() -> None:
    """As if queues held little, so that all moves that may."""
    for seed in range(12):
        func = MinimiseSync().run(
            InsertSync().run(AllocateMemory().run(random_kernel(seed, local=True), TINY), TINY), TINY
        )
        assert not hazards(VectorFirst().run(func, shallow(TINY, 1)), seed, TINY)
