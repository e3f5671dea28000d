"""Schedules in files: the one that the compiler chose, to be read and changed, and one that somebody gives it.

clusters = 4              # divide the batch; 1: all work together
[pieces]                  # of calls in their order; depth first where each count divides the one before it
"Relu_output_0" = 4       # /conv1/Conv /bn1/BatchNormalization /Relu
"Add_output_0" = { pieces = 2, after_all = true }   # not before all pieces of all calls before are done
"Clip_output_0" = { pieces = 2, in_l1 = true }      # its result stays in the cores' L1, for the one call that reads it
"Conv_3" = { pieces = 8, axis = 2 }                 # in bands of rows, as the calls beside it that say the same
"logits" = 1              # /fc/Gemm
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compiler import graph
from compiler.clusters import clusters_of
from compiler.errors import Diagnostics, InputError, InvalidError, Place, Problem
from compiler.schedule.cascades import Cascade, Cascades
from compiler.schedule.cuts import Cuts
from compiler.schedule.storage import results_of

# Attributes of main: the schedule it was made by, as operators of calls and their pieces; and the cycles that the
# search for it thought that to take, with the fewest that any could be thought to take.
PIECES, SEARCH = "tw.pieces", "tw.search"
IN_L1 = "tw.in_l1"  # attribute of main: the calls, by the names that schedules have for them, whose results stay in L1
FLAGS = ("after_all", "in_l1")  # what a call may be told beside its pieces
BANDS = "tw.banded"  # attribute of main: calls in bands, how many of which axis, if they wait for those before
MAX_FILE_BYTES = 4 << 20
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*=""")


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
            if before is not None and name not in self.after_all and _continues(before, wanted):
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
        return Place(self.file, self.lines.get(name, 0), 1)


def _continues(before: Cascade, after: Cascade) -> bool:
    return before.end == after.first and (before.count, before.axis) == (after.count, after.axis)


def with_bands(module: Any, before: Any, cascades: Sequence[Cascade]) -> Any:
    """A module of which calls run in bands, with what its schedule says; ``before``: they did not yet."""
    body, attributes = graph.read(before["main"]), before["main"].attrs
    bands = dict[str, list[Any]]()
    for last, one in zip((None, *cascades), cascades, strict=False):
        waits = last is not None and _continues(last, one)
        for at in range(one.first, one.end):
            name = members_of(before, body.calls[at])[-1]
            bands[name] = [name, one.count, one.axis, waits and at == one.first]
    made = attributes[PIECES] if PIECES in attributes.keys() else [
        (members_of(before, call), 1, False) for call in body.calls if not is_view(before, call)
    ]  # fmt: skip
    module["main"] = module["main"].with_attr(PIECES, made).with_attr(BANDS, list(bands.values()))
    return module


def members_of(module: Any, call: graph.Call) -> list[str]:
    """The operators that a call does; the last one's name is what reports call its kernel, too."""
    members = graph.attribute(module[call.callee], "tw.calls")
    return [call.name] if members is None else [str(name) for name in members]


def is_view(module: Any, call: graph.Call) -> bool:
    return bool(graph.attribute(module[call.callee], "tw.schedule") == "view")


@dataclass(frozen=True)
class Searched:
    """What the search for a schedule thinks of it: its cycles, and the fewest that any could be thought to take."""

    cycles: int
    bound_cycles: int
    gap: float  # how much the cycles could be above the fewest there are, as a share of these; 0 where they are those

    @property
    def said(self) -> str:
        proven = f"within {self.gap:.1%} of the fewest" if self.gap else "exact: no other takes fewer"
        return f"{self.cycles:,} cycles by the model of the search, {proven}"


def searched_of(module: Any) -> Searched | None:
    """None where nothing was searched for: all fits on the chip as it is, or the schedule was given."""
    found = graph.attribute(module["main"], SEARCH)
    if found is None:
        return None
    cycles, bound = (int(number) for number in found)
    return Searched(cycles, bound, cycles / max(1, bound) - 1 if cycles > bound else 0.0)


# ---- files -------------------------------------------------------------------------------------------------------


def load_schedule(path: Path) -> Manual:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        text = f"cannot read the schedule: {error.strerror or type(error).__name__}"
        raise InputError(Problem("TW2630", text, Place(str(path)))) from error
    if len(content) > MAX_FILE_BYTES:
        raise InputError(Problem("TW2630", f"a schedule may have at most {MAX_FILE_BYTES} bytes", Place(str(path))))
    return parse_schedule(content.decode("utf-8", errors="replace"), str(path))


def parse_schedule(text: str, file: str = "<schedule>") -> Manual:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"at line (\d+)", str(error))
        place = Place(file, int(where[1]) if where else text.count("\n") + 1, 1)
        raise InvalidError(Problem("TW2630", f"not valid TOML: {error}", place)) from error
    lines = dict[str, int]()
    for number, line in enumerate(text.split("\n"), 1):
        if found := _KEY.match(line):
            lines.setdefault(next(group for group in found.groups() if group is not None), number)
    problems = Diagnostics()

    def checked(name: str, value: Any) -> None:
        if type(value) is not int or value < 1:
            problems.add("TW2630", f"{name} must be a number of at least 1", Place(file, lines.get(name, 0), 1))

    for name in tables.keys() - {"clusters", "pieces"}:
        problems.add("TW2630", f"a schedule has no {name}", Place(file, lines.get(name, 0), 1), "clusters, [pieces]")
    pieces = tables.get("pieces", {})
    if not isinstance(pieces, dict):
        problems.add("TW2630", "pieces must be a table", Place(file, lines.get("pieces", 0), 1))
        pieces = {}
    entries = {name: value if isinstance(value, dict) else {"pieces": value} for name, value in pieces.items()}
    for name, entry in entries.items():
        checked(name, entry.get("pieces"))
        _check_flags(name, entry, Place(file, lines.get(name, 0), 1), problems)
    if "clusters" in tables:
        checked("clusters", tables["clusters"])
    problems.raise_if_any(InvalidError)
    counts = {name: int(entry["pieces"]) for name, entry in entries.items()}
    after_all, in_l1 = (frozenset(name for name, entry in entries.items() if entry.get(key, False)) for key in FLAGS)
    axes = {name: int(entry["axis"]) for name, entry in entries.items() if "axis" in entry}
    return Manual(file, tables.get("clusters"), counts, after_all, lines, in_l1, axes)


def _check_flags(name: str, entry: Mapping[str, Any], place: Place, problems: Diagnostics) -> None:
    for key in entry.keys() - {"pieces", "axis", *FLAGS}:
        problems.add("TW2630", f"{name} has no {key}", place, ", ".join(("pieces", "axis", *FLAGS)))
    axis = entry.get("axis", 0)
    if type(axis) is not int or axis < 0:
        problems.add("TW2630", f"axis of {name} must be a number of at least 0", place)
    for key in FLAGS:
        if not isinstance(entry.get(key, False), bool):
            problems.add("TW2630", f"{key} of {name} must be true or false", place)


def written(module: Any, nodes: Mapping[str, Sequence[str]]) -> str:
    """The schedule of a compiled module as a file; ``nodes`` are those of ONNX by the names of calls."""
    made, in_l1 = (graph.attribute(module["main"], name, default) for name, default in ((PIECES, None), (IN_L1, ())))
    in_l1 = {str(name) for name in in_l1}
    if made is None:
        calls = [call for call in graph.read(module["main"]).calls if not is_view(module, call)]
        entries = [(members_of(module, call), 1, False) for call in calls]
    else:
        entries = [([str(name) for name in members], int(count), bool(breaks)) for members, count, breaks in made]
    searched = searched_of(module)
    bands = {str(name): rest for name, *rest in graph.attribute(module["main"], BANDS, ())}
    lines = [
        *([f"# {searched.said}"] if searched is not None else []),
        f"clusters = {clusters_of(module)}  # that divide the batch; with 1 all clusters work together",
        "",
        "[pieces]  # in which each call runs, in order: depth first where each count divides the one before it",
    ]
    for members, count, breaks in entries:
        comment = " ".join(dict.fromkeys(node for member in members for node in nodes.get(member, ())))
        shown = "".join(char if char.isprintable() else "?" for char in comment)
        parts, waits = [f"pieces = {count}"], breaks
        if members[-1] in bands:
            number, axis, *begins = (int(each) for each in bands[members[-1]])
            waits = any(begins)
            parts = [f"pieces = {number}", f"axis = {axis}"]
        told = zip(FLAGS, (waits, members[-1] in in_l1), strict=True)
        parts += [f"{key} = true" for key, holds in told if holds]
        said = f"{{ {', '.join(parts)} }}" if len(parts) > 1 else str(count)
        lines.append(f'"{members[-1]}" = {said}' + (f"  # {shown}" if shown else ""))
    return "\n".join(lines) + "\n"
