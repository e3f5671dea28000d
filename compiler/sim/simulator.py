"""Run a program on the emulated chip: expand the scalar units, time the queues, check the order, compute the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from compiler.errors import HazardError, Problem, UsageError
from compiler.isa.program import Program
from compiler.sim.classes import ClassTable, check_bounds, classify
from compiler.sim.expand import MAX_STEPS, Stream, expand
from compiler.sim.functional import compute
from compiler.sim.hazards import HazardReport
from compiler.sim.interpreter import interpret
from compiler.sim.memory import Memories
from compiler.sim.pipeline import Schedule, schedule
from compiler.target import Chip


@dataclass(frozen=True)
class Run:
    """The outcome of a simulation: times always, outputs where inputs were given, hazards where they were asked for."""

    program: Program
    chip: Chip
    stream: Stream
    classes: ClassTable
    schedule: Schedule
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    hazards: list[Problem] = field(default_factory=list)

    @property
    def cycles(self) -> int:
        return self.schedule.cycles


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
) -> Run:
    """Simulate; without ``inputs`` only the timing.

    Deadlocks, doubled flags and accesses out of bounds raise. With ``hazards`` races, uninitialised reads and leaked
    flags are collected in the result. A ``seed`` above zero delays the queues at random.
    """
    loaded = None
    if inputs is not None and any(instr.row.kind == "sld" for instr in program.instrs):
        loaded = interpret(program, chip, inputs).loaded
    stream, classes = prepare(program, chip, loaded=loaded, max_steps=max_steps)
    timed = schedule(stream, classes, chip, seed=seed)
    report = HazardReport(stream, classes, timed, program, chip)
    stuck = report.stuck()
    if stuck:
        raise HazardError(stuck)
    found = report.races() + report.leaks() if hazards else []
    outputs = {}
    if inputs is not None:
        memories = Memories(program, chip, stream.cores, inputs)
        read = compute(stream, classes, timed, memories)
        outputs = memories.outputs()
        if loaded is not None and read != loaded:
            found.append(
                Problem("TW1406", "scalar loads read other values than in program order: they race with a write")
            )
    return Run(program, chip, stream, classes, timed, outputs, found)


def prepare(
    program: Program, chip: Chip, *, loaded: list[list[int]] | None = None, max_steps: int = MAX_STEPS
) -> tuple[Stream, ClassTable]:
    """All that precedes the clock: the dynamic stream, and its classes checked and costed."""
    stream = expand(program, chip, core_count(program, chip), loaded=loaded, max_steps=max_steps)
    classes = classify(stream, program, chip)
    check_bounds(stream, classes, program, chip)
    return stream, classes
