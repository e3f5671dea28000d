"""Lets the vector unit write over what came out of the matrix unit, once nothing else reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import tvm_ffi
from tvm import ir, tirx

from compiler.codegen.instruction_form import Call, dtype_of, memory_of, read_call, static_shape, strides_of
from compiler.isa.dtypes import Queue
from compiler.isa.table.rules import sources_overlap_wholly_or_not
from compiler.target import Chip
from compiler.tir.rewriter import sequence
from compiler.tir.structure import structural_map, structural_walk
from passes.base import Pass


class WorkInPlace(Pass):
    """An instruction whose source nobody reads afterwards writes its result there.

    s = alloc(64); p = alloc(64); fix s; vexp p, s; st p   ->   s = alloc(64); fix s; vexp s, s; st s

    What leaves the matrix unit is large, and the turn after it can bring its own the sooner, the less room one takes.

    1. The instruction may work in place, and writes the elements that it reads: same type, address and strides.
    2. Both buffers are allocated in one block of UB, in which the instruction is executed once.
    3. Whatever else touches the source comes before it, the fixpipe among them; whatever else touches the result reads
       it afterwards.
    """

    name: ClassVar[str] = "work-in-place"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    def run(self, subject: Any, chip: Chip) -> Any:
        reader = _Reader()
        reader.statement(subject.body)
        instead: dict[Any, Any] = {}
        for use in reader.uses.values():
            source = _in_place_of(use, reader.uses)
            if source is not None:
                instead[use.buffer] = instead.get(source, source)
                reader.uses[source].touches += use.touches
        return subject.with_body(_replaced(subject.body, instead)) if instead else subject


@dataclass(eq=False)
class _Use:
    """Where a buffer of UB is allocated, and what touches it, in program order."""

    buffer: Any
    block: Any
    touches: list[_Touch] = field(default_factory=list)


@dataclass(eq=False)
class _Touch:
    number: int
    loops: int  # between the allocation and this
    call: Call | None  # none: the scalar unit
    writes: bool


@dataclass
class _Reader:
    uses: dict[Any, _Use] = field(default_factory=dict)
    _count: int = 0
    _loops: int = 0
    _block: Any = None
    _loops_of: dict[Any, int] = field(default_factory=dict)

    def statement(self, statement: Any) -> None:
        self._count += 1
        match statement:
            case tirx.SeqStmt():
                outer, self._block = self._block, statement
                for part in statement.seq:
                    self.statement(part)
                self._block = outer
            case tirx.For():
                self._scalar(statement.extent)
                self._loops += 1
                self.statement(statement.body)
                self._loops -= 1
            case tirx.IfThenElse():
                self._scalar(statement.condition)
                self.statement(statement.then_case)
                if statement.else_case is not None:
                    self.statement(statement.else_case)
            case tirx.AttrStmt():
                self.statement(statement.body)
            case tirx.AllocBuffer() if memory_of(statement.buffer) == "ub":
                self.uses[statement.buffer] = _Use(statement.buffer, self._block)
                self._loops_of[statement.buffer] = self._loops
            case tirx.BufferStore():
                self._scalar(statement)
                self._touch(statement.buffer, None, writes=True)
            case tirx.Bind():
                self._scalar(statement.value)
            case tirx.Evaluate():
                self._call(statement)

    def _call(self, statement: Any) -> None:
        call = read_call(statement)
        if call is not None:
            for role in "rw":
                for buffer in call.buffers(role):
                    self._touch(buffer, call, writes=role == "w")
            for buffer in call.deciding():
                self._touch(buffer, None, writes=False)

    def _scalar(self, node: Any) -> None:
        structural_walk(node, (ir.TensorLoad, lambda load: self._touch(load.source, None, writes=False)))

    def _touch(self, buffer: Any, call: Call | None, *, writes: bool) -> None:
        if buffer in self.uses:
            loops = self._loops - self._loops_of[buffer]
            self.uses[buffer].touches.append(_Touch(self._count, loops, call, writes))


def _in_place_of(use: _Use, uses: dict[Any, _Use]) -> Any | None:
    """The buffer that the only instruction which writes this one may write instead."""
    writing = [touch for touch in use.touches if touch.writes]
    if len(writing) != 1 or writing[0].loops or writing[0].call is None:  # (2)
        return None
    (write,), call = writing, writing[0].call
    if call.queue != Queue.V or sources_overlap_wholly_or_not not in call.row.rules:  # (1)
        return None
    if any(touch.number < write.number for touch in use.touches):  # (3)
        return None
    for source in call.buffers("r"):
        other = uses.get(source)
        if other is None or other is use or other.block is None or not other.block.same_as(use.block):
            continue
        alone = all(touch.number < write.number or touch.call is call for touch in other.touches)
        filled = any(t.writes and t.call is not None and t.call.queue == Queue.FIX for t in other.touches)
        if alone and filled and _are_alike(source, use.buffer) and _writes_what_it_reads(call, source):
            return source
    return None


def _are_alike(a: Any, b: Any) -> bool:
    return (dtype_of(a), static_shape(a), strides_of(a)) == (dtype_of(b), static_shape(b), strides_of(b))


def _writes_what_it_reads(call: Call, source: Any) -> bool:
    """Whether every operand of the buffer begins at the element where the result does, with its strides."""
    rank, values = call.row.rank(call.mods), dict(zip((slot.name for slot in call.slots), call.operands, strict=True))
    views = []
    for tensor in call.row.tensors:
        address, *strides = (values[slot.name] for slot in tensor.slots(rank))
        views.append((tensor.role, address, strides))
    ((_, result, pitch),) = [view for view in views if "w" in view[0]]
    return all(
        address.byte_offset is None
        and result.byte_offset is None
        and _equal(address.indices, result.indices)
        and _equal(strides, pitch)
        for _, address, strides in views
        if address.buffer.same_as(source)
    )


def _equal(some: Any, others: Any) -> bool:
    return len(some) == len(others) and all(tvm_ffi.structural_equal(a, b) for a, b in zip(some, others, strict=True))


def _replaced(body: Any, instead: dict[Any, Any]) -> Any:
    def load(access: Any) -> Any:
        into = instead.get(access.source)
        return access if into is None else tirx.BufferLoad(into, access.indices)

    def block(seq: Any) -> Any:
        return sequence(part for part in seq.seq if not (isinstance(part, tirx.AllocBuffer) and part.buffer in instead))

    return structural_map(body, [(ir.TensorLoad, load), (tirx.SeqStmt, block)])
