"""Whose the cycles are: what every queue of every core did and waited for, kernel by kernel.

The simulator counts this for whole programs. Here the same is worked out per instruction, from when it started and
ended, and summed by kernel: over all kernels it adds up to what the simulator counted. What a queue does not do after
its last instruction belongs to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.isa.dtypes import INTERLOCKED, Queue
from compiler.isa.program import Program
from compiler.isa.timing import LLB
from compiler.runtime.kernel_cycles import plain_name
from compiler.sim import classes as kinds
from compiler.sim.pipeline import BANDWIDTH, BARRIER, EMPTY, FLAG, QUEUE_FULL, REASONS
from compiler.sim.simulator import Run
from compiler.sim.statistics import macs_of

Q = len(Queue)
S = int(Queue.S)
_INTERLOCKED = np.array([queue in INTERLOCKED for queue in Queue])
_SCALAR_WAITS = (kinds.WAIT, kinds.CROSS_WAIT)
_MEETINGS = (kinds.CORE_BARRIER, kinds.CLUSTER_BARRIER)


@dataclass(frozen=True)
class Path:
    """What one kernel moved between two memories."""

    copies: int
    moved_bytes: int
    line_bytes: int

    def __add__(self, other: Path) -> Path:
        return Path(
            self.copies + other.copies, self.moved_bytes + other.moved_bytes, self.line_bytes + other.line_bytes
        )


@dataclass(frozen=True)
class Attribution:
    """Arrays by [kernel], [kernel, core, queue] and [kernel, core, queue, reason]; times are those of the run."""

    names: tuple[str, ...]
    start: np.ndarray  # when its first instruction started
    end: np.ndarray  # when its last result was there
    cycles: np.ndarray  # from the end of all before it to its own; adds up to all
    busy: np.ndarray
    stalled: np.ndarray
    instructions: np.ndarray  # [kernel, queue]
    conflicts: np.ndarray
    ddr_bytes: np.ndarray  # in whole lines
    llb_bytes: np.ndarray
    macs: tuple[Mapping[str, int], ...]
    paths: tuple[Mapping[str, Path], ...]

    def together(self, groups: Sequence[Sequence[int]]) -> Attribution:
        """Of groups of kernels, each called by its first."""

        def summed(values: np.ndarray) -> np.ndarray:
            found: np.ndarray = np.stack([values[list(group)].sum(axis=0) for group in groups])
            return found

        return Attribution(
            tuple(self.names[group[0]] for group in groups),
            np.array([self.start[list(group)].min() for group in groups]),
            np.array([self.end[list(group)].max() for group in groups]),
            summed(self.cycles),
            summed(self.busy),
            summed(self.stalled),
            summed(self.instructions),
            summed(self.conflicts),
            summed(self.ddr_bytes),
            summed(self.llb_bytes),
            tuple(_added([self.macs[kernel] for kernel in group]) for group in groups),
            tuple(_joined([self.paths[kernel] for kernel in group]) for group in groups),
        )


def _added(tables: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {key: sum(table.get(key, 0) for table in tables) for key in dict.fromkeys(k for t in tables for k in t)}


def _joined(tables: Sequence[Mapping[str, Path]]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for table in tables:
        for name, path in table.items():
            found[name] = found.get(name, Path(0, 0, 0)) + path
    return found


def kernel_of_instruction(program: Program) -> tuple[tuple[str, ...], np.ndarray]:
    """The uses of kernels in order, and which one each instruction is of: a layer in pieces is as many of one name."""
    labels = sorted(program.labels, key=lambda label: label[1]) or [(program.name, 0)]
    numbers = {label: index for index, label in enumerate(dict.fromkeys(name for name, _ in labels))}
    number = np.array([numbers[name] for name, _ in labels])
    starts = np.array([at for _, at in labels])
    piece = np.maximum(np.searchsorted(starts, np.arange(len(program.instrs)), side="right") - 1, 0)
    return tuple(map(plain_name, numbers)), number[piece]


def attribute(run: Run) -> Attribution:
    names, kernel = kernel_of_instruction(run.program)
    return _Work(run, names, kernel[run.stream.pc]).attribution()


class _Work:
    """Everything per dynamic instruction, as arrays."""

    def __init__(self, run: Run, names: tuple[str, ...], kernel: np.ndarray) -> None:
        stream = run.stream
        self.run, self.names, self.kernel = run, names, kernel
        self.klass = stream.klass
        self.queue = run.classes.queue[self.klass].astype(np.int64)
        self.kind = run.classes.kind[self.klass]
        self.core = np.repeat(np.arange(stream.cores), np.diff(stream.core_start))

    def attribution(self) -> Attribution:
        run, classes = self.run, self.run.classes
        shares = classes.shares[self.klass]
        lines = classes.line_bytes[self.klass]
        start, end = self._spans()
        return Attribution(
            self.names,
            start,
            end,
            np.diff(np.append(np.maximum.accumulate(end)[:-1], run.cycles), prepend=0),
            self._by_place(self._busy()) + self._scalar_busy(),
            self._all_stalled(),
            self._summed(np.ones(len(self.klass), np.int64), (Q,), self.queue),
            self._summed(classes.conflict[self.klass]),
            self._summed(np.where(classes.takes_ddr(run.stream), lines, 0)),
            self._summed(np.where(shares & LLB, lines, 0)),
            self._macs(),
            self._paths(),
        )

    # ---- sums

    def _summed(self, values: np.ndarray, shape: tuple[int, ...] = (), place: np.ndarray | int = 0) -> np.ndarray:
        """Exact sums of integers, by kernel and by the place within it."""
        found = np.zeros((len(self.names), int(np.prod(shape))), np.int64)
        np.add.at(found, (self.kernel, np.asarray(place)), values)
        return found.reshape(len(self.names), *shape)

    def _by_place(self, values: np.ndarray) -> np.ndarray:
        return self._summed(values, (self.run.stream.cores, Q), self.core * Q + self.queue)

    # ---- time

    def _spans(self) -> tuple[np.ndarray, np.ndarray]:
        start = np.full(len(self.names), np.iinfo(np.int64).max)
        end = np.zeros(len(self.names), np.int64)
        np.minimum.at(start, self.kernel, self.run.schedule.start)
        np.maximum.at(end, self.kernel, self.run.schedule.complete)
        return np.minimum(start, end), end

    @cached_property
    def _alone(self) -> np.ndarray:
        """For how long an instruction would hold its queue if it had DDR and LLB to itself."""
        classes = self.run.classes
        rate = np.maximum(classes.rate, 1)
        transfer = np.maximum(classes.cycles, -(-classes.line_bytes * 1000 // rate))
        held: np.ndarray = np.where(classes.kind == kinds.TRANSFER, transfer, classes.cycles)[self.klass]
        return held

    def _busy(self) -> np.ndarray:
        """Of barriers between cores all is waiting."""
        return np.where(np.isin(self.kind, _MEETINGS), 0, self._alone)

    def _scalar_busy(self) -> np.ndarray:
        """What the scalar unit executes between dispatches, and dispatching, belong to what is dispatched next."""
        issue = np.where(self.queue != S, self.run.chip.scalar.issue_cycles, 0)
        cores = self.run.stream.cores
        found = self._summed(self.run.stream.gap + issue, (cores, Q), self.core * Q + S)
        tail = np.zeros_like(found)
        tail[-1, :, S] = self.run.stream.tail_gap
        total: np.ndarray = found + tail
        return total

    @cached_property
    def _freed(self) -> np.ndarray:
        """When there was room in an instruction's queue: when the one that many places before it left it."""
        freed = np.zeros(len(self.klass), np.int64)
        depth, start = self.run.chip.queues.depth, self.run.schedule.start
        for at in self._lines:
            freed[at[depth:]] = start[at[:-depth]] if len(at) > depth else 0
        return freed

    @cached_property
    def _lines(self) -> list[np.ndarray]:
        """The instructions of each queue of each core, in order; those of the scalar units are not among them."""
        place = np.where(self.queue == S, -1, self.core * Q + self.queue)
        order = np.argsort(place, kind="stable")
        borders = np.flatnonzero(np.diff(place[order], prepend=-1))
        return [part for part in np.split(order, borders) if part.size and place[part[0]] >= 0]

    @cached_property
    def _dispatched(self) -> np.ndarray:
        """When the scalar unit was done with each instruction: a maximum over what it could have waited for."""
        run = self.run
        found = np.zeros(len(self.klass), np.int64)
        for core in range(run.stream.cores):
            span = slice(int(run.stream.core_start[core]), int(run.stream.core_start[core + 1]))
            scalar = self.queue[span] == S
            issue = np.where(scalar, 0, run.chip.scalar.issue_cycles)
            ahead = np.cumsum(run.stream.gap[span] + issue)
            known = np.where(scalar, run.schedule.end[span], self._freed[span] + issue)
            found[span] = ahead + np.maximum.accumulate(np.maximum(known - ahead, 0))
        return found

    @cached_property
    def _ready(self) -> np.ndarray:
        """When the scalar unit came to an instruction."""
        before = np.roll(self._dispatched, 1)
        first = self.run.stream.core_start[:-1]
        before[first[first < len(before)]] = 0
        ready: np.ndarray = before + self.run.stream.gap
        return ready

    @cached_property
    def _free(self) -> np.ndarray:
        """When its queue had done the instruction before it."""
        schedule = self.run.schedule
        waits_for_result = _INTERLOCKED[self.queue] & (self.kind == kinds.PLAIN)
        done = np.where(waits_for_result, schedule.complete, schedule.end)
        free = np.zeros(len(self.klass), np.int64)
        for at in self._lines:
            free[at[1:]] = done[at[:-1]]
        return free

    def _all_stalled(self) -> np.ndarray:
        schedule, scalar = self.run.schedule, self.queue == S
        arrived = np.where(scalar, self._ready, np.maximum(self._free, self._dispatched))
        waited = schedule.start - arrived
        meets = np.isin(self.kind, _MEETINGS)
        at_barrier = meets | np.isin(self.kind, (kinds.PIPE_BARRIER, kinds.BARRIER_ALL))
        at_flag = ~at_barrier & (~scalar | np.isin(self.kind, _SCALAR_WAITS))
        held = schedule.end - schedule.start
        found = dict.fromkeys(range(len(REASONS)), np.zeros(0))
        found[EMPTY] = self._by_place(np.where(scalar, 0, np.maximum(self._dispatched - self._free, 0)))
        found[FLAG] = self._by_place(np.where(at_flag, waited, 0))
        found[BARRIER] = self._by_place(np.where(at_barrier, waited + np.where(meets, held, 0), 0))
        found[BANDWIDTH] = self._by_place(np.where(self.kind == kinds.TRANSFER, held - self._alone, 0))
        full = np.where(scalar, 0, np.maximum(self._freed - self._ready, 0))
        found[QUEUE_FULL] = self._summed(full, (self.run.stream.cores, Q), self.core * Q + S)
        return np.stack([found[reason] for reason in range(len(REASONS))], axis=-1)

    # ---- what was done

    def _counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How often each kernel ran each class: (kernel, class, how often)."""
        pair = self.kernel.astype(np.int64) * len(self.run.classes.args) + self.klass
        found, counts = np.unique(pair, return_counts=True)
        return found // len(self.run.classes.args), found % len(self.run.classes.args), counts

    @cached_property
    def _ran(self) -> list[tuple[int, int, int]]:
        return list(zip(*(column.tolist() for column in self._counts()), strict=True))

    def _macs(self) -> tuple[dict[str, int], ...]:
        found: tuple[dict[str, int], ...] = tuple({} for _ in self.names)
        for kernel, klass, count in self._ran:
            args = self.run.classes.args[klass]
            if each := macs_of(args):
                found[kernel][args.dtype] = found[kernel].get(args.dtype, 0) + count * each
        return found

    def _paths(self) -> tuple[dict[str, Path], ...]:
        found: tuple[dict[str, Path], ...] = tuple({} for _ in self.names)
        classes = self.run.classes
        moved, lines = classes.moved_bytes.tolist(), classes.line_bytes.tolist()
        for kernel, klass, count in self._ran:
            path = classes.path[klass]
            if moved[klass] and path:  # what fills a memory comes from nowhere
                more = Path(count, count * moved[klass], count * lines[klass])
                found[kernel][path] = found[kernel].get(path, Path(0, 0, 0)) + more
        return found
