"""A kernel as what happens in its queues: every instruction and scalar access with the bytes that it may touch.

This is all that synchronisation knows of a kernel; where flags go is up to who reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import inf
from typing import Any, NamedTuple

from tvm import tirx
from tvm.ir.expr import TensorLoad

from compiler.codegen.footprint import Access, Affine, LoopRange, Ranges, Turn
from compiler.codegen.instruction_form import (
    ADDRESS,
    SLOTS,
    Address,
    Call,
    dense_bytes,
    dtype_of,
    memory_of,
    physical_bytes,
    read_call,
    refuse,
)
from compiler.isa.dtypes import DTYPES, SHARED_MEMORIES, Queue
from compiler.isa.model import Args, Instr, Tensor, View, bind
from compiler.isa.table import by_mnemonic
from compiler.isa.timing import contiguous_run
from compiler.target import Chip
from compiler.tir.structure import structural_walk

_PLAIN = (tirx.IntImm, tirx.Var)  # reads nothing
BETWEEN_CORES = ("cross_set", "cross_wait")
_BOUNDS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And)


@dataclass(eq=False)
class Event:
    """What one statement does in one queue, within ``loops`` (outermost first)."""

    number: int
    queue: Queue
    accesses: tuple[Access, ...]
    loops: tuple[LoopRange, ...]
    args: Args | None = None  # of an instruction, with the greatest extents, as if all addresses were zero
    first_of: frozenset[LoopRange] = frozenset()  # loops in whose first iteration alone it happens

    def conflicts(self, earlier: Event, level: int) -> bool:
        """Whether it may touch what an instance of ``earlier`` touched that ran before it.

        Of the loops around both, those before ``level`` are in the same iteration, the one at ``level`` was in an
        earlier one, and those behind it in any. Without one at ``level`` all of them are in the same.
        """
        shared = self.common_loops(earlier)
        if level >= shared and earlier is self:
            return False
        if level < shared and self.loops[level] in self.first_of:
            return False
        loops = {
            loop: "same" if at < level else "earlier" if at == level else "any"
            for at, loop in enumerate(self.loops[:shared])
        }
        return any(_meets(mine, other, loops, level) for mine in self.accesses for other in earlier.accesses)

    def common_loops(self, other: Event) -> int:
        count = 0
        for mine, others in zip(self.loops, other.loops, strict=False):
            if mine is not others:
                break
            count += 1
        return count


def _meets(access: Access, earlier: Access, loops: dict[LoopRange, str], level: int) -> bool:
    """Whether an access may touch what an earlier one did; executions that share a ring are kept apart by its flags."""
    turn = access.turn
    if turn is None or access.ring is not earlier.ring:
        return access.meets(earlier, loops)
    if turn is not earlier.turn or level < turn.depth or access.phase != earlier.phase:
        return False
    return access.meets(earlier, {**loops, turn.slot: "same"})


@dataclass(frozen=True)
class Signal:
    """A synchronising instruction as a kernel has it: its queues, and the flag's id or the id of slot zero."""

    mnemonic: str
    queues: tuple[Queue, ...]
    event: int = -1
    slot: Any = None  # the variable that is added to the id


@dataclass(eq=False)
class Step:
    """A statement and what it does, in order; ``parts`` are what it holds: a loop's body, both sides of a branch."""

    statement: Any
    events: tuple[Event, ...] = ()
    parts: tuple[tuple[Step, ...], ...] = ()
    loop: LoopRange | None = None
    least_trips: int = 0  # how often a loop runs at least
    guards: bool = False  # whether it is a branch that is taken but at the edges: a bound that is kept
    turn: Turn | None = None  # of the block's executions, where the statement says which slot of rings they work on
    signal: Signal | None = None

    @cached_property
    def inside(self) -> tuple[Event, ...]:
        """All events of the statement and of what it holds."""
        return (*self.events, *(event for part in self.parts for step in part for event in step.inside))

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """Of all blocks that the statement holds."""
        own = ((*(() if step.turn is None else (step.turn,)), *step.turns) for part in self.parts for step in part)
        return tuple(dict.fromkeys(turn for turns in own for turn in turns))


def _signal(call: Call) -> Signal:
    queues = tuple(Queue[name.upper()] for name in call.mods)
    if not call.operands:
        return Signal(call.row.mnemonic, queues)
    (number,) = call.operands
    match number:
        case tirx.IntImm():
            return Signal(call.row.mnemonic, queues, int(number))
        case tirx.Add():
            return Signal(call.row.mnemonic, queues, int(number.b), number.a)
    return Signal(call.row.mnemonic, queues, 0, number)


def _rows(view: View) -> tuple[int, int] | None:
    """Bytes from row to row and of a row, where a view is rows at one distance with something between them."""
    length, outer = contiguous_run(view)
    if not outer:
        return None
    pitch = outer[-1][1]
    return (pitch, length) if length < pitch and not any(stride % pitch for _, stride in outer) else None


class _Watched(Args):
    """Operands that note which of them are looked at."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            vars(self)["_seen"].add(name)
        return super().__getattribute__(name)


def _deciding_strides(tensor: Tensor, rank: int, args: Args, open_slots: set[str]) -> set[str]:
    """The slots on which the strides of an operand depend, at least those that are open."""
    if tensor.strides is None:
        return {slot.name for slot in tensor.slots(rank)[1:]}
    if not callable(tensor.strides):
        return open_slots
    seen: set[str] = set()
    tensor.strides(_Watched(**vars(args), _seen=seen))
    return open_slots if seen & {"shape", "views", "view"} else {s for s in open_slots if s.replace(".", "_") in seen}


@lru_cache(maxsize=1 << 13)  # rivals for one kernel have many in common, and each is read several times
def _resolved(mnemonic: str, mods: tuple[str, ...], values: tuple[int, ...], chip: Chip) -> Args:
    return bind(Instr(by_mnemonic()[mnemonic], mods, values), values, chip)


class _Room(NamedTuple):
    """Where a buffer lies: in a memory of the core, or in a place of its own in DDR."""

    place: str | int
    start: int
    size: int
    blocks: bool = False  # whether the hardware keeps its bytes apart by blocks only
    slots: int = 0  # of a ring


@dataclass
class Reader:
    """Walks a kernel once. One whose buffers are not ``placed`` yet is read as if none of them shared bytes."""

    chip: Chip
    placed: bool = True
    synchronised: bool = False  # whether the kernel has flags already
    ranges: Ranges = field(default_factory=Ranges)
    events: list[Event] = field(default_factory=list)
    _loops: tuple[LoopRange, ...] = ()
    _first_of: frozenset[LoopRange] = frozenset()
    _buffers: dict[Any, _Room] = field(default_factory=dict)
    _bound: dict[Any, tuple[Step, int]] = field(default_factory=dict)  # where a variable is, within how many loops
    _turns: dict[Any, Turn] = field(default_factory=dict)  # of rings

    def kernel(self, func: Any) -> tuple[Step, ...]:
        for parameter in func.params:
            self._buffers[parameter] = _Room(len(self._buffers), 0, dense_bytes(parameter))
        return self._block(func.body)

    # ---- statements

    def _block(self, statement: Any) -> tuple[Step, ...]:
        if isinstance(statement, tirx.SeqStmt):
            return tuple(step for part in statement.seq for step in self._block(part))
        return (self._step(statement),)

    def _step(self, statement: Any) -> Step:
        if type(statement) is tirx.Evaluate:  # most statements are instructions
            return self._instruction(statement)
        match statement:
            case tirx.For():
                return self._loop(statement)
            case tirx.IfThenElse():
                events = self._loads(statement.condition)
                otherwise = () if statement.else_case is None else self._block(statement.else_case)
                guards = statement.else_case is None and isinstance(statement.condition, _BOUNDS)
                outer, self._first_of = self._first_of, self._first_of | self._begins(statement.condition)
                then = self._block(statement.then_case)
                self._first_of = outer
                return Step(statement, events, (then, otherwise), guards=guards)
            case tirx.AttrStmt():
                if statement.attr_key == "thread_extent":
                    core = LoopRange(int(statement.value), repeated=False)
                    self.ranges.variables[statement.node.var] = Affine({core: 1})
                return Step(statement, (), (self._block(statement.body),))
            case tirx.AllocBuffer():
                self._allocate(statement)
            case tirx.Bind():
                return self._variable(statement)
            case tirx.BufferStore():
                return Step(statement, (*self._loads(statement.value, *statement.indices), self._store(statement)))
        return Step(statement)

    def _allocate(self, statement: Any) -> None:
        memory = memory_of(statement.buffer)
        if self.placed and memory not in SHARED_MEMORIES and ADDRESS not in statement.annotations:
            raise refuse(f"buffer `{statement.buffer.name}` in {memory} has no address: allocate memory first")
        address = int(statement.annotations.get(ADDRESS, 0))
        place = memory if self.placed and memory not in SHARED_MEMORIES else len(self._buffers)
        blocks, slots = memory not in SHARED_MEMORIES, int(statement.annotations.get(SLOTS, 0))
        self._buffers[statement.buffer] = _Room(place, address, physical_bytes(statement), blocks, slots)

    def _variable(self, statement: Any) -> Step:
        step = Step(statement, self._loads(statement.value))
        if "int" in str(statement.value.ty.dtype):
            self.ranges.variables[statement.var] = self.ranges.read(statement.value)
            self._bound[statement.var] = step, len(self._loops)
        return step

    def _loop(self, statement: Any) -> Step:
        events = self._loads(statement.extent, statement.min)
        trips = self.ranges.read(statement.extent).bounds()
        step = 1 if statement.step is None else int(statement.step)
        loop = LoopRange(-(-max(trips[1], 0) // step))
        self.ranges.variables[statement.loop_var] = self.ranges.read(statement.min).plus(Affine({loop: step}))
        outer, self._loops = self._loops, (*self._loops, loop)
        body = self._block(statement.body)
        self._loops = outer
        return Step(statement, events, (body,), loop, 1 if trips[0] >= 1 else 0)

    # ---- events

    def _begins(self, condition: Any) -> frozenset[LoopRange]:
        """The loops that a condition holds to their first iteration."""
        if isinstance(condition, tirx.And):
            return self._begins(condition.a) | self._begins(condition.b)
        if not isinstance(condition, tirx.EQ) or not isinstance(condition.a, tirx.Var):
            return frozenset()
        value, other = self.ranges.read(condition.a), self.ranges.read(condition.b)
        bare = value.constant == 0 and value.low == value.high == 0 and len(value.terms) == 1
        if not bare or other.exact != 0:
            return frozenset()
        return frozenset(value.terms).intersection(self._loops)

    def _event(self, queue: Queue, accesses: list[Access], args: Args | None = None) -> Event:
        event = Event(len(self.events), queue, tuple(accesses), self._loops, args, self._first_of)
        self.events.append(event)
        return event

    def _loads(self, *expressions: Any) -> tuple[Event, ...]:
        """What the scalar unit reads to work out expressions."""
        loads: list[Any] = []
        for expression in expressions:
            if not isinstance(expression, _PLAIN):
                structural_walk(expression, (TensorLoad, loads.append))
        accesses = [self._element(load.source, tuple(load.indices), writes=False) for load in loads]
        return (self._event(Queue.S, accesses),) if accesses else ()

    def _store(self, statement: Any) -> Event:
        return self._event(Queue.S, [self._element(statement.buffer, tuple(statement.indices), writes=True)])

    def _element(self, buffer: Any, indices: tuple[Any, ...], *, writes: bool) -> Access:
        size = DTYPES[dtype_of(buffer)].itemsize
        return self._access(Address(buffer, indices), 0, size, reads=not writes, writes=writes)

    def _instruction(self, statement: Any) -> Step:
        call = read_call(statement)
        if call is None:
            return Step(statement)
        if call.row.category == "sync" and call.row.kind not in BETWEEN_CORES:
            if not self.synchronised:
                raise refuse("it is synchronised already", statement)
            return Step(statement, signal=_signal(call))
        integers = [value for value in call.operands if not isinstance(value, Address | tirx.FloatImm)]
        for value in call.operands:
            if isinstance(value, Address):
                integers += [*value.indices, *([] if value.byte_offset is None else [value.byte_offset])]
        return Step(statement, (*self._loads(*integers), self._event(call.queue, *self._operands(call))))

    def _operands(self, call: Call) -> tuple[list[Access], Args | None]:
        args, open_slots = self._bind(call)
        addresses = [value for value in call.operands if isinstance(value, Address)]
        accesses, rank = [], call.row.rank(call.mods)
        for at, (tensor, address) in enumerate(zip(call.row.tensors, addresses, strict=True)):
            if memory_of(address.buffer) == "llb":
                continue  # what cores share is ordered by their flags
            reads, writes = "r" in tensor.role, "w" in tensor.role
            if args is None:
                accesses.append(self._access(address, None, None, reads=reads, writes=writes))
            else:
                view = args.views[at]
                access = self._access(address, view.address, view.extent_bytes, reads=reads, writes=writes)
                pitched = not open_slots or not open_slots & _deciding_strides(tensor, rank, args, open_slots)
                if pitched and access.extent_bytes == view.extent_bytes:
                    access = access.in_rows(_rows(view))
                accesses.append(access)
        return accesses, args

    def _bind(self, call: Call) -> tuple[Args | None, set[str]]:
        """The operands as if all addresses were zero, with the greatest value of each slot that is not known; those."""
        values, open_slots = list[int](), set[str]()
        for slot, value, known in zip(call.slots, call.operands, call.known, strict=True):
            if known is not None:
                values.append(known)
                continue
            read = self.ranges.read(value)
            most = min(read.bounds()[1], slot.hi)
            if read.exact is None:
                open_slots.add(slot.name)
            values.append(int(max(most, slot.lo)) if most != inf else slot.hi)
        if open_slots and any(tensor.offset is not None for tensor in call.row.tensors):
            return None, open_slots  # where it starts depends on what is not known
        return _resolved(call.row.mnemonic, call.mods, tuple(values), self.chip), open_slots

    def _access(self, address: Address, start: int | None, extent: int | None, *, reads: bool, writes: bool) -> Access:
        """Bytes from ``start`` behind an address; the whole buffer where that is not known, or would be more."""
        if address.buffer not in self._buffers:
            raise refuse(f"buffer `{address.buffer.name}` is neither a parameter nor allocated where it is used")
        room = self._buffers[address.buffer]
        turn = self._turn(address, room.slots) if room.slots else None
        phase = turn.phases.index(address.indices[0]) if turn is not None else 0
        span = (room.start, room.start + room.size)
        offset = self.ranges.byte_offset(address.indices, address.buffer, DTYPES[dtype_of(address.buffer)].itemsize)
        if address.byte_offset is not None:
            offset = offset.plus(self.ranges.read(address.byte_offset))
        if extent is None or start is None or extent > room.size:
            start, extent, offset = 0, room.size, Affine()
        offset = offset.plus(Affine({}, room.start + start))
        return Access(room.place, span, offset, extent, reads, writes, room.blocks, turn=turn, ring=room, phase=phase)

    def _turn(self, address: Address, slots: int) -> Turn:
        """The block in which the slot of a ring is bound."""
        slot = address.indices[0]
        if slot not in self._bound:
            raise refuse(
                f"the slot `{slot}` of ring `{address.buffer.name}` is not bound in the block that works on it"
            )
        step, depth = self._bound[slot]
        if step.turn is None:  # a ring that has a turn already is bound once more: in the next phase of its block
            step.turn = self._turns.get(address.buffer) or Turn(depth, LoopRange(slots))
            step.turn.phases.append(slot)
            self.ranges.variables[slot] = Affine({step.turn.slot: 1})
        step.turn.buffers.add(address.buffer)
        self._turns[address.buffer] = step.turn
        return step.turn
