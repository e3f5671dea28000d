"""Puts flags and barriers between instructions that touch the same bytes."""

from __future__ import annotations

from typing import Any, ClassVar

from tvm import tirx

from compiler.codegen.events import Reader, Step
from compiler.codegen.synchronise import Plan, Planned, Sync, synchronise, syncs
from compiler.isa.dtypes import Queue
from compiler.target import Chip
from passes.base import Pass


class InsertSync(Pass):
    """Orders every instruction after those whose results it reads, or whose operands it overwrites.

    Before: ``tw.ld.ddr.ub...(ub[0], ...)``, ``tw.vadd...(ub2[0], ..., ub[0], ...)``; between them, after:
    ``tw.set_flag.mte2.v(0)`` and ``tw.wait_flag.mte2.v(0)``.

    1. Two instructions conflict where they may touch a byte (on chip: a block) in common and one of them writes it.
    2. Queues that start an instruction only after the one before it has ended keep their own order; the scalar unit's
       holds for all that it dispatches. All else that conflicts needs a flag, or within a queue a ``pipe_barrier``.
    3. Every flag that is set is waited for in the same block: nothing leaks, whichever way a run takes.
    """

    name: ClassVar[str] = "insert-sync"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form", "allocated"})
    establishes: ClassVar[frozenset[str]] = frozenset({"synchronised"})

    def run(self, subject: Any, chip: Chip) -> Any:
        reader = Reader(chip)
        steps = reader.kernel(subject)
        plan = synchronise(steps, reader.events, chip.event_ids)
        return subject.with_body(_body(plan)) if any(syncs(plan)) else subject


def _body(plan: Plan) -> Any:
    statements: list[Any] = []
    for entry in plan:
        statements += _sync(entry) if isinstance(entry, Sync) else [_statement(entry)]
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def _sync(sync: Sync) -> list[Any]:
    name = ".".join(["tw", sync.mnemonic, *(Queue(queue).name.lower() for queue in sync.queues)])
    if sync.event < 0:
        return [tirx.Evaluate(tirx.call_extern("void", name))]
    if sync.slot is None:
        ids = [tirx.IntImm("int32", sync.event + slot) for slot in range(sync.slots)]
    else:
        ids = [sync.slot + sync.event if sync.event else sync.slot]
    return [tirx.Evaluate(tirx.call_extern("void", name, each)) for each in ids]


def _statement(planned: Planned) -> Any:
    """A statement with the synchronised parts in the place of its own."""
    step: Step = planned.step
    old = step.statement
    match old:
        case tirx.For():
            body = _body(planned.parts[0])
            return tirx.For(
                old.loop_var,
                old.min,
                old.extent,
                old.kind,
                body,
                old.thread_binding,
                old.annotations,
                old.step,
                old.span,
            )
        case tirx.IfThenElse():
            otherwise = _body(planned.parts[1]) if planned.parts[1] else None
            return tirx.IfThenElse(old.condition, _body(planned.parts[0]), otherwise, old.span)
        case tirx.AttrStmt():
            return tirx.AttrStmt(old.node, old.attr_key, old.value, _body(planned.parts[0]), old.span)
    return old
