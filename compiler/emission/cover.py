"""Covering a value with instructions: which operations go together, so that all of them cost least.

Maximal munch by dynamic programming: the cost of a term is that of the cheapest row that matches at its root plus the
costs of the terms which that row reads. Common subterms are found later, when the steps are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from compiler.emission.costs import instruction_cycles
from compiler.emission.expressions import equivalents, in_type
from compiler.emission.patterns import Match, fold_spellings, match_spelling, matches
from compiler.emission.terms import Term
from compiler.isa.dtypes import INTS
from compiler.isa.model import Float, Int
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

# Terms are costed on at most this many elements, packed: the choice between rows hardly depends on it.
_TYPICAL_ELEMENTS = 4096
_APART_BYTES = 1 << 24
_NARROW = ("fp16", "bf16")


@dataclass(frozen=True)
class Step:
    """How a term is computed: ``term`` (or an equivalent of it) by one row that reads ``operands``.

    ``accumulates`` is the operand that has to be where the result goes, if the row needs that.
    """

    term: Term
    operands: tuple[Term, ...]
    cycles: float
    accumulates: Term | None = None


@dataclass(eq=False)
class Cover:
    """Costs and choices for the terms of one store.

    ``is_operand`` says which leaves a row can read where they are; ``elements`` how many a term has;
    ``in_place`` which term is what the store's own destination holds.
    """

    chip: Chip
    is_operand: Callable[[Term], bool]
    elements: Callable[[Term], int]
    in_place: Term | None = None
    _known: dict[tuple[Term, str], Step | None] = field(default_factory=dict)

    def step(self, term: Term, depth: int = 0) -> Step | None:
        """The cheapest way to compute a term into its own type, or None if there is none."""
        key = (term, term.dtype)
        if key not in self._known:
            self._known[key] = None  # an equivalent that leads back here is none
            self._known[key] = self._cheapest(term, depth)
        return self._known[key]

    def _cheapest(self, term: Term, depth: int) -> Step | None:
        if term.op == "choice":
            return Step(term, (), sum(self.cycles(arg) for arg in term.args) + self._leaf_cycles(term))
        if term.op in ("load", "fill", "index", "const", "scalar"):
            return Step(term, (), self._leaf_cycles(term))
        if term.op == "reinterpret":
            return Step(term, term.args, self.cycles(term.args[0]) + self._leaf_cycles(term))
        steps = [self._stepped(term, match) for match in matches(term, term.dtype)]
        found = [step for step in (*steps, *self._narrowed(term)) if step is not None]
        if found:
            return min(found, key=lambda step: step.cycles)
        if depth < 4:
            for other in equivalents(term):
                step = self.step(other, depth + 1)
                if step is not None:
                    return step
        return None

    def _narrowed(self, term: Term) -> Iterator[Step | None]:
        """Rows that do by themselves what is converted to fp32, worked out and converted back, or to integers.

        A row computes in fp32 and rounds once, so that is the same; what takes two rows would be rounded between them.
        """
        if term.op != "cast" or term.dtype not in (*_NARROW, *INTS):
            return
        for source in _NARROW:
            given: set[Term] = set()
            narrow = in_type(term.args[0], source, given)
            if narrow is None or narrow in given:
                continue
            same = narrow if source == term.dtype else replace(term, args=(narrow,))
            for match in matches(same, term.dtype):
                tensors = dict(match.tensors)
                if "dst" not in tensors and all(bound in given for bound in tensors.values()):
                    yield self._stepped(same, match)

    def cycles(self, term: Term) -> float:
        """What it costs to have a term in memory."""
        if self.is_operand(term):
            return 0.0
        step = self.step(term)
        return math.inf if step is None else step.cycles

    def _leaf_cycles(self, term: Term) -> float:
        return float(self._row_cycles("vcopy", (term.dtype if term.dtype != "bool" else "uint8", "1d"), term))

    def _stepped(self, term: Term, match: Match) -> Step | None:
        operands = tuple(bound for _, bound in match.tensors)
        below = sum(self.cycles(operand) for operand in dict.fromkeys(operands))
        if math.isinf(below):
            return None
        accumulates = dict(match.tensors).get("dst")
        if accumulates is not None and not self._may_accumulate(accumulates, operands, term):
            return None
        mods = match.mods_at("1d")
        own = self._row_cycles(match.row.mnemonic, mods, term)
        # Of equal costs the fewest scalars: a row made for the case says more than one with a parameter.
        tie = 1e-3 * len(match.scalars)
        return Step(term, operands, below + own + tie, accumulates)

    def _may_accumulate(self, accumulates: Term, operands: tuple[Term, ...], term: Term) -> bool:
        """Whether an operand may be worked out where the result goes: nothing else holds it, it is as large, and what
        the destination holds is no other operand, which would be lost.
        """
        if accumulates == self.in_place:
            return True
        if self.is_operand(accumulates) or operands.count(accumulates) != 1 or self.in_place in operands:
            return False
        return self.elements(accumulates) == self.elements(term)

    def _row_cycles(self, mnemonic: str, mods: tuple[str, ...], term: Term) -> int:
        elements = max(1, min(_TYPICAL_ELEMENTS, self.elements(term)))
        cycles = row_cycles(mnemonic, mods, elements, self.chip)
        return cycles if isinstance(cycles, int) else 1_000_000

    def fold_step(self, op: str, rest: Term, to: str) -> Step | None:
        """The cheapest way to have what a reduction folds: terms that a folding row, or an element-wise one, reads."""
        found = []
        cycles = self.cycles(rest)
        if not math.isinf(cycles):
            found.append(Step(rest, (rest,), cycles))
        for axis in ("n0", "n1"):
            for spelling in fold_spellings().get((op, axis), ()):
                for match in match_spelling(spelling, spelling.pattern.args[0], rest, to):
                    operands = tuple(bound for _, bound in match.tensors)
                    below = sum(self.cycles(operand) for operand in dict.fromkeys(operands))
                    found.append(Step(rest, operands, below - 1))
        return min(found, key=lambda step: step.cycles, default=None)


def row_cycles(mnemonic: str, mods: tuple[str, ...], elements: int, chip: Chip) -> int | str:
    """Cycles of a row on packed operands far from one another."""
    row = by_mnemonic()[mnemonic]
    scalars = {operand.name for operand in row.operands if isinstance(operand, Float | Int)}
    values = []
    position = 0
    for slot in row.slots(mods):
        if slot.kind == "addr":
            position += 1
            values.append(position * _APART_BYTES + 160 * position)
        elif slot.name == "n0":
            values.append(elements)
        elif slot.name in scalars:
            values.append(max(1, slot.lo))
        else:
            values.append(1)
    return instruction_cycles(mnemonic, mods, tuple(values), chip)
