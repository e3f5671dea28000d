"""A graph in pieces, step by step: which calls run for which pieces, and which tensors are cut and joined for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler import graph
from compiler.schedule.cuts import Cuts
from compiler.schedule.storage import results_of


@dataclass(frozen=True)
class Piece:
    """Of a variable of the graph: piece ``number`` of ``count``; the only one is all of it."""

    value: Any
    count: int = 1
    number: int = 0


@dataclass(frozen=True)
class Run:
    """A call, for one piece of its results."""

    call: graph.Call
    count: int
    number: int
    inputs: tuple[Piece, ...]


@dataclass(frozen=True)
class Cut:
    """A piece is a part of another one."""

    made: Piece
    source: Piece


@dataclass(frozen=True)
class Join:
    """A piece is others, one after another."""

    made: Piece
    parts: tuple[Piece, ...]


Step = Run | Cut | Join


def order(counts: Sequence[int], breaks: Collection[int] = ()) -> Iterator[tuple[int, int]]:
    """(call, number of its piece), depth first: a call follows as soon as all that one piece of it is made of is there.

    That goes as far as counts divide those before them, down a pyramid. Where one does not, and before each of
    ``breaks``, all calls before are through with all pieces.
    """
    pyramid: list[list[int]] = []

    def worked(level: int, number: int) -> Iterator[tuple[int, int]]:
        if level:
            times = counts[pyramid[level - 1][0]] // counts[pyramid[level][0]]
            for above in range(number * times, (number + 1) * times):
                yield from worked(level - 1, above)
        yield from ((at, number) for at in pyramid[level])

    for at, count in enumerate(counts):
        if pyramid and counts[at - 1] == count:
            pyramid[-1].append(at)
        else:
            pyramid.append([at])
        if at + 1 == len(counts) or at + 1 in breaks or count % counts[at + 1]:
            for number in range(count):
                yield from worked(len(pyramid) - 1, number)
            pyramid = []


def steps_of(body: graph.Body, cuts: Cuts, counts: Sequence[int], breaks: Collection[int] = ()) -> list[Step]:
    """What there is to do for a graph whose calls run in so many pieces each."""
    planner = _Planner(body, cuts, counts)
    for at, number in order(counts, breaks):
        planner.run(at, number)
    for result in body.results:
        planner.need(Piece(result))
    return planner.steps


@dataclass
class _Planner:
    body: graph.Body
    cuts: Cuts
    counts: Sequence[int]
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._made: dict[Any, int] = {param: 1 for param in self.body.params}  # in how many pieces a value is made
        for call, count in zip(self.body.calls, self.counts, strict=True):
            self._made.update((value, count) for value, _ in results_of(self.body, call))
        self._there = {Piece(param) for param in self.body.params}
        self._needed: dict[Any, set[int]] = {}  # in how many pieces a value is read
        for call, count in zip(self.body.calls, self.counts, strict=True):
            for value, wanted in self._wanted(call, count):
                self._needed.setdefault(value, set()).add(wanted)

    def run(self, at: int, number: int) -> None:
        call, count = self.body.calls[at], self.counts[at]
        wanted = self._wanted(call, count)
        inputs = tuple(self.need(Piece(value, n, number if n > 1 else 0)) for value, n in wanted)
        self.steps.append(Run(call, count, number, inputs))
        self._there.update(Piece(value, count, number) for value, _ in results_of(self.body, call))

    def _wanted(self, call: graph.Call, count: int) -> list[tuple[Any, int]]:
        if count == 1:
            return [(value, 1) for value in call.arguments]
        inputs = self.cuts.inputs(call.callee, count)
        if inputs is None:
            raise ValueError(f"{call.name} cannot be cut into {count} pieces")
        return [(value, count if cut else 1) for value, cut in zip(call.arguments, inputs, strict=True)]

    def need(self, piece: Piece) -> Piece:
        """The piece, after it was cut or joined if it is not there."""
        if piece not in self._there:
            value, count, number = piece.value, piece.count, piece.number
            made = self._made[value]
            if made % count == 0:
                finer = self._finer(value, count)
                times = finer // count
                parts = [self.need(Piece(value, finer, number * times + each)) for each in range(times)]
                self.steps.append(Join(piece, tuple(parts)))
            else:
                coarser = made if count % made == 0 else 1
                source = self.need(Piece(value, coarser, number * coarser // count))
                self.steps.append(Cut(piece, source))
            self._there.add(piece)
        return piece

    def _finer(self, value: Any, count: int) -> int:
        """The next larger count in which a value is there, as who reads that lies in what is joined, too."""
        made: int = self._made[value]
        counts: set[int] = {made, *self._needed.get(value, ())}
        return min(n for n in counts if n > count and n % count == 0 and made % n == 0)
