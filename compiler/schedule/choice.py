"""In how many pieces each call of a graph runs, so that the whole takes the fewest cycles.

What lies between calls is read and written on the chip where all that is alive fits there. Calls in small pieces leave
little alive, but read their weights once for each piece, and keep the chip less busy. Pieces are worked on depth first:
where a call in four pieces follows one in eight, two of the eight are made, then one of the four, and so on. Between
them lies then a quarter of what there is, not all of it.

    calls  ########|####|##|#        alive while the last piece of the first ones is made: theirs, and what is before
    pieces    8      4   2  1        it at each border: an eighth of the first, a quarter of the second, half of the
                                 third

Where that is too much, a *break*: all calls before are through with all their pieces before the next one begins. What
lies there goes through DDR, or stays where both sides leave room for all of it. Where the count of the one before is no
multiple, there is a break anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compiler.schedule.storage import Storage

KEPT_WAYS = 8  # for a call and its number of pieces: ways that are cheaper, but keep more alive

# The cycles of one call in so many pieces, where what it works on lies in LLB, or where it does not.
Cost = Callable[[int, int, bool], float]


@dataclass(frozen=True)
class _Way:
    """What a call and all calls after it take."""

    cycles: float
    count: int  # of the call's pieces
    reserved_bytes: float  # of borders that fill up while pieces before them are made
    slack_bytes: float  # that are free all through the pyramid that begins with the call
    after: _Way | None
    breaks: bool = False  # before what comes after


@dataclass(frozen=True)
class Choice:
    """For each call in how many pieces it runs, before which all that comes before is done with all of its pieces
    though the counts would let it begin sooner, and what all of that is thought to take.
    """

    counts: tuple[int, ...]
    cycles: float
    breaks: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Problem:
    storage: Storage
    allowed: Sequence[Sequence[int]]  # by call: the counts in which it can be cut, beside one
    cost: Cost
    far_cycles_per_byte: float
    room_bytes: int

    def best(self) -> Choice:
        """The best for calls in this order, as far as the model knows."""
        ways: list[_Way] = []
        for at in reversed(range(len(self.allowed))):
            ways = [way for count in self.allowed[at] for way in _best(self._ways(at, count, ways))]
        way: _Way | None = min(ways, key=lambda each: each.cycles, default=None)
        cycles, counts, breaks = way.cycles if way else 0.0, list[int](), set[int]()
        while way is not None:
            counts.append(way.count)
            if way.breaks and way.after is not None and way.count % way.after.count == 0:
                breaks.add(len(counts))
            way = way.after
        return Choice(tuple(counts), cycles, frozenset(breaks))

    def _ways(self, at: int, count: int, after: Sequence[_Way]) -> Iterable[_Way]:
        live = self.storage.live_bytes[at]
        if not after:
            return [self._way(at, count, live / count, 0.0, 0.0, None, self.room_bytes)]
        crossing, replaced = self.storage.crossing_bytes[at + 1], self.storage.replaced_bytes[at]
        found = []
        for way in after:
            if count % way.count == 0:  # the pyramid goes on
                taken = live + (replaced if count > way.count else 0)  # what is a part has its own place
                reserved = way.reserved_bytes + crossing * (1 / way.count - 1 / count)
                found.append(self._way(at, count, taken / count, reserved, 0.0, way, way.slack_bytes))
                if count == 1 or self.storage.operators[at + 1].is_view:  # which has no name in a schedule
                    continue
            # Another one begins: what lies between them is there as a whole, on the chip if both leave room for it.
            if crossing * (1 - 1 / way.count) <= way.slack_bytes:
                reserved = crossing * (1 - 1 / count)
                own = (live + replaced) / count
                found.append(self._way(at, count, own, reserved, 0.0, way, self.room_bytes, breaks=True))
            own, far = (live + replaced - crossing) / count, 2 * crossing * self.far_cycles_per_byte
            found.append(self._way(at, count, own, 0.0, far, way, self.room_bytes, breaks=True))
        return found

    def _way(
        self,
        at: int,
        count: int,
        own: float,
        reserved: float,
        more: float,
        after: _Way | None,
        slack: float,
        *,
        breaks: bool = False,
    ) -> _Way:
        near = own + reserved <= self.room_bytes
        cycles = self.cost(at, count, near) + more + (after.cycles if after else 0.0)
        left = self.room_bytes - own - reserved if near else 0.0
        return _Way(cycles, count, reserved, min(slack, left), after, breaks)


def _best(ways: Iterable[_Way]) -> list[_Way]:
    """Those than which no other is cheaper, reserves less and leaves more room."""
    found: list[_Way] = []
    for way in sorted(ways, key=lambda each: (each.cycles, each.reserved_bytes, -each.slack_bytes)):
        if not any(o.reserved_bytes <= way.reserved_bytes and o.slack_bytes >= way.slack_bytes for o in found):
            found.append(way)
    return found[:KEPT_WAYS]
