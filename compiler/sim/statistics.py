"""What a run did with the chip: where the cycles of every queue went, what moved, what was computed, what was full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.isa.dtypes import MEMORIES, Queue
from compiler.isa.model import Args
from compiler.sim.occupancy import occupancies
from compiler.sim.pipeline import REASONS

if TYPE_CHECKING:
    from compiler.sim.simulator import Run


@dataclass(frozen=True)
class PathTraffic:
    """What went over one path, on all cores."""

    path: str
    copies: int
    moved_bytes: int
    line_bytes: int  # what DDR and LLB moved for it, in whole lines; 0 inside a core


@dataclass(frozen=True)
class MemoryUse:
    """One kind of memory, where it was fullest."""

    memory: str
    capacity_bytes: int
    touched_bytes: int  # up to the highest address that was touched
    peak_bytes: int | None  # the most that was live at once; not followed for DDR


@dataclass(frozen=True)
class MatrixWork:
    """Multiply-accumulates of one type, without those that fill fractals up."""

    dtype: str
    macs: int
    macs_per_cycle: int  # of one core


@dataclass(frozen=True)
class Statistics:
    """Cycles by core and queue, and totals."""

    program: str
    chip: str
    clock_mhz: int
    chip_cores: int
    cycles: int
    steps: int  # dynamic instructions, those of the scalar unit included
    instructions: np.ndarray  # [core, queue]
    busy: np.ndarray  # [core, queue]
    stalled: np.ndarray  # [core, queue, reason]
    conflict_cycles: np.ndarray  # [core]
    paths: tuple[PathTraffic, ...]
    matrix: tuple[MatrixWork, ...]
    memories: tuple[MemoryUse, ...]
    ddr_bytes: int
    ddr_bytes_per_kilocycle: int

    @property
    def cores(self) -> int:
        return len(self.conflict_cycles)

    @property
    def scalar_instructions(self) -> int:
        """All that the scalar units executed; ``instructions`` has only those that touch memory or flags."""
        return self.steps - int(self.instructions[:, Queue.S + 1 :].sum())

    @property
    def seconds(self) -> float:
        return self.cycles / (self.clock_mhz * 1e6)

    @property
    def macs(self) -> int:
        return sum(work.macs for work in self.matrix)

    @property
    def mac_utilisation(self) -> float:
        """Share of what the cubes of the cores in use could have done in the time."""
        return _share(sum(work.macs / work.macs_per_cycle for work in self.matrix), self.cycles * self.cores)

    @property
    def ddr_utilisation(self) -> float:
        """Share of the chip's DDR bandwidth."""
        return _share(self.ddr_bytes * 1000, self.cycles * self.ddr_bytes_per_kilocycle)

    def busy_share(self, queue: Queue) -> float:
        """Averaged over cores."""
        return _share(int(self.busy[:, queue].sum()), self.cycles * self.cores)

    def busiest_core(self, queue: Queue) -> int:
        return int(self.busy[:, queue].argmax())

    def stalled_share(self, queue: Queue, reason: int) -> float:
        return _share(int(self.stalled[:, queue, reason].sum()), self.cycles * self.cores)

    def to_dict(self) -> dict[str, Any]:
        """Plain tables with the keys of ``tilewright exec --json``."""
        return {
            "program": self.program,
            "chip": self.chip,
            "clock_mhz": self.clock_mhz,
            "chip_cores": self.chip_cores,
            "cores": self.cores,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "steps": self.steps,
            "queues": {queue.name.lower(): self._queue_dict(queue) for queue in Queue},
            "conflict_cycles": self.conflict_cycles.tolist(),
            "paths": {
                p.path: {"copies": p.copies, "moved_bytes": p.moved_bytes, "line_bytes": p.line_bytes}
                for p in self.paths
            },
            "ddr": {"bytes": self.ddr_bytes, "utilisation": self.ddr_utilisation},
            "matrix": {
                "macs": {work.dtype: work.macs for work in self.matrix},
                "utilisation": self.mac_utilisation,
            },
            "memories": {
                m.memory: {
                    "capacity_bytes": m.capacity_bytes,
                    "touched_bytes": m.touched_bytes,
                    "peak_bytes": m.peak_bytes,
                }
                for m in self.memories
            },
        }

    def _queue_dict(self, queue: Queue) -> dict[str, Any]:
        return {
            "instructions": self.instructions[:, queue].tolist(),
            "busy_cycles": self.busy[:, queue].tolist(),
            "stalled_cycles": {reason: self.stalled[:, queue, index].tolist() for index, reason in enumerate(REASONS)},
            "busy": self.busy_share(queue),
        }


def statistics(run: Run) -> Statistics:
    """Everything is a product of per-class figures with how often each core ran the class."""
    stream, classes, chip = run.stream, run.classes, run.chip
    queues = np.zeros((stream.cores, len(Queue)), np.int64)
    conflicts = np.zeros(stream.cores, np.int64)
    total = np.zeros(stream.classes, np.int64)
    for core in range(stream.cores):
        span = slice(int(stream.core_start[core]), int(stream.core_start[core + 1]))
        counts = np.bincount(stream.klass[span], minlength=stream.classes)
        conflicts[core] = counts @ classes.conflict
        np.add.at(queues[core], classes.queue, counts)
        total += counts
    far = np.bincount(stream.klass[classes.takes_ddr(stream)], minlength=stream.classes)
    return Statistics(
        run.program.name,
        chip.name,
        chip.clock_mhz,
        chip.cores,
        run.cycles,
        stream.steps,
        queues,
        run.schedule.busy,
        run.schedule.stalled,
        conflicts,
        _paths(run, total),
        _matrix(run, total),
        _memories(run),
        int(far @ classes.line_bytes),
        chip.bandwidth.ddr_bytes_per_kilocycle,
    )


def _paths(run: Run, total: np.ndarray) -> tuple[PathTraffic, ...]:
    copied_over = [
        p if moved else "" for p, moved in zip(run.classes.path, run.classes.moved_bytes.tolist(), strict=True)
    ]
    names = sorted(set(copied_over) - {""})
    number = {name: index for index, name in enumerate(names)}
    path = np.array([number.get(name, len(names)) for name in copied_over], np.int64)

    def summed(per_class: np.ndarray) -> list[int]:
        sums = np.zeros(len(names) + 1, np.int64)
        np.add.at(sums, path, per_class)
        return [int(value) for value in sums]

    moved, lines = summed(total * run.classes.moved_bytes), summed(total * run.classes.line_bytes)
    copies = summed(total)
    return tuple(PathTraffic(name, copies[i], moved[i], lines[i]) for i, name in enumerate(names))


def _matrix(run: Run, total: np.ndarray) -> tuple[MatrixWork, ...]:
    macs: dict[str, int] = {}
    for count, args in zip(total.tolist(), run.classes.args, strict=True):
        if each := macs_of(args):
            macs[args.dtype] = macs.get(args.dtype, 0) + count * each
    return tuple(MatrixWork(dtype, macs[dtype], run.chip.macs_per_cycle(dtype)) for dtype in sorted(macs))


def macs_of(args: Args) -> int:
    """Of one instruction: cube rows with a ``k`` multiply, the others only write."""
    if args.row.category != "cube" or not hasattr(args, "k"):
        return 0
    return int(getattr(args, "batch", 1) * args.m * args.n * args.k)


def _memories(run: Run) -> tuple[MemoryUse, ...]:
    fullest: dict[str, MemoryUse] = {}
    for one in occupancies(run):
        known = fullest.get(one.memory)
        touched, peak = one.touched_bytes, one.peak_bytes
        if known is not None:
            touched, peak = max(touched, known.touched_bytes), max(peak, known.peak_bytes or 0)
        fullest[one.memory] = MemoryUse(one.memory, one.capacity_bytes, touched, None if one.memory == "ddr" else peak)
    return tuple(fullest[name] for name in MEMORIES if name in fullest)


def _share(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


# ---- as text --------------------------------------------------------------------------------------------------


def table(stats: Statistics) -> str:
    """The figures for people: shares in percent of all cycles, averaged over the cores that ran the program."""
    lines = [
        f"{stats.cycles:,} cycles = {_time(stats.seconds)} at {stats.clock_mhz:,} MHz; {stats.cores} of "
        f"{stats.chip_cores} cores of {stats.chip}, {stats.steps:,} instructions",
        "",
        *_queue_lines(stats),
        "",
        *_traffic_lines(stats),
        *_memory_lines(stats),
    ]
    for work in stats.matrix:
        share = _percent(_share(work.macs / work.macs_per_cycle, stats.cycles * stats.cores))
        lines.append(f"cube {work.dtype}: {work.macs:,} MACs, {share} % of the peak of {stats.cores} cores")
    conflicts = int(stats.conflict_cycles.sum())
    lines.append(f"bank conflicts: {conflicts:,} cycles, {_percent(_share(conflicts, stats.cycles * stats.cores))} %")
    return "\n".join(lines)


def _queue_lines(stats: Statistics) -> Iterable[str]:
    reasons = [reason.replace("_", " ") for reason in REASONS]
    rows = [("queue", "instructions", "busy %", "busiest core", *(f"{reason} %" for reason in reasons), "done %")]
    for queue in Queue:
        used = bool(stats.instructions[:, queue].any()) or queue is Queue.S
        if not used:
            continue
        core, busy = stats.busiest_core(queue), stats.busy_share(queue)
        count = int(stats.instructions[:, queue].sum()) if queue is not Queue.S else stats.scalar_instructions
        shares = [stats.stalled_share(queue, index) for index in range(len(REASONS))]
        most = _percent(_share(int(stats.busy[core, queue]), stats.cycles))
        rows.append((
            queue.name, f"{count:,}", _percent(busy), f"{most} on {core}",
            *map(_percent, shares), _percent(max(0.0, 1 - busy - sum(shares))),
        ))  # fmt: skip
    return _columns(rows)


def _traffic_lines(stats: Statistics) -> Iterable[str]:
    if not stats.paths:
        return
    rows = [("path", "copies", "bytes", "bytes/cycle", "in lines")]
    for p in stats.paths:
        rate = _share(p.moved_bytes, stats.cycles)
        rows.append((p.path, f"{p.copies:,}", f"{p.moved_bytes:,}", f"{rate:,.2f}", f"{p.line_bytes:,}"))
    yield from _columns(rows)
    yield f"ddr: {stats.ddr_bytes:,} bytes in lines, {_percent(stats.ddr_utilisation)} % of its bandwidth"
    yield ""


def _memory_lines(stats: Statistics) -> Iterable[str]:
    if not stats.memories:
        return
    rows = [("memory", "most live", "%", "touched up to", "of")]
    for m in stats.memories:
        peak = "-" if m.peak_bytes is None else f"{m.peak_bytes:,}"
        share = "-" if m.peak_bytes is None else _percent(_share(m.peak_bytes, m.capacity_bytes))
        rows.append((m.memory, peak, share, f"{m.touched_bytes:,}", f"{m.capacity_bytes:,}"))
    yield from _columns(rows)
    yield ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:,.3f} {unit}"
    return f"{seconds / 1e-9:,.1f} ns"


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """The first column to the left, all others, which hold numbers, to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  ".join([f"{row[0]:<{widths[0]}}", *cells[1:]]).rstrip()


def summed_by_core(several: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of what programs have by core, of which some may run on fewer cores than others."""
    most = max(several, key=len)
    found = np.zeros_like(most)
    for each in several:
        found[: len(each)] += each
    return found
