"""How many pieces are chosen, by a cost of which all is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from random import Random

import pytest

from compiler.schedule import choice, orders
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
    live, room, tensors = problem.storage.live_bytes, problem.room_bytes, problem.storage.tensors
    readers = [sum(number in each.reads for each in problem.storage.operators) for number in range(len(tensors))]
    across = [
        [number for number, each in enumerate(tensors) if each.is_between and each.made < at <= each.last]
        for at in range(len(counts))
    ]
    crossing = [sum(tensors[number].size_bytes for number in each) for each in across]
    moved = [sum(tensors[number].size_bytes * (1 + readers[number]) for number in each) for each in across]

    def before(at: int, total: float, reserved: float, slack: float) -> float:
        """Of all calls up to ``at``, where those behind take ``total`` and leave so much room."""
        if at < 0:
            return total
        own, found = live[at], []
        whole = crossing[at + 1] if at + 1 < len(counts) else 0
        after = counts[at + 1] if at + 1 < len(counts) else counts[at]
        divides = counts[at] % after == 0
        if divides and (breaks is None or at + 1 not in breaks):
            is_border = counts[at] > after
            rest = own - whole if is_border else own
            found.append((rest, reserved + (whole / after if is_border else 0), 0.0, slack))
        if at + 1 < len(counts) and (not divides or (counts[at] > 1 and (breaks is None or at + 1 in breaks))):
            found.append((own - whole, 0.0, moved[at + 1] * problem.far_cycles_per_byte, room))
            if whole * (1 - 1 / after) <= slack:
                found.append((own - whole, whole, 0.0, room))
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
    first, *others = problem.storage.operators
    operators = [first, *(replace(each, replaceable=(at,)) for at, each in enumerate(others))]
    storage = Storage(tuple(operators), problem.storage.tensors, {})
    assert storage.live_bytes == [400, 400, 400]
    assert replace(problem, storage=storage).best().counts == (1, 1, 1)


def test_what_lies_between_runs_of_pieces_stays_on_the_chip_where_there_is_room() -> None:
    """As in a transformer: one large tensor in each layer, and weights that are not to be read twice beside it."""
    sizes, weights = [150, 700, 150, 700, 150, 150], [300, 1, 300, 1, 300, 300]
    found = chain(sizes, weights, 600).best()
    assert found.counts[1] > 1 and found.counts[3] > 1 and found.counts[5] == 1
    assert found.cycles == min(cycles(chain(sizes, weights, 600), counts) for counts in product(COUNTS, repeat=6))


def test_larger_pieces_where_what_is_not_made_yet_takes_no_room() -> None:
    """Two halves are joined: while the second is worked on, only the first of them is there."""
    ahead = chain([800, 800, 400, 400], [100, 100, 100, 900], 1000)
    snug = replace(ahead, room_ahead=False).best()
    assert snug.counts == (2, 2, 2, 1)
    assert snug.cycles < ahead.best().cycles


def graph(edges: dict[int, list[int]], sizes: list[int], weights: list[int], room: int, order: list[int]) -> Problem:
    """Calls that read what others make, in this order; costs are those of calls, wherever they stand in it."""
    place = {call: at for at, call in enumerate(order)}
    readers = [[place[other] for other, reads in edges.items() if call in reads] for call in order]
    tensors = [
        Tensor(sizes[call], at, max([at, *readers[at]]), is_result=not readers[at]) for at, call in enumerate(order)
    ]
    operators = [Operator(f"f{call}", "f", tuple(place[e] for e in edges[call]), (place[call],)) for call in order]

    def cost(at: int, count: int, near: bool) -> float:
        call = order[at]
        moved = sizes[call] + sum(sizes[each] for each in edges[call])
        return count * weights[call] + count + (0 if near else moved)

    return Problem(Storage(tuple(operators), tuple(tensors), {}), [(1, 2, 4)] * len(order), cost, 1.0, room)


@pytest.mark.parametrize("seed", range(6))
def test_no_other_order_is_thought_better(seed: int) -> None:
    """Two branches between a call that both read and one that reads both."""
    random = Random(seed)
    edges = {0: [], 1: [0], 2: [0], 3: [1], 4: [2, 3]}
    sizes, weights = [random.randrange(50, 400) for _ in edges], [random.randrange(80) for _ in edges]
    possible = [list(o) for o in permutations(edges) if all(o.index(e) < o.index(c) for c in edges for e in edges[c])]
    assert len(possible) == 3
    problems = {tuple(order): graph(edges, sizes, weights, 450, order) for order in possible}
    best = min(cycles(each, counts) for each in problems.values() for counts in product((1, 2, 4), repeat=5))
    for given, problem in problems.items():
        found = problem.best()
        assert found.cycles == found.bound_cycles == pytest.approx(best)
        as_found = problems[tuple(given[at] for at in found.order)]
        assert cycles(as_found, found.counts, found.breaks) == found.cycles


def test_an_order_that_keeps_less_alive_is_found() -> None:
    """Each of four branches makes a large tensor and a small one of it: one after another, one large one is alive."""
    edges: dict[int, list[int]] = {0: []} | {at: [0] for at in range(1, 5)} | {at + 4: [at] for at in range(1, 5)}
    edges[9] = [5, 6, 7, 8]
    sizes = [10, 300, 300, 300, 300, 10, 10, 10, 10, 10]
    problem = graph(edges, sizes, [900] * 10, 400, list(range(10)))
    found = problem.best()
    assert set(found.counts) == {1} and found.cycles == found.bound_cycles
    made = [at for at in found.order if 1 <= at <= 8]
    assert all(made[at + 1] == made[at] + 4 for at in range(0, 8, 2))


def test_the_given_order_stays_where_no_other_is_better() -> None:
    edges = {0: [], 1: [0], 2: [0], 3: [1], 4: [2, 3]}
    for order in ([0, 1, 2, 3, 4], [0, 2, 1, 3, 4], [0, 1, 3, 2, 4]):
        assert graph(edges, [10] * 5, [1] * 5, 400, order).best().order == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_out_is_bounded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    sizes, weights = [random.randrange(50, 400) for _ in range(7)], [random.randrange(60) for _ in range(7)]
    problem = chain(sizes, weights, 500)
    exact = problem.best()
    assert exact.cycles == exact.bound_cycles
    monkeypatch.setattr(choice, "KEPT_WAYS", 1)
    rough = chain(sizes, weights, 500).best()
    assert rough.bound_cycles <= exact.cycles <= rough.cycles


def test_orders_that_are_left_out_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen branches have too many orders; with one border at each place, the given one is all there is."""
    edges: dict[int, list[int]] = {0: []} | {at: [0] for at in range(1, 17)} | {17: list(range(1, 17))}
    sizes = [40 + 7 * at for at in range(18)]
    found = graph(edges, sizes, [30] * 18, 900, list(range(18))).best()
    assert 0 < found.bound_cycles < found.cycles
    monkeypatch.setattr(orders, "MOST_BORDERS", 1)
    given = graph(edges, sizes, [30] * 18, 900, list(range(18))).best()
    assert given.order == tuple(range(18)) and found.bound_cycles == given.bound_cycles
    assert found.cycles <= given.cycles
