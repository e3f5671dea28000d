"""The scalar unit, run once per core: a program becomes a stream of dynamic instructions held in arrays.

Timing depends on data only through scalars, so the stream holds all there is to time, check and compute. Dynamic
instructions that can only differ in the address bits that no rule or cost looks at share a *class*: what an
instruction costs, touches and allows is worked out once per class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.errors import InvalidError, LimitError, Problem
from compiler.isa import table
from compiler.isa.jit import inlined, kernel
from compiler.isa.model import REGISTERS
from compiler.isa.program import Program
from compiler.isa.table.control import LOOP_DEPTH
from compiler.sim import code as kinds
from compiler.sim.code import MAX_SLOTS, Code, lay_out
from compiler.target import Chip

DONE, STREAM_FULL, CLASSES_FULL, STEP_LIMIT, NEEDS_VALUE, TRAPPED, BAD_TARGET, LOOPS_TOO_DEEP, BAD_TILING = range(9)
MAX_STEPS = 200_000_000
# What a run may hold: some 150 bytes for each dispatched instruction, some 2 KiB for each class.
MAX_DISPATCHED, MAX_CLASSES = 1 << 25, 1 << 18


# ---- the table's scalar functions, compiled into one dispatcher per kind ----------------------------------


def _dispatcher(kind: str) -> Callable[..., Any]:
    """``f(opcode, a, b, c)`` over all rows of a kind: the table's own functions behind a chain of comparisons."""
    rest: Callable[..., Any] | None = None
    for row in table.rows():
        if row.kind == kind:
            rest = _link(row.opcode, inlined(row.function), rest)
    if rest is None:
        raise ValueError(f"no rows of kind {kind}")
    return rest


def _link(code: int, function: Callable[..., Any], rest: Callable[..., Any] | None) -> Callable[..., Any]:
    if rest is None:
        return function if code < 0 else inlined(lambda opcode, a, b, c: function(a, b, c))

    def dispatch(opcode, a, b, c):  # type: ignore[no-untyped-def]
        if opcode == code:
            return function(a, b, c)
        return rest(opcode, a, b, c)

    return inlined(dispatch)


_alu = _dispatcher("alu")
_falu = _dispatcher("falu")
_fcmp = _dispatcher("fcmp")
_itof = _dispatcher("itof")


def _branch_dispatcher() -> Callable[..., Any]:
    rest: Callable[..., Any] = inlined(lambda opcode, a, b: True)
    for row in table.rows():
        if row.kind == "branch" and row.mnemonic != "jmp":
            rest = _branch_link(row.opcode, inlined(row.function), rest)
    return rest


def _branch_link(code: int, function: Callable[..., Any], rest: Callable[..., Any]) -> Callable[..., Any]:
    def dispatch(opcode, a, b):  # type: ignore[no-untyped-def]
        if opcode == code:
            return function(a, b)
        return rest(opcode, a, b)

    return inlined(dispatch)


_branch = _branch_dispatcher()

# Indices into the resumable state of one core.
PC, LOOP_SP, GAP, STEPS, EMITTED, CLASSES, FAULT = range(7)


@inlined
def _hash(pc, slots, values):  # type: ignore[no-untyped-def]
    h = np.uint64(pc) * np.uint64(0x9E3779B97F4A7C15)
    for k in range(slots):
        h = (h ^ np.uint64(values[k])) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(29)
    return h


@inlined
def _find_class(pc, slots, values, state, class_pc, class_values, hashed):  # type: ignore[no-untyped-def]
    """The class of these values at pc; a new one is entered. -1 where there is no room."""
    mask = np.uint64(len(hashed) - 1)
    at = _hash(pc, slots, values) & mask
    while hashed[at] >= 0:
        found = hashed[at]
        if class_pc[found] == pc:
            same = True
            for k in range(slots):
                if class_values[found, k] != values[k]:
                    same = False
                    break
            if same:
                return found
        at = (at + np.uint64(1)) & mask
    classes = np.int32(state[CLASSES])
    if classes >= len(class_pc):
        return np.int32(-1)
    hashed[at] = classes
    class_pc[classes] = pc
    for k in range(slots):
        class_values[classes, k] = values[k]
    state[CLASSES] += 1
    return classes


@kernel
def _rehash(classes, slots, class_pc, class_values, hashed):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(hashed) - 1)
    for entry in range(classes):
        at = _hash(class_pc[entry], slots[class_pc[entry]], class_values[entry]) & mask
        while hashed[at] >= 0:
            at = (at + np.uint64(1)) & mask
        hashed[at] = entry


@kernel
def _run(  # type: ignore[no-untyped-def]  # noqa: C901
    kind, operation, slots, register, immediate, key_mask, addresses, address_slot, destination, target,
    cycles, system, tiling, system_values, branch_cycles, regs, state, loops, stream_class, stream_gap, stream_address,
    class_pc, class_values, class_last, hashed, max_steps,
):  # fmt: skip
    """Run one core until it halts or needs something: see the status codes."""
    bits = np.zeros(1, np.int64)
    bits_f32 = bits.view(np.float32)
    values = np.zeros(MAX_SLOTS, np.int64)
    count = len(kind)
    pc, sp, gap, steps, emitted = state[PC], state[LOOP_SP], state[GAP], state[STEPS], state[EMITTED]
    status = -1
    while status < 0:
        while sp > 0 and pc == loops[sp - 1, 1]:
            top = sp - 1
            loops[top, 3] += 1
            if loops[top, 3] < loops[top, 2]:
                if loops[top, 4] != 0:
                    regs[loops[top, 4]] = loops[top, 3]
                pc = loops[top, 0]
            else:
                sp -= 1
        if pc < 0 or pc >= count:
            status = BAD_TARGET
            break
        if steps >= max_steps:
            status = STEP_LIMIT
            break
        what = kind[pc]
        if what == kinds.DISPATCH or what == kinds.SLD:
            if emitted >= len(stream_class):
                status = STREAM_FULL
                break
            used = slots[pc]
            found = class_last[pc]
            same = found >= 0
            for k in range(used):
                value = immediate[pc, k] + regs[register[pc, k]]
                values[k] = value
                same = same and (value & key_mask[pc, k]) == class_values[found, k]
            for k in range(addresses[pc]):
                stream_address[emitted, k] = values[address_slot[pc, k]]
            if not same:
                for k in range(used):
                    values[k] &= key_mask[pc, k]
                found = _find_class(pc, used, values, state, class_pc, class_values, hashed)
                if found < 0:
                    status = CLASSES_FULL
                    break
                class_last[pc] = found
            stream_class[emitted] = found
            stream_gap[emitted] = gap
            gap = 0
            emitted += 1
            steps += 1
            pc += 1
            if what == kinds.SLD:
                status = NEEDS_VALUE
            continue
        steps += 1
        gap += cycles[pc]
        if what <= kinds.ITOF:
            d = destination[pc]
            if what == kinds.ALU:
                result = _alu(
                    operation[pc],
                    immediate[pc, 0] + regs[register[pc, 0]],
                    immediate[pc, 1] + regs[register[pc, 1]],
                    immediate[pc, 2] + regs[register[pc, 2]],
                )
                if d != 0:
                    regs[d] = result
            elif what == kinds.ITOF:
                bits_f32[0] = _itof(operation[pc], immediate[pc, 0] + regs[register[pc, 0]], 0, 0)
                if d != 0:
                    regs[d] = bits[0] & 0xFFFFFFFF
            else:
                bits[0] = immediate[pc, 0] + regs[register[pc, 0]]
                a = bits_f32[0]
                bits[0] = immediate[pc, 1] + regs[register[pc, 1]]
                b = bits_f32[0]
                if what == kinds.FALU:
                    bits_f32[0] = _falu(operation[pc], a, b, np.float32(0))
                    if d != 0:
                        regs[d] = bits[0] & 0xFFFFFFFF
                else:
                    result = _fcmp(operation[pc], a, b, np.float32(0))
                    if d != 0:
                        regs[d] = result
            pc += 1
        elif what == kinds.BRANCH:
            a = immediate[pc, 0] + regs[register[pc, 0]]
            b = immediate[pc, 1] + regs[register[pc, 1]]
            if _branch(operation[pc], a, b):
                pc = target[pc]
                gap += branch_cycles - 1
                while sp > 0 and not (loops[sp - 1, 0] <= pc <= loops[sp - 1, 1]):
                    sp -= 1
            else:
                pc += 1
        elif what == kinds.LOOP:
            trips = immediate[pc, 0] + regs[register[pc, 0]]
            if trips <= 0:
                pc = target[pc]
            elif target[pc] <= pc + 1:
                # Nothing to repeat: only the last count is left.
                if destination[pc] != 0:
                    regs[destination[pc]] = trips - 1
                pc = target[pc]
            elif sp >= LOOP_DEPTH:
                status = LOOPS_TOO_DEEP
            else:
                loops[sp, 0] = pc + 1
                loops[sp, 1] = target[pc]
                loops[sp, 2] = trips
                loops[sp, 3] = 0
                loops[sp, 4] = destination[pc]
                sp += 1
                if destination[pc] != 0:
                    regs[destination[pc]] = 0
                pc += 1
        elif what == kinds.LDT:
            index = immediate[pc, 0] + regs[register[pc, 0]]
            if index < 0 or index >= len(tiling):
                state[FAULT] = index
                status = BAD_TILING
            else:
                if destination[pc] != 0:
                    regs[destination[pc]] = tiling[index]
                pc += 1
        elif what == kinds.GETSR:
            if destination[pc] != 0:
                regs[destination[pc]] = system_values[system[pc]]
            pc += 1
        elif what == kinds.NOP:
            pc += 1
        elif what == kinds.HALT:
            status = DONE
        else:
            state[FAULT] = immediate[pc, 0] + regs[register[pc, 0]]
            status = TRAPPED
    state[PC], state[LOOP_SP], state[GAP], state[STEPS], state[EMITTED] = pc, sp, gap, steps, emitted
    return status


# ---- growing arrays around the kernel ---------------------------------------------------------------------


@dataclass
class Stream:
    """The dynamic instructions of all cores, core after core."""

    code: Code
    classes: int
    class_pc: np.ndarray
    class_values: np.ndarray
    klass: np.ndarray  # class of each dynamic instruction
    gap: np.ndarray  # scalar cycles since the one before it
    address: np.ndarray  # full values of the address slots
    core_start: np.ndarray  # first index of each core; one more entry than cores
    tail_gap: np.ndarray  # scalar cycles after a core's last dynamic instruction
    steps: int  # dynamic instructions, scalar ones included
    cluster_of: np.ndarray  # [core]

    @property
    def cores(self) -> int:
        return len(self.core_start) - 1

    @property
    def size(self) -> int:
        return len(self.klass)

    @property
    def pc(self) -> np.ndarray:
        of_each: np.ndarray = self.class_pc[self.klass]
        return of_each

    def core_of(self, index: int) -> int:
        return int(np.searchsorted(self.core_start, index, side="right")) - 1


@dataclass
class _Arrays:
    """Arrays that grow by doubling while the kernel fills them."""

    width: int
    klass: np.ndarray = field(default_factory=lambda: np.empty(4096, np.int32))
    gap: np.ndarray = field(default_factory=lambda: np.empty(4096, np.int64))
    class_pc: np.ndarray = field(default_factory=lambda: np.empty(256, np.int32))
    class_values: np.ndarray = field(default_factory=lambda: np.zeros((256, MAX_SLOTS), np.int64))
    hashed: np.ndarray = field(default_factory=lambda: np.full(1024, -1, np.int32))

    def __post_init__(self) -> None:
        self.address = np.zeros((len(self.klass), self.width), np.int64)

    def grow_stream(self) -> None:
        extra = len(self.klass)
        self.klass = np.concatenate([self.klass, np.empty(extra, np.int32)])
        self.gap = np.concatenate([self.gap, np.empty(extra, np.int64)])
        self.address = np.concatenate([self.address, np.zeros((extra, self.width), np.int64)])

    def grow_classes(self, classes: int, slots: np.ndarray) -> None:
        extra = len(self.class_pc)
        self.class_pc = np.concatenate([self.class_pc, np.empty(extra, np.int32)])
        self.class_values = np.concatenate([self.class_values, np.zeros((extra, MAX_SLOTS), np.int64)])
        self.hashed = np.full(len(self.hashed) * 2, -1, np.int32)
        _rehash(classes, slots, self.class_pc, self.class_values, self.hashed)


class CoreState:
    """One core's scalar unit between two runs of the kernel."""

    def __init__(self, core: int, entry: int, chip: Chip) -> None:
        self.core = core
        self.regs = np.zeros(REGISTERS, np.int64)
        self.state = np.zeros(8, np.int64)
        self.state[PC] = entry
        self.loops = np.zeros((LOOP_DEPTH, 5), np.int64)
        per_cluster = chip.cores_per_cluster
        self.halted = False
        self.system = np.array(
            [core, 0, core // per_cluster, chip.clusters, core % per_cluster, per_cluster], np.int64
        )  # in the order of SYSTEM_REGISTERS; the number of cores is filled in by the expansion


class Expander:
    """Runs the scalar units of a program's cores and collects their streams."""

    def __init__(self, program: Program, chip: Chip, cores: int, *, max_steps: int = MAX_STEPS) -> None:
        self.program, self.chip, self.cores, self.max_steps = program, chip, cores, max_steps
        self.code = lay_out(program, chip)
        self.tiling = np.array([word.value for word in program.tiling], np.int64)
        self.arrays = _Arrays(self.code.width)
        self.class_last = np.full(max(1, self.code.size), -1, np.int32)
        self.classes = self.steps = 0

    def core(self, number: int) -> CoreState:
        entries = self.program.entries
        core = CoreState(number, entries[number] if entries else 0, self.chip)
        core.system[1] = self.cores
        return core

    def run(self, core: CoreState) -> int:
        """Advance a core until it halts (DONE) or has just issued a scalar load (NEEDS_VALUE)."""
        code, arrays = self.code, self.arrays
        core.state[CLASSES] = self.classes
        while True:
            status = _run(
                code.kind, code.operation, code.slots, code.register, code.immediate, code.key_mask,
                code.addresses, code.address_slot, code.destination, code.target, code.cycles, code.system, self.tiling,
                core.system, self.chip.scalar.branch_taken_cycles, core.regs, core.state, core.loops, arrays.klass,
                arrays.gap, arrays.address, arrays.class_pc, arrays.class_values, self.class_last, arrays.hashed,
                self.max_steps,
            )  # fmt: skip
            self.classes = int(core.state[CLASSES])
            if status == STREAM_FULL and len(arrays.klass) < MAX_DISPATCHED:
                arrays.grow_stream()
            elif status == CLASSES_FULL and len(arrays.class_pc) < MAX_CLASSES:
                arrays.grow_classes(self.classes, code.slots)
            elif status in (DONE, NEEDS_VALUE):
                return int(status)
            else:
                raise self._fault(int(status), core)

    def _fault(self, status: int, core: CoreState) -> Exception:
        pc, fault = int(core.state[PC]), int(core.state[FAULT])
        place = self.program.place(pc)
        if status == STEP_LIMIT:
            hint = "an endless loop? raise the limit with --max-steps if not"
            return LimitError(Problem("TW1301", f"core {core.core} ran {self.max_steps} instructions", place, hint))
        if status in (STREAM_FULL, CLASSES_FULL):
            what = "are dispatched" if status == STREAM_FULL else "differ in what they cost"
            limit = MAX_DISPATCHED if status == STREAM_FULL else MAX_CLASSES
            text = f"more than {limit} instructions {what}; a run is held in memory as a whole"
            return LimitError(Problem("TW1305", text, place, "run a smaller shape of the same program"))
        message = {
            TRAPPED: f"core {core.core} trapped with code {fault}",
            BAD_TARGET: f"core {core.core} ran past the program's end: instruction {pc} of {self.code.size}",
            LOOPS_TOO_DEEP: f"core {core.core} nests hardware loops more than {LOOP_DEPTH} deep",
            BAD_TILING: f"core {core.core} reads tiling word {fault}; the program has {len(self.tiling)}",
        }[status]
        return InvalidError(Problem("TW1302", message, place))


def expand(
    program: Program, chip: Chip, cores: int, *, loaded: list[list[int]] | None = None, max_steps: int = MAX_STEPS
) -> Stream:
    """The whole stream of a program; ``loaded`` gives, per core, what its scalar loads read from memory."""
    expander = Expander(program, chip, cores, max_steps=max_steps)
    core_start, tail_gap, steps, emitted = [0], [], 0, 0
    for number in range(cores):
        core = expander.core(number)
        core.state[EMITTED], core.state[STEPS] = emitted, steps
        values = iter(loaded[number] if loaded else ())
        while expander.run(core) == NEEDS_VALUE:
            pc = int(core.state[PC]) - 1
            value = next(values, None)
            if value is None:
                hint = "its control depends on data: give the inputs, so that the run can be functional"
                text = "a scalar load needs the contents of memory"
                raise InvalidError(Problem("TW1303", text, program.place(pc), hint))
            if expander.code.destination[pc]:
                core.regs[expander.code.destination[pc]] = value
        emitted, steps = int(core.state[EMITTED]), int(core.state[STEPS])
        core_start.append(emitted)
        tail_gap.append(int(core.state[GAP]))
    arrays, classes = expander.arrays, expander.classes
    return Stream(
        expander.code,
        classes,
        arrays.class_pc[:classes],
        arrays.class_values[:classes],
        arrays.klass[:emitted],
        arrays.gap[:emitted],
        arrays.address[:emitted],
        np.array(core_start, np.int64),
        np.array(tail_gap, np.int64),
        steps,
        np.array([chip.cluster_of(core) for core in range(cores)], np.int64),
    )
