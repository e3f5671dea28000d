"""The orders in which the calls of a graph can run, from behind: what may come before what, and what lies there.

Orders that have the same calls behind a border share what is behind it. A line has one border between two calls; where
branches lie side by side, there are as many as they have ways to be mixed, and of too many those with the fewest bytes
on them are followed, that of the given order always.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from compiler.schedule.storage import Storage

MOST_BORDERS = 600  # of all orders together; more where the given order alone has more
MOST_WAYS = 4  # to go on from a border


@dataclass(frozen=True)
class Border:
    """Between two calls: those behind it, as bits, and what was made before and is read behind it."""

    behind: int
    ready: int  # calls of which nothing is read before the border, as bits
    bytes: int
    far_bytes: int  # that it moves in DDR if it lies there: written once, and read by every reader


@dataclass(frozen=True)
class Move:
    """A call as the last one before a border."""

    at: int
    border: Border
    live_bytes: int  # of what lies between calls while it runs
    replaced_bytes: int  # of a tensor in whose bytes it makes another


class Orders:
    """``levels``: by number of calls behind, the borders and how each was come to."""

    def __init__(self, storage: Storage) -> None:
        self._storage, count = storage, len(storage.operators)
        self.is_complete = True
        end = Border(0, sum(1 << at for at in range(count) if not self._behind[at]), 0, 0)
        self.levels: list[dict[int, tuple[Border, list[Move]]]] = [{0: (end, [])}]
        width = max(1, MOST_BORDERS // max(1, count))
        for left in reversed(range(count)):
            level = dict[int, tuple[Border, list[Move]]]()
            given = self.levels[-1].get((1 << count) - (1 << left + 1))
            for border, _ in self.levels[-1].values():
                own = left if given is not None and border is given[0] else None
                for at in self._followed(border, own, alone=width == 1):
                    before, move = self._moved(border, at)
                    level.setdefault(before.behind, (before, []))[1].append(move)
            own_mask = (1 << count) - (1 << left)
            if len(level) > width:
                self.is_complete = False
                ranked = sorted(level.values(), key=lambda e: (e[0].behind != own_mask, e[0].bytes, e[0].behind))
                level = {each[0].behind: each for each in ranked[:width]}
            self.levels.append(level)

    @cached_property
    def _needs(self) -> list[frozenset[int]]:
        """By call: those that make what it reads."""
        tensors = self._storage.tensors
        return [
            frozenset(each.needs) | {made for number in each.reads if (made := tensors[number].made) >= 0}
            for each in self._storage.operators
        ]

    @cached_property
    def _behind(self) -> list[int]:
        """By call: those that read what it makes, as bits."""
        found = [0] * len(self._storage.operators)
        for at, needs in enumerate(self._needs):
            for other in needs:
                found[other] |= 1 << at
        return found

    @cached_property
    def _readers(self) -> list[int]:
        """By tensor, as bits of calls."""
        found = [0] * len(self._storage.tensors)
        for at, operator in enumerate(self._storage.operators):
            for number in operator.reads:
                found[number] |= 1 << at
        return found

    @cached_property
    def _far_bytes(self) -> list[int]:
        """By tensor: what it moves in DDR."""
        views = sum(1 << at for at, each in enumerate(self._storage.operators) if each.is_view)
        found = zip(self._storage.tensors, self._readers, strict=True)
        return [tensor.size_bytes * (1 + (readers & ~views).bit_count()) for tensor, readers in found]

    def _followed(self, border: Border, own: int | None, *, alone: bool) -> list[int]:
        """The calls that are tried before a border, of too many the last ones of the given order."""
        able = list(_bits(border.ready))
        if alone:
            self.is_complete &= len(able) == 1
            return [at for at in able if own is None or at == own]
        if len(able) > MOST_WAYS:
            self.is_complete = False
            able = sorted(able, key=lambda at: (at != own, -at))[:MOST_WAYS]
        return able

    def _moved(self, border: Border, at: int) -> tuple[Border, Move]:
        operator, tensors, behind = self._storage.operators[at], self._storage.tensors, border.behind | 1 << at
        live, crossing, far = border.bytes, border.bytes, border.far_bytes
        for number in operator.makes:
            if tensors[number].is_between:
                if self._readers[number]:
                    crossing -= tensors[number].size_bytes
                    far -= self._far_bytes[number]
                else:
                    live += tensors[number].size_bytes
        last = [n for n in operator.reads if tensors[n].is_between and not self._readers[n] & border.behind]
        live += sum(tensors[number].size_bytes for number in last)
        crossing += sum(tensors[number].size_bytes for number in last)
        far += sum(self._far_bytes[number] for number in last)
        replaced = next((tensors[number].size_bytes for number in operator.replaceable if number in last), 0)
        ready = border.ready & ~(1 << at)
        for other in self._needs[at]:
            if not self._behind[other] & ~behind:
                ready |= 1 << other
        return Border(behind, ready, crossing, far), Move(at, border, live - replaced, replaced)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
