"""The schedule that somebody gives the compiler, and what of it a model cannot do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from compiler import graph
from compiler.errors import Diagnostics, InvalidError, Place
from compiler.schedule.cascades import Cascade, Cascades
from compiler.schedule.cuts import Cuts
from compiler.schedule.noted import is_view, members_of
from compiler.schedule.storage import results_of

KEPT_ROWS = "_rows"  # what the names end with of calls that put a cluster's rows of a result where they belong


@dataclass(frozen=True)
class Tail:
    """Calls that are a model of their own behind the others, with all that needs their results."""

    calls: tuple[str, ...]
    clusters: int | None
    place: Place
    rows: bool = False  # whether clusters run it each on some rows


@dataclass(frozen=True)
class Manual:
    """A schedule that somebody gave: what it says, and on which lines."""

    file: str
    clusters: int | None  # None where it does not say
    pieces: Mapping[str, int]
    after_all: frozenset[str] = frozenset()  # calls that wait for all pieces of those before them
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    in_l1: frozenset[str] = frozenset()  # calls that share a kernel with the one that reads their result
    axes: Mapping[str, int] = field(default_factory=dict)  # of calls that run in bands
    tails: tuple[Tail, ...] = ()  # the second one is what is behind in the first, and so on
    rows: bool = False

    def ordered(self, module: Any, body: graph.Body) -> graph.Body:
        """The calls of main in the order of the file. A view comes behind what it looks at."""
        calls = {members_of(module, call)[-1]: call for call in body.calls if not is_view(module, call)}
        self._check_names(list(calls))
        if list(self.pieces) == list(calls):
            return body
        found, there, problems = list[graph.Call](), set(body.params), Diagnostics()
        views = [call for call in body.calls if is_view(module, call)]

        def follow(call: graph.Call) -> None:
            found.append(call)
            there.update(value for value, _ in results_of(body, call))
            for view in views:
                if view.var not in there and there.issuperset(view.arguments):
                    follow(view)

        for view in views:
            if view.var not in there and there.issuperset(view.arguments):
                follow(view)
        for name in self.pieces:
            if not there.issuperset(calls[name].arguments):
                problems.add("TW2631", f"{name} comes before what it reads is made", self.place(name))
                break
            follow(calls[name])
        problems.raise_if_any(InvalidError)
        return replace(body, calls=tuple(found))

    def counts(self, module: Any, body: graph.Body, cuts: Cuts) -> list[int]:
        """In how many pieces each call of main runs. A view goes as what it looks at."""
        named = [(call, members_of(module, call)[-1]) for call in body.calls if not is_view(module, call)]
        problems, counts, own = Diagnostics(), dict[Any, int](), frozenset(body.params)
        for call, name in named:
            if name in self.axes:
                counts[call.var] = 1
                continue
            able = cuts.counts(call, sorted({self.pieces[name]} - {1}), own)
            if self.pieces[name] not in able:
                text = f"{name} cannot run in {self.pieces[name]} pieces: not each is made of one of what it reads"
                problems.add("TW2632", text, self.place(name), "1 is always possible")
            counts[call.var] = self.pieces[name]
        problems.raise_if_any(InvalidError)
        for call in body.calls:
            if call.var not in counts:
                source = body.producer.get(call.arguments[0])
                wanted = counts.get(source.var, 1) if source else 1
                counts[call.var] = wanted if wanted in cuts.counts(call, [wanted], own) else 1
        return [counts[call.var] for call in body.calls]

    def breaks(self, module: Any, body: graph.Body) -> frozenset[int]:
        """The calls of main before which all calls before are done with all pieces."""
        return frozenset(
            at
            for at, call in enumerate(body.calls)
            if not is_view(module, call) and members_of(module, call)[-1] in self.after_all - self.axes.keys()
        )

    def cascades(self, module: Any) -> list[Cascade]:
        """The calls of main that run in bands: those that say the same one after another, as one cascade."""
        cascades, found, problems = Cascades(module), list[Cascade](), Diagnostics()
        for at, call in enumerate(cascades.body.calls):
            name = "" if is_view(module, call) else members_of(module, call)[-1]
            if name not in self.axes:
                continue
            wanted = Cascade(at, at + 1, self.pieces[name], self.axes[name])
            before = found[-1] if found else None
            if before is not None and name not in self.after_all and wanted.continues(before):
                found[-1] = replace(before, end=at + 1)
            else:
                found.append(wanted)
        for one in found:
            if cascades.all_of(one) is None:
                name = members_of(module, cascades.body.calls[one.first])[-1]
                text = f"{name} and what follows it cannot run in {one.count} bands of axis {one.axis}"
                problems.add("TW2632", text, self.place(name), "1 piece is always possible")
        problems.raise_if_any(InvalidError)
        return found

    def of_ends(self, head: Any) -> tuple[Manual, Manual]:
        """What it says of a head, which is this module, and of the tail behind it. Where clusters work on rows, what
        they copy for a call stands before it, and what they copy of results behind all calls.
        """
        names, tail = {call.name for call in graph.read(head["main"]).calls}, self.tails[0]
        last = max((at for at, name in enumerate(self.pieces) if name in names), default=-1)
        entries = list(self.pieces.items())
        while self.rows and last + 1 < len(entries) and entries[last + 1][0].endswith(KEPT_ROWS):
            last += 1
        own = {name: n for at, (name, n) in enumerate(entries) if name in names or (self.rows and at <= last)}
        rest = {name: n for name, n in entries if name not in own}
        lines = {**self.lines, "clusters": tail.place.line}
        return (
            replace(self, pieces=own, in_l1=self.in_l1 & own.keys(), tails=()),
            replace(
                self,
                clusters=tail.clusters,
                pieces=rest,
                in_l1=self.in_l1 - own.keys(),
                lines=lines,
                tails=self.tails[1:],
                rows=tail.rows,
            ),
        )

    def _check_names(self, names: Sequence[str]) -> None:
        """All calls, each once."""
        problems = Diagnostics()
        for name in self.pieces:
            if name not in names:
                hint = "the model or the compiler changed: write the schedule anew with --dump-schedule"
                problems.add("TW2631", f"the model has no call {name}", self.place(name), hint)
        for name in names:
            if name not in self.pieces:
                problems.add("TW2631", f"the schedule says nothing of {name}", Place(self.file))
        problems.raise_if_any(InvalidError)

    def place(self, name: str) -> Place:
        return Place(self.file, self.lines[name], 1) if name in self.lines else Place(self.file)
