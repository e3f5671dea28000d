"""Run a program on the emulated chip: expand the scalar units, time the queues, check the order, compute the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from compiler.errors import HazardError, Problem, TilewrightError, UsageError
from compiler.isa.dtypes import DTYPES
from compiler.isa.program import Program
from compiler.processors import processors
from compiler.sim.broadcasts import check_broadcasts
from compiler.sim.classes import ClassTable, check_bounds, classify
from compiler.sim.expand import MAX_STEPS, Stream, expand
from compiler.sim.functional import Computation
from compiler.sim.hazards import HazardReport
from compiler.sim.interpreter import MAX_STEPS as INTERPRETED_STEPS
from compiler.sim.interpreter import interpret
from compiler.sim.known_loads import KnownLoads
from compiler.sim.memory import Memories
from compiler.sim.pipeline import Schedule, schedule
from compiler.sim.sums import MAX_WORKERS, Workers
from compiler.sim.tape import Tape
from compiler.target import Chip

# Roles of buffers whose contents the caller gives.
GIVEN = ("input", "inout")


@dataclass
class Run:
    """One simulation: times always, hazards where they were asked for, outputs once it was executed."""

    program: Program
    chip: Chip
    stream: Stream
    classes: ClassTable
    schedule: Schedule
    hazards: list[Problem]
    checked: bool = False  # whether hazards were looked for
    loaded: list[list[int]] | None = None  # per core, what its scalar loads were taken to read
    depends_on_data: bool = False  # whether they read what the program is given, or computes
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    _workers: Workers = field(default_factory=lambda: Workers(1))
    _recorded: tuple[Memories, Tape] | None = None

    @property
    def cycles(self) -> int:
        return self.schedule.cycles

    @cached_property
    def computation(self) -> Computation:
        return Computation(self.stream, self.classes, self.schedule)

    def record(self) -> bool:
        """Set up executions in advance, on inputs of zeros: they then only touch numbers. False where that cannot be,
        for a program that depends on data, or one too large to be recorded."""
        zeros = {b.name: np.zeros(b.shape, DTYPES[b.dtype].numpy) for b in self.program.buffers if b.role in GIVEN}
        if not self.depends_on_data and self._recorded is None:
            self._compute(zeros, Tape())
        return self._recorded is not None

    def execute(self, inputs: Mapping[str, np.ndarray], *, workers: int | None = None) -> list[list[int]]:
        """Compute ``outputs`` from ``inputs``; any number of times. Returns what the scalar loads read.

        The result does not depend on the number of workers. A program that can be recorded is when it is executed for
        the first time, if it was not before.
        """
        self._workers.count = min(MAX_WORKERS, workers or processors())
        loaded: list[list[int]] = [[] for _ in range(self.stream.cores)]
        if self._recorded is not None:
            memories, tape = self._recorded
            if self.hazards or not self.checked:
                memories.clear()  # or it could read what the execution before has left there
            memories.fill(inputs)
            tape.play()
        else:
            memories, loaded = self._compute(inputs, None if self.depends_on_data else Tape())
        self.outputs = memories.outputs()
        return loaded

    def _compute(self, inputs: Mapping[str, np.ndarray], tape: Tape | None) -> tuple[Memories, list[list[int]]]:
        memories = Memories(self.program, self.chip, self.stream.cores, inputs)
        loaded = self.computation.run(memories, self._workers, tape)
        if tape is not None and tape.complete:
            self._recorded = (memories, tape)
            del self.computation  # the tape does what it did
        return memories, loaded


def core_count(program: Program, chip: Chip) -> int:
    """How many cores run the program: as many as it says, or all."""
    cores = program.cores or chip.cores
    if not 1 <= cores <= chip.cores:
        raise UsageError(Problem("TW1304", f"the program wants {cores} cores; {chip.name} has {chip.cores}"))
    return cores


def simulate(
    program: Program,
    chip: Chip,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    hazards: bool = False,
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    workers: int | None = None,
) -> Run:
    """Simulate; without ``inputs`` only the timing.

    Deadlocks, doubled flags and accesses out of bounds raise. With ``hazards`` races, uninitialised reads and leaked
    flags are collected in the result. A ``seed`` above zero delays the queues at random.
    """
    run = _foreknown(program, chip, inputs, hazards, seed, max_steps)
    if run is None:
        loaded = interpret(program, chip, inputs, max_steps=min(max_steps, INTERPRETED_STEPS)).loaded
        run = prepare(program, chip, hazards=hazards, seed=seed, loaded=loaded, max_steps=max_steps)
    if inputs is not None:
        read = run.execute(inputs, workers=workers)
        if run.loaded is not None and read != run.loaded:
            text = "scalar loads read other values than in program order: they race with a write"
            run.hazards.append(Problem("TW1406", text))
    return run


def _foreknown(
    program: Program, chip: Chip, inputs: Mapping[str, np.ndarray] | None, hazards: bool, seed: int, max_steps: int
) -> Run | None:
    """All that needs no run of the program; None where what its scalar loads read takes one."""
    try:
        return prepare(program, chip, inputs, hazards=hazards, seed=seed, max_steps=max_steps)
    except TilewrightError:  # may be due to a value that another instruction has changed
        if inputs is None or not loads_scalars(program):
            raise
        return None


def loads_scalars(program: Program) -> bool:
    return any(instr.row.kind == "sld" for instr in program.instrs)


def prepare(
    program: Program,
    chip: Chip,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    hazards: bool = False,
    seed: int = 0,
    loaded: list[list[int]] | None = None,
    max_steps: int = MAX_STEPS,
    cores_alike: bool = False,
) -> Run:
    """All that does not need a run: the dynamic stream, its classes checked and costed, its times and its order.

    What scalar loads read is ``loaded``, or told by the scalar unit and ``inputs``; else UnknownLoad is raised. Where
    ``cores_alike``, the first core tells whether there are more than ``max_steps``.
    """
    known = KnownLoads(program, chip, inputs) if loaded is None and loads_scalars(program) else None
    cores = core_count(program, chip)
    stream = expand(program, chip, cores, loaded=loaded, known=known, max_steps=max_steps, cores_alike=cores_alike)
    classes = classify(stream, program, chip)
    check_bounds(stream, classes, program, chip)
    check_broadcasts(stream, classes, program, chip)
    if known is not None:
        known.confirm(stream, classes)
    timed = schedule(stream, classes, chip, seed=seed)
    report = HazardReport(stream, classes, timed, program, chip)
    stuck = report.stuck()
    if stuck:
        raise HazardError(stuck)
    found = report.races() + report.leaks() if hazards else []
    depends = known.depend_on_inputs if known is not None else loaded is not None
    return Run(program, chip, stream, classes, timed, found, hazards, known.loaded if known else loaded, depends)
