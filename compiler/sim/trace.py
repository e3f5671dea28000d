"""A run as a timeline that chrome://tracing and ui.perfetto.dev open: a process per core, a thread per queue.

One microsecond of the timeline is one cycle, so that every number is an exact integer. The thread ``core`` spans all
of what a core does: the last event of the file ends when the run does. The thread ``kernels`` says which kernel had not
ended yet, of several the first. An instruction's slice is the time for which it holds its queue; when its result is
there, and of which kernel it is, stands among its arguments. Counters show the live bytes of memories and what DDR and
LLB move.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np

from compiler.isa.disassembler import instruction_text
from compiler.isa.dtypes import INTERLOCKED, SHARED_MEMORIES, Queue
from compiler.isa.timing import DDR, LLB
from compiler.sim import classes as k
from compiler.sim.occupancy import occupancies

if TYPE_CHECKING:
    from compiler.sim.simulator import Run

MAX_EVENTS = 500_000
MAX_COUNTER_EVENTS = 100_000
COUNTER_POINTS = 2000  # of one counter
MAX_TEXT_CHARS = 1000
CORE_THREAD = len(Queue)
KERNEL_THREAD = CORE_THREAD + 1
CLUSTER_PROCESS = 1 << 16  # the first process that stands for a cluster
CHIP_PROCESS = CLUSTER_PROCESS - 1
BANDWIDTHS = (("ddr", DDR), ("llb", LLB))
Nodes = Mapping[str, tuple[str, ...]]  # the ONNX nodes of a kernel, by the label of its use
_CHUNK = 1 << 14
_INTERLOCKED = np.array([queue in INTERLOCKED for queue in Queue])


@dataclass(frozen=True)
class Written:
    """What a trace holds, and the cycle up to which no instruction is missing."""

    instructions: int
    left_out: int
    complete_until: int

    @property
    def note(self) -> str:
        """Why the trace is not whole; empty where it is."""
        if not self.left_out:
            return ""
        total = self.instructions + self.left_out
        return f"the trace shows {self.instructions} of {total} instructions: those before cycle {self.complete_until}"


def save_trace(run: Run, path: str | os.PathLike[str], nodes: Nodes = MappingProxyType({})) -> Written:
    """Write a trace to a file, which appears whole or not at all."""
    from compiler.artifact.files import write_atomically

    written: list[Written] = []

    def write(file: BinaryIO) -> None:
        text = TextIOWrapper(file, encoding="ascii", newline="\n")
        written.append(write_trace(run, text, nodes=nodes))
        text.flush()
        text.detach()

    write_atomically(path, write, "the trace")
    return written[0]


def write_trace(
    run: Run, file: IO[str], *, max_events: int = MAX_EVENTS, nodes: Nodes = MappingProxyType({})
) -> Written:
    """Write the run as Chrome trace JSON, event by event; of more than ``max_events`` instructions the first ones.

    Kernels are called by their ``nodes``, where these are given, and by their labels.
    """
    shown = _shown(run, max_events)
    left_out = run.stream.size - len(shown)
    until = run.cycles if not left_out else int(run.schedule.start[shown].max(initial=0))
    written = Written(len(shown), left_out, until)
    file.write('{"displayTimeUnit":"ns",\n"otherData":')
    file.write(json.dumps(_metadata(run, written)))
    file.write(',\n"traceEvents":[')
    separator = "\n"
    for event in _events(run, shown, written, nodes):
        file.write(separator)
        file.write(event)
        separator = ",\n"
    file.write("\n]}\n")
    return written


def _shown(run: Run, limit: int) -> np.ndarray:
    """The dynamic instructions to show, in the order of their starts."""
    order = np.argsort(run.schedule.start, kind="stable")
    return order[:limit]


def _metadata(run: Run, written: Written) -> dict[str, Any]:
    data: dict[str, Any] = {
        "time_unit": "1 us in this file is 1 cycle",
        "program": run.program.name,
        "chip": run.chip.name,
        "clock_mhz": run.chip.clock_mhz,
        "cores": run.stream.cores,
        "cycles": run.cycles,
    }
    if written.note:
        data["truncated"] = written.note
    return data


def _events(run: Run, shown: np.ndarray, written: Written, nodes: Nodes) -> Iterator[str]:
    yield from _names(run)
    for core, finish in enumerate(run.schedule.finished_at.tolist()):
        yield _json(ph="X", pid=core, tid=CORE_THREAD, ts=0, dur=finish, name=run.program.name, cat="core")
    yield from _kernels(run, nodes)
    yield from _instructions(run, shown, nodes)
    yield from _flows(run, shown)
    yield from _counters(run)
    yield from _bandwidths(run)
    if written.note:
        yield _json(ph="i", s="g", pid=0, tid=CORE_THREAD, ts=written.complete_until, name=written.note)


def _names(run: Run) -> Iterator[str]:
    for core in range(run.stream.cores):
        yield _json(ph="M", pid=core, name="process_name", args={"name": f"core {core}"})
        yield _json(ph="M", pid=core, name="process_sort_index", args={"sort_index": core})
        yield _json(ph="M", pid=core, tid=CORE_THREAD, name="thread_name", args={"name": "core"})
        yield _json(ph="M", pid=core, tid=CORE_THREAD, name="thread_sort_index", args={"sort_index": -2})
        if run.program.labels:
            yield _json(ph="M", pid=core, tid=KERNEL_THREAD, name="thread_name", args={"name": "kernels"})
            yield _json(ph="M", pid=core, tid=KERNEL_THREAD, name="thread_sort_index", args={"sort_index": -1})
        for queue in Queue:
            yield _json(ph="M", pid=core, tid=int(queue), name="thread_name", args={"name": queue.name})
            yield _json(ph="M", pid=core, tid=int(queue), name="thread_sort_index", args={"sort_index": int(queue)})


# ---- kernels ----------------------------------------------------------------------------------------------------


def _labels(run: Run) -> tuple[list[str], np.ndarray]:
    """The labels of a program in order, and the instructions from which on they hold."""
    labels = sorted(run.program.labels, key=lambda label: label[1])
    return [name for name, _ in labels], np.array([at for _, at in labels], np.int64)


def _title(label: str, nodes: Nodes) -> str:
    named = nodes.get(label, ())
    return (" + ".join(named) or label)[:MAX_TEXT_CHARS]


def _kernels(run: Run, nodes: Nodes) -> Iterator[str]:
    """For each core one kernel after the other: from the end of all before it to its own."""
    names, starts = _labels(run)
    if not names:
        return
    piece = np.searchsorted(starts, run.stream.pc, side="right") - 1
    for core in range(run.stream.cores):
        span = slice(int(run.stream.core_start[core]), int(run.stream.core_start[core + 1]))
        ends = np.zeros(len(names) + 1, np.int64)
        np.maximum.at(ends, piece[span] + 1, run.schedule.complete[span])
        ends = np.maximum.accumulate(ends)
        for index, (begin, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            if end > begin:
                args = {"kernel": names[index]}
                yield _json(
                    ph="X", pid=core, tid=KERNEL_THREAD, ts=begin, dur=end - begin, name=_title(names[index], nodes),
                    cat="kernel", args=args,
                )  # fmt: skip


# ---- instructions -----------------------------------------------------------------------------------------------


def _instructions(run: Run, shown: np.ndarray, nodes: Nodes) -> Iterator[str]:
    """One slice each. What is the same for a whole class is turned into text once."""
    stream, schedule = run.stream, run.schedule
    texts = _Texts(run, nodes)
    waited = _waited(run)
    for begin in range(0, len(shown), _CHUNK):
        part = shown[begin : begin + _CHUNK]
        cores = np.searchsorted(stream.core_start, part, side="right") - 1
        columns = (stream.klass[part], cores, schedule.start[part], schedule.end[part], schedule.complete[part])
        rows = zip(*(column.tolist() for column in (*columns, waited[part], _slowed(run, part))), strict=True)
        for klass, core, start, end, complete, wait, slow in rows:
            head, what, reason = texts.of(klass)
            extra = f',"waited_cycles":{wait},"waited_for":"{reason}"' if wait else ""
            if slow:
                extra += f',"bandwidth_cycles":{slow}'
            times = f'"pid":{core},"ts":{start},"dur":{end - start}'
            yield f'{head},{times},"args":{{{what},"complete":{complete}{extra}}}}}'


class _Texts:
    """The parts of a slice that its class decides."""

    def __init__(self, run: Run, nodes: Nodes) -> None:
        self.run, self.nodes = run, nodes
        self.labels, self.label_starts = _labels(run)
        self.known: dict[int, tuple[str, str, str]] = {}

    def of(self, klass: int) -> tuple[str, str, str]:
        found = self.known.get(klass)
        if found is None:
            found = self.known[klass] = self._of(klass)
        return found

    def _of(self, klass: int) -> tuple[str, str, str]:
        classes, program = self.run.classes, self.run.program
        pc = int(classes.pc[klass])
        instr = program.instrs[pc]
        head = json.dumps(
            {
                "ph": "X",
                "tid": int(classes.queue[klass]),
                "name": ".".join([instr.row.mnemonic, *instr.mods]),
                "cat": instr.row.category,
            }
        )[:-1]
        args: dict[str, Any] = {"text": instruction_text(instr)[:MAX_TEXT_CHARS], "pc": pc}
        if line := program.place(pc).line:
            args["line"] = line
        if (piece := int(np.searchsorted(self.label_starts, pc, side="right")) - 1) >= 0:
            args["kernel"] = _title(self.labels[piece], self.nodes)
        for key, values in (("bytes", classes.moved_bytes), ("conflict_cycles", classes.conflict)):
            if value := int(values[klass]):
                args[key] = value
        return head, json.dumps(args)[1:-1], _reason(int(classes.kind[klass]))


def _reason(kind: int) -> str:
    """What an instruction of this kind waits for, beyond the ones before it in its queue."""
    if kind in (k.WAIT, k.CROSS_WAIT):
        return "flag"
    if kind in (k.PIPE_BARRIER, k.BARRIER_ALL, k.CORE_BARRIER, k.CLUSTER_BARRIER):
        return "barrier"
    return "dispatch"


def _waited(run: Run) -> np.ndarray:
    """For how long the queue stood still before each instruction."""
    stream, schedule = run.stream, run.schedule
    queue = run.classes.queue[stream.klass].astype(np.int64)
    core = np.repeat(np.arange(stream.cores), np.diff(stream.core_start))
    place = core * len(Queue) + queue
    order = np.argsort(place, kind="stable")
    free = np.where(_INTERLOCKED[queue], schedule.complete, schedule.end)[order]
    first = np.diff(place[order], prepend=-1) != 0
    before = np.where(first, 0, np.roll(free, 1))
    waited = np.empty(stream.size, np.int64)
    waited[order] = np.maximum(schedule.start[order] - before, 0)
    waited[queue == Queue.S] = 0  # between them the scalar unit executes what is not in the stream
    return waited


def _slowed(run: Run, part: np.ndarray) -> np.ndarray:
    """Cycles that transfers lost because others used DDR or LLB."""
    classes = run.classes
    klass = run.stream.klass[part]
    rate = np.maximum(classes.rate[klass], 1)
    alone = np.maximum(classes.cycles[klass], -(-classes.line_bytes[klass] * 1000 // rate))
    lost = run.schedule.end[part] - run.schedule.start[part] - alone
    slowed: np.ndarray = np.where(classes.kind[klass] == k.TRANSFER, np.maximum(lost, 0), 0)
    return slowed


# ---- flags and counters -----------------------------------------------------------------------------------------


def _flows(run: Run, shown: np.ndarray) -> Iterator[str]:
    """An arrow from each set_flag to the wait_flag that takes it: of one flag, the first to the first and so on."""
    stream, schedule = run.stream, run.schedule
    shown = np.sort(shown)
    kind, flag = run.classes.kind[stream.klass[shown]], run.classes.argument[stream.klass[shown]]
    core = np.searchsorted(stream.core_start, shown, side="right") - 1
    sides = []
    for which in (k.SET, k.WAIT):
        at = np.flatnonzero(kind == which)
        place = core[at] << 32 | flag[at]
        order = np.argsort(place, kind="stable")
        place = place[order]
        first = np.flatnonzero(np.diff(place, prepend=-1) != 0)
        rank = np.arange(len(place)) - np.repeat(first, np.diff(first, append=len(place)))
        keys = list(zip(place.tolist(), rank.tolist(), strict=True))
        sides.append(dict(zip(keys, shown[at][order].tolist(), strict=True)))
    sets, waits = sides
    for number, (key, source) in enumerate(sets.items()):
        if key not in waits:
            continue
        for index, phase, extra in ((source, "s", {}), (waits[key], "f", {"bp": "e"})):
            queue = int(run.classes.queue[stream.klass[index]])
            yield _json(
                ph=phase, pid=key[0] >> 32, tid=queue, ts=int(schedule.start[index]), id=number, name="flag",
                cat="flag", **extra,
            )  # fmt: skip


def _counters(run: Run) -> Iterator[str]:
    """Live bytes of every memory over time; many steps are thinned, keeping the peaks."""
    found = [one for one in occupancies(run) if len(one.times)]
    points = min(COUNTER_POINTS, max(16, MAX_COUNTER_EVENTS // max(1, len(found))))
    clusters = set[int]()
    for one in found:
        pid = one.owner
        if one.memory in SHARED_MEMORIES:
            pid = CLUSTER_PROCESS + one.owner
            if one.owner not in clusters:
                clusters.add(one.owner)
                yield _json(ph="M", pid=pid, name="process_name", args={"name": f"cluster {one.owner}"})
        for time, live in zip(*(column.tolist() for column in one.sampled(points)), strict=True):
            yield _json(ph="C", pid=pid, ts=time, name=f"{one.memory} live", args={"bytes": live})


def _bandwidths(run: Run) -> Iterator[str]:
    """What DDR and LLB move per cycle, on the average of each stretch of time."""
    klass = run.stream.klass
    borders = np.unique(np.linspace(0, max(1, run.cycles), COUNTER_POINTS + 1).astype(np.int64))
    named = False
    for name, bit in BANDWIDTHS:
        takes = run.classes.takes_ddr(run.stream) if bit == DDR else (run.classes.shares[klass] & bit) != 0
        at = np.flatnonzero(takes)
        if not at.size:
            continue
        if not named:
            yield _json(ph="M", pid=CHIP_PROCESS, name="process_name", args={"name": run.chip.name})
            named = True
        start, end = run.schedule.start[at], run.schedule.end[at]
        moved = flow(start, end, run.classes.line_bytes[klass[at]] / np.maximum(1, end - start), borders)
        rates = moved / np.diff(borders)
        for time, rate in zip([*borders[:-1].tolist(), run.cycles], [*rates.tolist(), 0.0], strict=True):
            yield _json(
                ph="C", pid=CHIP_PROCESS, ts=time, name=f"{name} bandwidth", args={"bytes/cycle": round(rate, 2)}
            )


def flow(start: np.ndarray, end: np.ndarray, rate: np.ndarray, borders: np.ndarray) -> np.ndarray:
    """How much passes between two borders each, if every interval lets ``rate`` pass per cycle."""
    if not len(start):
        return np.zeros(len(borders) - 1)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    times, slope = times[order], np.cumsum(np.concatenate([rate, -rate])[order])
    total = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    passed: np.ndarray = np.maximum(np.diff(np.interp(borders, times, total)), 0)
    return passed


def _json(**fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":"))
