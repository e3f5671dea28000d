"""Compute a timed stream: every instruction takes effect when its result is there, in the order of the simulated time.

A program that is right only by luck of timing computes something else here than in the interpreter; that is the
point. What a class does to arrays is prepared once; an instruction then only supplies addresses.

Cores meet only at barriers and cross-core flags. Between those a program known to be race-free may be computed core by
core, by several workers; any other runs strictly in order of time.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.isa.execute import reproducible, store, widened
from compiler.isa.layout import Laid
from compiler.isa.model import Args
from compiler.sim import classes as k
from compiler.sim.classes import ClassTable
from compiler.sim.expand import Stream
from compiler.sim.memory import Memories
from compiler.sim.pipeline import Schedule

CUBE_MEMORIES = frozenset({"l0a", "l0b", "l0c"})


# ---- what a class does ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Operand:
    memory: str
    address_index: int
    offset: int  # from the address slot to the view
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    extent: int
    dtype: np.dtype[Any]
    reads: bool
    writes: bool


@dataclass(frozen=True)
class _Plan:
    """A class, ready to run: where its arrays lie relative to the address slots, and what is done to them."""

    args: Args
    semantics: Callable[..., Any]
    raw: bool
    operands: tuple[_Operand, ...]
    in_cube: bool  # some operand lies in L0A, L0B or L0C
    is_load: bool  # a scalar load


def _plan(args: Args) -> _Plan | None:
    row = args.row
    if row.semantics is None or row.kind not in ("compute", "sld"):
        return None
    operands = []
    for index, (tensor, view) in enumerate(zip(row.tensors, args.views, strict=True)):
        offset = view.address - getattr(args, tensor.name)
        strides = tuple(s * view.dtype.itemsize for s in view.strides)
        reads, writes = "r" in view.role, "w" in view.role
        extent, dtype = view.extent_bytes, view.dtype.numpy
        operands.append(_Operand(view.memory, index, offset, view.shape, strides, extent, dtype, reads, writes))
    in_cube = any(o.memory in CUBE_MEMORIES for o in operands)
    return _Plan(args, row.semantics, row.raw, tuple(operands), in_cube, row.kind == "sld")


class _Core:
    """One core's memories, and the matrices that its cube memories hold without their bytes having been written."""

    def __init__(self, memories: Memories, number: int) -> None:
        self._bytes = memories.of(number)
        self._laid: dict[str, dict[int, tuple[Laid, _Operand]]] = {name: {} for name in CUBE_MEMORIES}
        self.loaded: list[int] = []

    def apply(self, plan: _Plan, addresses: list[int]) -> None:
        places = [addresses[o.address_index] + o.offset for o in plan.operands]
        arrays = [
            self._array(o, place) if not (plan.in_cube and o.memory in CUBE_MEMORIES) else self._blocks(o, place)
            for o, place in zip(plan.operands, places, strict=True)
        ]
        inputs = [a if plan.raw else widened(a) for a, o in zip(arrays, plan.operands, strict=True) if o.reads]
        results = plan.semantics(plan.args, *inputs)
        if plan.is_load:
            self.loaded.append(int(results))
            return
        if not isinstance(results, tuple):
            results = (results,)
        targets = [(o, place, a) for o, place, a in zip(plan.operands, places, arrays, strict=True) if o.writes]
        for (operand, place, array), result in zip(targets, results, strict=True):
            if isinstance(result, Laid) and operand.memory in CUBE_MEMORIES:
                self._keep(operand, place, result, inputs)
            else:
                store(array, result)

    def _array(self, o: _Operand, place: int) -> np.ndarray:
        return np.ndarray(o.shape, o.dtype, self._bytes[o.memory].data, place, o.strides)

    def _blocks(self, o: _Operand, place: int) -> Any:
        """The matrix kept at this place if it has this geometry; else the bytes, once they are up to date."""
        kept = self._laid[o.memory].get(place)
        if kept is not None and o.reads and _fits(o, kept[1]):
            return kept[0]
        if o.reads or not (kept is not None and kept[1].shape == o.shape):
            self._settle(o, place)
        return self._array(o, place)

    def _keep(self, o: _Operand, place: int, laid: Laid, inputs: list[Any]) -> None:
        if any(isinstance(each, np.ndarray) and np.may_share_memory(laid.matrix, each) for each in inputs):
            laid.matrix = laid.matrix.copy()
        here = self._laid[o.memory]
        if place not in here or here[place][1].shape != o.shape:
            self._settle(o, place)
        here[place] = (laid, o)

    def _settle(self, o: _Operand, place: int) -> None:
        """Write out every kept matrix that shares bytes with this operand."""
        here = self._laid[o.memory]
        for start, (laid, operand) in list(here.items()):
            if start < place + o.extent and place < start + operand.extent:
                store(self._array(operand, start), laid)
                del here[start]


def _fits(wanted: _Operand, kept: _Operand) -> bool:
    """Whether ``wanted`` is all of what was kept, or (in L0C) its upper left part."""
    if wanted.dtype != kept.dtype or wanted.strides != kept.strides:
        return False
    upper_left = all(w <= h for w, h in zip(wanted.shape, kept.shape, strict=True))
    return wanted.shape == kept.shape or (wanted.memory == "l0c" and upper_left)


# ---- the order of things ----------------------------------------------------------------------------------


@dataclass
class _Segment:
    """A stretch of one core's work between two meetings with other cores."""

    core: int
    instructions: np.ndarray
    needs: list[int] = field(default_factory=list)


class Computation:
    """The stream's work in order of time; prepared once, run on as many inputs as you like."""

    def __init__(self, stream: Stream, classes: ClassTable, schedule: Schedule) -> None:
        self._plans = [_plan(args) for args in classes.args]
        self._stream = stream
        position = np.empty(stream.size, np.int64)
        position[schedule.order] = np.arange(stream.size)
        self._sequence = np.lexsort((position, schedule.complete))
        self._core_of = np.searchsorted(stream.core_start, np.arange(stream.size), side="right") - 1
        self._kind = classes.kind[stream.klass]
        self._argument = classes.argument[stream.klass]
        self._cross_ids = classes.cross_ids
        self._active = np.array([plan is not None for plan in self._plans])[stream.klass]
        self._segments: list[_Segment] | None = None

    def run(self, memories: Memories, workers: int = 1) -> list[list[int]]:
        """Compute on the memories; returns what each core's scalar loads read. More than one worker is only for
        programs without races: the others' results would depend on the workers."""
        cores = [_Core(memories, number) for number in range(self._stream.cores)]
        with reproducible():
            if workers > 1 and self._stream.cores > 1:
                self._run_segments(cores, workers)
            else:
                sequence = self._sequence[self._active[self._sequence]]
                self._run(cores, self._core_of[sequence], sequence)
        return [core.loaded for core in cores]

    def _run(self, cores: list[_Core], core_of: np.ndarray, sequence: np.ndarray) -> None:
        plans = self._plans
        klass, address = self._stream.klass[sequence].tolist(), self._stream.address[sequence].tolist()
        for core, number, addresses in zip(core_of.tolist(), klass, address, strict=True):
            plan = plans[number]
            if plan is not None:
                cores[core].apply(plan, addresses)

    def _run_segments(self, cores: list[_Core], workers: int) -> None:
        if self._segments is None:
            self._segments = self._cut()
        segments = self._segments
        missing = [len(segment.needs) for segment in segments]
        needed_by: list[list[int]] = [[] for _ in segments]
        for number, segment in enumerate(segments):
            for need in segment.needs:
                needed_by[need].append(number)

        def work(number: int) -> int:
            segment = segments[number]
            with np.errstate(all="ignore"):
                self._run(cores, np.full(len(segment.instructions), segment.core), segment.instructions)
            return number

        with ThreadPoolExecutor(workers) as pool:
            running: set[Future[int]] = {pool.submit(work, n) for n, count in enumerate(missing) if count == 0}
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    for following in needed_by[future.result()]:
                        missing[following] -= 1
                        if missing[following] == 0:
                            running.add(pool.submit(work, following))

    def _cut(self) -> list[_Segment]:
        """Cut every core's sequence at its meetings with other cores, and say which segment needs which."""
        meeting = (self._kind == k.CORE_BARRIER) | (self._kind == k.CLUSTER_BARRIER)
        meeting |= (self._kind == k.CROSS_SET) | (self._kind == k.CROSS_WAIT)
        segments: list[_Segment] = []
        before: dict[int, int] = {}  # meeting -> the segment that ends with it
        after: dict[int, int] = {}  # meeting -> the segment that follows it
        cores = self._core_of[self._sequence]
        for core in range(self._stream.cores):
            own = self._sequence[cores == core]
            cuts = np.flatnonzero(meeting[own])
            for piece, end in enumerate([*cuts.tolist(), len(own)]):
                start = int(cuts[piece - 1]) + 1 if piece else 0
                span = own[start:end]
                number = len(segments)
                segments.append(_Segment(core, span[self._active[span]]))
                if piece:
                    segments[number].needs.append(number - 1)
                    after[int(own[start - 1])] = number
                if end < len(own):
                    before[int(own[end])] = number
        self._join_barriers(segments, before, after)
        self._join_flags(segments, before, after)
        return segments

    def _join_barriers(self, segments: list[_Segment], before: dict[int, int], after: dict[int, int]) -> None:
        """Whoever leaves a barrier needs all who came to it; those meetings end at the same cycle, in turn."""
        rounds: dict[tuple[int, int], list[int]] = {}
        counts: dict[tuple[int, int, int], int] = {}
        for index in self._sequence[np.isin(self._kind[self._sequence], (k.CORE_BARRIER, k.CLUSTER_BARRIER))].tolist():
            core, kind = int(self._core_of[index]), int(self._kind[index])
            group = int(self._stream.cluster_of[core]) if kind == k.CLUSTER_BARRIER else -1
            turn = counts[group, core, kind] = counts.get((group, core, kind), 0) + 1
            rounds.setdefault((group, turn), []).append(index)
        for meeting in rounds.values():
            for index in meeting:
                segments[after[index]].needs += [before[other] for other in meeting if other != index]

    def _join_flags(self, segments: list[_Segment], before: dict[int, int], after: dict[int, int]) -> None:
        """The n-th wait on a cross-core flag needs the n-th set."""
        sets: dict[tuple[int, int, int], list[int]] = {}
        waits: dict[tuple[int, int, int], list[int]] = {}
        for index in self._sequence[np.isin(self._kind[self._sequence], (k.CROSS_SET, k.CROSS_WAIT))].tolist():
            core, (other, number) = int(self._core_of[index]), divmod(int(self._argument[index]), self._cross_ids)
            if self._kind[index] == k.CROSS_SET:
                sets.setdefault((core, other, number), []).append(index)
            else:
                waits.setdefault((other, core, number), []).append(index)
        for flag, waiting in waits.items():
            for setter, waiter in zip(sets.get(flag, []), waiting, strict=False):
                segments[after[waiter]].needs.append(before[setter])
