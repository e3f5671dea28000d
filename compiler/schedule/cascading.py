"""Which calls of a graph run in cascades, so that the whole takes the fewest cycles.

What a cascade keeps between its calls has to fit for one band; what it is given and what others read of it goes through
DDR. Many bands keep little, but read weights once each, and make more rows twice. By dynamic programming over the calls
in their order: one after another, or as the end of a cascade that began some calls before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compiler import graph
from compiler.schedule.automatic import PACKED_SHARE, Cost, room_bytes
from compiler.schedule.bands import Band
from compiler.schedule.cascades import Cascade, Cascades, Made
from compiler.schedule.storage import storage_of
from compiler.schedule.work import cycles_of
from compiler.target import Chip

COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of bands
LEAST_ROWS = 2  # of a band
WORTH = 0.8  # of the cycles of its calls one by one, what a cascade is thought to take: less is not known so well


@dataclass(frozen=True)
class Cascading:
    cascades: tuple[Cascade, ...]
    cycles: float


def best_cascades(cascades: Cascades, chip: Chip, whole: Collection[int] = ()) -> Cascading:
    """The best for calls in this order; those of ``whole`` are in no cascade."""
    chooser = _Chooser(cascades, chip, frozenset(whole))
    ways: list[tuple[float, tuple[Cascade, ...]]] = [(0.0, ())]
    for end in range(1, len(cascades.body.calls) + 1):
        cycles, found = ways[end - 1]
        ways.append((cycles + chooser.alone(end - 1), found))
        for cascade, taken in chooser.ending(end):
            cycles, found = ways[cascade.first]
            if cycles + taken < ways[end][0]:
                ways[end] = cycles + taken, (*found, cascade)
    return Cascading(ways[-1][1], ways[-1][0])


def axis_of(shape: Sequence[int]) -> int | None:
    """The axis of rows: of an image behind its channels, of a sequence behind its batch."""
    return {3: 1, 4: 2, 5: 2}.get(len(shape))


class _Chooser:
    def __init__(self, cascades: Cascades, chip: Chip, whole: frozenset[int]) -> None:
        self.cascades, self.chip, self.whole = cascades, chip, whole
        self.storage = storage_of(cascades.module, cascades.body)
        self.cost = Cost(cascades.module, self.storage, chip)
        self.room = room_bytes(chip) * PACKED_SHARE

    def alone(self, at: int) -> float:
        return self.cost.cycles(at, 1, self.storage.live_bytes[at] <= self.room)

    def ending(self, end: int) -> list[tuple[Cascade, float]]:
        """Cascades that end there, with their cycles."""
        types, found = self.cascades.body.calls[end - 1].types, list[tuple[Cascade, float]]()
        if len(types) > 1 or end - 1 in self.whole:
            return found
        shape = tuple(int(extent) for extent in types[0].shape)
        axis = axis_of(shape)
        if axis is None:
            return found
        for count in COUNTS:
            if shape[axis] < count * LEAST_ROWS:
                break
            found += self._of_count(end, count, axis)
        return found

    def _of_count(self, end: int, count: int, axis: int) -> list[tuple[Cascade, float]]:
        numbers = sorted({0, count // 2, count - 1})
        found, chain, alone = list[tuple[Cascade, float]](), _Chain(self, end, count, numbers), 0.0
        for at, made in self.cascades.going_back(end, count, axis, numbers):
            if at in self.whole or not chain.begins_with(at, made):
                break
            alone += self.alone(at)
            if end - at > 1 and chain.cycles < alone * WORTH:
                found.append((Cascade(at, end, count, axis), chain.cycles))
        return found


class _Chain:
    """What a cascade takes that ends at a call; it grows to the front."""

    def __init__(self, chooser: _Chooser, end: int, count: int, numbers: Sequence[int]) -> None:
        self.chooser, self.end, self.count = chooser, end, count
        self.middle = numbers.index(count // 2)
        self.body, self.storage = chooser.cascades.body, chooser.storage
        self.cycles = 0.0
        self._cycles = dict[int, float]()
        self._made = dict[int, Sequence[Made]]()
        self._live = dict[int, float]()

    def begins_with(self, at: int, made: Sequence[Made]) -> bool:
        """Whether what is between its calls then fits."""
        self._made[at], self._live[at] = made, 0.0
        call = self.body.calls[at]
        readers = [n for n in self._made if n != at and call.var in self.body.calls[n].arguments]
        if not self._leaves(at):
            size = self._size(call.var) * _share(made[self.middle].rows, self._extent(call.var, made[0].axis))
            for n in range(at, max(readers, default=at) + 1):
                self._live[n] += size
                if self._live[n] > self.chooser.room:
                    return False
        for n in (at, *readers):
            self.cycles -= self._cycles.get(n, 0.0)
            self._cycles[n] = self._taken(n)
            self.cycles += self._cycles[n]
        return True

    def _leaves(self, at: int) -> bool:
        return self.chooser.cascades.is_read_behind(self.body.calls[at].var, self.end)

    def _taken(self, at: int) -> float:
        """The cycles of a call in all bands."""
        call, made = self.body.calls[at], self._made[at]
        rows = self._all_rows([one.rows for one in made]) / self._extent(call.var, made[0].axis)
        near, far, whole = 0.0, 0.0, 0
        written = self._size(call.var) * rows
        near, far = (0.0, written) if self._leaves(at) else (written, 0.0)
        for index, value in enumerate(call.arguments):
            axis = made[0].axes[index]
            if axis is None:
                whole += self.chooser.cost.own_bytes(self.storage.number[value])
                continue
            bands = [one.arguments[index] or (0, 0) for one in made]
            size = self._size(value) * self._all_rows(bands) / self._extent(value, axis)
            producer = self.body.producer.get(value)
            inside = producer is not None and any(self.body.calls[n] is producer for n in self._made)
            near, far = (near + size, far) if inside else (near, far + size)
        work = self.chooser.cost.work(call.callee)
        work = replace(
            work,
            cube_cycles=work.cube_cycles * rows,
            rows=int(work.rows * rows),
            vector_bytes=int(work.vector_bytes * rows),
        )
        return self.count * cycles_of(work, self.count, int(near), int(far), whole, self.chooser.chip)

    def _all_rows(self, bands: Sequence[Band]) -> float:
        """Of all bands: the first, the last, and those between, which are like the one in the middle."""
        rows = [last - first for first, last in bands]
        return sum(rows) + (self.count - len(rows)) * rows[self.middle]

    def _size(self, value: Any) -> int:
        return self.storage.tensors[self.storage.number[value]].size_bytes

    def _extent(self, value: Any, axis: int) -> int:
        return graph.shape_of(value)[axis]


def _share(rows: Band, extent: int) -> float:
    return (rows[1] - rows[0]) / extent
