"""Who wrote and read every block of every memory last: what the order check looks accesses up in.

On-chip memories are watched in 32-byte blocks, the unit their banks are written in, DDR and LLB exactly: in the
largest power of two that divides all addresses and lengths used on a buffer.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from compiler.errors import LimitError, Problem
from compiler.isa.dtypes import MEMORIES
from compiler.isa.jit import inlined, kernel
from compiler.isa.program import Program
from compiler.sim.classes import OUTER_LOOPS, QUEUES, ClassTable
from compiler.sim.expand import Stream
from compiler.target import Chip

Readers: TypeAlias = "list[tuple[int, int, int]]"  # queues of cores, each with the bytes it reads from and to

Q = QUEUES
BLOCK_SHIFT = 5
MAX_SHADOW_BYTES = 2 << 30
# Columns of a region: where a memory's or buffer's blocks are in the shadow arrays, and which planes are its own.
BASE, SHIFT, START, SIZE, EXACT, PRESET, FIRST_PLANE, PLANES = range(8)
# Columns of a plane, which says what one queue read of a region: of which blocks, and where its chunks are.
FIRST, END, CHUNKS = range(3)
# A chunk is so many blocks: it is known which instruction of a queue read some of them last; and of those chunks that
# the queue ever reads there is a page, which says it of each block.
CHUNK_SHIFT = 7
CHUNK = 1 << CHUNK_SHIFT


@kernel
def _usage(klass, address, core_of, queue, footprint_start, footprints, spans, span_count, grain, used, read):  # type: ignore[no-untyped-def]
    """Per shared buffer: the greatest power of two that divides every run on it, and from where to where it is read."""
    for i in range(len(klass)):
        a = klass[i]
        for f in range(footprint_start[a], footprint_start[a + 1]):
            memory = footprints[f, 1]
            if memory > 1:
                continue
            low = address[i, footprints[f, 0]] + footprints[f, 3]
            for b in range(span_count[memory]):
                if spans[memory, b, 0] <= low < spans[memory, b, 1]:
                    bits = grain[memory, b] | (low - spans[memory, b, 0]) | footprints[f, 5]
                    high = low + footprints[f, 5]
                    for loop in range(OUTER_LOOPS):
                        bits |= footprints[f, 7 + 2 * loop]
                        high += (footprints[f, 6 + 2 * loop] - 1) * footprints[f, 7 + 2 * loop]
                    grain[memory, b] = bits
                    used[memory, b] |= footprints[f, 2]
                    if footprints[f, 2] & 1:
                        reader = core_of[i] * Q + queue[a]
                        read[memory, b, reader, 0] = min(read[memory, b, reader, 0], low - spans[memory, b, 0])
                        read[memory, b, reader, 1] = max(read[memory, b, reader, 1], high - spans[memory, b, 0])
                    break


@kernel
def _paged(  # type: ignore[no-untyped-def]
    klass, address, core_of, queue, footprint_start, footprints, regions, region_start, region_count, planes, plane_of,
    pages,
):  # fmt: skip
    """Give every chunk that a queue reads a page; returns how many there are."""
    count = 0
    counters = np.zeros(5, np.int64)
    for i in range(len(klass)):
        a, c = klass[i], core_of[i]
        for f in range(footprint_start[a], footprint_start[a + 1]):
            if footprints[f, 2] & 1 == 0:
                continue
            start = address[i, footprints[f, 0]] + footprints[f, 3]
            which = region_at(start, footprints[f, 1], c, regions, region_start, region_count)
            own = plane_of[which, c * Q + queue[a]]
            if own < 0:
                continue
            counters[:] = 0
            while counters[0] < footprints[f, 6]:
                low = start + offset_in(footprints[f], counters) - regions[which, START]
                first, last = low >> regions[which, SHIFT], (low + footprints[f, 5] - 1) >> regions[which, SHIFT]
                at = planes[own, CHUNKS] - (planes[own, FIRST] >> CHUNK_SHIFT)
                for chunk in range(at + (first >> CHUNK_SHIFT), at + (last >> CHUNK_SHIFT) + 1):
                    if pages[chunk] < 0:
                        pages[chunk] = count
                        count += 1
                count_on(footprints[f], counters)
    return count


@inlined
def region_at(start, memory, core, regions, region_start, region_count):  # type: ignore[no-untyped-def]
    first = region_start[core, memory]
    for region in range(first, first + region_count[core, memory]):
        if regions[region, START] <= start < regions[region, START] + regions[region, SIZE]:
            return region
    return first


@inlined
def offset_in(footprint, counters):  # type: ignore[no-untyped-def]
    """Of the run of a footprint at which its loops stand."""
    offset = 0
    for loop in range(OUTER_LOOPS):
        offset += counters[loop] * footprint[7 + 2 * loop]
    return offset


@inlined
def count_on(footprint, counters):  # type: ignore[no-untyped-def]
    """To the next run of a footprint; after the last one, the first counter is at its end."""
    loop = OUTER_LOOPS - 1
    counters[loop] += 1
    while loop > 0 and counters[loop] >= footprint[6 + 2 * loop]:
        counters[loop] = 0
        loop -= 1
        counters[loop] += 1


def limit_memory(shadow_bytes: int) -> None:
    if shadow_bytes > MAX_SHADOW_BYTES:
        hint = "look for hazards in a smaller shape of the same program"
        limit = f"{MAX_SHADOW_BYTES >> 20} MiB"
        raise LimitError(
            Problem("TW1320", f"the hazard checker needs {shadow_bytes >> 20} MiB; limit {limit}", hint=hint)
        )


class Shadow:
    """Who wrote and read every block: one region per core and on-chip memory, one per buffer of DDR and LLB."""

    def __init__(self, stream: Stream, classes: ClassTable, program: Program, chip: Chip, core_of: np.ndarray) -> None:
        cores = stream.cores
        self._regions: list[list[int]] = []
        self._planes: list[list[int]] = []
        self._readers: list[tuple[int, int]] = []  # of every plane: its region, and the queue of a core
        self._blocks = self._chunks = 0
        self.region_start = np.zeros((cores, len(MEMORIES)), np.int64)
        self.region_count = np.zeros((cores, len(MEMORIES)), np.int64)
        self._local(classes, chip, cores)
        exact_from = self._blocks
        self._shared(stream, classes, program, chip, core_of)
        self.bytes = self._blocks * 8 + self._chunks * 8
        limit_memory(self.bytes)
        self.regions = np.array(self._regions, np.int64).reshape(-1, 8)
        self.planes = np.array(self._planes, np.int64).reshape(-1, 3)
        self.plane_of = np.full((max(1, len(self._regions)), cores * Q), -1, np.int32)
        for plane, (region, reader) in enumerate(self._readers):
            self.plane_of[region, reader] = plane
        self.pages = np.full(max(1, self._chunks), -1, np.int32)
        count = _paged(
            stream.klass, stream.address, core_of, classes.queue, classes.footprint_start, classes.footprints,
            self.regions, self.region_start, self.region_count, self.planes, self.plane_of, self.pages,
        )  # fmt: skip
        self.bytes += count * CHUNK * 4
        limit_memory(self.bytes)
        self.writer = np.zeros(max(1, self._blocks), np.int32)
        self.written = np.zeros(max(1, exact_from), np.uint32)
        self.reader = np.zeros((max(1, count), CHUNK), np.int32)
        self.latest = np.zeros(max(1, self._chunks), np.int32)

    def _add(self, start: int, size: int, shift: int, exact: bool, preset: bool, readers: Readers) -> None:
        """Another region, of which these queues read the bytes from one to another."""
        region = len(self._regions)
        self._regions.append([self._blocks, shift, start, size, exact, preset, len(self._planes), len(readers)])
        self._blocks += _blocks(size, shift)
        for reader, low, high in readers:
            first, end = low >> shift, _blocks(high, shift)
            self._planes.append([first, end, self._chunks])
            self._readers.append((region, reader))
            self._chunks += ((end - 1) >> CHUNK_SHIFT) - (first >> CHUNK_SHIFT) + 1

    def _local(self, classes: ClassTable, chip: Chip, cores: int) -> None:
        columns = classes.footprints
        for memory in range(2, len(MEMORIES)):
            here = columns[:, 1] == memory
            if not here.any():
                continue
            reading = here & ((columns[:, 2] & 1) == 1)
            queues = np.unique(classes.queue[classes.footprint_class[reading]])
            size = chip.memory_bytes(MEMORIES[memory])
            for core in range(cores):
                self.region_start[core, memory] = len(self._regions)
                self.region_count[core, memory] = 1
                readers = [(core * Q + int(queue), 0, size) for queue in queues]
                self._add(0, size, BLOCK_SHIFT, False, False, readers)

    def _shared(self, stream: Stream, classes: ClassTable, program: Program, chip: Chip, core_of: np.ndarray) -> None:
        buffers = [[b for b in program.buffers if b.memory == name] for name in MEMORIES[:2]]
        widest = max(1, *(len(each) for each in buffers))
        spans = np.zeros((2, widest, 2), np.int64)
        for memory, each in enumerate(buffers):
            for at, buffer in enumerate(each):
                spans[memory, at] = buffer.offset, buffer.end
        grain, used = np.zeros((2, widest), np.int64), np.zeros((2, widest), np.int64)
        read = np.zeros((2, widest, stream.cores * Q, 2), np.int64)
        read[..., 0] = np.iinfo(np.int64).max
        counts = np.array([len(each) for each in buffers], np.int64)
        _usage(
            stream.klass, stream.address, core_of, classes.queue, classes.footprint_start, classes.footprints, spans,
            counts, grain, used, read,
        )  # fmt: skip
        for memory, each in enumerate(buffers):
            instances = [0] if memory == 0 else list(range(chip.clusters))
            first = {}
            for instance in instances:
                first[instance] = len(self._regions)
                for at, buffer in enumerate(each):
                    preset = buffer.role in ("input", "inout")
                    if used[memory, at] & 2 == 0 and preset:
                        # Nobody writes it and it comes with contents: nothing can go wrong.
                        self._regions.append([-1, 0, buffer.offset, buffer.size_bytes, 1, 1, 0, 0])
                        continue
                    bits = int(grain[memory, at]) | 512
                    readers = [
                        (int(reader), int(read[memory, at, reader, 0]), int(read[memory, at, reader, 1]))
                        for reader in np.flatnonzero(read[memory, at, :, 1])
                        if used[memory, at] == 3 and (memory == 0 or chip.cluster_of(int(reader) // Q) == instance)
                    ]
                    shift = (bits & -bits).bit_length() - 1
                    self._add(buffer.offset, buffer.size_bytes, shift, True, preset, readers)
            for core in range(stream.cores):
                instance = 0 if memory == 0 else chip.cluster_of(core)
                self.region_start[core, memory], self.region_count[core, memory] = first[instance], len(each)


def _blocks(size: int, shift: int) -> int:
    return (size + (1 << shift) - 1) >> shift
