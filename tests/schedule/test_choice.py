"""How many pieces are chosen, by a cost of which all is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from compiler.schedule.choice import Problem
from compiler.schedule.storage import Operator, Storage, Tensor

COUNTS = (1, 2, 4, 8)


def chain(sizes: list[int], weights: list[int], room: int) -> Problem:
    """Calls one after another, each of which makes a tensor of this size and reads these weights for each piece."""
    tensors = [Tensor(size, at, min(at + 1, len(sizes) - 1)) for at, size in enumerate(sizes)]
    operators = [Operator(f"f{at}", "f", (at - 1,) if at else (), (at,)) for at in range(len(sizes))]

    def cost(at: int, count: int, near: bool) -> float:
        moved = sizes[at] + (sizes[at - 1] if at else 0)
        return count * weights[at] + count + (0 if near else moved)

    return Problem(Storage(tuple(operators), tuple(tensors), {}), [COUNTS] * len(sizes), cost, 1.0, room)


def test_nothing_is_cut_where_all_fits() -> None:
    assert chain([10, 10, 10], [1, 1, 1], 100).best().counts == (1, 1, 1)


def test_large_tensors_are_cut_and_weights_are_not_read_again_and_again() -> None:
    """The inverted pyramid: what is large comes first, what has large weights last."""
    found = chain([800, 800, 400, 400, 100, 100], [1, 1, 60, 60, 900, 900], 900).best().counts
    assert found[0] > found[2] > found[4] == 1
    assert sorted(found, reverse=True) == list(found)


def test_what_cannot_fit_is_not_cut() -> None:
    assert chain([10_000, 10_000], [1, 1], 10).best().counts == (1, 1)


@pytest.mark.parametrize("seed", range(8))
def test_no_other_counts_are_thought_better(seed: int) -> None:
    """All ways of a short chain, each with its cycles as the search counts them."""
    sizes = [(seed * 37 + at * 53) % 400 + 50 for at in range(4)]
    weights = [(seed * 11 + at * 29) % 60 for at in range(4)]
    problem = chain(sizes, weights, 300)
    best = min(cycles(problem, counts) for counts in product(COUNTS, repeat=4))
    found = problem.best()
    assert cycles(problem, found.counts) == pytest.approx(best)
    assert cycles(problem, found.counts, found.breaks) == pytest.approx(best)
    assert found.cycles == pytest.approx(best)


def cycles(problem: Problem, counts: tuple[int, ...], breaks: frozenset[int] | None = None) -> float:
    """Of the best choice, at each border where pieces begin anew, of what lies there: on the chip or in DDR.

    They begin anew where counts say so, and before ``breaks``, or where it is best to.
    """
    live, crossing, room = problem.storage.live_bytes, problem.storage.crossing_bytes, problem.room_bytes

    def before(at: int, total: float, reserved: float, slack: float) -> float:
        """Of all calls up to ``at``, where those behind take ``total`` and leave so much room."""
        if at < 0:
            return total
        own, found = live[at], []
        whole = crossing[at + 1] if at + 1 < len(counts) else 0
        after = counts[at + 1] if at + 1 < len(counts) else counts[at]
        divides = counts[at] % after == 0
        if divides and (breaks is None or at + 1 not in breaks):
            found.append((own, reserved + whole * (1 / after - 1 / counts[at]), 0.0, slack))
        if at + 1 < len(counts) and (not divides or (counts[at] > 1 and (breaks is None or at + 1 in breaks))):
            found.append((own - whole, 0.0, 2 * whole * problem.far_cycles_per_byte, room))
            if whole * (1 - 1 / after) <= slack:
                found.append((own, whole * (1 - 1 / counts[at]), 0.0, room))
        results = []
        for own_bytes, kept, more, free in found:
            taken = own_bytes / counts[at] + kept
            here = problem.cost(at, counts[at], taken <= room) + more
            left = room - taken if taken <= room else 0.0
            results.append(before(at - 1, total + here, kept, min(free, left)))
        return min(results)

    return before(len(counts) - 1, 0.0, 0.0, room)


def test_a_break_where_counts_divide_and_ddr_is_cheaper() -> None:
    """Room for one piece in front and for the whole behind, but not for both: no other counts are needed for that."""
    sizes, weights = [800, 800, 300, 300, 300], [1, 1, 400, 400, 400]
    found = chain(sizes, weights, 610).best()
    assert found.breaks
    for at in found.breaks:
        assert found.counts[at - 1] % found.counts[at] == 0
    assert sorted(found.counts, reverse=True) == list(found.counts)


def test_what_is_made_over_another_tensor_takes_no_room() -> None:
    problem = chain([400, 400, 400], [50, 50, 50], 500)
    assert problem.best().counts != (1, 1, 1)
    operators = [replace(each, replaces=at - 1) if at else each for at, each in enumerate(problem.storage.operators)]
    storage = Storage(tuple(operators), problem.storage.tensors, {})
    assert storage.live_bytes == [400, 400, 400]
    assert replace(problem, storage=storage).best().counts == (1, 1, 1)


def test_what_lies_between_runs_of_pieces_stays_on_the_chip_where_there_is_room() -> None:
    """As in a transformer: one large tensor in each layer, and weights that are not to be read twice beside it."""
    sizes, weights = [150, 700, 150, 700, 150, 150], [300, 1, 300, 1, 300, 300]
    found = chain(sizes, weights, 600).best()
    assert found.counts[1] > 1 and found.counts[3] > 1 and found.counts[5] == 1
    assert found.cycles == min(cycles(chain(sizes, weights, 600), counts) for counts in product(COUNTS, repeat=6))
