"""Where a model's cycles go: each kernel's share of the time, which adds up to all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.isa.program import Program
from compiler.runtime.model import CompiledModel
from compiler.sim.simulator import Run


@dataclass(frozen=True)
class KernelCycles:
    """``cycles`` pass from the end of all kernels before it until the kernel's last result is there."""

    kernel: str
    nodes: tuple[str, ...]
    cycles: int
    program: int  # which of the model's programs it is in


def kernel_of(program: Program, index: int) -> str:
    """The use of a kernel that an instruction belongs to; empty in a program that somebody wrote."""
    starts = [at for _, at in program.labels]
    found = int(np.searchsorted(starts, index, side="right")) - 1
    return program.labels[found][0] if found >= 0 else ""


def plain_name(label: str) -> str:
    """A kernel's name in the manifest: labels say before it the how manieth it is."""
    return label.partition(".")[2] or label


def kernel_cycles(model: CompiledModel, runs: Sequence[Run]) -> tuple[KernelCycles, ...]:
    nodes = dict(model.kernels)
    return tuple(
        KernelCycles(plain_name(label), nodes.get(plain_name(label), ()), cycles, number)
        for number, run in enumerate(runs)
        for label, cycles in _shares(run)
    )


def _shares(run: Run) -> Iterable[tuple[str, int]]:
    labels = sorted(run.program.labels, key=lambda label: label[1])
    if not labels:
        return [(run.program.name, run.cycles)]
    last_result = np.zeros(len(run.program.instrs), np.int64)
    np.maximum.at(last_result, run.stream.pc, run.schedule.complete)
    starts = np.array([at for _, at in labels])
    inside = starts < len(last_result)
    ends_of_parts = np.zeros(len(labels), np.int64)
    ends_of_parts[inside] = np.maximum.reduceat(last_result, starts[inside])
    ends = dict[str, int]()
    for (name, _), end in zip(labels, ends_of_parts.tolist(), strict=True):
        ends[name] = max(end, ends.get(name, 0))
    ended = np.maximum.accumulate([*ends.values()])
    ended[-1] = run.cycles
    shares = np.diff(np.minimum(ended, run.cycles), prepend=0)
    return zip(ends, shares.tolist(), strict=True)
