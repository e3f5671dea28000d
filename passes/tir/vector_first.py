"""Dispatches work of the vector unit before work that keeps the scalar unit busy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import sym, tirx

from compiler.codegen.dispatch import calls, entries, queues, reads_data
from compiler.isa.dtypes import Queue
from compiler.target import Chip
from compiler.tir.rewriter import Rewriter, contains, sequence, substitute
from compiler.tir.structure import structural_walk
from passes.base import Pass


@dataclass(frozen=True)
class VectorFirst(Pass):
    """Puts what is the vector unit's alone in front of work of other queues that fills one of them.

    {scores of turn t; softmax of turn t - 1; ...} -> {softmax of turn t - 1; scores of turn t; ...}

    The scalar unit dispatches in the order of the program and stands still before a queue that is full. Where phases
    of several turns are side by side (`CutTrips`), the vector unit would get its part when nearly all products of
    another turn are done. No queue's own order changes, and each flag is waited for by whom it was.

    1. What is passed gives nothing to the vector unit, and neither makes the scalar unit wait or read data.
    2. Nothing in it sets a flag that what moves waits for: then none of it is needed by, or needs, what moves.
    3. The vector unit's queue holds all that moves.
    """

    name: ClassVar[str] = "vector-first"
    requires: ClassVar[frozenset[str]] = frozenset({"synchronised"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Mover(chip.queues.depth).function(subject)


class _Mover(Rewriter):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self._depth = depth

    def sequence(self, seq: tirx.SeqStmt) -> Any | None:
        inner = super().sequence(seq)
        parts = list(inner.seq) if isinstance(inner, tirx.SeqStmt) else []
        ordered = list[Any]()
        for part in parts:
            ordered.insert(self._place(part, ordered), part)
        return inner if all(a is b for a, b in zip(ordered, parts, strict=True)) else sequence(ordered)

    def _place(self, part: Any, before: list[Any]) -> int:
        """Where in a block it goes: in front of the first statement that fills a queue, if it may."""
        here = len(before)
        if not isinstance(part, tirx.IfThenElse | tirx.For) or queues(part) != {Queue.V} or reads_data(part):
            return here
        if entries([part])[Queue.V] > self._depth:  # (3)
            return here
        found = here
        for at in reversed(range(here)):
            other = before[at]
            if not queues(other) or not self._may_pass(part, other):
                break
            if max(entries([other]).values()) > self._depth:
                found = at
        return found

    def _may_pass(self, part: Any, other: Any) -> bool:
        if {Queue.V, Queue.S} & queues(other) or reads_data(other) or contains(other, tirx.BufferStore):  # (1)
            return False
        waits, sets = _flags(part, "wait_flag"), _flags(other, "set_flag")
        return not any(mods == others and not _differ(a, b) for mods, a in waits for others, b in sets)  # (2)


def _flags(stmt: Any, mnemonic: str) -> list[tuple[tuple[str, ...], Any]]:
    """The queues and the id of each flag, without the variables that the statement binds."""
    bound: dict[Any, Any] = {}
    structural_walk(stmt, (tirx.Bind, lambda bind: bound.update({bind.var: substitute(bind.value, bound)})))
    found = [call for call in calls(stmt) if call.row.mnemonic == mnemonic]
    return [(call.mods, substitute(call.operands[0], bound)) for call in found]


def _differ(a: Any, b: Any) -> bool:
    """Whether two ids are never the same: numbers, or slots of rings of one size that are turns apart."""
    (turn, slots, first), (other, others, base) = _slot(a), _slot(b)
    if first + slots <= base or base + others <= first:
        return True
    apart = sym.Analyzer().simplify(turn - other)
    return (first, slots) == (base, others) and isinstance(apart, tirx.IntImm) and int(apart) % slots != 0


def _slot(number: Any) -> tuple[Any, int, int]:
    """The turn, the number of slots and the id of slot zero; of any other expression, one that may be every id."""
    zero = tirx.IntImm("int32", 0)
    match number:
        case tirx.IntImm():
            return zero, 1, int(number)
        case tirx.FloorMod() if isinstance(number.b, tirx.IntImm):
            return number.a, int(number.b), 0
        case tirx.Add() if isinstance(number.b, tirx.IntImm):
            turn, slots, first = _slot(number.a)
            return turn, slots, first + int(number.b)
    return zero, 1 << 16, 0
