"""What went over DDR: which kernel moved which tensor, by which queue."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.isa.dtypes import MEMORIES, Queue
from compiler.isa.program import Buffer
from compiler.report.attribution import kernel_of_instruction
from compiler.sim.classes import WRITE
from compiler.sim.simulator import Run

_DDR_MEMORY = MEMORIES.index("ddr")


@dataclass(frozen=True)
class Moved:
    """Bytes in whole lines, as DDR moved them."""

    layer: str  # or the kernel, where layers are not known yet
    tensor: str
    queue: str
    bytes: int
    maker: str = ""  # the layer or kernel that wrote it, of what lies between kernels


def added(moved: Sequence[Moved]) -> tuple[Moved, ...]:
    """One of each kind."""
    found: dict[tuple[str, str, str, str], int] = {}
    for each in moved:
        key = (each.layer, each.tensor, each.queue, each.maker)
        found[key] = found.get(key, 0) + each.bytes
    return tuple(Moved(layer, tensor, queue, size, maker) for (layer, tensor, queue, maker), size in found.items())


def folded(moved: tuple[Moved, ...]) -> Iterator[str]:
    """As flame graph tools read it: ``layer;tensor;queue bytes``."""
    for each in moved:
        yield ";".join(part.replace(";", ":").replace(" ", "_") for part in (each.layer, each.tensor, each.queue)) + (
            f" {each.bytes}"
        )


def ddr_traffic(run: Run, titles: Mapping[str, str]) -> tuple[Moved, ...]:
    """In the order of kernels; ``titles`` are what buffers are called by those who use the model.

    Bytes between kernels are called by the kernel that wrote them, since tensors share them over time.
    """
    names, kernel = kernel_of_instruction(run.program)
    classes, stream = run.classes, run.stream
    at = np.flatnonzero(classes.takes_ddr(stream))
    klass = stream.klass[at]
    low, high, writes = _ranges(run, at)
    owner, queue = kernel[classes.pc[klass]], classes.queue[klass].astype(np.int64)
    buffers = sorted((b for b in run.program.buffers if b.memory == "ddr"), key=lambda b: b.offset)
    tensors = _Tensors(buffers, names, titles)
    number = tensors.numbers(owner, low, high, writes)
    place = (owner.astype(np.int64) * len(tensors.titles) + number) * len(Queue) + queue
    found, where = np.unique(place, return_inverse=True)
    bytes_ = np.zeros(len(found), np.int64)
    np.add.at(bytes_, where, classes.line_bytes[klass])
    return tuple(
        Moved(
            names[one // len(Queue) // len(tensors.titles)],
            tensors.titles[one // len(Queue) % len(tensors.titles)],
            Queue(one % len(Queue)).name,
            size,
            tensors.makers[one // len(Queue) % len(tensors.titles)],
        )
        for one, size in zip(found.tolist(), bytes_.tolist(), strict=True)
    )


def _ranges(run: Run, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first byte, end, does it write) of what each of the instructions touches in DDR."""
    classes = run.classes
    count = len(classes.args)
    slot, start, extent, writes = (np.zeros(count, np.int64) for _ in range(4))
    for row, klass in zip(classes.footprints.tolist(), classes.footprint_class.tolist(), strict=True):
        if row[1] == _DDR_MEMORY:
            slot[klass], start[klass], extent[klass], writes[klass] = row[0], row[3], row[4], bool(row[2] & WRITE)
    klass = run.stream.klass[at]
    low = run.stream.address[at, slot[klass]] + start[klass]
    return low, low + extent[klass], writes[klass] != 0


class _Tensors:
    """Numbers for tensors: the buffers that have a name, and for each kernel what it leaves between kernels."""

    def __init__(self, buffers: list[Buffer], names: tuple[str, ...], titles: Mapping[str, str]) -> None:
        self.buffers = buffers
        self.titles = [titles.get(buffer.name, buffer.name) for buffer in buffers]
        self.titles += [f"result of {name}" for name in names]
        self.makers = [*([""] * len(buffers)), *names]
        self._starts = np.array([buffer.offset for buffer in buffers])
        self._shared = np.array([buffer.role == "scratch" for buffer in buffers])

    def numbers(self, owner: np.ndarray, low: np.ndarray, high: np.ndarray, writes: np.ndarray) -> np.ndarray:
        number = np.searchsorted(self._starts, low, side="right") - 1
        shared = self._shared[number]
        results, paint = len(self.buffers), _Painted()
        for kernel in np.unique(owner[shared]).tolist():
            mine = np.flatnonzero(shared & (owner == kernel))
            stores, loads = mine[writes[mine]], mine[~writes[mine]]
            # What a kernel reads of its own scratch, it wrote in the same use.
            own, others = _merged(low[stores], high[stores]), paint.of(low[loads])
            inside = _inside(own, low[loads])
            number[stores] = results + kernel
            number[loads] = results + np.where((others >= 0) & ~inside, others, kernel)
            for first, end in own:
                paint.paint(first, end, kernel)
        return number


def _merged(low: np.ndarray, high: np.ndarray) -> list[tuple[int, int]]:
    """Ranges as few as possible, in order."""
    order = np.argsort(low, kind="stable")
    low, high = low[order], np.maximum.accumulate(high[order])
    gaps = np.flatnonzero(low[1:] > high[:-1]) + 1
    firsts, ends = np.concatenate([[0], gaps]), np.concatenate([gaps, [len(low)]]) - 1
    return list(zip(low[firsts].tolist(), high[ends].tolist(), strict=True)) if len(low) else []


def _inside(ranges: list[tuple[int, int]], address: np.ndarray) -> np.ndarray:
    if not ranges:
        return np.zeros(len(address), bool)
    starts, ends = (np.array(side) for side in zip(*ranges, strict=True))
    at = np.searchsorted(starts, address, side="right") - 1
    found: np.ndarray = (at >= 0) & (address < ends[at])
    return found


class _Painted:
    """Which kernel wrote each byte last."""

    def __init__(self) -> None:
        self.borders: list[int] = [0]
        self.owners: list[int] = [-1]  # from a border on

    def paint(self, low: int, high: int, owner: int) -> None:
        after = self.owners[bisect_right(self.borders, high) - 1]
        first, last = bisect_left(self.borders, low), bisect_right(self.borders, high)
        self.borders[first:last] = [low, high]
        self.owners[first:last] = [owner, after]

    def of(self, address: np.ndarray) -> np.ndarray:
        at = np.searchsorted(np.array(self.borders), address, side="right") - 1
        found: np.ndarray = np.array(self.owners)[at]
        return found
