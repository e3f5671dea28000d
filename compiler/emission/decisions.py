"""From one leaf nest to the statement that replaces it, with the record of what else it could have become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from compiler.emission.candidates import Candidate, Rejection, best, recognise
from compiler.emission.errors import NotEmittable
from compiler.emission.initials import holds_identity
from compiler.emission.nest import Nest
from compiler.emission.reductions import overwriting
from compiler.emission.reshape import split_long_loops
from compiler.emission.widening import widened_sums
from compiler.emission.windows import pooling
from compiler.target import Chip


@dataclass(frozen=True, eq=False)
class Decision:
    """A nest, everything it could have become, and the candidate that was chosen."""

    nest: Nest
    candidates: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    chosen: Candidate

    def lines(self) -> list[str]:
        """The record for a person: the chosen candidate first, the others by cost, then what does not fit."""
        others = sorted((c for c in self.candidates if c is not self.chosen), key=lambda c: c.total_cycles)
        ranked = [(">", self.chosen), *((" ", other) for other in others)]
        found = [f"{mark} {c.total_cycles} cycles: {c.instruction} ({c.description})" for mark, c in ranked]
        return [str(self.nest), *found, *(f"  no {r.instruction}: {r.reason}" for r in self.rejections)]


def decide(nest: Nest, chip: Chip) -> tuple[Any, Decision]:
    """The statement that does a nest best; raises :class:`NotEmittable` where there is none."""
    nest = split_long_loops(nest)
    return _decided(nest, list(recognise(nest, chip)))


def decide_with_initial(initial: Nest, nest: Nest, chip: Chip) -> tuple[Any, Decision] | None:
    """A reduction that writes what its initial value would have been combined with; None if it is not that."""
    if not holds_identity(initial, nest):
        return None
    found = [*overwriting(nest, chip), *widened_sums(nest, chip, overwrite=True), *pooling(nest, chip)]
    if best(found) is None:
        return None
    return _decided(nest, found)


def _decided(nest: Nest, found: Iterable[Candidate | Rejection]) -> tuple[Any, Decision]:
    listed = list(found)
    chosen = best(listed)
    rejections = tuple(one for one in listed if isinstance(one, Rejection))
    if chosen is None:
        raise NotEmittable.of(str(nest), (f"{r.instruction}: {r.reason}" for r in rejections))
    candidates = tuple(one for one in listed if isinstance(one, Candidate))
    return chosen.build(), Decision(nest, candidates, rejections, chosen)
