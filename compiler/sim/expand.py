"""The scalar unit, run once per core: a program becomes a stream of dynamic instructions held in arrays.

Timing depends on data only through scalars, so the stream holds all there is to time, check and compute. Dynamic
instructions that can only differ in the address bits that no rule or cost looks at share a *class*: what an
instruction costs, touches and allows is worked out once per class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from compiler.errors import InvalidError, LimitError, Problem
from compiler.isa.model import REGISTERS
from compiler.isa.program import Program
from compiler.isa.table.control import LOOP_DEPTH
from compiler.sim.code import MAX_SLOTS, Code, lay_out
from compiler.sim.scalar_unit import (
    BAD_TARGET,
    BAD_TILING,
    CLASSES,
    CLASSES_FULL,
    DONE,
    EMITTED,
    FAULT,
    GAP,
    LOOPS_TOO_DEEP,
    NEEDS_VALUE,
    PC,
    STEP_LIMIT,
    STEPS,
    STREAM_FULL,
    TRAPPED,
    rehash,
    run,
)
from compiler.target import Chip

if TYPE_CHECKING:
    from compiler.sim.known_loads import KnownLoads

MAX_STEPS = 200_000_000
FIRST_SHARE = 1.25  # of an even share of the steps, what the first of cores that do alike may take
# What a run may hold: 100 bytes for each dispatched instruction, 230 where hazards are looked for, and 2 KiB a class.
MAX_DISPATCHED, MAX_CLASSES = 1 << 25, 1 << 18


class UnknownLoad(InvalidError):
    """The program depends on a scalar load of which it is not known what it reads."""


def unknown_load(program: Program, pc: int) -> UnknownLoad:
    hint = "its control depends on data: give the inputs, so that the run can be functional"
    return UnknownLoad(Problem("TW1303", "a scalar load needs the contents of memory", program.place(pc), hint))


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
        rehash(classes, slots, self.class_pc, self.class_values, self.hashed)


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
            status = run(
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
    program: Program,
    chip: Chip,
    cores: int,
    *,
    loaded: list[list[int]] | None = None,
    known: KnownLoads | None = None,
    max_steps: int = MAX_STEPS,
    cores_alike: bool = False,
) -> Stream:
    """The whole stream of a program; what its scalar loads read from memory is ``loaded``, by core, or is ``known``.

    Where ``cores_alike``, the first core ends at its share of ``max_steps``: the others then need not be run to see
    that the program is too long.
    """
    expander = Expander(program, chip, cores, max_steps=max_steps)
    core_start, tail_gap, steps, emitted = [0], [], 0, 0
    for number in range(cores):
        is_told = cores_alike and number == 0
        expander.max_steps = min(max_steps, int(max_steps * FIRST_SHARE / cores)) if is_told else max_steps
        core = expander.core(number)
        core.state[EMITTED], core.state[STEPS] = emitted, steps
        values = iter(loaded[number] if loaded else ())
        if known is not None:
            known.begin(emitted)
        while expander.run(core) == NEEDS_VALUE:
            pc = int(core.state[PC]) - 1
            value = next(values, None) if known is None else known.value(expander, int(core.state[EMITTED]) - 1)
            if value is None:
                raise unknown_load(program, pc)
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
