"""Compute a timed stream: every instruction takes effect when its result is there, in the order of the simulated time.

A program that is right only by luck of timing computes something else here than in the interpreter; that is the
point. What a class does to arrays is prepared once; an instruction then only supplies addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from compiler.isa.convert import to_fp32
from compiler.isa.dtypes import SHARED_MEMORIES
from compiler.isa.execute import reproducible, store, widened
from compiler.isa.layout import Laid, Sum
from compiler.isa.model import Args
from compiler.sim.classes import ClassTable
from compiler.sim.expand import Stream
from compiler.sim.memory import Memories
from compiler.sim.pipeline import Schedule

# Where matrices are kept as they are until somebody looks at their bytes.
LAID_MEMORIES = frozenset({"l1", "l0a", "l0b", "l0c"})
# Products of all cores that may wait to be formed: enough to keep workers busy, few enough to find their factors in
# the caches.
MAX_PENDING = 64


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
    return _Plan(args, row.semantics, tuple(sources), tuple(targets), row.kind == "sld")


class _Sums:
    """The results of all cubes that are still to be formed. They have nothing to do with each other, so workers form
    them side by side; what they form does not depend on how many workers there are."""

    def __init__(self, pool: ThreadPoolExecutor, workers: int) -> None:
        self._pool, self._workers = pool, workers
        self._waiting: list[Sum] = []

    def add(self, total: Sum) -> None:
        total.when_wanted = self.form_all
        self._waiting.append(total)
        if len(self._waiting) >= MAX_PENDING:
            self.form_all(total)

    def form_all(self, _: Sum) -> None:
        # A sum that another one goes on from is formed on the way.
        last = [each for each in self._waiting if not each.continued]
        self._waiting.clear()
        if self._workers == 1 or len(last) == 1:
            _form(last)
        else:
            others = [self._pool.submit(_form, last[start :: self._workers]) for start in range(1, self._workers)]
            _form(last[:: self._workers])
            for other in others:
                other.result()


def _form(sums: list[Sum]) -> None:
    with np.errstate(all="ignore"):
        for each in sums:
            each.form()


class _Snapshots:
    """Matrices taken out of one shared memory, for the cores that load the same ones: fp32 where they were fp16, which
    is the form products want and goes back exactly."""

    PAGE_SHIFT = 12
    MAX_ELEMENTS = 1 << 25

    def __init__(self, memory: np.ndarray) -> None:
        self._kept: dict[tuple[int, tuple[int, ...], tuple[int, ...], np.dtype[Any]], np.ndarray] = {}
        self._pages = np.zeros((memory.size >> self.PAGE_SHIFT) + 1, np.bool_)  # some byte of them was taken
        self._elements = 0

    def take(self, matrix: np.ndarray, place: int, extent: int) -> np.ndarray:
        key = (place, matrix.shape, matrix.strides, matrix.dtype)
        kept = self._kept.get(key)
        if kept is None:
            if self._elements > self.MAX_ELEMENTS:
                self._forget()
            kept = self._kept[key] = snapshot(matrix)
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


def snapshot(matrix: np.ndarray) -> np.ndarray:
    return to_fp32(matrix) if matrix.dtype == np.float16 else matrix.copy()


class _Core:
    """One core's memories, and the matrices in them whose bytes have not been written."""

    def __init__(self, memory: Mapping[str, np.ndarray], shared: Mapping[str, _Snapshots], sums: _Sums) -> None:
        self._bytes = memory
        self._shared = shared
        self._sums = sums
        self._laid: dict[str, dict[int, tuple[Laid, _Operand]]] = {name: {} for name in LAID_MEMORIES}
        # Where an operand was found last: the start and holder of a kept matrix, and the part of it.
        self._known: dict[tuple[_Operand, int], tuple[int, _Operand, tuple[int, int, int, int] | None]] = {}
        self.loaded: list[int] = []

    def apply(self, plan: _Plan, addresses: list[int]) -> None:
        inputs = []
        for operand in plan.sources:
            place = addresses[operand.address_index] + operand.offset
            value = self._read(operand, place) if operand.laid else self._array(operand, place)
            inputs.append(widened(value) if operand.widens and isinstance(value, np.ndarray) else value)
        results = plan.semantics(plan.args, *inputs)
        if plan.is_load:
            self.loaded.append(int(results))
            return
        if not isinstance(results, tuple):
            results = (results,)
        for operand, result in zip(plan.targets, results, strict=True):
            place = addresses[operand.address_index] + operand.offset
            if operand.laid:
                self._write(operand, place, result, plan, inputs, addresses)
                continue
            store(self._array(operand, place), result)
            if operand.memory in self._shared:
                self._shared[operand.memory].written(place, operand.extent)

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

    def _write(
        self, o: _Operand, place: int, result: Any, plan: _Plan, inputs: list[Any], addresses: list[int]
    ) -> None:
        here = self._laid[o.memory]
        kept = here.get(place)
        # Kept matrices share no bytes with each other: one that is wholly overwritten is the only one here.
        if here and not (kept is not None and o.dense and kept[1].extent == o.extent):
            self._settle(o, place, overwritten=o.dense)
        if not isinstance(result, Laid):
            here.pop(place, None)
            store(self._array(o, place), result)
            return
        if isinstance(result, Sum):
            here[place] = (result, o)
            self._sums.add(result)
            return
        for source, value in zip(plan.sources, inputs, strict=True):
            if result.matrix is value and source.memory in self._shared:
                start = addresses[source.address_index] + source.offset
                result.matrix = self._shared[source.memory].take(value, start, source.extent)
            elif isinstance(value, np.ndarray) and np.may_share_memory(result.matrix, value):
                result.matrix = snapshot(result.matrix)
        here[place] = (result, o)

    def _settle(self, o: _Operand, place: int, overwritten: bool = False) -> None:
        """Write out every kept matrix that shares bytes with this operand, or drop it if all of it is overwritten."""
        here, end = self._laid[o.memory], place + o.extent
        for start, (laid, holder) in list(here.items()):
            if start < end and place < start + holder.extent:
                if not (overwritten and place <= start and start + holder.extent <= end):
                    store(self._array(holder, start), laid)
                del here[start]


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
        self._plan = [plans[klass] for klass in stream.klass[sequence].tolist()]
        self._addresses = stream.address[sequence].tolist()

    def run(self, memories: Memories, workers: int = 1) -> list[list[int]]:
        """Compute on the memories; returns what each core's scalar loads read. Workers form the results of the cubes
        side by side; what they form does not depend on how many there are."""
        with reproducible(), ThreadPoolExecutor(workers) as pool:
            sums = _Sums(pool, workers)
            shared = {id(memory): _Snapshots(memory) for memory in (memories.ddr, *memories.llb)}
            views = [memories.of(number) for number in range(self._cores)]
            cores = [_Core(v, {name: shared[id(v[name])] for name in SHARED_MEMORIES}, sums) for v in views]
            for core, plan, addresses in zip(self._core, self._plan, self._addresses, strict=True):
                if plan is not None:
                    cores[core].apply(plan, addresses)
        return [core.loaded for core in cores]
