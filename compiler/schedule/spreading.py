"""Which calls of a model clusters run together, each on some rows, so that the whole takes the fewest cycles.

Between such calls nothing goes through DDR, but what they are given and what others read of them does. The longer they
are, the more rows each cluster makes that others make as well. By dynamic programming over the kernels in their order:
one after another, or as the last of several that clusters run so, by so many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from math import ceil, floor, inf
from typing import Any, NamedTuple

from tvm import relax

from compiler import graph
from compiler.schedule.automatic import Cost, cycles_on_chip, undivided_cycles
from compiler.schedule.bands import Band, hull
from compiler.schedule.noted import is_view, members_of
from compiler.schedule.spreads import LEAST_BYTES, Section, Spreads, axis_of_rows, row_bytes
from compiler.schedule.storage import storage_of
from compiler.schedule.work import BORDER_CYCLES, Work, cycles_of, size_bytes
from compiler.target import Chip

PROGRAM_CYCLES = 1000  # that a program of its own takes to begin and to end
MOST_KERNELS = 48  # of a section: what goes through DDR so rarely costs little
MOST_SHARE = 0.9  # of the rows, that a cluster makes


@dataclass(frozen=True)
class _Linear:
    """The rows of an input that some of the result need, by those from ``first`` to before ``end`` that one needs."""

    ratio: Fraction | int
    first: int
    end: int
    row: int
    extent: int

    def of(self, band: Band) -> Band:
        low = self.first + floor(self.ratio * (band[0] - self.row))
        high = self.end + ceil(self.ratio * (band[1] - 1 - self.row))
        return max(0, low), min(self.extent, high)


class _Call(NamedTuple):
    """One of the imported graph; values are numbers, which are found sooner than variables are."""

    name: str
    callee: str
    result: int
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Sections:
    """In the order in which they run, and what share of the cycles in one piece they are thought to take."""

    sections: tuple[Section, ...]
    share: float


def best_sections(spreads: Spreads, grouped: Any, chip: Chip) -> Sections | None:
    """Of a module, which is also there in groups; None where that is thought to take less in one piece."""
    chooser = _Chooser(spreads, grouped, chip)
    # The best ways to run the first kernels, of which the last section is by rows, or as ever and may go on.
    by_rows, as_ever = [_Way(0.0)], [_Way(inf)]
    for end in range(1, len(chooser.members) + 1):
        begun = by_rows[-1].then(PROGRAM_CYCLES + chooser.far_cycles(end - 1), end - 1, 0)
        as_ever.append(min(as_ever[-1], begun).longer(chooser.alone[end - 1]))
        by_rows.append(_Way(inf))
        clusters = chooser.most_clusters(end)
        for first, taken in chooser.ending(end, clusters) if clusters > 1 else ():
            before = min(by_rows[first], as_ever[first].longer(chooser.far_cycles(first)))
            by_rows[-1] = min(by_rows[-1], before.then(taken, first, clusters))
    best = min(by_rows[-1], as_ever[-1])
    found, share = tuple(chooser.sections(best.begins)), best.cycles / max(1.0, sum(chooser.alone))
    return Sections(found, share) if any(section.clusters for section in found) else None


@dataclass(frozen=True, order=True)
class _Way:
    cycles: float
    begins: tuple[tuple[int, int], ...] = ()  # of sections: the first kernel, and how many clusters run it by rows

    def then(self, cycles: float, first: int, clusters: int) -> _Way:
        return _Way(self.cycles + cycles, (*self.begins, (first, clusters)))

    def longer(self, cycles: float) -> _Way:
        return replace(self, cycles=self.cycles + cycles)


class _Chooser:
    def __init__(self, spreads: Spreads, grouped: Any, chip: Chip) -> None:
        self.chip, self.spreads = chip, spreads
        self.body, imported = graph.read(grouped["main"]), graph.read(spreads.module["main"])
        self.storage = storage_of(grouped, self.body)
        inputs = int(graph.attribute(spreads.module["main"], "num_input", len(imported.params)))
        self.values, known = list[Any](), dict[str, _Call]()
        number = cache(self._number)
        self.constants = frozenset(map(number, imported.params[inputs:]))
        for call in imported.calls:
            known[call.name] = _Call(call.name, call.callee, number(call.var), tuple(map(number, call.arguments)))
        self.single = {number(call.var) for call in imported.calls if len(call.types) == 1}
        self.members = list[list[_Call]]()
        for call in self.body.calls:
            names = [call.name] if is_view(grouped, call) else members_of(grouped, call)
            self.members.append([known.pop(name) for name in names if name in known])
        self.place = {call.result: at for at, calls in enumerate(self.members) for call in calls}
        self.last = dict[int, int]()  # the last kernel that reads a value
        for at, calls in enumerate(self.members):
            self.last.update((argument, at) for call in calls for argument in call.arguments)
        fields = {var: number(source) for var, (source, _) in imported.fields.items()}
        for var, source in fields.items():
            self.last[source] = max(self.last.get(source, -1), self.last.get(number(var), -1))
        self.last.update((number(result), len(self.members)) for result in imported.results)
        self.sizes = [_size(value) for value in self.values]
        self.shapes = [() if isinstance(v.ty, relax.TupleType) else graph.shape_of(v) for v in self.values]
        self.row_bytes = cache(self._row_bytes)
        self._live = self._live_bytes()
        self.chips = {n: chip.one_cluster(n) for n in range(1, chip.clusters + 1)}
        one = self.chips[1]
        self.cost = Cost(grouped, self.storage, one)
        alone = [self.cost.cycles(at, 1, True) for at in range(len(self.members))]
        together = Cost(grouped, self.storage, chip)
        apart = [together.cycles(at, 1, False) for at in range(len(self.members))]
        self.alone = apart if undivided_cycles(grouped, chip) < cycles_on_chip(grouped, one) else alone
        self.linear = cache(self._linear_of)

    def _number(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _row_bytes(self, value: int, axis: int) -> int:
        return row_bytes(self.values[value], axis)

    def _live_bytes(self) -> list[float]:
        """By kernel: of what those before it make and it, or others behind it, read."""
        changes = [0.0] * (len(self.members) + 2)
        for calls in self.members:
            for call in calls:
                first, last = self.place[call.result] + 1, min(self.last.get(call.result, -1), len(self.members) - 1)
                if first <= last:
                    changes[first] += self.sizes[call.result]
                    changes[last + 1] -= self.sizes[call.result]
        return list(accumulate(changes))

    def sections(self, begins: Sequence[tuple[int, int]]) -> Iterator[Section]:
        for (first, clusters), (end, _) in pairwise([*begins, (len(self.members), 0)]):
            names = frozenset(call.name for calls in self.members[first:end] for call in calls)
            if names:
                yield Section(names, clusters)

    def far_cycles(self, at: int) -> float:
        """Of what kernels from there on read that others before them make, to DDR or from it."""
        return self.far_cycles_of(self._live[at], 1)

    def most_clusters(self, end: int) -> int:
        """That the last result of a section which ends there has equal parts for."""
        calls = self.members[end - 1]
        shape = self.shapes[calls[-1].result] if calls and calls[-1].result in self.single else ()
        axis = axis_of_rows(shape)
        able = [] if axis is None else [n for n in range(2, self.chip.clusters + 1) if shape[axis] % n == 0]
        return max(able, default=0)

    def ending(self, end: int, clusters: int) -> Iterator[tuple[int, float]]:
        """Where sections begin that end there, with their cycles."""
        section, cycles = _Growing(self, end, clusters), float(PROGRAM_CYCLES)
        for at in reversed(range(max(0, end - MOST_KERNELS), end)):
            taken = section.begins_with(at)
            if taken is None:
                return
            cycles += taken
            given = section.given_cycles()
            if given is not None:
                yield at, cycles + given

    def far_cycles_of(self, size: float, clusters: int) -> float:
        """Of bytes that each of so many clusters moves to DDR or from it."""
        return size * 1000 / self.chips[clusters].bandwidth.ddr_bytes_per_kilocycle

    def _linear_of(self, callee: str, axis: int) -> tuple[tuple[int, Callable[[Band], Band]] | None, ...] | None:
        """By input: the axis of its rows and which of them are needed; None of those that are read whole."""
        local = self.spreads.local(callee, axis)
        if local is None or not any(own is not None for own in local.inputs):
            return None
        function = self.spreads.module[callee]
        middle = int(function.params[-1].shape[axis]) // 2
        rows, found = local.inputs_of((middle, middle + 1)), list[tuple[int, Callable[[Band], Band]] | None]()
        for number, (own, ratio) in enumerate(zip(local.inputs, local.ratios(), strict=True)):
            if own is None:
                found.append(None)
                continue
            band = None if rows is None else rows[number]
            if band is None or not ratio:
                return None
            linear = _Linear(ratio, band[0], band[1], middle, int(function.params[number].shape[own]))
            found.append((own, linear.of))
        return tuple(found)


class _Growing:
    """A section by rows that ends before a kernel; it grows to the front."""

    def __init__(self, chooser: _Chooser, end: int, clusters: int) -> None:
        self.chooser, self.end, self.clusters = chooser, end, clusters
        self.numbers = sorted({0, clusters // 2, clusters - 1})  # of clusters: the others are like one of these
        self.axes, self.needed = dict[int, int](), dict[int, list[Band]]()
        self.whole = set[int]()  # what is read as a whole
        self.given = set[int]()  # in rows, by what is before the section

    def begins_with(self, at: int) -> float | None:
        """The cycles that one more kernel takes; None where it cannot be in the section."""
        copied = 0.0
        for call in reversed(self.chooser.members[at]):
            own = self._take(call)
            if own is None:
                return None
            copied += own
        taken = self._taken(at)
        return None if taken is None else taken + copied

    def given_cycles(self) -> float | None:
        """Those in which windows of what the section is given are brought; None where these lie in too short pieces."""
        cycles = 0.0
        for value in self.given:
            axis, rows = self.axes[value], self._rows(value)
            if rows * self.chooser.row_bytes(value, axis) < LEAST_BYTES:
                return None
            size = self.chooser.sizes[value] * rows / self.chooser.shapes[value][axis]
            cycles += BORDER_CYCLES + self.chooser.far_cycles_of(size, self.clusters)
        return cycles

    def _take(self, call: _Call) -> float | None:
        """The cycles in which what others read of a call's result is copied; None where it cannot be in the section."""
        chooser, copied = self.chooser, 0.0
        if call.result not in chooser.single or call.result in self.whole:
            return None
        if chooser.last.get(call.result, -1) >= self.end:
            shape = chooser.shapes[call.result]
            axis = axis_of_rows(shape)
            if axis is None or shape[axis] % self.clusters or self.axes.get(call.result, axis) != axis:
                return None
            own = shape[axis] // self.clusters
            if own * chooser.row_bytes(call.result, axis) < LEAST_BYTES:
                return None
            self._need(call.result, axis, [(n * own, (n + 1) * own) for n in self.numbers])
            copied = BORDER_CYCLES + chooser.far_cycles_of(chooser.sizes[call.result] / self.clusters, self.clusters)
        rows = self.needed.get(call.result)
        linear = None if rows is None else chooser.linear(call.callee, self.axes[call.result])
        if rows is None or linear is None:
            return None
        self.given.discard(call.result)
        for value, found in zip(call.arguments, linear, strict=True):
            if found is None:
                self.whole.add(value)
            elif value in chooser.constants or self.axes.get(value, found[0]) != found[0]:
                return None
            else:
                axis, rows_of = found
                bands = [rows_of(band) for band in rows]
                if any(low >= high for low, high in bands):
                    return None
                self._need(value, axis, bands)
                self.given.add(value)
            if value in self.whole and value in self.axes:
                return None
        return copied

    def _need(self, value: int, axis: int, bands: Sequence[Band]) -> None:
        self.axes[value] = axis
        before = self.needed.get(value, bands)
        self.needed[value] = [hull(one, other) for one, other in zip(before, bands, strict=True)]

    def _taken(self, at: int) -> float | None:
        """The cycles of a kernel; None where each cluster makes nearly all of it."""
        chooser, chip = self.chooser, self.chooser.chips[self.clusters]
        operator, call, members = chooser.storage.operators[at], chooser.body.calls[at], chooser.members[at]
        if operator.is_view or not members:
            return 0.0
        share = self._share(members[-1].result)
        if share > MOST_SHARE:
            return None
        near, whole = chooser.sizes[members[-1].result] * share, 0.0
        for value in {argument for each in members for argument in each.arguments}.difference(
            own.result for own in members
        ):
            if value in chooser.constants:
                whole += chooser.sizes[value] / (chip.alike if chip.broadcasts else 1)
            else:
                near += chooser.sizes[value] * self._share(value)
        work = chooser.cost.work(call.callee)
        work = Work(work.cube_cycles * share, max(1, int(work.rows * share)), int(work.vector_bytes * share))
        return cycles_of(work, 1, int(near), 0, int(whole), chip)

    def _rows(self, value: int) -> int:
        return max(high - low for low, high in self.needed[value])

    def _share(self, value: int) -> float:
        if value not in self.needed:
            return 1.0
        return min(1.0, self._rows(value) / self.chooser.shapes[value][self.axes[value]])


def _size(value: Any) -> int:
    return sum(map(size_bytes, value.ty.fields)) if isinstance(value.ty, relax.TupleType) else size_bytes(value.ty)
