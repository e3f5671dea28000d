"""What the search does beside choosing counts and breaks, by a cost of which all is known."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from compiler import graph
from compiler.codegen.residence import TIGHT_SHARE
from compiler.frontend import import_model
from compiler.schedule import automatic
from compiler.schedule.automatic import Cost, best_way, relieved
from compiler.schedule.choice import Choice, Problem
from compiler.schedule.cuts import Cuts
from compiler.schedule.storage import Operator, Storage, Tensor, storage_of
from compiler.target import load_chip
from passes.graph.group_operators import GroupOperators
from tests.test_driver import model, node

COUNTS = (1, 2, 4, 8)


class KnownCost:
    """Calls that read weights for each piece, and move in DDR what lies there."""

    def __init__(self, weights: list[int], storage: Storage) -> None:
        self.weights, self.storage = weights, storage

    def of(self, storage: Storage) -> KnownCost:
        return KnownCost(self.weights, storage)

    def cycles(self, at: int, count: int, near: bool) -> float:
        operator, tensors = self.storage.operators[at], self.storage.tensors
        moved = [tensors[n] for n in (*operator.reads, *operator.makes)]
        far = sum(each.size_bytes for each in moved if not (near and each.is_between))
        return max(far, count * self.weights[at]) + count


def chain(sizes: list[int], weights: list[int], room: int) -> tuple[Problem, Cost]:
    """Calls one after another; the last one makes what the model does."""
    end = len(sizes) - 1
    tensors = [Tensor(size, at, min(at + 1, end), is_result=at == end) for at, size in enumerate(sizes)]
    operators = [Operator(f"f{at}", "f", (at - 1,) if at else (), (at,)) for at in range(len(sizes))]
    storage = Storage(tuple(operators), tuple(tensors), {})
    cost = cast(Any, KnownCost(weights, storage))
    return Problem(storage, [COUNTS] * len(sizes), cost.cycles, 1.0, room), cost


def test_a_tensor_goes_to_ddr_where_that_leaves_room_for_what_follows() -> None:
    """Calls with large weights that are to be whole: with what the first of them reads, they do not fit; without it
    they do, and it moves while the cube works."""
    problem, cost = chain([800, 800, 700, 300, 300, 100], [10, 10, 300, 900, 900, 900], 700)
    plain, found = problem.best(), relieved(problem, cost)
    assert found.cycles < plain.cycles
    assert found.bound_cycles <= found.cycles
    assert found.counts[3:] == (1, 1, 1)


@pytest.mark.parametrize("room", [50, 5000])
def test_nothing_goes_to_ddr_where_all_fits_or_nothing_does(room: int) -> None:
    problem, cost = chain([800, 800, 700, 300], [10, 10, 300, 900], room)
    assert relieved(problem, cost) == problem.best()


@pytest.mark.parametrize("tight_cycles", [100, 95])
def test_room_of_kernels_is_taken_where_that_is_better(tight_cycles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chip = load_chip("tiny")
    tight_room = int(chip.memory_bytes("llb") * TIGHT_SHARE)

    def known(problem: Problem, cost: Cost) -> Choice:
        del cost
        cycles = tight_cycles if problem.room_bytes == tight_room else 100
        count = 2 if problem.room_bytes == tight_room else 1
        return Choice((0, 1), (count, count), cycles + problem.room_ahead, bound_cycles=cycles - 10)

    monkeypatch.setattr(automatic, "relieved", known)
    nodes = [node("Softmax", "x", "a"), node("Softmax", "a", "b", axis=2), node("Softmax", "b", "y")]
    source = model(nodes, {"x": (16, 4, 64, 16)}, ["y"])
    module = GroupOperators().run(import_model(source).module, chip)
    choice = best_way(module, Cuts(module), chip).choice
    assert choice.counts == ((1, 1) if tight_cycles == 100 else (2, 2))
    assert choice.bound_cycles == min(90, tight_cycles - 10)


def test_parts_that_are_read_where_they_are_take_no_room_of_their_own() -> None:
    """Queries and keys, cut out of what one product made."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((64, width)).astype(np.float32) for name, width in (("w", 96), ("v", 64))}
    bounds = {
        name: np.array([value], np.int64) for name, value in (("low", 0), ("middle", 32), ("end", 96), ("axis", 2))
    }
    source = model(
        [
            node("MatMul", "x w", "both"),
            node("Slice", "both low middle axis", "left"),
            node("Slice", "both middle end axis", "right"),
            node("MatMul", "right v", "other"),
            node("Softmax", "left", "one"),
            node("Concat", "one other", "y", axis=2),
        ],
        {"x": (4, 16, 64)},
        ["y"],
        bounds,
        **weights,
    )
    module = GroupOperators().run(import_model(source, precision="fp16").module, load_chip("tw1"))
    storage = storage_of(module, graph.read(module["main"]))
    cuts = [each for each in storage.operators if each.is_view]
    assert len(cuts) == 2
    assert max(storage.live_bytes) == 4 * 16 * 2 * (96 + 64 + 32)  # what was cut, and what was made of both parts
    share = {each.portions for each in storage.operators if any(n in cuts[0].arguments for n in each.arguments)}
    assert (32 / 96,) in share


@pytest.mark.parametrize(
    ("batch", "counts"),
    [
        (64, {1, 2, 4, 8, 16, 32, 64}),
        (48, {1, 2, 3, 4, 6, 8, 12, 16, 24, 48}),
        (60, {1, 2, 3, 5, 10, 15, 30, 60}),
        (720, {1, 2, 3, 5, 8, 12, 18, 30, 45}),
    ],
)
def test_counts_are_compared_of_which_there_are_not_too_many(
    batch: int, counts: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of one call is compared with each of the next one, so that 17 took a minute more than 8."""
    tried: set[int] = set()

    def known(problem: Problem, cost: Cost) -> Choice:
        del cost
        tried.update(*problem.allowed)
        return Choice((0, 1), (1, 1), 100)

    monkeypatch.setattr(automatic, "relieved", known)
    chip = load_chip("tiny")
    source = model([node("Softmax", "x", "a"), node("Softmax", "a", "y", axis=2)], {"x": (batch, 4, 64, 64)}, ["y"])
    module = GroupOperators().run(import_model(source).module, chip)
    best_way(module, Cuts(module), chip)
    assert tried == counts
