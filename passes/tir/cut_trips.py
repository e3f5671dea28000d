"""Cuts the body of a loop into phases, so that several turns of it can be under way at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from tvm import ir, tirx

from compiler.codegen.instruction_form import PHASE, Call, memory_of, read_call
from compiler.codegen.phases import is_phase
from compiler.isa.dtypes import Queue
from compiler.target import Chip
from compiler.tir.rewriter import Rewriter, contains, loads, loop_with, sequence, statements
from compiler.tir.structure import structural_walk
from passes.base import Pass

ENGINES = frozenset({Queue.M, Queue.V})
LEAST_PHASES = 3  # two phases of two turns are side by side as they are: their engines have nothing else to do


class CutTrips(Pass):
    """Marks what one engine does of a turn before it needs the other, with the turns that this is late.

    for i: {scores (M); softmax (V); weigh (M); divide (V)}
    -> for i: {phase 0: scores; phase 1: softmax; phase 1: weigh; phase 2: divide}

    A queue works in the order of the program: the scores of a turn would wait until the turn before has been weighed,
    and that until its softmax is done. Where `DoubleBuffer` has room for what is then alive, it lets the phases marked
    n work on the turn that is n before the one that those marked 0 work on, and so each engine always has something
    that waits for nothing. What is marked means the same as before.

    1. The loop counts known turns from zero, and every statement of its body is of one engine at most. What is of none
       goes with the statement that follows, but results leave the matrix unit at once: behind those of a later turn
       they would come late. Those of later phases are a phase of their own, which may be later where room is short.
    2. There are three phases, or more: the first engine comes back to a turn.
    3. What is written in the loop and outlives a turn is touched by phases with one mark only, so in the same order.
    4. Where statements are of both engines, as loops over parts of a product are with what follows each part, a phase
       ends with what fills a buffer of L1, and the next one begins behind it: it takes what it multiplies from there.
    """

    name: ClassVar[str] = "cut-trips"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Cutter().function(subject)


class _Cutter(Rewriter):
    def loop(self, loop: tirx.For) -> Any | None:
        body = self.statement(loop.body)
        if body is None:
            return None
        fixed = isinstance(loop.extent, tirx.IntImm) and int(loop.extent) > 1 and loop.step is None
        if fixed and isinstance(loop.min, tirx.IntImm) and int(loop.min) == 0:
            marked = _marked(loop.loop_var, body)
            if marked is not None:
                return loop_with(loop, marked)
        return loop if body.same_as(loop.body) else loop_with(loop, body)


@dataclass
class _Phase:
    engine: Queue
    late: int  # by how many turns
    parts: list[Any] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)

    def go_on(self, parts: list[Any]) -> None:
        """With these: what was taken out before stays in front of them."""
        self.parts += [*self.results, *parts]
        self.results = []


def _marked(variable: Any, body: Any) -> Any | None:
    parts = [piece for part in statements(body) for piece in _pieces(part)]
    if any(isinstance(part, tirx.Bind | tirx.AttrStmt) for part in parts):
        return None
    allocations = [part for part in parts if isinstance(part, tirx.AllocBuffer)]
    own = {statement.buffer for statement in allocations}
    phases = _phases_of([part for part in parts if not isinstance(part, tirx.AllocBuffer)], own)
    if not phases or not _in_order(phases, own):
        return None
    marks = [
        tirx.AttrStmt(variable, PHASE, tirx.IntImm("int32", phase.late), sequence(body))
        for phase in phases
        for body in (phase.parts, phase.results)
        if body
    ]
    return sequence([*allocations, *marks])


def _phases_of(parts: list[Any], own: set[Any]) -> list[_Phase]:
    phases = _phases(parts)
    if phases is None:
        return _relayed(parts, own)
    return phases if len(phases) >= LEAST_PHASES else []  # (2)


def _phases(parts: list[Any]) -> list[_Phase] | None:
    """Condition 1; None where a statement is of both engines."""
    phases: list[_Phase] = []
    waiting: list[Any] = []  # for the statement that they go with
    for part in parts:
        queues = {call.queue for call in _calls(part)}
        engines = queues & ENGINES
        if len(engines) > 1:
            return None
        if not engines and phases and phases[-1].engine == Queue.M and queues == {Queue.FIX}:
            results = phases[-1].parts if len(phases) == 1 else phases[-1].results
            results += [*waiting, part]
            waiting = []
        elif not engines:
            waiting.append(part)
        else:
            (engine,) = engines
            if not phases or phases[-1].engine != engine:
                phases.append(_Phase(engine, (len(phases) + 1) // 2))
            phases[-1].go_on([*waiting, part])
            waiting = []
    if phases and waiting:
        phases[-1].go_on(waiting)
    return phases


def _relayed(parts: list[Any], own: set[Any]) -> list[_Phase]:
    """Condition 4: products that make what later ones read, and these."""
    if any(contains(part, tirx.AttrStmt, is_phase) for part in parts):
        return []
    calls = [_calls(part) for part in parts]
    written, read = dict[Any, int](), dict[Any, int]()  # buffers of L1: the last part that fills, the first that reads
    for at, each in enumerate(calls):
        for call in each:
            if call.queue == Queue.MTE3:
                written |= {buffer: at for buffer in call.buffers("w") if buffer in own and memory_of(buffer) == "l1"}
            elif call.queue == Queue.MTE1:
                read |= {buffer: at for buffer in call.buffers("r") if buffer not in read}
    ends = sorted({last + 1 for buffer, last in written.items() if read.get(buffer, 0) > last})
    bounds = pairwise([0, *ends, len(parts)])
    phases = [_Phase(Queue.M, late, parts[begin:end]) for late, (begin, end) in enumerate(bounds)]
    multiplies = all(any(call.queue == Queue.M for part in phase.parts for call in _calls(part)) for phase in phases)
    return phases if multiplies and len(phases) > 1 else []


def _pieces(part: Any) -> Iterator[Any]:
    """A statement; one of two engines under a condition as several, behind what is allocated there."""
    mixed = isinstance(part, tirx.IfThenElse) and part.else_case is None and not loads(part.condition)
    inner = statements(part.then_case) if mixed else []
    mixed = mixed and len({call.queue for call in _calls(part)} & ENGINES) > 1
    if not mixed or any(isinstance(one, tirx.Bind) for one in inner):
        yield part
        return
    for one in inner:
        if isinstance(one, tirx.AllocBuffer):
            yield one
        else:
            yield tirx.IfThenElse(part.condition, one, None)


def _in_order(phases: list[_Phase], own: set[Any]) -> bool:
    """Condition 3."""
    touched: dict[Any, set[int]] = {}
    written: set[Any] = set()
    for phase in phases:
        for part in (*phase.parts, *phase.results):
            inner = {statement.buffer for statement in _all(part, tirx.AllocBuffer)}
            for buffer in {access.source for access in _all(part, ir.TensorLoad)} - inner:
                touched.setdefault(buffer, set()).add(phase.late)
            for store in _all(part, tirx.BufferStore):
                touched.setdefault(store.buffer, set()).add(phase.late)
                written.add(store.buffer)
            for call in _calls(part):
                written.update(call.buffers("w"))
    return all(len(turns) == 1 or buffer in own for buffer, turns in touched.items() if buffer in written)


def _all(node: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(node, (kind, found.append))
    return found


def _calls(node: Any) -> list[Call]:
    return [call for call in map(read_call, _all(node, tirx.Evaluate)) if call is not None]
