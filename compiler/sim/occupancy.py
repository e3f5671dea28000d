"""How much of each memory holds values that will still be read, over time.

A piece of memory is *live* from the start of the instruction that writes it to the end of the last one that reads what
was written; pieces are what the borders of all accesses cut a memory into. A strided access counts as the whole range
that it spans, and where borders are many the pieces are rounded outwards to a grid: both can only add to the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compiler.isa.dtypes import MEMORIES, SHARED_MEMORIES
from compiler.sim.classes import READ, WRITE

if TYPE_CHECKING:
    from compiler.sim.simulator import Run

MAX_PIECES = 4096  # borders beyond this are rounded to a grid
MAX_TOUCHES = 1 << 24  # (access, piece) pairs that are looked at; beyond, the grid gets coarser
MAX_ACCESSES = 1 << 25  # of one core; a run with more is not followed


@dataclass(frozen=True)
class Occupancy:
    """One memory of one core (LLB: of one cluster; DDR: the chip's, whose live bytes are not followed)."""

    memory: str
    owner: int
    capacity_bytes: int
    touched_bytes: int  # up to the highest address that was touched
    times: np.ndarray  # cycles at which live_bytes changes
    live_bytes: np.ndarray  # from that time on

    @property
    def peak_bytes(self) -> int:
        return int(self.live_bytes.max(initial=0))

    def sampled(self, points: int) -> tuple[np.ndarray, np.ndarray]:
        """At most ``points`` steps: each stands for a stretch of time and shows the most that was live in it."""
        if len(self.times) <= points:
            return self.times, self.live_bytes
        width = -(-(int(self.times[-1]) - int(self.times[0]) + 1) // points)
        bins = (self.times - self.times[0]) // width
        first = np.flatnonzero(np.diff(bins, prepend=-1))
        # What was live when a stretch began counts too, not only what changed in it.
        before = np.concatenate([[0], self.live_bytes[first[1:] - 1]])
        return self.times[first], np.maximum(np.maximum.reduceat(self.live_bytes, first), before)


@dataclass(frozen=True)
class Lives:
    """Pieces of a memory with the times from which and to which their contents were live."""

    low: np.ndarray
    high: np.ndarray
    born: np.ndarray
    died: np.ndarray

    def moved(self, cycles: int) -> Lives:
        """As much later."""
        return Lives(self.low, self.high, self.born + cycles, self.died + cycles)


@dataclass(frozen=True)
class _Accesses:
    """Byte ranges with the time for which they are held; one entry per operand of a dynamic instruction."""

    memory: np.ndarray
    access: np.ndarray
    low: np.ndarray
    high: np.ndarray
    start: np.ndarray
    end: np.ndarray

    def of(self, memory: int) -> _Accesses:
        chosen = np.flatnonzero(self.memory == memory)
        columns = (self.memory, self.access, self.low, self.high, self.start, self.end)
        return _Accesses(*(column[chosen] for column in columns))


def occupancies(run: Run) -> list[Occupancy]:
    """Every memory that the run touched, the shared ones first; nothing for a run that is too long to follow."""
    if max(_access_count(run, core) for core in range(run.stream.cores)) > MAX_ACCESSES:
        return []
    found: list[Occupancy] = []
    shared: dict[tuple[int, int], list[_Accesses]] = {}
    for core in range(run.stream.cores):
        accesses = _accesses(run, core)
        for memory, name in enumerate(MEMORIES):
            mine = accesses.of(memory)
            if not mine.low.size:
                continue
            if name in SHARED_MEMORIES:
                owner = 0 if name == "ddr" else run.chip.cluster_of(core)
                shared.setdefault((memory, owner), []).append(mine)
            else:
                found.append(_occupancy(run, name, core, mine))
    joined = [
        _occupancy(run, MEMORIES[memory], owner, _joined(parts)) for (memory, owner), parts in sorted(shared.items())
    ]
    return joined + found


def lives(run: Run, name: str, owner: int) -> Lives:
    """Of one memory: of a core, or of a cluster where it is shared; nothing for a run that is too long to follow."""
    shared, memory = name in SHARED_MEMORIES, MEMORIES.index(name)
    cores = [core for core in range(run.stream.cores) if (run.chip.cluster_of(core) if shared else core) == owner]
    if not cores or max(_access_count(run, core) for core in cores) > MAX_ACCESSES:
        return Lives(*(np.zeros(0, np.int64) for _ in range(4)))
    return _lives(_joined([_accesses(run, core).of(memory) for core in cores]), run.chip.memory_bytes(name), shared)


def _access_count(run: Run, core: int) -> int:
    first, last = int(run.stream.core_start[core]), int(run.stream.core_start[core + 1])
    return int(np.diff(run.classes.footprint_start)[run.stream.klass[first:last]].sum())


def _accesses(run: Run, core: int) -> _Accesses:
    stream, classes, schedule = run.stream, run.classes, run.schedule
    first, last = int(stream.core_start[core]), int(stream.core_start[core + 1])
    klass = stream.klass[first:last]
    counts = np.diff(classes.footprint_start)[klass]
    index = np.repeat(np.arange(first, last), counts)
    within = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = classes.footprint_start[stream.klass[index]] + within
    slot, memory, access, offset, extent = (classes.footprints[:, column][at] for column in range(5))
    low = stream.address[index, slot] + offset
    return _Accesses(memory, access, low, low + extent, schedule.start[index], schedule.end[index])


def _joined(parts: list[_Accesses]) -> _Accesses:
    names = ("memory", "access", "low", "high", "start", "end")
    return _Accesses(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _occupancy(run: Run, name: str, owner: int, accesses: _Accesses) -> Occupancy:
    capacity = run.chip.memory_bytes(name)
    times = live = np.zeros(0, np.int64)
    if name != "ddr":
        times, live = _live(accesses, capacity, preset=name in SHARED_MEMORIES)
    return Occupancy(name, owner, capacity, int(accesses.high.max()), times, live)


def _live(accesses: _Accesses, capacity: int, preset: bool) -> tuple[np.ndarray, np.ndarray]:
    """Live bytes as a step function."""
    found = _lives(accesses, capacity, preset)
    bytes_ = found.high - found.low
    times, where = np.unique(np.concatenate([found.born, found.died]), return_inverse=True)
    changes = np.zeros(len(times), np.int64)
    np.add.at(changes, where, np.concatenate([bytes_, -bytes_]))
    return times, np.cumsum(changes)


def _lives(accesses: _Accesses, capacity: int, preset: bool) -> Lives:
    """``preset``: what is read before it is written was there from the start."""
    borders, first, count = _pieces(accesses, capacity)
    # An operand that is read and written ends one life and begins the next: two touches, the read before the write.
    touches = [_touches(accesses, first, count, access) for access in (READ, WRITE)]
    piece, start, end, writes = (np.concatenate(column) for column in zip(*touches, strict=True))
    order = np.lexsort((writes, start, piece))
    piece, start, end, writes = piece[order], start[order], end[order], writes[order]
    begins = writes | (np.diff(piece, prepend=-1) != 0)  # a life begins with a write, or with a piece's first touch
    at = np.flatnonzero(begins)
    if not at.size:
        return Lives(*(np.zeros(0, np.int64) for _ in range(4)))
    born = np.where(writes[at], start[at], 0 if preset else start[at])
    last_read = np.maximum.reduceat(np.where(writes, -1, end), at)
    # What is overwritten is dead, also while the instruction that overwrites it (an accumulation, say) still runs.
    again = np.flatnonzero(piece[at[1:]] == piece[at[:-1]])
    last_read[again] = np.minimum(last_read[again], born[again + 1])
    lived = last_read > born
    where = piece[at[lived]]
    return Lives(borders[where], borders[where + 1], born[lived], last_read[lived])


def _touches(
    accesses: _Accesses, first: np.ndarray, count: np.ndarray, access: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(piece, start, end, is a write) for every piece of every access of this kind."""
    chosen = np.flatnonzero(accesses.access & access)
    repeats = count[chosen]
    within = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    piece = np.repeat(first[chosen], repeats) + within
    start, end = (np.repeat(column[chosen], repeats) for column in (accesses.start, accesses.end))
    return piece, start, end, np.full(len(piece), access == WRITE)


def _pieces(accesses: _Accesses, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(borders, first piece of each access, number of its pieces)."""
    borders = np.unique(np.concatenate([accesses.low, accesses.high]))
    for grid in _grids(len(borders)):
        if grid:
            borders = np.unique(np.linspace(0, capacity, grid + 1).astype(np.int64))
        first = np.searchsorted(borders, accesses.low, side="right") - 1
        count = np.searchsorted(borders, accesses.high, side="left") - first
        if int(count.sum()) <= MAX_TOUCHES:
            break
    return borders, first, count


def _grids(borders: int) -> Iterator[int]:
    """Numbers of pieces to try; zero stands for the borders themselves."""
    grid = 0 if borders <= MAX_PIECES else MAX_PIECES
    while True:
        yield grid
        if grid == 1:
            return
        grid = (grid or MAX_PIECES) // 4 or 1
