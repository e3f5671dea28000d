"""Loops whose body is in phases that work on different turns of it.

for i in range(8):                       for i in range(9):
    phase 0: a(i)             ->             if i < 8: a(i)
    phase 1: b(i)                            if 1 <= i: b(i - 1)
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tvm import tirx

from compiler.codegen.instruction_form import PHASE, read_call
from compiler.isa.dtypes import Queue
from compiler.tir.rewriter import contains, loop_with, sequence, statements, substitute
from compiler.tir.structure import structural_map, structural_walk


def is_phase(statement: Any) -> bool:
    return isinstance(statement, tirx.AttrStmt) and statement.attr_key == PHASE


def phase_with(phase: Any, body: Any, late: Any = None) -> Any:
    """The phase with another body, or by another number of turns late."""
    return tirx.AttrStmt(phase.node, phase.attr_key, phase.value if late is None else late, body, phase.span)


def has_phases(func: Any) -> bool:
    return contains(func.body, tirx.AttrStmt, is_phase)


def with_results_later(func: Any) -> Any:
    """The kernel with results that leave the matrix unit in the turn in which the next phase needs them: what they fill
    then needs no slot more. The same where none can.
    """

    def later(block: Any) -> Any:
        parts = list(block.seq)
        for at, (part, following) in enumerate(pairwise(block.seq)):
            if is_phase(part) and is_phase(following) and _only_takes_out(part):
                parts[at] = phase_with(part, part.body, following.value)
        return block if all(new.same_as(old) for new, old in zip(parts, block.seq, strict=True)) else sequence(parts)

    return func.with_body(structural_map(func.body, (tirx.SeqStmt, later)))


def _only_takes_out(phase: Any) -> bool:
    calls: list[Any] = []
    structural_walk(phase.body, (tirx.Evaluate, lambda statement: calls.append(read_call(statement))))
    return all(call is not None and call.queue == Queue.FIX for call in calls)


def without_phases(func: Any) -> Any:
    """The kernel with every turn of its loops on its own."""

    def plain(block: Any) -> Any:
        return sequence(part.body if is_phase(part) else part for part in block.seq)

    return func.with_body(structural_map(func.body, (tirx.SeqStmt, plain)))


def in_turns(loop: Any) -> Any:
    """The loop with each phase under way in the turn that it is late by; a loop without phases as it is."""
    parts = statements(loop.body)
    phases = [part for part in parts if is_phase(part)]
    if not phases:
        return loop
    turns, most = int(loop.extent), max(int(phase.value) for phase in phases)

    def late(part: Any) -> Any:
        if not is_phase(part):
            return part
        by, conditions = int(part.value), []
        if by < most:
            conditions.append(loop.loop_var < turns + by)
        if by:
            conditions.append(loop.loop_var >= by)
        body = substitute(part.body, {loop.loop_var: loop.loop_var - by}) if by else part.body
        return tirx.IfThenElse(tirx.all(*conditions), body, None)

    return loop_with(loop, sequence(map(late, parts)), extent=tirx.IntImm("int32", turns + most))
