"""Gives buffers between queues several slots: one queue fills the next while another works on the last."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from math import ceil
from typing import Any, ClassVar

from tvm import ir, tirx
from tvm.ir.expr import TensorLoad

from compiler.codegen.events import Reader
from compiler.codegen.instruction_form import (
    BYTES,
    SLOTS,
    Address,
    dtype_of,
    memory_of,
    physical_bytes,
    read_call,
    static_shape,
    strides_of,
)
from compiler.codegen.lifetimes import alignment, packed
from compiler.codegen.memory import free_bytes
from compiler.codegen.phases import has_phases, in_turns, is_phase, phase_with, with_results_later, without_phases
from compiler.codegen.rings import OutOfIds, Rings, executions_at_once, fills, find_rings
from compiler.isa.dtypes import DTYPES, SHARED_MEMORIES, Queue
from compiler.target import Chip
from compiler.tir.rewriter import loop_with, sequence, statements
from compiler.tir.structure import structural_map, structural_walk
from passes.base import Pass

OPERANDS = ("l0a", "l0b")  # where a product has rings of its own


@dataclass(frozen=True)
class DoubleBuffer(Pass):
    """Makes rings of buffers that live in the body of a loop and cross queues.

    Before: ``for i in range(8): x = alloc(64); load x; work on x``; after: ``x = alloc(2, 64)`` in front of the
    outermost loop, and in the body ``slot = i % 2; load x[slot]; work on x[slot]``.

    1. Contents of a buffer that is allocated in a block die with the execution of the block: any slot will do, if it
       is the same throughout one execution. The scalar unit, whose reads no flag delays, touches none of them.
    2. Slots are taken in turn by the count of executions over all loops around the block, as far as extents are known;
       where they are not, executions that follow one another may share a slot, which is slower and never wrong.
    3. A block pays off that is executed ``least_turns`` times. A slot more than two pays off where a copy takes long to
       arrive: by more than one ``latency_share`` of the time in which it fills a slot. There, where a slot is stored,
       and where more than two queues hold it one after another, there are as many as executions of the block are under
       way at once, at the pace of the busiest queue; but no more than three where loops in a row would share flags for
       them, and wait for one another, or where all turns would load at once.
    4. All rings together fit the memory and the chip's flags. Where they do not, the block with most slots gives up
       one, and of several the one that is executed least: with few turns, little is hidden. Slots that phases need
       are given up last. Where products follow one another in a loop, all rings of each may live beside it alone
       before that: then they have memory and flags in turn, and a product begins when the one before it has ended. Of
       a product that is a phase, only those of its operands do, since others work on what it leaves meanwhile.
    5. Where a loop is cut into phases (`CutTrips`) and there are slots enough for what crosses them, they work on
       different turns: ``for i: {phase 0: a; phase 1: b}`` becomes ``for i + 1 turns: {a of i; b of i - 1}``, each
       under the condition that there is such a turn. They are not worth it that a product waits for its operands in
       every step, for want of a second slot of them.
    """

    name: ClassVar[str] = "double-buffer"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    least_turns: int = 2
    most_slots: int = 4
    latency_share: int = 10

    def run(self, subject: Any, chip: Chip) -> Any:
        if has_phases(subject):
            for kernel in (subject, with_results_later(subject)):
                in_phases = self._with_rings(kernel, chip)
                if in_phases is not None:
                    return in_phases
            subject = without_phases(subject)
        return self._with_rings(subject, chip)

    def _with_rings(self, subject: Any, chip: Chip) -> Any | None:
        """None where phases lack slots, or products do, which gain more by these than by phases."""
        found = _Finder(chip)
        found.statement(subject.body)
        blocks = [block for block in found.blocks() if block.turns >= self.least_turns]
        if not blocks:
            return subject
        for block in blocks:
            block.slots = max(2, block.least)
        if any(Queue.S in local.queues for block in blocks if block.least > 1 for local in block.buffers):
            return None
        tried = dict[tuple[int, ...], tuple[_Rings, Rings] | set[str]]()
        written, rings = _fitting(subject, blocks, chip, tried)
        if any(block.slots < block.least for block in blocks) or (has_phases(subject) and _alone(blocks)):
            return None
        wanted = {block: self._slots_for(block, written, rings) for block in blocks if block.slots == 2}
        apart = _apart(rings)
        for most in range(self.most_slots, 2, -1):
            for block, slots in wanted.items():
                block.slots = min(slots, most)
            written, rings = _fitting(subject, blocks, chip, tried)
            if _apart(rings) >= apart:
                break
        return written.func if written.allocations else subject

    def _slots_for(self, block: _Block, written: _Rings, rings: Rings) -> int:
        """As many as pay off (condition 3)."""
        ring = rings.of_buffer[written.ring_of(block.buffers[0])]
        late = any(
            fill.latency_cycles * self.latency_share > fill.cycles
            for queue, fill in fills(ring).items()
            if any(queue in local.writers for local in block.buffers)
        )
        queues = block.buffers[0].queues
        wanted = ceil(executions_at_once(ring)) if late or Queue.MTE3 in queues or len(queues) > 2 else 2
        most = self.most_slots if block.turns > self.most_slots else 3
        return min(max(3 if late else 2, wanted), most, block.turns)


def _alone(blocks: list[_Block]) -> bool:
    """Whether a product waits for its operands in every step, for want of a second slot."""
    return any(block.slots == 1 and any(local.memory == OPERANDS[0] for local in block.buffers) for block in blocks)


def _apart(rings: Rings) -> int:
    """How many loops wait for nothing that loops before them did, each counted for every pair of queues."""
    return sum(map(len, rings.apart.values()))


def _fitting(
    func: Any, blocks: list[_Block], chip: Chip, tried: dict[tuple[int, ...], tuple[_Rings, Rings] | set[str]]
) -> tuple[_Rings, Rings]:
    """The kernel with rings of the blocks, whose slots are made fewer until everything fits (condition 4).

    ``tried``: what became of each choice of slots, so that none is written twice.
    """
    while True:
        slots = tuple(block.slots for block in blocks)
        if slots not in tried:
            tried[slots] = _with_slots(func, blocks, chip)
        found = tried[slots]
        if isinstance(found, tuple):
            return found
        excess, several = found, [block for block in blocks if block.slots > 1]
        if not several:
            return _Rings(func, blocks), Rings({}, {})
        worst = [block for block in several if any(local.memory in excess for local in block.buffers)]
        least = min(worst or several, key=lambda block: (block.slots <= block.least, -block.slots, block.turns))
        least.slots -= 1


def _with_slots(func: Any, blocks: list[_Block], chip: Chip) -> tuple[_Rings, Rings] | set[str]:
    """The kernel with rings of the blocks; or the memories that it does not fit, none where there are too few flags."""
    written = _Rings(func, blocks)
    found = _checked(written, chip)
    if written.has_products and not isinstance(found, tuple):
        found = _checked(_Rings(func, blocks, apart=True), chip)
    return found


def _checked(written: _Rings, chip: Chip) -> tuple[_Rings, Rings] | set[str]:
    excess = _overflows(written.func, chip)
    if excess:
        return excess
    try:
        return written, find_rings(Reader(chip, placed=False).kernel(written.func), chip.event_ids)
    except OutOfIds:
        return set()


def _overflows(func: Any, chip: Chip) -> set[str]:
    return {memory for memory, _, _, needed in packed(func, chip) if needed > free_bytes(memory, chip)}


# ---- what may become rings --------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Local:
    """A buffer that is allocated in a block, and who touches it."""

    statement: Any
    around: tuple[Any, ...]  # the blocks around it, ``None`` for each loop
    chip: Chip
    queues: set[Queue] = field(default_factory=set)
    writers: set[Queue] = field(default_factory=set)
    late: set[int] = field(default_factory=set)  # of the phases that touch it, where it lives in a turn of several
    _inner: list[Any] = field(default_factory=list)  # from its own block to the innermost that holds all touches
    _rings: dict[int, Any] = field(default_factory=dict)  # by slots

    def touch(self, queue: Queue, path: tuple[Any, ...], phase: tuple[Any, int] | None, *, writes: bool) -> None:
        inner = [*takewhile(lambda block: block is not None, path[len(self.around) - 1 :])]
        if not self.queues:
            self._inner = inner
        shared = zip(self._inner, inner, strict=False)
        self._inner = [mine for mine, _ in takewhile(lambda both: both[0].same_as(both[1]), shared)]
        self.queues.add(queue)
        if writes:
            self.writers.add(queue)
        if phase is not None and phase[0].same_as(self.around[-1]):
            self.late.add(phase[1])

    @property
    def block(self) -> Any:
        """The innermost block that holds all touches, with no loop between it and the allocation."""
        return self._inner[-1] if self._inner else self.around[-1]

    @property
    def crosses(self) -> bool:
        return len(self.queues) > 1 and Queue.S not in self.queues

    @property
    def least(self) -> int:
        """Slots without which phases cannot work on different turns."""
        return max(self.late) - min(self.late) + 1 if self.late else 1

    @property
    def memory(self) -> str:
        return memory_of(self.statement.buffer)

    def ring(self, slots: int) -> Any:
        """The allocation of all slots, the same whenever it is asked for."""
        if slots not in self._rings:
            self._rings[slots] = self._ring(slots)
        return self._rings[slots]

    def _ring(self, slots: int) -> Any:
        buffer, itemsize = self.statement.buffer, DTYPES[dtype_of(self.statement.buffer)].itemsize
        unit = alignment(self.memory, self.chip)
        slot_bytes = -(-physical_bytes(self.statement) // unit) * unit
        strides = (slot_bytes // itemsize, *strides_of(buffer))
        shape = (slots, *static_shape(buffer))
        ring = tirx.decl_buffer(shape, buffer.dtype, buffer.name, strides=strides, scope=buffer.scope(), layout=None)
        counts = {BYTES: slots * slot_bytes, SLOTS: slots}
        noted = {name: tirx.IntImm("int32", count) for name, count in counts.items()}
        return tirx.AllocBuffer(ring, {**dict(self.statement.annotations), **noted}, self.statement.span)


@dataclass(eq=False)
class _Block:
    """A block within loops, and the buffers that live in it and cross queues."""

    statement: Any
    loops: tuple[Any, ...]
    buffers: list[_Local] = field(default_factory=list)
    slots: int = 1
    least: int = 1

    @property
    def turns(self) -> int:
        """How often it is executed, as far as extents are known."""
        turns = 1
        for loop in self.loops:
            turns *= _trips(loop) or 2
        return turns

    def turn(self) -> Any:
        """The count of executions before this one."""
        count: Any = tirx.IntImm("int32", 0)
        for loop in self.loops:
            step = 1 if loop.step is None else int(loop.step)
            passed = tirx.floordiv(loop.loop_var - loop.min, step) if step > 1 else loop.loop_var - loop.min
            count = count * (_trips(loop) or 1) + passed
        return count


def _trips(loop: Any) -> int | None:
    if not isinstance(loop.extent, tirx.IntImm):
        return None
    return -(-int(loop.extent) // (1 if loop.step is None else int(loop.step)))


class _Finder:
    """Finds who touches the buffers that are allocated within loops."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.locals: dict[Any, _Local] = {}
        self._loops: tuple[Any, ...] = ()
        self._path: tuple[Any, ...] = ()
        self._phase: tuple[Any, int] | None = None  # the block of all phases, and by how many turns this one is late
        self._loops_of: dict[Any, tuple[Any, ...]] = {}  # by block

    def blocks(self) -> list[_Block]:
        found: dict[Any, _Block] = {}
        for local in self.locals.values():
            if local.crosses or local.least > 1:
                key = local.block, frozenset(local.queues), local.least
                block = _Block(local.block, self._loops_of[local.block], least=local.least)
                found.setdefault(key, block).buffers.append(local)
        return list(found.values())

    def statement(self, statement: Any) -> None:
        match statement:
            case tirx.SeqStmt():
                self._sequence(statement)
            case tirx.For():
                self._scalar(statement.extent)
                loops, path = self._loops, self._path
                self._loops, self._path = (*loops, statement), (*path, None)
                self.statement(statement.body)
                self._loops, self._path = loops, path
            case tirx.IfThenElse():
                self._scalar(statement.condition)
                self.statement(statement.then_case)
                if statement.else_case is not None:
                    self.statement(statement.else_case)
            case tirx.AttrStmt():
                outer = self._phase
                if is_phase(statement):
                    self._phase = self._path[-1], int(statement.value)
                self.statement(statement.body)
                self._phase = outer
            case tirx.AllocBuffer():
                if self._loops and memory_of(statement.buffer) not in SHARED_MEMORIES:
                    self.locals[statement.buffer] = _Local(statement, self._path, self.chip)
            case tirx.Bind():
                self._scalar(statement.value)
            case tirx.BufferStore():
                self._touch(statement.buffer, Queue.S)
                self._scalar(statement.value, *statement.indices)
            case tirx.Evaluate():
                self._call(statement)

    def _sequence(self, sequence: Any) -> None:
        self._loops_of[sequence] = self._loops
        outer, self._path = self._path, (*self._path, sequence)
        for part in sequence.seq:
            self.statement(part)
        self._path = outer

    def _call(self, statement: Any) -> None:
        call = read_call(statement)
        if call is None:
            return
        addresses = [value for value in call.operands if isinstance(value, Address)]
        self._scalar(*(value for value in call.operands if not isinstance(value, Address)))
        for tensor, address in zip(call.row.tensors, addresses, strict=True):
            self._touch(address.buffer, call.queue, writes="w" in tensor.role)
            self._scalar(*address.indices, *(() if address.byte_offset is None else (address.byte_offset,)))

    def _scalar(self, *expressions: Any) -> None:
        for expression in expressions:
            if not isinstance(expression, tirx.IntImm | tirx.FloatImm | tirx.Var):
                structural_walk(expression, (TensorLoad, lambda load: self._touch(load.source, Queue.S)))

    def _touch(self, buffer: Any, queue: Queue, *, writes: bool = False) -> None:
        if buffer in self.locals:
            self.locals[buffer].touch(queue, self._path, self._phase, writes=writes)


# ---- the rewrite ------------------------------------------------------------------------------------------------


class _Rings:
    """Writes the kernel down with the rings of some blocks."""

    def __init__(self, func: Any, blocks: list[_Block], *, apart: bool = False) -> None:
        self._apart, self.has_products = apart, False
        self._blocks: dict[Any, list[_Block]] = {}
        self.allocations: dict[Any, Any] = {}  # of rings, by the buffer that there was
        for block in blocks:
            if block.slots > 1:
                self._blocks.setdefault(block.statement, []).append(block)
                self.allocations |= {local.statement.buffer: local.ring(block.slots) for local in block.buffers}
        self._hoisted: list[Any] = []
        self.func = func.with_body(self._statement(func.body))

    def ring_of(self, local: _Local) -> Any:
        """The buffer of the ring that a buffer became."""
        return self.allocations[local.statement.buffer].buffer

    def _statement(self, statement: Any, loops: int = 0) -> Any:
        match statement:
            case tirx.SeqStmt():
                return self._sequence(statement, loops)
            case tirx.For():
                loop = in_turns(loop_with(statement, self._statement(statement.body, loops + 1)))
                if loops:
                    return loop
                hoisted, self._hoisted = self._hoisted, []
                return sequence([*hoisted, loop])
            case tirx.IfThenElse():
                otherwise = None if statement.else_case is None else self._statement(statement.else_case, loops)
                then = self._statement(statement.then_case, loops)
                return tirx.IfThenElse(statement.condition, then, otherwise, statement.span)
            case tirx.AttrStmt():
                body = self._statement(statement.body, loops)
                return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body, statement.span)
            case tirx.AllocBuffer() if statement.buffer in self.allocations:
                self._hoisted.append(self.allocations[statement.buffer])
                return None
        return statement

    def _sequence(self, block: Any, loops: int) -> Any:
        parts = self._parts(block, loops)
        if block not in self._blocks:
            return sequence(parts)
        if any(is_phase(part) for part in parts if part is not None):
            return sequence(self._in_phase(part, self._blocks[block]) for part in parts)
        count = {ring.slots: tirx.Var("slot", "int32") for ring in self._blocks[block]}
        bindings = [
            tirx.Bind(slot, tirx.floormod(self._blocks[block][0].turn(), slots)) for slots, slot in count.items()
        ]
        here = {
            local.statement.buffer: (self.ring_of(local), count[ring.slots])
            for ring in self._blocks[block]
            for local in ring.buffers
        }
        return sequence([*bindings, *(_on_slots(part, here) for part in parts if part is not None)])

    def _parts(self, block: Any, loops: int) -> list[Any]:
        """Of a block; where products follow one another in it, rings of each stand in front of it, if ``apart``."""
        outer, parts, hoisted = self._hoisted, list[Any](), list[list[Any]]()
        for part in block.seq:
            self._hoisted = []
            parts.append(self._statement(part, loops))
            hoisted.append(self._hoisted)
        self._hoisted = outer
        products = [
            at
            for at, rings in enumerate(hoisted)
            if parts[at] is not None and any(memory_of(ring.buffer) == OPERANDS[0] for ring in rings)
        ]
        # Where what lies between products is a phase of its own, it is they that are short of room, not their operands.
        each = all(at in products for at, part in enumerate(parts) if part is not None and is_phase(part))
        several = loops > 0 and len(products) > 1 and each
        self.has_products |= several
        for at, rings in enumerate(hoisted):
            part = parts[at]
            if not (several and self._apart and at in products):
                self._hoisted += rings
            elif is_phase(part):  # what it leaves is worked on while the products of others run
                self._hoisted += [ring for ring in rings if memory_of(ring.buffer) not in OPERANDS]
                own = [ring for ring in rings if memory_of(ring.buffer) in OPERANDS]
                parts[at] = phase_with(part, sequence([*own, part.body]))
            else:
                parts[at] = sequence([*rings, part])
        return parts

    def _in_phase(self, part: Any, rings: list[_Block]) -> Any:
        """A phase on slots, each bound for one ring: what two phases work on is in different slots."""
        if part is None or not is_phase(part):
            return part
        used: set[Any] = set()
        structural_walk(part, (TensorLoad, lambda load: used.add(load.source)))
        bindings, here = [], {}
        for ring in rings:
            for buffer in (local.statement.buffer for local in ring.buffers):
                if buffer in used:
                    slot = tirx.Var("slot", "int32")
                    bindings.append(tirx.Bind(slot, tirx.floormod(ring.turn(), ring.slots)))
                    here[buffer] = self.allocations[buffer].buffer, slot
        body = sequence([*bindings, *(_on_slots(each, here) for each in statements(part.body))])
        return phase_with(part, body)


def _on_slots(statement: Any, rings: dict[Any, tuple[Any, Any]]) -> Any:
    """The statement on one slot of each ring."""

    def load(access: Any) -> Any:
        if access.source not in rings:
            return access
        ring, slot = rings[access.source]
        return tirx.BufferLoad(ring, [slot, *access.indices])

    return structural_map(statement, (ir.TensorLoad, load))
