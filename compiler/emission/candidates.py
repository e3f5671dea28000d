"""What a nest could become: candidates with costs, rejections with reasons, and the recognisers that find them.

A recogniser is a function ``(nest, chip) -> candidates and rejections``. It says nothing about nests that are not of
its kind, and gives a :class:`Rejection` where a reader would expect it to fit. The best candidate is the cheapest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any

from compiler.emission.nest import Nest
from compiler.emission.own import own_sequence
from compiler.target import Chip


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to do a nest.

    Attributes
    ----------
    instruction: the mnemonic with its modifiers, dotted ("vadd.fp32.2d"); "scalar" for loops of the scalar unit.
    cycles: what one execution of the instruction takes, by the row's own timing.
    executions: how often it runs at most.
    overhead_cycles: what the scalar unit adds to each execution.
    build: gives the TIR statement that replaces the nest.
    kind: "vector", "copy", "cube" or "scalar": what statistics count.
    """

    instruction: str
    cycles: int
    executions: int
    build: Callable[[], Any] = field(repr=False)
    kind: str = "vector"
    description: str = ""
    overhead_cycles: int = 0

    @property
    def total_cycles(self) -> int:
        return self.executions * (self.cycles + self.overhead_cycles)


@dataclass(frozen=True)
class Rejection:
    """Why something that looked possible is not."""

    instruction: str
    reason: str


Found = Candidate | Rejection
Recogniser = Callable[[Nest, Chip], Iterable[Found]]

# Modules that recognise; each calls `recogniser`. Of equally cheap candidates the first one's is taken: copies, whose
# transpositions no bank conflict slows down, before what the bank model has to be right about.
_MODULES = ("cube", "copies", "reversals", "vector", "reductions", "widening", "indices", "scalar")
_RECOGNISERS: dict[str, Recogniser] = {}


def recogniser(function: Recogniser) -> Recogniser:
    """Register a recogniser; its name is the function's."""
    _RECOGNISERS[f"{function.__module__.rpartition('.')[2]}.{function.__name__}"] = function
    return function


@cache
def _loaded() -> tuple[Recogniser, ...]:
    for name in _MODULES:
        import_module(f"compiler.emission.{name}")
    return tuple(sorted(_RECOGNISERS.values(), key=lambda one: _MODULES.index(one.__module__.split(".")[2])))


def recognise(nest: Nest, chip: Chip) -> Iterator[Found]:
    """Everything that every recogniser says about a nest; of one that is marked, what its own function says."""
    own = own_sequence(nest.pragmas)
    said = [] if own is None else list(own(nest, chip))
    yield from said
    if any(isinstance(found, Candidate) for found in said):
        return
    for find in _loaded():
        for found in find(nest, chip):
            yield found if isinstance(found, Rejection) or found.description else _described(found, nest)


def _described(candidate: Candidate, nest: Nest) -> Candidate:
    """A candidate that says nothing of itself does the whole nest at once."""
    loops = " x ".join(f"{loop.var.name}<{loop.extent}" for loop in nest.loops) or "one element"
    return replace(candidate, description=f"all of {loops} at once")


def best(found: Iterable[Any]) -> Candidate | None:
    """The cheapest candidate; of equals the first."""
    candidates = [one for one in found if isinstance(one, Candidate)]
    return min(candidates, key=lambda one: one.total_cycles, default=None)
