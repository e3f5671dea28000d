"""Takes away flags and barriers whose order others imply."""

from __future__ import annotations

from typing import Any, ClassVar

from tvm import tirx

from compiler.codegen.events import Reader
from compiler.codegen.ordering import redundant
from compiler.target import Chip
from compiler.tir.rewriter import loop_with, sequence
from passes.base import Pass


class MinimiseSync(Pass):
    """Leaves of all synchronisation what is needed: without any one of it, something would start too early.

    Before: load a; set 0; load b; set 1; wait 0; work on a; wait 1; work on b; wait 0 again before work on a and b;
    after: the same without the last pair, since the vector unit has waited for both loads before.

    1. A flag goes, both its ends, or a barrier, where the kernel is proven to be in order without it, on all ways.
    2. Those within most loops are tried first, and of these the last one first.
    3. What orders rings is needed as it is: its flags are as few as they can be.
    """

    name: ClassVar[str] = "minimise-sync"
    requires: ClassVar[frozenset[str]] = frozenset({"synchronised"})

    def run(self, subject: Any, chip: Chip) -> Any:
        reader = Reader(chip, synchronised=True)
        steps = reader.kernel(subject)
        gone = redundant(steps, reader.events, chip.event_ids)
        return subject.with_body(without(subject.body, {step.statement for step in gone})) if gone else subject


def without(statement: Any, gone: set[Any]) -> Any:
    """A statement without some of those in it."""
    match statement:
        case tirx.SeqStmt():
            return sequence(without(part, gone) for part in statement.seq)
        case tirx.For():
            return loop_with(statement, without(statement.body, gone))
        case tirx.IfThenElse():
            otherwise = None if statement.else_case is None else without(statement.else_case, gone)
            return tirx.IfThenElse(statement.condition, without(statement.then_case, gone), otherwise, statement.span)
        case tirx.AttrStmt():
            body = without(statement.body, gone)
            return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body, statement.span)
        case tirx.Evaluate() if statement in gone:
            return None
    return statement
