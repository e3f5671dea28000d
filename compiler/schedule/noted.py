"""What a module says of the schedule it was made by, in attributes of main."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compiler import graph
from compiler.parts import OF_CLUSTERS
from compiler.schedule.cascades import Cascade

# Attributes of main: the schedule it was made by, as operators of calls and their pieces; and the cycles that the
# search for it thought that to take, with the fewest that any could be thought to take.
PIECES, SEARCH = "tw.pieces", "tw.search"
WAY = "tw.way"  # attribute of main: all of that schedule, as `automatic.Way` has it in numbers
IN_L1 = "tw.in_l1"  # attribute of main: the calls, by the names that schedules have for them, whose results stay in L1
BANDS = "tw.banded"  # attribute of main: calls in bands, how many of which axis, if they wait for those before


def members_of(module: Any, call: graph.Call) -> list[str]:
    """The operators that a call does; the last one's name is what reports call its kernel, too."""
    members = graph.attribute(module[call.callee], "tw.calls")
    return [call.name] if members is None else [str(name) for name in members]


def is_view(module: Any, call: graph.Call) -> bool:
    """Whether a call is no work: its result is seen, or made, where it lies."""
    function = module[call.callee]
    if graph.attribute(function, "tw.schedule") == "view":
        return True
    if graph.attribute(function, "tw.group") != "movement":
        return False
    inner = graph.read(function).calls
    return len(inner) == 1 and graph.attribute(module[inner[0].callee], OF_CLUSTERS) is not None


def pieces_of(module: Any) -> list[tuple[list[str], int, bool]]:
    """By call in order: its operators, in how many pieces it runs, and whether it waits for all before it."""
    made = graph.attribute(module["main"], PIECES)
    if made is None:
        calls = [call for call in graph.read(module["main"]).calls if not is_view(module, call)]
        return [(members_of(module, call), 1, False) for call in calls]
    return [([str(name) for name in members], int(count), bool(breaks)) for members, count, breaks in made]


def with_bands(module: Any, before: Any, cascades: Sequence[Cascade]) -> Any:
    """A module of which calls run in bands, with what its schedule says; ``before``: they did not yet."""
    body, bands = graph.read(before["main"]), dict[str, list[Any]]()
    for last, one in zip((None, *cascades), cascades, strict=False):
        waits = last is not None and one.continues(last)
        for at in range(one.first, one.end):
            name = members_of(before, body.calls[at])[-1]
            bands[name] = [name, one.count, one.axis, waits and at == one.first]
    module["main"] = module["main"].with_attr(PIECES, pieces_of(before)).with_attr(BANDS, list(bands.values()))
    return module


def runs_in_bands(module: Any) -> bool:
    return graph.attribute(module["main"], BANDS) is not None


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
