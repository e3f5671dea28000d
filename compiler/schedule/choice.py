"""In how many pieces each call of a graph runs, so that the whole takes the fewest cycles.

What lies between calls is read and written on the chip where all that is alive fits there. Calls in small pieces leave
little alive, but read their weights once for each piece, and keep the chip less busy. Pieces are worked on depth first:
where a call in four pieces follows one in eight, two of the eight are made, then one of the four, and so on. Between
them lies then a quarter of what there is, not all of it.

    calls  ########|####|##|#        alive while a piece of the first ones is made: theirs, a quarter of the tensors
    pieces    8      4   2  1        at the first border, half of those at the second, all of those at the third
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


@dataclass(frozen=True)
class Choice:
    """For each call in how many pieces it runs, and what all of that is thought to take."""

    counts: tuple[int, ...]
    cycles: float


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
        cycles, counts = way.cycles if way else 0.0, []
        while way is not None:
            counts.append(way.count)
            way = way.after
        return Choice(tuple(counts), cycles)

    def _ways(self, at: int, count: int, after: Sequence[_Way]) -> Iterable[_Way]:
        live = self.storage.live_bytes[at]
        if not after:
            return [self._way(at, count, live / count, 0.0, 0.0, None, self.room_bytes)]
        crossing = self.storage.crossing_bytes[at + 1]
        found = []
        for way in after:
            if way.count == count:
                found.append(self._way(at, count, live / count, way.reserved_bytes, 0.0, way, way.slack_bytes))
                continue
            own = (live - crossing) / count
            if count % way.count == 0:  # the pyramid goes on
                reserved = way.reserved_bytes + crossing / way.count
                found.append(self._way(at, count, own, reserved, 0.0, way, way.slack_bytes))
                continue
            # Another one begins: what lies between them is there as a whole, on the chip if both leave room for it.
            if crossing * (1 - 1 / way.count) <= way.slack_bytes:
                found.append(self._way(at, count, own, crossing, 0.0, way, self.room_bytes))
            far = 2 * crossing * self.far_cycles_per_byte
            found.append(self._way(at, count, own, 0.0, far, way, self.room_bytes))
        return found

    def _way(
        self, at: int, count: int, own: float, reserved: float, more: float, after: _Way | None, slack: float
    ) -> _Way:
        near = own + reserved <= self.room_bytes
        cycles = self.cost(at, count, near) + more + (after.cycles if after else 0.0)
        left = self.room_bytes - own - reserved if near else 0.0
        return _Way(cycles, count, reserved, min(slack, left), after)


def _best(ways: Iterable[_Way]) -> list[_Way]:
    """Those than which no other is cheaper, reserves less and leaves more room."""
    found: list[_Way] = []
    for way in sorted(ways, key=lambda each: (each.cycles, each.reserved_bytes, -each.slack_bytes)):
        if not any(o.reserved_bytes <= way.reserved_bytes and o.slack_bytes >= way.slack_bytes for o in found):
            found.append(way)
    return found[:KEPT_WAYS]
