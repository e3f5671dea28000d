"""What the scalar unit gives to which queue when it comes to a statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tvm import tirx

from compiler.codegen.instruction_form import Call, read_call
from compiler.isa.dtypes import Queue
from compiler.tir.rewriter import contains, loads
from compiler.tir.structure import structural_walk


def calls(stmt: Any) -> Iterator[Call]:
    found: list[Any] = []
    structural_walk(stmt, (tirx.Evaluate, found.append))
    return (call for call in map(read_call, found) if call is not None)


def queues(stmt: Any) -> set[Queue]:
    return {call.queue for call in calls(stmt)}


def reads_data(stmt: Any) -> bool:
    """Whether the scalar unit has to read memory for it."""
    return (
        any(call.deciding() for call in calls(stmt))
        or contains(stmt, tirx.For, lambda loop: loads(loop.extent))
        or contains(stmt, tirx.IfThenElse, lambda branch: loads(branch.condition))
    )


def entries(parts: Iterable[Any]) -> Counter[Queue]:
    """What each queue is given at most, one turn of a loop being one where the extent is unknown."""
    total: Counter[Queue] = Counter()

    def count(stmt: Any, times: int) -> None:
        match stmt:
            case tirx.SeqStmt():
                for part in stmt.seq:
                    count(part, times)
            case tirx.For():
                count(stmt.body, times * (int(stmt.extent) if isinstance(stmt.extent, tirx.IntImm) else 1))
            case tirx.IfThenElse():
                count(stmt.then_case, times)
                if stmt.else_case is not None:
                    count(stmt.else_case, times)
            case tirx.AttrStmt():
                count(stmt.body, times)
            case tirx.Evaluate():
                for call in calls(stmt):
                    total[call.queue] += times

    for part in parts:
        count(part, 1)
    return total
