"""Cores of several kinds that share a memory, in figures that can be worked out by hand."""

from __future__ import annotations

import pytest

from compiler.cost.phases import Pace, PaceOf, cycles_in_step, cycles_together

RATE = 100.0  # bytes per cycle of the memory


def mover(moved_bytes: dict[int, float]) -> object:
    """Cores that do nothing but move bytes, each kind so many."""
    return lambda kind, parts: Pace(moved_bytes[kind] * parts / RATE, moved_bytes[kind])


def test_who_is_done_leaves_its_part_to_the_others() -> None:
    """Ten cores move 1000 bytes each and ten 3000: 40,000 bytes at 100 a cycle."""
    assert cycles_together({0: 10, 1: 10}, mover({0: 1000.0, 1: 3000.0})) == pytest.approx(400)  # type: ignore[arg-type]


def test_who_computes_leaves_more_to_those_that_move() -> None:
    """Kind 0 takes 400 cycles whatever its part; kind 1 has nearly all of the memory meanwhile."""

    def pace(kind: int, parts: float) -> Pace:
        return Pace(400, 100) if kind == 0 else Pace(50_000 * parts / RATE, 50_000)

    assert cycles_together({0: 1, 1: 1}, pace) == pytest.approx(500, rel=0.02)


def test_kinds_that_move_nothing_take_what_they_take_with_the_whole_memory() -> None:
    def pace(kind: int, parts: float) -> Pace:
        return Pace(100 * (kind + 1) / min(parts, 1), 0)

    assert cycles_together({0: 1, 1: 1}, pace) == pytest.approx(200)


def test_in_step_a_core_has_the_part_of_the_bytes_that_it_moves() -> None:
    pace = mover({0: 1000.0, 1: 3000.0})
    assert cycles_in_step({0: 10, 1: 10}, pace, 1, RATE) == pytest.approx(400, rel=0.01)  # type: ignore[arg-type]


def test_cores_that_take_turns_have_more_of_the_memory_but_not_more_than_there_is() -> None:
    """Ten cores move 1000 bytes each, and compute meanwhile or for much longer."""

    def pace(computes: float) -> PaceOf:
        return lambda kind, parts: Pace(computes + 1000 * parts / RATE, 1000)

    assert cycles_in_step({0: 10}, pace(900), 1, RATE) == pytest.approx(1000)
    assert cycles_in_step({0: 10}, pace(900), 5, RATE) == pytest.approx(920, rel=0.01)
    assert cycles_in_step({0: 10}, pace(0), 5, RATE) == pytest.approx(100)
