"""What writes a random program down: its buffers and regions, scalar registers that are followed, and sync.

Every instruction that works on regions is told here who used them before; the flags and barriers that its queue needs
are put in front of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from compiler.isa.dtypes import DTYPES, Queue
from compiler.isa.model import OFFSET_MAX, OFFSET_MIN, REGISTERS, Instr, Reg, Row, Slot, Value, touched_bytes
from compiler.isa.program import Buffer, Program, TilingWord
from compiler.isa.queue_order import QueueOrder
from compiler.isa.sampler import Draw, Region, Sampler
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

CORE = 1  # the register that holds the core's number
COUNTERS = range(2, 8)  # of hardware loops
KNOWN = range(8, 20)  # values are tracked while the program is written
SCRATCH = range(20, 31)  # written right before use
TOTAL = 31  # accumulates over loops
_INPUT_BYTES = 2048
_SHARED_BYTES = 1024
# Regions of each on-chip memory: how many, and at most how many bytes each.
_REGIONS = {"ub": (6, 1280), "l1": (3, 2048), "l0a": (2, 1024), "l0b": (2, 1024), "l0c": (2, 2048), "bt": (2, 128),
            "fb": (2, 128)}  # fmt: skip


@dataclass(frozen=True)
class Done:
    queue: Queue
    number: int


@dataclass
class _Accesses:
    """Who used a region last: its last writer, and per queue the last reader since."""

    writer: Done | None = None
    readers: dict[Queue, int] | None = None

    def before(self, writes: bool) -> Iterator[Done]:
        if self.writer is not None:
            yield self.writer
        if writes:
            yield from (Done(queue, number) for queue, number in (self.readers or {}).items())

    def note(self, done: Done, writes: bool) -> None:
        if writes:
            self.writer, self.readers = done, {}
        else:
            self.readers = {**(self.readers or {}), done.queue: done.number}


class ProgramWriter:
    """The parts of a program that grow, and how they grow by one instruction."""

    def __init__(self, seed: int, chip: Chip, *, whole_clusters: bool = False, several_clusters: bool = False) -> None:
        self.rng, self.chip = Random(seed), chip  # noqa: S311 - programs, not secrets
        self.numbers = np.random.default_rng(seed)
        self.sampler = Sampler(self.rng, chip)
        self.cores = min(chip.cores, self.rng.choice((1, 1, 2, 2, 3, 4)))
        if chip.clusters > 1 and (several_clusters or self.rng.random() < 0.04):
            more = chip.cores_per_cluster
            self.cores = chip.cores_per_cluster + (more if whole_clusters else self.rng.choice((2, more)))
        self.cluster_cores = min(self.cores, chip.cores_per_cluster)
        self.clusters = -(-self.cores // self.cluster_cores)
        self.order = QueueOrder()
        self.accesses: dict[Region, _Accesses] = {}
        self.instrs: list[Instr] = []
        self.buffers: list[Buffer] = []
        self.tiling: list[TilingWord] = []
        self.registers: list[list[int] | None] = [[0] * self.cores for _ in range(REGISTERS)]
        self.loops: list[tuple[int, int]] = []  # (counter, trips) of the loops around
        self.scratch = 0
        self.exchanges = 0
        self.ends = {"ddr": 0, "llb": 0}
        self.regions: dict[str, list[Region]] = {memory: self._local(memory) for memory in _REGIONS}
        self.shared_inputs: dict[str, Region] = {}
        self._declare()

    # ---- the frame: buffers and regions

    def _local(self, memory: str) -> list[Region]:
        """Regions at random places of an on-chip memory, in order and apart."""
        count, most = _REGIONS[memory]
        size = self.chip.memory_bytes(memory)
        unit = 1024 if memory in ("l0a", "l0b", "l0c") else 64
        least = most if size >= count * most else size // count // unit * unit
        if not least:
            return []
        slack = (size - count * least) // unit
        gaps = sorted(self.rng.randint(0, slack) for _ in range(count))
        return [Region(memory, gap * unit + k * least, least) for k, gap in enumerate(gaps)]

    def _declare(self) -> None:
        for dtype in DTYPES:
            region = self._buffer(f"in_{dtype}", "ddr", "input", dtype, _INPUT_BYTES, 64, extra=64 * self.cores)
            region.writable, region.holds = False, dtype
            region.ready[:] = True
            self.shared_inputs[dtype] = region
        far = [
            self._buffer(f"out{k}", "ddr", role, dtype, _SHARED_BYTES, _SHARED_BYTES)
            for k, (role, dtype) in enumerate((("output", "uint8"), ("inout", "fp32"), ("inout", "int32")))
        ]
        for region in far[1:]:
            region.ready[:] = True
        far[1].holds, far[2].holds = "fp32", "int32"
        self.regions["ddr"] = [*self.shared_inputs.values(), *far]
        self.regions["llb"] = [
            self._buffer(f"shared{k}", "llb", "scratch", "uint8", _SHARED_BYTES, _SHARED_BYTES) for k in range(2)
        ]

    def _buffer(self, name: str, memory: str, role: str, dtype: str, size: int, stride: int, extra: int = 0) -> Region:
        """Declare a buffer with a slice per core, or (``extra``) one that cores read from different places."""
        total = size + extra if extra else size * self.cores
        offset = -(-self.ends[memory] // 512) * 512 + 512 * self.rng.choice((0, 0, 1))
        self.ends[memory] = offset + total
        self.buffers.append(Buffer(name, memory, offset, total, dtype, (total // DTYPES[dtype].itemsize,), role))
        return Region(memory, offset, size, stride)

    def inputs(self) -> dict[str, np.ndarray]:
        return {b.name: self._data(b) for b in self.buffers if b.role in ("input", "inout")}

    def _data(self, buffer: Buffer) -> np.ndarray:
        """Mostly values that results depend on, and some of the bits that only few instructions survive."""
        kind, size = DTYPES[buffer.dtype], buffer.shape[0]
        noise = self.numbers.integers(0, 256, buffer.size_bytes, np.uint8).view(kind.numpy)
        if kind.name == "bool":
            plain = self.numbers.choice(np.array([0, 0, 1, 1, 2, 255], np.uint8), size)
        elif kind.is_float:
            plain = (self.numbers.normal(size=size) * 2).astype(kind.numpy)
        else:
            plain = self.numbers.integers(0 if kind.name == "uint8" else -2, 20, size).astype(kind.numpy)
        return np.where(self.numbers.random(size) < 0.03, noise, plain).astype(kind.numpy)

    def program(self, name: str) -> Program:
        chip = self.chip.name if self.rng.random() < 0.5 else None
        return Program(name, chip, self.cores, tuple(self.instrs), tuple(self.buffers), tuple(self.tiling))

    # ---- instructions

    def _add(self, mnemonic: str, mods: tuple[str, ...], *values: Value) -> None:
        self.instrs.append(Instr(by_mnemonic()[mnemonic], mods, values))

    def _emit(self, draw: Draw, steps: Sequence[int] | None = None) -> None:
        """Sync, operands in registers, the instruction itself. ``steps``: bytes that addresses move per iteration."""
        row, queue = draw.row, draw.row.queue_of(draw.mods)
        self._order(queue, [(p, "w" in t.role) for p, t in zip(draw.places, row.tensors, strict=True)])
        self.instrs.append(self._with_registers(draw, steps))
        self._note(draw, queue)

    def _note(self, draw: Draw, queue: Queue) -> None:
        done = Done(queue, self.order.step(queue))
        for tensor, view, place in zip(draw.row.tensors, draw.args.views, draw.places, strict=True):
            self._accesses(place).note(done, "w" in tensor.role)
            if "w" in tensor.role:
                place.holds, place.dirty = view.dtype.name, True
                place.ready[touched_bytes(view) - place.start] = True

    def _accesses(self, place: Region) -> _Accesses:
        return self.accesses.setdefault(place, _Accesses())

    # ---- operands in registers

    def _with_registers(self, draw: Draw, steps: Sequence[int] | None) -> Instr:
        """The instruction with some of its slots in registers: always where cores or iterations differ."""
        values: list[Value] = []
        tensor = -1
        for slot, value in zip(draw.slots, draw.values, strict=True):
            if slot.kind == "addr":
                tensor += 1
                values.append(self._address(value, draw.places[tensor], steps[tensor] if steps else 0))
            elif slot.kind == "dest":
                values.append(self._destination())
            else:
                values.append(self._operand(slot, value))
        return Instr(draw.row, draw.mods, tuple(values))

    def _destination(self) -> int:
        """A register for a value that is unknown here."""
        register = self.rng.choice((0, *KNOWN)) if not self.loops else TOTAL
        if register:
            self.registers[register] = None
        return register

    def _operand(self, slot: Slot, value: int) -> Value:
        if slot.kind not in ("int", "float") or self.rng.random() < 0.75:
            return value
        if slot.kind == "float":
            return Reg(self.rng.choice(KNOWN)) if self.rng.random() < 0.5 else Reg(self._computed(value))
        known = self._relative(value)
        return known if known is not None and self.rng.random() < 0.6 else self._shifted(value)

    def _shifted(self, value: int) -> Reg:
        offset = self.rng.choice((0, 0, 4, -1, 1000))
        return Reg(self._computed(value - offset), offset)

    def _relative(self, value: int) -> Reg | None:
        """A value as the distance from a register that is the same on all cores."""
        for register in self.rng.sample(KNOWN, 4):
            known = self.registers[register]
            if known is not None and len(set(known)) == 1 and OFFSET_MIN <= value - known[0] <= OFFSET_MAX:
                return Reg(register, value - known[0])
        return None

    def _computed(self, value: int) -> int:
        """A scratch register with this value: moved, loaded as tiling data, or computed."""
        register = self._next_scratch()
        choice = self.rng.randrange(3)
        if choice == 0 or not -(2**31) <= value < 2**31:
            self.tiling.append(TilingWord(f"word{len(self.tiling)}", value))
            self._add("ldt", (), register, len(self.tiling) - 1)
        elif choice == 1:
            self._add("smov", (), register, value)
        else:
            part = self.rng.randint(-1000, 1000)
            if -(2**31) <= value - part < 2**31:
                self._add("smov", (), register, part)
                self._add("sadd", (), register, Reg(register), value - part)
            else:
                self._add("smov", (), register, value)
        self.registers[register] = None
        return register

    def _next_scratch(self) -> int:
        self.scratch = (self.scratch + 1) % len(SCRATCH)
        return SCRATCH[self.scratch]

    def _address(self, address: int, place: Region, step: int) -> Value:
        """An address, with the core's slice and the loop's step added where there are any."""
        if step:
            register = self._next_scratch()
            self._add("smadd", (), register, Reg(self.loops[-1][0]), step, address)
            if place.core_stride:
                self._add("smadd", (), register, Reg(CORE), place.core_stride, Reg(register))
            return Reg(register)
        if place.core_stride and self.cores > 1:
            register = self._next_scratch()
            if self.rng.random() < 0.5:
                self._add("smadd", (), register, Reg(CORE), place.core_stride, address)
                return Reg(register)
            self._add("smul", (), register, Reg(CORE), place.core_stride)
            return Reg(register, address)
        if self.rng.random() < 0.3:
            return self._relative(address) or self._shifted(address)
        return address

    # ---- what registers hold

    def _results(self, instr: Instr) -> list[int] | None:
        """What an instruction of the scalar unit gives on every core, if its sources are known."""
        if instr.row.kind == "getsr":
            return None
        if instr.row.kind in ("ldt", "ldtc"):
            index, per_cluster = instr.values[1], self.chip.cores_per_cluster
            if not isinstance(index, int):
                return None
            further = [core // per_cluster if instr.row.kind == "ldtc" else 0 for core in range(self.cores)]
            return [self.tiling[index + more].value for more in further]
        found = []
        for core in range(self.cores):
            sources = [self._value_on(core, value) for value in instr.values[1:]]
            if None in sources:
                return None
            a, b, c = (*(s for s in sources if s is not None), 0, 0, 0)[:3]
            found.append(scalar_result(instr.row, a, b, c))
        return found

    def _value_on(self, core: int, value: Value) -> int | None:
        if not isinstance(value, Reg):
            return value
        known = self.registers[value.index]
        return None if known is None else wrapped(known[core] + value.offset)

    # ---- sync

    def _order(self, queue: Queue, uses: Sequence[tuple[Region, bool]]) -> None:
        """Sync that puts the queue's next instruction after everything that it depends on."""
        for place, writes in uses:
            for done in self._accesses(place).before(writes):
                if not self.order.knows(queue, done.queue, done.number):
                    self._join(done.queue, queue)

    def _join(self, source: Queue, target: Queue) -> None:
        if self.rng.random() < 0.12:
            self._barrier_all()
        elif source == target:
            self._sync("pipe_barrier", (source,))
        else:
            self._flag(source, target)

    def _flag(self, source: Queue, target: Queue) -> None:
        free = [event for event in range(self.chip.event_ids) if self.order.may_set(source, target, event)]
        if not free:
            self._barrier_all()
            free = list(range(self.chip.event_ids))
        event = self.rng.choice(free)
        self._set(source, target, event)
        self._wait(source, target, event)

    def _set(self, source: Queue, target: Queue, event: int) -> None:
        self._sync("set_flag", (source, target), self._event(event))
        self.order.set_flag(source, target, event)

    def _wait(self, source: Queue, target: Queue, event: int) -> None:
        self._sync("wait_flag", (source, target), self._event(event))
        self.order.wait_flag(source, target, event)

    def _event(self, event: int) -> Value:
        return event if self.rng.random() < 0.8 else self._relative(event) or event

    def _sync(self, mnemonic: str, queues: tuple[Queue, ...], *values: Value) -> None:
        self._add(mnemonic, tuple(queue.name.lower() for queue in queues), *values)
        if mnemonic == "pipe_barrier":
            self.order.pipe_barrier(queues[0])

    def _barrier_all(self) -> None:
        self._add("barrier_all", ())
        self.order.barrier_all()


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def scalar_result(row: Row, a: int, b: int, c: int) -> int:
    """What a row of the scalar unit gives for three sources, as a register holds it."""
    if row.semantics is None:
        raise ValueError(f"{row.mnemonic} computes nothing")
    if row.kind == "alu":
        return wrapped(int(row.semantics(a, b, c)))
    with np.errstate(all="ignore"):
        if row.kind == "itof":
            return int(np.float32(row.semantics(a, b, c)).view(np.uint32))
        x, y, z = (np.uint32(v & 0xFFFFFFFF).view(np.float32) for v in (a, b, c))
        result: Any = row.semantics(x, y, z)
    return int(np.float32(result).view(np.uint32)) if row.kind == "falu" else wrapped(int(result))
