"""Turn every leaf nest into the instruction that does it at the least cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tvm import tirx

from compiler.emission.decisions import Decision, decide, decide_with_initial
from compiler.emission.nest import Nest, Surroundings, is_pragma, nest_of
from compiler.target import Chip
from compiler.tir.near import near_parameters
from compiler.tir.rewriter import Rewriter, sequence, statements, uses
from passes.base import Pass

STATISTICS = "tw.emission"


@dataclass(frozen=True)
class EmitInstructions(Pass):
    """Replace leaf nests by calls of instructions, or leave them to the scalar unit where nothing else does them.

    for i, j: s[i, j] = exp(a[i, j])
    -> tw.vexp.fp32.1d(&s[0, 0], 1, &a[0, 0], 1, 64)

    1. Every recogniser is asked; the candidate of the least total cycles is taken.
    2. A reduction that follows the fill of its destination, with nothing between them that touches it, may write there
       itself, if that costs less than both.
    3. A store that no candidate does raises ``NotEmittable``: the kernel runs on the host.

    ``decisions`` holds the record of every nest of the function that was emitted last; the function's attribute
    ``tw.emission`` counts them by kind.
    """

    decisions: list[Decision] = field(default_factory=list, compare=False)

    name: ClassVar[str] = "emit-instructions"
    requires: ClassVar[frozenset[str]] = frozenset({"one-store-per-nest", "guard-free"})
    establishes: ClassVar[frozenset[str]] = frozenset({"instruction-form"})
    breaks: ClassVar[frozenset[str]] = frozenset({"loops", "one-store-per-nest"})

    def run(self, subject: Any, chip: Chip) -> Any:
        emitter = _Emitter(chip, near_parameters(subject))
        function = emitter.function(subject)
        self.decisions[:] = emitter.decisions
        kinds = Counter(decision.chosen.kind for decision in emitter.decisions)
        return function.with_attr(STATISTICS, dict(sorted(kinds.items())))


class _Emitter(Rewriter):
    def __init__(self, chip: Chip, near: frozenset[Any]) -> None:
        super().__init__()
        self.chip = chip
        self.surroundings = Surroundings(self.analyzer, near)
        self.decisions: list[Decision] = []

    def statement(self, stmt: Any | None) -> Any | None:
        nest = self._leaf(stmt)
        if nest is not None:
            return self._emitted(decide(nest, self.chip))
        if isinstance(stmt, tirx.AttrStmt) and is_pragma(stmt.attr_key):
            return self.attribute(stmt)
        return super().statement(stmt)

    def branch(self, branch: tirx.IfThenElse) -> Any | None:
        with self.analyzer.constraint_scope(branch.condition):
            then = self.statement(branch.then_case)
        otherwise = self.statement(branch.else_case)
        return tirx.IfThenElse(branch.condition, then, otherwise)

    def sequence(self, seq: tirx.SeqStmt) -> Any | None:
        parts = statements(seq)
        done: list[Any] = []
        joined: dict[int, Any] = {}  # what stands for a reduction and the fill before it
        for position, part in enumerate(parts):
            if position in joined:
                done.append(joined[position])
                continue
            after = self._reduction_after(parts, position)
            found = self._joined(part, parts[after]) if after is not None else None
            if after is not None and found is not None:
                joined[after] = found
            else:
                done.append(self.statement(part))
        return sequence(done)

    def _reduction_after(self, parts: list[Any], position: int) -> int | None:
        """The first statement after a fill that touches what it fills."""
        if not isinstance(parts[position], tirx.For | tirx.BufferStore):
            return None
        initial = self._leaf(parts[position])
        if initial is None or not isinstance(initial.store.value, tirx.IntImm | tirx.FloatImm):
            return None
        buffer = initial.store.buffer
        return next((k for k in range(position + 1, len(parts)) if uses(parts[k], [buffer])), None)

    def _leaf(self, stmt: Any | None) -> Nest | None:
        if isinstance(stmt, tirx.For | tirx.BufferStore | tirx.AttrStmt):
            return nest_of(stmt, self.surroundings)
        return None

    def _joined(self, fill: Any, after: Any) -> Any | None:
        """A fill and the reduction after it as one (2)."""
        initial, reduction = self._leaf(fill), self._leaf(after)
        if initial is None or reduction is None:
            return None
        found = decide_with_initial(initial, reduction, self.chip)
        if found is None:
            return None
        apart = [decide(nest, self.chip)[1].chosen.total_cycles for nest in (initial, reduction)]
        return self._emitted(found) if found[1].chosen.total_cycles <= sum(apart) else None

    def _emitted(self, found: tuple[Any, Decision]) -> Any:
        statement, decision = found
        self.decisions.append(decision)
        return statement
