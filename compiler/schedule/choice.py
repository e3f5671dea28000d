"""In which order the calls of a graph run, and in how many pieces each, so that the whole takes the fewest cycles.

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

All orders, counts and breaks are compared, by dynamic programming from behind: what is best behind a border depends on
the calls there, on the pieces of the first of them and on the room that they leave. Where there are too many orders or
ways, some are left out, and a bound says how far the choice can be from the best: ways that are left out are taken as
one that is as good as the best of them in everything; where orders are, every call as if it had the chip for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from compiler.schedule.orders import Move, Orders
from compiler.schedule.storage import Storage

KEPT_WAYS = 32  # for a call and its number of pieces: ways that are cheaper, but keep more alive

# The cycles of one call in so many pieces, where what it works on lies in LLB, or where it does not.
Cost = Callable[[int, int, bool], float]


@dataclass(eq=False, slots=True)
class _Way:
    """What a call and all calls after it take. (Not frozen: millions are made, in half of the time.)"""

    cycles: int
    at: int
    count: int  # of the call's pieces
    reserved_bytes: float  # of whole pieces behind borders, that fill up while pieces before them are made
    slack_bytes: float  # that are free all through the pyramid that begins with the call
    after: _Way | None
    breaks: bool  # before what comes after
    is_given: bool  # whether all are in their given order


@dataclass(frozen=True)
class Choice:
    """The calls in the order in which they run, for each in how many pieces it does, and before which of them all that
    comes before is done with all of its pieces though the counts would let it begin sooner; what all of that is thought
    to take, and what no other choice can be thought to take less than.
    """

    order: tuple[int, ...]
    counts: tuple[int, ...]
    cycles: int
    breaks: frozenset[int] = frozenset()
    bound_cycles: int = 0


@dataclass(frozen=True)
class Problem:
    storage: Storage
    allowed: Sequence[Sequence[int]]  # by call: the counts in which it can be cut, beside one
    cost: Cost
    far_cycles_per_byte: float
    room_bytes: int
    room_ahead: bool = True  # whether what is made in pieces has room for all of them, before its last piece is made

    def best(self) -> Choice:
        """The best, as far as the model knows."""
        way, is_all = self._searched(relaxed=False)
        cycles, order, counts, breaks = way.cycles if way else 0, list[int](), list[int](), set[int]()
        if not self._orders.is_complete:
            bound = min(cycles, int(sum(map(self._least_cycles, range(len(self.allowed))))))
        elif is_all or way is None:
            bound = cycles
        else:
            relaxed, _ = self._searched(relaxed=True)
            bound = min(cycles, relaxed.cycles) if relaxed else cycles
        while way is not None:
            order.append(way.at)
            counts.append(way.count)
            if way.breaks and way.after is not None and way.count % way.after.count == 0:
                breaks.add(len(counts))
            way = way.after
        return Choice(tuple(order), tuple(counts), cycles, frozenset(breaks), bound)

    @cached_property
    def _orders(self) -> Orders:
        return Orders(self.storage)

    def _searched(self, *, relaxed: bool) -> tuple[_Way | None, bool]:
        """The best way, and whether none was left out; if ``relaxed`` one that there is not stands for those."""
        is_all, ways = True, dict[int, list[_Way]]()  # by the calls behind a border
        for level in self._orders.levels[1:]:
            found = dict[int, list[_Way]]()
            for border, moves in level.values():
                kept = list[_Way]()
                alike = dict[tuple[int, bool], list[_Way]]()
                for move in moves:
                    for count in self.allowed[move.at]:
                        key = count, self.storage.operators[move.at].is_view
                        alike.setdefault(key, []).extend(self._ways(move, count, ways.get(move.border.behind, ())))
                for candidates in alike.values():
                    front = _front(candidates)
                    is_all &= len(front) <= KEPT_WAYS
                    kept += _joined(front) if relaxed else front[:KEPT_WAYS]
                found[border.behind] = kept
            ways = found
        all_ways = (way for each in ways.values() for way in each)
        return min(all_ways, key=lambda way: (way.cycles, not way.is_given), default=None), is_all

    def _least_cycles(self, at: int) -> float:
        """Of a call whatever runs before and after it."""
        operator, tensors = self.storage.operators[at], self.storage.tensors
        own = sum(tensors[n].size_bytes for n in {*operator.reads, *operator.makes} if tensors[n].is_between)
        own -= max((tensors[n].size_bytes for n in operator.replaceable), default=0)
        return min(
            self.cost(at, count, near)
            for count in self.allowed[at]
            for near in ((True, False) if own / count <= self.room_bytes else (False,))
        )

    def _ways(self, move: Move, count: int, after: Sequence[_Way]) -> Iterable[_Way]:
        live, replaced = move.live_bytes, move.replaced_bytes
        if not after:
            return [self._way(move.at, count, live / count, 0.0, 0.0, None, self.room_bytes)]
        crossing = move.border.bytes
        found = []
        for way in after:
            if count % way.count == 0:  # the pyramid goes on
                if count == way.count:
                    own, reserved, last = live / count, way.reserved_bytes, 0.0
                else:  # what is a part has its own place, in that of the whole piece
                    reserved, last = way.reserved_bytes + crossing / way.count, self._last_piece(crossing, count)
                    own = (live + replaced - crossing) / count
                found.append(self._way(move.at, count, own, reserved, 0.0, way, way.slack_bytes, last=last))
                if count == 1 or self.storage.operators[way.at].is_view:  # which has no name in a schedule
                    continue
            # Another one begins: what lies between them is there as a whole, on the chip if both leave room for it.
            own = (live + replaced - crossing) / count
            room, last = self.room_bytes, self._last_piece(crossing, count)
            if crossing * (1 - 1 / way.count) <= way.slack_bytes:
                found.append(self._way(move.at, count, own, crossing, 0.0, way, room, last=last, breaks=True))
            far = move.border.far_bytes * self.far_cycles_per_byte
            found.append(self._way(move.at, count, own, 0.0, far, way, room, breaks=True))
        return found

    def _last_piece(self, crossing: float, count: int) -> float:
        """The bytes that nothing needs before the last piece of what crosses a border is made."""
        return 0.0 if self.room_ahead else crossing / count

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
        last: float = 0.0,
        breaks: bool = False,
    ) -> _Way:
        """``last``: the bytes of what is reserved that no call before this one has to leave free."""
        near = own + reserved <= self.room_bytes
        cycles = round(self.cost(at, count, near) + more) + (after.cycles if after else 0)
        left = self.room_bytes - own - reserved if near else 0.0
        is_given = at == after.at - 1 and after.is_given if after else at == len(self.allowed) - 1
        return _Way(cycles, at, count, reserved - last, min(slack, left), after, breaks, is_given)


def _front(ways: Iterable[_Way]) -> list[_Way]:
    """Those than which no other is cheaper, or as cheap in the given order, reserves less and leaves more room."""
    found: list[_Way] = []
    for way in sorted(ways, key=lambda each: (each.cycles, not each.is_given, each.reserved_bytes, -each.slack_bytes)):
        if not any(
            o.reserved_bytes <= way.reserved_bytes
            and o.slack_bytes >= way.slack_bytes
            and (o.is_given or not way.is_given or o.cycles < way.cycles)
            for o in found
        ):
            found.append(way)
    return found


def _joined(front: list[_Way]) -> list[_Way]:
    """As many as are kept, the last of them as good as the best of all that are not."""
    if len(front) <= KEPT_WAYS:
        return front
    rest = front[KEPT_WAYS - 1 :]
    reserved, slack = min(way.reserved_bytes for way in rest), max(way.slack_bytes for way in rest)
    one = replace(rest[0], reserved_bytes=reserved, slack_bytes=slack)
    return [*front[: KEPT_WAYS - 1], one]
