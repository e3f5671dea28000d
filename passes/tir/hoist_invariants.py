"""Takes out of loops what does the same in every turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import tvm_ffi
from tvm import ir, tirx

from compiler.codegen.instruction_form import Address, Call, memory_of, physical_bytes, read_call
from compiler.isa.dtypes import Queue
from compiler.target import Chip
from compiler.tir.rewriter import Rewriter, loop_with, sequence, statements, uses
from compiler.tir.structure import structural_walk
from passes.base import Pass

SHARES = {"ub": 8, "l0a": 2}  # of a memory: the part that may be kept through loops
SHARE_OF_FRAMES = 4  # of UB, for what is not only read there
FILLED = "l0a"  # where only what reads nothing is kept


class HoistInvariants(Pass):
    """An instruction that writes the same to the same place in every turn of a loop runs once before the loop.

    for i: {g = alloc(64); ld g, gamma; ld a, x[i]; vmul a, a, g; st y[i], a}
    -> g = alloc(64); ld g, gamma
       for i: {ld a, x[i]; vmul a, a, g; st y[i], a}

    1. None of its operands depends on a variable that the loop defines.
    2. What it reads, and what decides its operands, nothing in the loop writes but what has left the loop before it.
    3. Its result is allocated in the loop, and nothing else in the loop writes there; or what does comes behind it,
       before all that reads there, and writes to the same places in every turn that the instruction runs in: what pads
       rows is written once, and rows into it. No other queue then touches it: a buffer that had to wait for one would
       want a second slot.
    4. It runs under no condition, or under one that does not change in the loop, or it may run in any case: its
       addresses depend on no variable, and what it reads on the chip was written in any case.
    5. The result lies in UB, or in L0A where it is a constant; what is kept so takes a part of these memories at most.
    """

    name: ClassVar[str] = "hoist-invariants"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    def run(self, subject: Any, chip: Chip) -> Any:
        budgets = {name: chip.memory_bytes(name) // share for name, share in SHARES.items()}
        return _Hoister(budgets, chip.memory_bytes("ub") // SHARE_OF_FRAMES).function(subject)


class _Hoister(Rewriter):
    """Inner loops first: what leaves them may leave the loops around, too."""

    def __init__(self, budget_bytes: dict[str, int], frame_bytes: int) -> None:
        super().__init__()
        self.budget_bytes = budget_bytes  # by memory
        self.frame_bytes = frame_bytes  # of UB, for what is written in the loop as well
        self.kept: set[Any] = set()  # buffers that have left a loop

    def loop(self, loop: tirx.For) -> Any | None:
        body = self.statement(loop.body)
        if body is None:
            return None
        moved = list(self._invariant(loop.loop_var, body))
        if not moved:
            return loop if body.same_as(loop.body) else loop_with(loop, body)
        instructions = [part for one in moved for part in (one.allocation, one.statement)]
        rest = _without(body, instructions)
        before = [_under(one.conditions, one.statement) for one in moved]
        return sequence([*(one.allocation for one in moved), *before, rest and loop_with(loop, rest)])

    def _invariant(self, variable: Any, body: Any) -> Iterator[_Found]:
        facts = _Facts(variable, body)
        for found in facts.instructions:
            if not facts.leaves(found):
                continue
            memory = memory_of(found.target)
            size = 0 if found.target in self.kept else physical_bytes(found.allocation)
            is_frame = facts.written[found.target] > 1
            if size > (self.frame_bytes if is_frame else self.budget_bytes[memory]):  # (5)
                continue
            if is_frame:
                self.frame_bytes -= size
            else:
                self.budget_bytes[memory] -= size
                self.kept.add(found.target)
                facts.left.add(found.target)
            if not facts.may_always_run(found):
                yield found
                continue
            if not is_frame:
                facts.always.add(found.target)
            yield replace(found, conditions=())


@dataclass(frozen=True, eq=False)
class _Found:
    """An instruction that writes one buffer which is allocated in the same loop."""

    statement: Any
    call: Call
    target: Any
    allocation: Any
    conditions: tuple[Any, ...]


class _Facts:
    """What a loop's body defines, allocates and writes."""

    def __init__(self, variable: Any, body: Any) -> None:
        self.defined = {variable}
        self.allocated: dict[Any, Any] = {}
        self.written: Counter[Any] = Counter()
        self.queues: dict[Any, set[Queue]] = {}  # that touch it
        self.read_early: set[Any] = set()  # what is written again after it was read
        self._read: set[Any] = set()
        self.left: set[Any] = set()
        self.always: set[Any] = set()  # of these, what is written in any case
        structural_walk(
            body,
            [
                (tirx.For, lambda loop: self.defined.add(loop.loop_var)),
                (tirx.Bind, lambda bind: self.defined.add(bind.var)),
                (tirx.AllocBuffer, self._allocate),
                (tirx.BufferStore, lambda store: self.written.update([store.buffer])),
                (tirx.Evaluate, self._write),
            ],
        )
        self.instructions = list(self._in(body, ()))

    def _allocate(self, statement: Any) -> None:
        self.allocated[statement.buffer] = statement

    def _write(self, statement: Any) -> None:
        call = read_call(statement)
        if call is not None:
            self.written.update(call.buffers("w"))
            self.read_early.update(self._read.intersection(call.buffers("w")))
            self._read.update([*call.buffers("r"), *call.deciding()])
            for buffer in (*call.buffers("w"), *call.buffers("r")):
                self.queues.setdefault(buffer, set()).add(call.queue)

    def _in(self, statement: Any, conditions: tuple[Any, ...]) -> Iterator[_Found]:
        for part in statements(statement):
            if isinstance(part, tirx.IfThenElse) and part.else_case is None:
                yield from self._in(part.then_case, (*conditions, part.condition))
            elif isinstance(part, tirx.Evaluate):
                call = read_call(part)
                targets = [] if call is None else call.buffers("w")
                if call is not None and len(targets) == 1 and targets[0] in self.allocated:
                    yield _Found(part, call, targets[0], self.allocated[targets[0]], conditions)

    def leaves(self, found: _Found) -> bool:
        if uses(found.statement, self.defined):  # (1)
            return False
        read = [*found.call.buffers("r"), *found.call.deciding()]
        if any(self.written[buffer] and buffer not in self.left for buffer in read):  # (2)
            return False
        if any(buffer in self.allocated and buffer not in self.left for buffer in read):
            return False
        memory = memory_of(found.target)
        if memory not in SHARES or (memory == FILLED and read):  # (5)
            return False
        if self.written[found.target] != 1 and not self._is_written_over(found):  # (3)
            return False
        changing = any(uses(condition, self.defined) or _reads(condition) for condition in found.conditions)
        return not changing or self.may_always_run(found)  # (4)

    def _is_written_over(self, found: _Found) -> bool:
        """Whether all else that is written to a frame is written to the same places in every turn that it is in."""
        at = next(number for number, one in enumerate(self.instructions) if one is found)
        others = [one for one in self.instructions[at + 1 :] if one.target.same_as(found.target)]
        if (
            found.call.buffers("r")
            or self.written[found.target] != 1 + len(others)
            or len(self.queues[found.target]) > 1
            or found.target in self.read_early
        ):
            return False
        return all(
            found.target not in one.call.buffers("r")
            and not any(uses(value, self.defined) or _reads(value) for value in _places_and_sizes(one))
            and len(one.conditions) <= len(found.conditions)
            and all(a.same_as(b) for a, b in zip(one.conditions, found.conditions, strict=False))
            for one in others
        )

    def may_always_run(self, found: _Found) -> bool:
        near = (buffer for buffer in found.call.buffers("r") if buffer.scope() != "global")
        return not found.conditions or (_anywhere(found.call) and all(buffer in self.always for buffer in near))


def _places_and_sizes(found: _Found) -> Iterator[Any]:
    """All operands of an instruction but for the addresses of what it reads."""
    for value in found.call.operands:
        if not isinstance(value, Address):
            yield value
        elif value.buffer.same_as(found.target):
            yield from (part for part in (*value.indices, value.byte_offset) if part is not None)


def _reads(node: Any) -> bool:
    return structural_walk(node, (ir.TensorLoad, lambda load: tvm_ffi.VisitInterrupt(True))) is not None


def _anywhere(call: Call) -> bool:
    """Whether an instruction may run whatever the variables are: none decides what it touches."""
    return all(
        value.byte_offset is None and all(isinstance(index, tirx.IntImm) for index in value.indices)
        if isinstance(value, Address)
        else isinstance(value, tirx.IntImm | tirx.FloatImm)
        for value in call.operands
    )


def _under(conditions: tuple[Any, ...], statement: Any) -> Any:
    for condition in reversed(conditions):
        statement = tirx.IfThenElse(condition, statement, None)
    return statement


def _without(statement: Any, gone: list[Any]) -> Any | None:
    """The statement without some of those in it."""
    if any(statement.same_as(one) for one in gone):
        return None
    if isinstance(statement, tirx.SeqStmt):
        return sequence(_without(part, gone) for part in statement.seq)
    if isinstance(statement, tirx.IfThenElse) and statement.else_case is None:
        then = _without(statement.then_case, gone)
        return then and tirx.IfThenElse(statement.condition, then, None)
    return statement
