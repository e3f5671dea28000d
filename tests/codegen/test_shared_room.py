"""Buffers in a memory of limited size: none of two that live at once overlap, and little room is lost."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import pytest

from compiler.codegen.packing import Lifetime, Span, live_by_step, live_peak
from compiler.codegen.shared_room import SharedRoom


def test_what_lives_at_different_times_shares_bytes() -> None:
    room = SharedRoom(100, 1).with_all({"a": Lifetime(100, 0, 1), "b": Lifetime(100, 2, 3)})
    assert room.offsets == {"a": 0, "b": 0}
    rested = SharedRoom(100, 1, later=1).with_all({"a": Lifetime(100, 0, 1), "b": Lifetime(100, 2, 3)})
    assert len(rested.offsets) == 1
    assert rested.missing(["a", "b"]) and not rested.missing(rested.offsets)


def test_gaps_between_what_comes_and_goes_are_not_lost() -> None:
    """Taken in the order of their steps, c would leave d no room: b ends between them."""
    lives = {"a": Lifetime(40, 0, 1), "b": Lifetime(20, 0, 9), "c": Lifetime(20, 2, 9), "d": Lifetime(60, 3, 4)}
    assert set(SharedRoom(100, 1).with_all(lives).offsets) == set(lives)


@pytest.mark.parametrize("seed", range(20))
def test_chains_take_little_more_than_what_lives_at_once(seed: int) -> None:
    random = Random(seed)
    lives = {}
    for number in range(60):
        first = random.randrange(40)
        lives[f"b{number}"] = Lifetime(random.randrange(1, 500), first, first + random.choice((1, 1, 1, 2, 3, 12)))
    peak = live_peak(list(lives.values()), 32)
    room = SharedRoom(peak, 32).with_all(lives)
    placed = [(lives[name], start) for name, start in room.offsets.items()]
    for at, (life, start) in enumerate(placed):
        assert start % 32 == 0 and start + life.size_bytes <= peak
        for other, beside in placed[at + 1 :]:
            apart = start + life.size_bytes <= beside or beside + other.size_bytes <= start
            assert apart or not life.meets(other)
    assert sum(life.size_bytes for life, _ in placed) >= 0.9 * sum(life.size_bytes for life in lives.values())


def test_bytes_that_are_not_needed_yet_are_used_by_others() -> None:
    """As pieces of a tensor of which the second is made late."""
    pieces = Lifetime(80, 0, 9, (Span(0, 40, 0, 9), Span(40, 80, 6, 9)))
    lives = {"pieces": pieces, "early": Lifetime(60, 0, 5), "late": Lifetime(20, 6, 9)}
    assert live_by_step(list(lives.values()), 1) == [100] * 10
    assert set(SharedRoom(100, 1).with_all(lives).offsets) == set(lives)
    whole = {**lives, "pieces": Lifetime(80, 0, 9)}
    assert set(SharedRoom(100, 1).with_all(whole).offsets) != set(lives)
    assert pieces.until(12).spans == (Span(0, 40, 0, 12), Span(40, 80, 6, 12))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_overlaps_what_is_needed_by_spans(seed: int) -> None:
    random, lives, taken = Random(seed), dict[str, Lifetime](), dict[tuple[int, int], str]()
    for number in range(40):
        first, size = random.randrange(20), random.randrange(1, 9)
        last = first + random.randrange(6)
        edges = sorted({0, size, *(random.randrange(size) for _ in range(random.choice((0, 0, 2))))})
        spans = [Span(low, high, random.randint(first, last), last) for low, high in pairwise(edges)]
        begin = min(span.first for span in spans)
        lives[f"b{number}"] = Lifetime(size, begin, last, tuple(spans) if len(spans) > 1 else ())
    for name, start in SharedRoom(24, 1).with_all(lives).offsets.items():
        for span in lives[name].all_spans():
            for at in product(range(span.first, span.last + 1), range(start + span.low, start + span.high)):
                assert taken.setdefault(at, name) == name
                assert at[1] < 24


def test_what_is_free_is_known_by_step() -> None:
    room = SharedRoom(100, 1)
    assert room.place("a", Lifetime(30, 0, 1)) and room.place("b", Lifetime(50, 1, 2))
    assert not room.place("c", Lifetime(30, 1, 1))
    assert [room.free_bytes(step) for step in range(4)] == [70, 20, 20, 100]


def test_what_has_a_place_moves_to_where_nobody_was_just_before() -> None:
    lives = {"a": Lifetime(30, 0, 0), "b": Lifetime(30, 1, 1), "c": Lifetime(60, 2, 2), "d": Lifetime(50, 3, 3)}
    room = SharedRoom(100, 1).with_all(lives)
    assert room.offsets["a"] == room.offsets["b"]
    assert room.move_apart("b", lives["b"], 1)
    ends = {name: room.offsets[name] + lives[name].size_bytes for name in lives}
    for other in ("a", "c"):
        assert ends["b"] <= room.offsets[other] or ends[other] <= room.offsets["b"]
    before = dict(room.offsets)
    assert not room.move_apart("c", lives["c"], 1)  # with what comes before and after it there is no room
    assert room.offsets == before
    assert not room.place("e", Lifetime(50, 2, 2))  # its bytes are taken still
