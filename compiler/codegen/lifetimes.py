"""When each on-chip buffer of a kernel lives, in steps of its statements' order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad

from compiler.codegen.instruction_form import Address, memory_of, physical_bytes, read_call
from compiler.codegen.memory import free_bytes
from compiler.codegen.packing import Lifetime, live_peak, spread
from compiler.isa.dtypes import INTERLOCKED, SHARED_MEMORIES, Queue
from compiler.target import Chip
from compiler.tir.structure import structural_walk

# What a buffer's address is a multiple of at least: what the cube's memories ask for.
_ALIGNMENT = {"l1": 32, "l0a": 512, "l0b": 512, "l0c": 1024, "ub": 32, "bt": 64, "fb": 64}


def alignment(memory: str, chip: Chip) -> int:
    """What a buffer's address is a multiple of: whole blocks, and what the memory asks for."""
    return max(_ALIGNMENT[memory], chip.block_bytes)


@dataclass(frozen=True)
class LocalBuffer:
    """An allocation on chip and its life; one that nobody uses lives where it stands."""

    name: str
    memory: str
    life: Lifetime
    queues: frozenset[Queue] = frozenset()

    @property
    def user(self) -> Queue | None:
        """The queue that is alone with it and keeps its own order."""
        (only,) = self.queues if len(self.queues) == 1 else (None,)
        return only if only in INTERLOCKED else None


class _Walk:
    """Numbers the statements. A buffer that is used in a loop and allocated outside of it lives through the loop."""

    def __init__(self) -> None:
        self.step = 0
        self.allocations: dict[Any, Any] = {}
        self.spans: dict[Any, list[int]] = {}
        self.queues: dict[Any, set[Queue]] = {}
        self._loops_at: dict[Any, int] = {}  # how many loops are around an allocation
        self._held: list[set[Any]] = []  # per open loop, the buffers that live through it

    def statement(self, statement: Any) -> None:
        self.step += 1
        match statement:
            case tirx.SeqStmt():
                for part in statement.seq:
                    self.statement(part)
            case tirx.For():
                self._use(statement.extent)
                self._loop(statement.body)
            case tirx.IfThenElse():
                self._use(statement.condition)
                self.statement(statement.then_case)
                if statement.else_case is not None:
                    self.statement(statement.else_case)
            case tirx.AttrStmt():
                self.statement(statement.body)
            case tirx.AllocBuffer():
                self._allocate(statement)
            case tirx.BufferStore():
                self._use(statement)
                self._touch(statement.buffer, Queue.S)
            case tirx.Evaluate():
                self._call(statement)
            case _:
                self._use(statement)

    def _call(self, statement: Any) -> None:
        call = read_call(statement)
        if call is not None:
            for value in call.operands:
                if isinstance(value, Address):
                    self._touch(value.buffer, call.queue)
            self._use(statement)

    def _allocate(self, statement: Any) -> None:
        if memory_of(statement.buffer) not in SHARED_MEMORIES:
            self.allocations[statement.buffer] = statement
            self._loops_at[statement.buffer] = len(self._held)

    def _loop(self, body: Any) -> None:
        first = self.step
        self._held.append(set())
        self.statement(body)
        for buffer in self._held.pop():
            self._extend(buffer, first)
            self._extend(buffer, self.step)

    def _use(self, node: Any) -> None:
        structural_walk(node, (TensorLoad, lambda load: self._touch(load.source)))

    def _touch(self, buffer: Any, queue: Queue | None = None) -> None:
        if buffer not in self.allocations:
            return
        if queue is not None:
            self.queues.setdefault(buffer, set()).add(queue)
        self._extend(buffer, self.step)
        for loop in self._held[self._loops_at[buffer] :]:
            loop.add(buffer)

    def _extend(self, buffer: Any, step: int) -> None:
        span = self.spans.setdefault(buffer, [step, step])
        span[0], span[1] = min(span[0], step), max(span[1], step)


def local_buffers(func: Any) -> Iterator[tuple[Any, LocalBuffer]]:
    """(AllocBuffer, its buffer's life) for every on-chip allocation, in order."""
    walk = _Walk()
    walk.statement(func.body)
    for buffer, statement in walk.allocations.items():
        first, last = walk.spans.get(buffer, (0, 0))
        size = physical_bytes(statement) if buffer in walk.spans else 0
        queues = frozenset(walk.queues.get(buffer, ()))
        yield statement, LocalBuffer(str(buffer.name), memory_of(buffer), Lifetime(size, first, last), queues)


def packed(func: Any, chip: Chip) -> Iterator[tuple[str, list[tuple[Any, LocalBuffer]], list[int], int]]:
    """(memory, its allocations in order, an address for each, bytes in all) for every memory on chip."""
    found = list(local_buffers(func))
    for memory in sorted({buffer.memory for _, buffer in found}):
        here = [(statement, buffer) for statement, buffer in found if buffer.memory == memory]
        lives, users = [buffer.life for _, buffer in here], [buffer.user for _, buffer in here]
        yield memory, here, *spread(lives, alignment(memory, chip), users, free_bytes(memory, chip))


def live_bytes(func: Any, chip: Chip) -> dict[str, int]:
    """The most bytes of each memory that live at once: what the kernel needs at least."""
    lives: dict[str, list[Lifetime]] = {}
    for _, buffer in local_buffers(func):
        lives.setdefault(buffer.memory, []).append(buffer.life)
    return {memory: live_peak(each, alignment(memory, chip)) for memory, each in lives.items()}
