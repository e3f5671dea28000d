"""A compiled model with all that a report says of how it came to be, and which of two takes fewer cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from compiler.clusters import clusters_of
from compiler.codegen.link import Linked
from compiler.codegen.residence import FarResult
from compiler.cost import Unpredictable, predict_program
from compiler.decisions import Decisions
from compiler.frontend import Imported
from compiler.kernel_uses import Step
from compiler.kernels import Kernel, Road
from compiler.model_kernels import ModelKernels
from compiler.runtime.model import CompiledModel, HostSegment, ProgramSegment
from compiler.timing import TIMING, cycles_of

CLEARLY = 0.97  # of the predicted cycles: where a rival takes no less, it is not known whether it is faster


@dataclass(frozen=True)
class Compilation:
    """A compiled model with all that a report says of how it came to be."""

    model: CompiledModel
    steps: tuple[Step, ...]
    imported: Imported
    module: Any  # the Relax module after the graph passes
    seconds: Mapping[str, float]
    roads: tuple[Road, ...]
    linked: tuple[Linked, ...]  # the programs
    decisions: Decisions
    kernels: ModelKernels
    ends: tuple[Compilation, ...] = ()  # head and tail, where these were compiled as models of their own
    passed_on: tuple[FarResult, ...] = ()  # by the head to the tail

    @property
    def pieces(self) -> tuple[Compilation, ...]:
        """What was compiled as a model of its own, in order: itself, or its ends."""
        return tuple(piece for end in self.ends for piece in end.pieces) or (self,)

    @property
    def far_results(self) -> tuple[FarResult, ...]:
        """What goes through DDR between kernels."""
        return (*(each for one in self.linked for each in one.far_results), *self.passed_on)

    @property
    def clusters(self) -> int:
        """How many clusters run it, each on its part of the batch; none where all work together on every kernel."""
        return clusters_of(self.module)

    @cached_property
    def predicted_cycles(self) -> float:
        """Of all programs of the model, one after another; infinite where data decides what they do."""
        if self.ends:
            return sum(end.predicted_cycles for end in self.ends)
        programs = [each.program for each in self.model.segments if isinstance(each, ProgramSegment)]
        runs = [run for run, host in runs_of(self.steps) if host is None]
        cycles = 0.0
        for program, run in zip(programs, runs, strict=True):
            turns = {name: kernel.code.turns for name, kernel, _ in labelled(run)}
            try:
                cycles += predict_program(program, self.model.chip, turns).cycles
            except Unpredictable:
                return inf
        return cycles

    @cached_property
    def simulated_cycles(self) -> int | None:
        """The same to the cycle; None where data decides, or where it takes long to know."""
        cycles = 0
        for segment in self.model.segments:
            found = cycles_of(segment.program, self.model.chip) if isinstance(segment, ProgramSegment) else 0
            if found is None:
                return None
            cycles += found
        return cycles


def is_faster(one: Compilation, than: Compilation, share: float = 1.0) -> bool:
    """Whether it takes fewer cycles; where these are predicted only, less than a ``share``."""
    own, others, is_exact = cycles_of_both(one, than)
    return own < others * (1.0 if is_exact else share)


def cycles_of_both(one: Compilation, other: Compilation) -> tuple[float, float, bool]:
    """Of both, and whether they are the simulator's, which are asked for where it soon tells them."""
    if TIMING not in one.kernels.observer.without:
        exact = one.simulated_cycles
        exact_other = None if exact is None else other.simulated_cycles
        if exact is not None and exact_other is not None:
            return exact, exact_other, True
    return one.predicted_cycles, other.predicted_cycles, False


def runs_of(steps: Sequence[Step]) -> list[tuple[list[Step], HostSegment | None]]:
    """The steps as runs on the chip, and single steps on the host between them."""
    runs: list[tuple[list[Step], HostSegment | None]] = []
    for step in steps:
        if step.host is not None:
            runs.append(([step], step.host))
        elif runs and runs[-1][1] is None:
            runs[-1][0].append(step)
        else:
            runs.append(([step], None))
    return runs


def labelled(run: Sequence[Step]) -> Iterator[tuple[str, Kernel, tuple[str, ...]]]:
    """The kernels of a run by their names in the program, with the buffers that they are called with."""
    for index, step in enumerate(run):
        if step.kernel is not None:
            yield f"k{index}.{step.name}", step.kernel, step.arguments
