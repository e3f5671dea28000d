"""Compute a timed stream: every instruction takes effect when its result is there, in the order of the simulated time.

A program that is right only by luck of timing computes something else here than in the interpreter; that is the
point. What a class does to arrays is prepared once; an instruction then only supplies addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from compiler.isa.convert import to_fp32
from compiler.isa.dtypes import SHARED_MEMORIES
from compiler.isa.execute import reproducible, store, widened
from compiler.isa.layout import Laid, Sum
from compiler.isa.model import Args
from compiler.sim.classes import ClassTable
from compiler.sim.collector import uncollected
from compiler.sim.expand import Stream
from compiler.sim.memory import Memories
from compiler.sim.pipeline import Schedule
from compiler.sim.sums import Sums, Workers
from compiler.sim.tape import Tape

# Where matrices are kept as they are until somebody looks at their bytes.
LAID_MEMORIES = frozenset({"l1", "l0a", "l0b", "l0c"})
L0 = frozenset({"l0a", "l0b"})
# Matrices that may wait under others until somebody asks for their bytes. Most are wholly overwritten before.
MAX_UNDER = 16


# ---- what a class does ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Operand:
    """Compared by identity: there is one for each operand of a class."""

    memory: str
    address_index: int
    offset: int  # from the address slot to the view
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    extent: int
    dtype: np.dtype[Any]
    dense: bool  # touches every byte of its extent
    laid: bool  # may hold a matrix that was not written out
    widens: bool  # is read as fp32


@dataclass(frozen=True, slots=True)
class _Plan:
    """A class, ready to run: where its arrays lie relative to the address slots, and what is done to them."""

    args: Args
    semantics: Callable[..., Any]
    sources: tuple[_Operand, ...]
    targets: tuple[_Operand, ...]
    is_load: bool  # a scalar load
    is_late: bool  # a matrix from L1 to L0: made when the product that it goes into is


def _plan(args: Args) -> _Plan | None:
    row = args.row
    if row.semantics is None or row.kind not in ("compute", "sld"):
        return None
    sources, targets = [], []
    for index, (tensor, view) in enumerate(zip(row.tensors, args.views, strict=True)):
        operand = _Operand(
            view.memory,
            index,
            view.address - getattr(args, tensor.name),
            view.shape,
            tuple(s * view.dtype.itemsize for s in view.strides),
            view.extent_bytes,
            view.dtype.numpy,
            view.extent_bytes == view.size * view.dtype.itemsize,
            view.memory in LAID_MEMORIES,
            not row.raw,
        )
        if "r" in view.role:
            sources.append(operand)
        if "w" in view.role:
            targets.append(operand)
    is_late = row.raw and [o.memory for o in sources] == ["l1"] and targets[0].memory in L0
    return _Plan(args, row.semantics, tuple(sources), tuple(targets), row.kind == "sld", is_late)


class _Snapshots:
    """Matrices taken out of one shared memory, for the cores that load the same ones: fp32 where they were fp16, which
    is the form products want and goes back exactly."""

    PAGE_SHIFT = 12
    MAX_ELEMENTS = 1 << 25

    def __init__(self, memory: np.ndarray, tape: Tape | None) -> None:
        self._tape = tape
        self._kept: dict[tuple[int, tuple[int, ...], tuple[int, ...], np.dtype[Any]], np.ndarray] = {}
        self._pages = np.zeros((memory.size >> self.PAGE_SHIFT) + 1, np.bool_)  # some byte of them was taken
        self._elements = 0

    def take(self, matrix: np.ndarray, place: int, extent: int) -> np.ndarray:
        key = (place, matrix.shape, matrix.strides, matrix.dtype)
        kept = self._kept.get(key)
        if kept is None:
            if self._elements > self.MAX_ELEMENTS:
                self._forget()
            kept = self._kept[key] = snapshot(matrix, self._tape)
            self._elements += matrix.size
            self._pages[place >> self.PAGE_SHIFT : (place + extent >> self.PAGE_SHIFT) + 1] = True
        return kept

    def written(self, place: int, extent: int) -> None:
        if self._kept and self._pages[place >> self.PAGE_SHIFT : (place + extent >> self.PAGE_SHIFT) + 1].any():
            self._forget()

    def _forget(self) -> None:
        self._kept.clear()
        self._pages[:] = False
        self._elements = 0


def snapshot(matrix: np.ndarray, tape: Tape | None) -> np.ndarray:
    copy = to_fp32(matrix) if matrix.dtype == np.float16 else matrix.copy()
    if tape is not None:
        tape.add(partial(_refresh, copy, matrix), copy.size)
    return copy


def _refresh(copy: np.ndarray, matrix: np.ndarray) -> None:
    np.copyto(copy, to_fp32(matrix) if matrix.dtype == np.float16 else matrix)


class _Late(Laid):
    """A matrix in L0 that is made of bytes in L1 each time somebody looks at it; nobody may change those before.

    Most are looked at once, by a product. Its worker then makes it where the caches still hold it, side by side with
    others, and a record needs no room for it.
    """

    __slots__ = ("_plan", "_source", "end", "start")

    def __init__(self, plan: _Plan, source: np.ndarray, start: int) -> None:
        self._plan, self._source, self.k0 = plan, source, plan.targets[0].shape[-1]
        self.start, self.end = start, start + plan.sources[0].extent

    @property
    def matrix(self) -> np.ndarray:  # type: ignore[override]
        return self._made().matrix

    def blocks(self) -> np.ndarray:
        return self._made().blocks()

    def _made(self) -> Laid:
        made: Laid = self._plan.semantics(self._plan.args, self._source)
        return made

    def kept(self, tape: Tape | None) -> Laid:
        """The matrix as it is now, and again at this point of the tape."""
        laid = self._made()
        matrix = laid.matrix = laid.matrix.copy()
        if tape is not None:
            tape.add(lambda: np.copyto(matrix, self.matrix), matrix.size)
        return laid


class _Core:
    """One core's memories, and the matrices in them whose bytes have not been written."""

    def __init__(
        self, memory: Mapping[str, np.ndarray], shared: Mapping[str, _Snapshots], sums: Sums, tape: Tape | None
    ) -> None:
        self._bytes = memory
        self._shared = shared
        self._sums = sums
        self._tape = tape
        self._laid: dict[str, dict[int, tuple[Laid, _Operand]]] = {name: {} for name in LAID_MEMORIES}
        # Matrices of which another one took some bytes, oldest first, until somebody asks for the rest.
        self._under: dict[str, list[tuple[int, Laid, _Operand]]] = {name: [] for name in LAID_MEMORIES}
        # Where an operand was found last: the start and holder of a kept matrix, and the part of it.
        self._known: dict[tuple[_Operand, int], tuple[int, _Operand, tuple[int, int, int, int] | None]] = {}
        self.loaded: list[int] = []

    def apply(self, plan: _Plan, sources: list[int], targets: list[int]) -> None:
        """Run one instruction whose operands begin at these places."""
        values = [
            self._read(operand, place) if operand.laid else self._array(operand, place)
            for operand, place in zip(plan.sources, sources, strict=False)
        ]
        if plan.is_late and isinstance(values[0], np.ndarray):
            self._keep(plan.targets[0], targets[0], _Late(plan, values[0], sources[0]))
            return
        results = _compute(plan, values)
        if plan.is_load:
            self.loaded.append(int(results))
        elif isinstance(results, Laid) and plan.targets[0].laid:
            if isinstance(results, Sum) and not results.formed:
                self._sums.add(results, [(self, v.start, v.end) for v in values if isinstance(v, _Late)])
            else:
                self._own(results, plan, values, sources)
            self._keep(plan.targets[0], targets[0], results)
        else:
            arrays = [self._overwrite(o, place) for o, place in zip(plan.targets, targets, strict=False)]
            _store_all(arrays, results)
            if self._tape is not None:
                self._tape.add(lambda: _store_all(arrays, _compute(plan, values)))

    def _own(self, result: Laid, plan: _Plan, values: list[Any], places: list[int]) -> None:
        """See that a matrix to be kept is no view of bytes that may change, and is made again when the tape plays."""
        matrix = result.matrix
        for operand, place, value in zip(plan.sources, places, values, strict=False):
            if isinstance(value, Laid):
                if not isinstance(value, Sum) and np.may_share_memory(matrix, value.matrix):
                    return  # a part of what is kept already
            elif matrix is value and operand.memory in self._shared:
                result.matrix = self._shared[operand.memory].take(value, place, operand.extent)
                return
            elif np.may_share_memory(matrix, value):
                result.matrix = snapshot(matrix, self._tape)
                return
        if self._tape is not None:
            if not matrix.flags.writeable:
                result.matrix = matrix = matrix.copy()
            self._tape.add(lambda: np.copyto(matrix, _compute(plan, values).matrix), matrix.size)

    def _array(self, o: _Operand, place: int) -> np.ndarray:
        return np.ndarray(o.shape, o.dtype, self._bytes[o.memory].data, place, o.strides)

    def _read(self, o: _Operand, place: int) -> Any:
        """The matrix kept here, or the part of it that is wanted; else the bytes, once they are up to date."""
        here = self._laid[o.memory]
        start, holder, window = self._known.get((o, place), (place, o, None))
        kept = here.get(start)
        if kept is None or kept[1] is not holder:
            return self._search(o, place)
        laid = kept[0]
        if window is None:
            return laid
        return laid.part(*window) if window[0] + window[1] <= laid.rows else self._search(o, place)

    def _search(self, o: _Operand, place: int) -> Any:
        here = self._laid[o.memory]
        for start, (laid, holder) in here.items():
            if start <= place < start + holder.extent:
                if place == start and (holder.shape, holder.strides, holder.dtype) == (o.shape, o.strides, o.dtype):
                    self._known[o, place] = (start, holder, None)
                    return laid
                window = _window(o, holder, place - start)
                if window is not None and o.shape[2] == laid.k0 and window[0] + window[1] <= laid.rows:
                    self._known[o, place] = (start, holder, window)
                    return laid.part(*window)
        self._settle(o, place)
        return self._array(o, place)

    def _keep(self, o: _Operand, place: int, result: Laid) -> None:
        here = self._laid[o.memory]
        kept = here.get(place)
        # Kept matrices share no bytes with each other: one that is wholly overwritten is the only one here.
        if here and not (kept is not None and o.dense and kept[1].extent == o.extent):
            if o.dense:
                self._cover(o, place)
            else:
                self._settle(o, place)
        here[place] = (result, o)

    def _overwrite(self, o: _Operand, place: int) -> np.ndarray:
        """The bytes that are about to be written; nobody may rely on what was kept of them."""
        if o.laid:
            self._settle(o, place, overwritten=o.dense)
            self._give_back(o, place)
        elif o.memory in self._shared:
            self._shared[o.memory].written(place, o.extent)
        return self._array(o, place)

    def _cover(self, o: _Operand, place: int) -> None:
        """A matrix takes these bytes: those below it are gone, or wait for somebody who asks for what is left."""
        here, under, end = self._laid[o.memory], self._under[o.memory], place + o.extent
        under += [(start, *here.pop(start)) for start in _overlapping(here, place, end)]
        under[:] = [each for each in under if not (place <= each[0] and each[0] + each[2].extent <= end)]
        if len(under) > MAX_UNDER:
            self._write_under(o.memory)

    def _settle(self, o: _Operand, place: int, overwritten: bool = False) -> None:
        """Write out every kept matrix that shares bytes with this operand, or drop it if all of it is overwritten."""
        here, end = self._laid[o.memory], place + o.extent
        found = [(start, *here.pop(start)) for start in _overlapping(here, place, end)]
        # What waits below them must not be written later: over their bytes, that is.
        low = min((start for start, *_ in found), default=place)
        high = max((start + holder.extent for start, _, holder in found), default=end)
        under = self._under[o.memory]
        if any(start < max(high, end) and min(low, place) < start + holder.extent for start, _, holder in under):
            self._write_under(o.memory)
        for start, laid, holder in found:
            if not (overwritten and place <= start and start + holder.extent <= end):
                self._write(laid, holder, start)

    def _write_under(self, memory: str) -> None:
        """All of them, as a later one may share bytes with an earlier one."""
        for start, laid, holder in self._under[memory]:
            self._write(laid, holder, start)
        self._under[memory].clear()

    def _write(self, laid: Laid, holder: _Operand, start: int) -> None:
        self._give_back(holder, start)
        array = self._array(holder, start)
        store(array, laid)
        if self._tape is not None:
            self._tape.add(partial(store, array, laid))

    def _give_back(self, o: _Operand, place: int) -> None:
        """Bytes are about to change: those that products wait for, and matrices in L0, are used before."""
        if o.memory != "l1":
            return
        end = place + o.extent
        self._sums.give_back(self, place, end)
        for here in (self._laid[name] for name in L0):
            for start, (laid, holder) in here.items():
                if isinstance(laid, _Late) and laid.start < end and place < laid.end:
                    here[start] = (laid.kept(self._tape), holder)
        for under in (self._under[name] for name in L0):
            for index, (start, laid, holder) in enumerate(under):
                if isinstance(laid, _Late) and laid.start < end and place < laid.end:
                    under[index] = (start, laid.kept(self._tape), holder)


def _overlapping(here: Mapping[int, tuple[Laid, _Operand]], place: int, end: int) -> list[int]:
    """Where the kept matrices begin that share bytes with these."""
    return [start for start, (_, holder) in here.items() if start < end and place < start + holder.extent]


def _compute(plan: _Plan, values: list[Any]) -> Any:
    inputs = [
        widened(value) if operand.widens and isinstance(value, np.ndarray) else value
        for operand, value in zip(plan.sources, values, strict=True)
    ]
    return plan.semantics(plan.args, *inputs)


def _store_all(arrays: list[np.ndarray], results: Any) -> None:
    for array, result in zip(arrays, results if isinstance(results, tuple) else (results,), strict=True):
        store(array, result)


@lru_cache(maxsize=4096)
def _window(wanted: _Operand, holder: _Operand, offset: int) -> tuple[int, int, int, int] | None:
    """(first row, rows, first column, columns) of the part of a matrix in column blocks (NZ in L1, a result in L0C)
    that starts at this byte offset; None where what is wanted is no such part."""
    if len(wanted.shape) != 3 or wanted.strides != holder.strides or wanted.dtype != holder.dtype:
        return None
    pitch_bytes, row_bytes, _ = holder.strides
    if offset % row_bytes or pitch_bytes % row_bytes:
        return None
    block, row = divmod(offset // row_bytes, pitch_bytes // row_bytes)
    blocks, rows, k0 = wanted.shape
    if block + blocks > holder.shape[0] or row + rows > holder.shape[1]:
        return None
    return row, rows, block * k0, blocks * k0


# ---- the order of things ----------------------------------------------------------------------------------


class Computation:
    """The stream's work in order of time; prepared once, run on as many inputs as you like."""

    def __init__(self, stream: Stream, classes: ClassTable, schedule: Schedule) -> None:
        plans = [_plan(args) for args in classes.args]
        active = np.array([plan is not None for plan in plans], bool)[stream.klass]
        position = np.empty(stream.size, np.int64)
        position[schedule.order] = np.arange(stream.size)
        sequence = np.lexsort((position, schedule.complete))
        sequence = sequence[active[sequence]]
        self._cores = stream.cores
        self._core = (np.searchsorted(stream.core_start, sequence, side="right") - 1).tolist()
        klass = stream.klass[sequence]
        self._plan = [plans[each] for each in klass.tolist()]
        with uncollected():
            self._sources = _places(plans, klass, stream.address[sequence], "sources")
            self._targets = _places(plans, klass, stream.address[sequence], "targets")

    def run(self, memories: Memories, workers: Workers, tape: Tape | None = None) -> list[list[int]]:
        """Compute on the memories; returns what each core's scalar loads read. Workers form the results of the cubes
        side by side; what they form does not depend on how many there are."""
        sums = Sums(workers, tape)
        snapshots = {id(memory): _Snapshots(memory, tape) for memory in (memories.ddr, *memories.llb)}
        cores = []
        for number in range(self._cores):
            view = memories.of(number)
            shared = {name: snapshots[id(view[name])] for name in SHARED_MEMORIES}
            cores.append(_Core(view, shared, sums, tape))
        with reproducible(), uncollected():
            work = zip(self._core, self._plan, self._sources, self._targets, strict=True)
            for core, plan, sources, targets in work:
                if plan is not None:
                    cores[core].apply(plan, sources, targets)
        return [core.loaded for core in cores]


def _places(plans: list[_Plan | None], klass: np.ndarray, address: np.ndarray, side: str) -> list[list[int]]:
    """Where the operands of every instruction begin; rows of classes with fewer operands are filled up."""
    operands = [getattr(plan, side) if plan is not None else () for plan in plans]
    width = max((len(each) for each in operands), default=0)
    index, offset = np.zeros((len(plans), width), np.int64), np.zeros((len(plans), width), np.int64)
    for number, each in enumerate(operands):
        for at, operand in enumerate(each):
            index[number, at], offset[number, at] = operand.address_index, operand.offset
    places: list[list[int]] = (np.take_along_axis(address, index[klass], axis=1) + offset[klass]).tolist()
    return places
