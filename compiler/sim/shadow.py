"""Who wrote and read every block of every memory last: what the order check looks accesses up in.

On-chip memories are watched in 32-byte blocks, the unit their banks are written in, DDR and LLB exactly: in the
largest power of two that divides all addresses and lengths used on a buffer.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import LimitError, Problem
from compiler.isa.dtypes import MEMORIES
from compiler.isa.jit import kernel
from compiler.isa.program import Program
from compiler.sim.classes import OUTER_LOOPS, QUEUES, ClassTable
from compiler.sim.expand import Stream
from compiler.target import Chip

Q = QUEUES
BLOCK_SHIFT = 5
MAX_SHADOW_BYTES = 2 << 30
# Columns of a region: where a memory's or buffer's blocks are in the shadow arrays.
BASE, SHIFT, START, SIZE, READERS, EXACT, PRESET, LATEST = range(8)
# Of so many blocks together it is also known which instruction of a queue read some of them last.
CHUNK_SHIFT = 7


@kernel
def _usage(klass, address, core_of, queue, footprint_start, footprints, spans, span_count, grain, used, readers):  # type: ignore[no-untyped-def]
    """Per shared buffer: the greatest power of two that divides every run on it, and who reads and writes it."""
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
                    for loop in range(OUTER_LOOPS):
                        bits |= footprints[f, 7 + 2 * loop]
                    grain[memory, b] = bits
                    used[memory, b] |= footprints[f, 2]
                    if footprints[f, 2] & 1:
                        readers[core_of[i] * Q + queue[a]] = True
                    break


def limit_memory(shadow_bytes: int) -> None:
    if shadow_bytes > MAX_SHADOW_BYTES:
        hint = "run without --hazards, or on a smaller shape of the same program"
        limit = f"{MAX_SHADOW_BYTES >> 20} MiB"
        raise LimitError(
            Problem("TW1320", f"the hazard checker needs {shadow_bytes >> 20} MiB; limit {limit}", hint=hint)
        )


class Shadow:
    """Who wrote and read every block: one region per core and on-chip memory, one per buffer of DDR and LLB."""

    def __init__(self, stream: Stream, classes: ClassTable, program: Program, chip: Chip, core_of: np.ndarray) -> None:
        cores = stream.cores
        self.bytes = 0
        self._regions: list[list[int]] = []
        self._blocks = self._reader_blocks = self._reader_chunks = 0
        self._exact_from = 0
        self.region_start = np.zeros((cores, len(MEMORIES)), np.int64)
        self.region_count = np.zeros((cores, len(MEMORIES)), np.int64)
        self._local(classes, chip, cores)
        self._shared(stream, classes, program, chip, core_of)
        self.bytes = self._blocks * 8 + (self._reader_blocks + self._reader_chunks) * 4
        limit_memory(self.bytes)
        self.regions = np.array(self._regions, np.int64).reshape(-1, 8)
        self.writer = np.zeros(max(1, self._blocks), np.int32)
        self.written = np.zeros(max(1, self._exact_from), np.uint32)
        self.reader = np.zeros(max(1, self._reader_blocks), np.int32)
        self.latest = np.zeros(max(1, self._reader_chunks), np.int32)

    def _add(self, start: int, size: int, shift: int, readers: int, exact: bool, preset: bool) -> None:
        blocks = (size + (1 << shift) - 1) >> shift
        base, reader_base = self._blocks, -1
        self._blocks += blocks
        latest_base = self._reader_chunks
        if readers:
            reader_base = self._reader_blocks
            self._reader_blocks += blocks * readers
            self._reader_chunks += ((blocks >> CHUNK_SHIFT) + 1) * readers
        self._regions.append([base, shift, start, size, reader_base, exact, preset, latest_base])

    def _local(self, classes: ClassTable, chip: Chip, cores: int) -> None:
        columns = classes.footprints
        self.local_slot = np.full((len(MEMORIES), cores * Q), -1, np.int32)
        self.local_readers = np.zeros(len(MEMORIES), np.int64)
        for memory in range(2, len(MEMORIES)):
            here = columns[:, 1] == memory
            if not here.any():
                continue
            reading = here & ((columns[:, 2] & 1) == 1)
            queues = np.unique(classes.queue[classes.footprint_class[reading]])
            for slot, queue in enumerate(queues):
                self.local_slot[memory, queue::Q] = slot
            self.local_readers[memory] = len(queues)
            for core in range(cores):
                self.region_start[core, memory] = len(self._regions)
                self.region_count[core, memory] = 1
                self._add(0, chip.memory_bytes(MEMORIES[memory]), BLOCK_SHIFT, len(queues), False, False)
        self._exact_from = self._blocks

    def _shared(self, stream: Stream, classes: ClassTable, program: Program, chip: Chip, core_of: np.ndarray) -> None:
        buffers = [[b for b in program.buffers if b.memory == name] for name in MEMORIES[:2]]
        widest = max(1, *(len(each) for each in buffers))
        spans = np.zeros((2, widest, 2), np.int64)
        for memory, each in enumerate(buffers):
            for at, buffer in enumerate(each):
                spans[memory, at] = buffer.offset, buffer.end
        grain, used = np.zeros((2, widest), np.int64), np.zeros((2, widest), np.int64)
        readers = np.zeros(stream.cores * Q, np.bool_)
        counts = np.array([len(each) for each in buffers], np.int64)
        _usage(
            stream.klass, stream.address, core_of, classes.queue, classes.footprint_start, classes.footprints, spans,
            counts, grain, used, readers,
        )  # fmt: skip
        self.shared_slot = np.full(stream.cores * Q, -1, np.int32)
        self.shared_slot[readers] = np.arange(readers.sum())
        self.shared_readers = int(readers.sum())
        for memory, each in enumerate(buffers):
            instances = [0] if memory == 0 else list(range(chip.clusters))
            first = {}
            for instance in instances:
                first[instance] = len(self._regions)
                for at, buffer in enumerate(each):
                    preset = buffer.role in ("input", "inout")
                    if used[memory, at] & 2 == 0 and preset:
                        # Nobody writes it and it comes with contents: nothing can go wrong.
                        self._regions.append([-1, 0, buffer.offset, buffer.size_bytes, -1, 1, 1, 0])
                        continue
                    bits = int(grain[memory, at]) | 512
                    shift = (bits & -bits).bit_length() - 1
                    both = used[memory, at] == 3
                    self._add(buffer.offset, buffer.size_bytes, shift, self.shared_readers if both else 0, True, preset)
            for core in range(stream.cores):
                instance = 0 if memory == 0 else chip.cluster_of(core)
                self.region_start[core, memory], self.region_count[core, memory] = first[instance], len(each)
