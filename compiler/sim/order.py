"""Happens-before, by vector clocks: is every access ordered after the ones it depends on, whatever the timing?

Each queue of each core keeps, for every other queue, how many of its instructions are known to have completed
before the queue's next instruction starts. Flags, barriers and cross-core flags carry that knowledge. Every memory
remembers, block by block, who wrote last, who read since, and which bytes were ever written. An access whose
predecessor is not known to be complete is a race, even if this run's timing happened to be kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.isa.dtypes import INTERLOCKED, MEMORIES, Queue
from compiler.isa.jit import inlined, kernel
from compiler.isa.program import Program
from compiler.sim import classes as k
from compiler.sim.classes import QUEUES, ClassTable
from compiler.sim.expand import Stream
from compiler.sim.pipeline import Schedule
from compiler.sim.shadow import (
    BASE,
    CHUNK,
    CHUNK_SHIFT,
    CHUNKS,
    END,
    EXACT,
    FIRST,
    FIRST_PLANE,
    PLANES,
    PRESET,
    SHIFT,
    START,
    Shadow,
    count_on,
    limit_memory,
    offset_in,
    region_at,
)
from compiler.target import Chip

S = int(Queue.S)
Q = QUEUES
FULL = np.uint32(0xFFFFFFFF)
MAX_RECORDS = 64
READ_AFTER_WRITE, WRITE_AFTER_READ, WRITE_AFTER_WRITE, UNINITIALISED, DOUBLE_SET, UNORDERED_CROSS = range(6)
RACE_NAMES = (
    "read-after-write race",
    "write-after-read race",
    "write-after-write race",
    "uninitialised read",
    "doubled flag",
    "unordered cross-core flag",
)


@dataclass(frozen=True)
class Race:
    """Two dynamic instructions that touch the same bytes without order; ``earlier`` is -1 where there is only one."""

    kind: int
    later: int
    earlier: int
    memory: str
    address: int


@inlined
def _join(clock, other):  # type: ignore[no-untyped-def]
    for p in range(len(clock)):
        if other[p] > clock[p]:
            clock[p] = other[p]


@inlined
def _record(records, count, pc, kind, later, earlier, memory, address):  # type: ignore[no-untyped-def]
    """Keep one record per kind and pair of static instructions."""
    for r in range(count):
        if records[r, 0] == kind and records[r, 5] == pc[later]:
            if records[r, 6] == (pc[earlier] if earlier >= 0 else -1):
                return count
    if count >= len(records):
        return count
    records[count, 0] = kind
    records[count, 1] = later
    records[count, 2] = earlier
    records[count, 3] = memory
    records[count, 4] = address
    records[count, 5] = pc[later]
    records[count, 6] = pc[earlier] if earlier >= 0 else -1
    return count + 1


@inlined
def _ordered(clock, previous, here, queue_of, sequence, interlocked):  # type: ignore[no-untyped-def]
    there = queue_of[previous]
    return (there == here and interlocked[here % Q]) or clock[there] > sequence[previous]


@inlined
def _uniform(segment):  # type: ignore[no-untyped-def]
    """Whether all entries are the same: the usual case, in a loop that vectorises."""
    first, difference = segment[0], np.int32(0)
    for value in segment:
        difference |= value ^ first
    return difference == 0


@inlined
def _entries_ordered(  # type: ignore[no-untyped-def]
    segment, kind, i, here, clock, queue_of, sequence, interlocked, pc, memory, start, shift, records, count
):  # fmt: skip
    """Check instruction ``i`` against the earlier ones (plus one) that left their mark in a segment of blocks."""
    known = np.int32(0)
    blocks = 1 if _uniform(segment) else len(segment)
    for block in range(blocks):
        entry = segment[block]
        if entry != known:
            known = entry
            if entry > 0 and entry != i + 1:
                there = queue_of[entry - 1]
                same_queue = there == here and interlocked[here % Q]
                if not same_queue and clock[there] <= sequence[entry - 1]:
                    count = _record(records, count, pc, kind, i, entry - 1, memory, start + (block << shift))
    return count


@inlined
def _first_unwritten(low, high, first, last, segment):  # type: ignore[no-untyped-def]
    """The first of the blocks whose bytes from low to high were not all written; -1 where all were."""
    together = FULL
    for value in segment:
        together &= value
    if together == FULL:
        return -1
    for block in range(last - first + 1):
        need = FULL
        if block == 0:
            need = FULL << np.uint32(low & 31) & FULL
        if block == last - first:
            need = need & (FULL >> np.uint32(31 - ((high - 1) & 31)))
        if segment[block] & need != need:
            return block
    return -1


@inlined
def _mark_written(low, high, segment):  # type: ignore[no-untyped-def]
    head, tail = FULL << np.uint32(low & 31), FULL >> np.uint32(31 - ((high - 1) & 31))
    last = len(segment) - 1
    if last == 0:
        segment[0] |= head & tail
        return
    segment[0] |= head
    segment[1:last] = FULL
    segment[last] |= tail


@inlined
def _touch(  # type: ignore[no-untyped-def]  # noqa: C901
    low, high, access, region, i, here, clock, writer, written, reader, latest, own, planes, pages, queue_of,
    sequence, interlocked, pc, memory, records, count,
):  # fmt: skip
    """Check and enter one contiguous run of bytes."""
    shift, base = region[SHIFT], region[BASE]
    first, last = (low - region[START]) >> shift, (high - 1 - region[START]) >> shift
    exact, mine = region[EXACT] != 0, np.int32(i + 1)
    at = region[START] + (first << shift)
    writers = writer[base + first : base + last + 1]
    kind = READ_AFTER_WRITE if access & 1 else WRITE_AFTER_WRITE
    count = _entries_ordered(
        writers, kind, i, here, clock, queue_of, sequence, interlocked, pc, memory, at, shift, records, count
    )  # fmt: skip
    if access & 1:
        unwritten = -1
        if not exact:
            unwritten = _first_unwritten(low, high, first, last, written[base + first : base + last + 1])
        elif region[PRESET] == 0:
            for block in range(len(writers)):
                if writers[block] == 0:
                    unwritten = block
                    break
        if unwritten >= 0:
            count = _record(records, count, pc, UNINITIALISED, i, -1, memory, at + (unwritten << shift))
        if own >= 0:
            at_chunk = planes[own, CHUNKS] - (planes[own, FIRST] >> CHUNK_SHIFT)
            for chunk in range(first >> CHUNK_SHIFT, (last >> CHUNK_SHIFT) + 1):
                latest[at_chunk + chunk] = mine
                page = reader[pages[at_chunk + chunk]]
                page[max(0, first - chunk * CHUNK) : min(CHUNK, last + 1 - chunk * CHUNK)] = mine
    if access & 2:
        for other in range(region[FIRST_PLANE], region[FIRST_PLANE] + region[PLANES]):
            begin, end = max(first, planes[other, FIRST]), min(last + 1, planes[other, END])
            if begin >= end:
                continue
            at_chunk = planes[other, CHUNKS] - (planes[other, FIRST] >> CHUNK_SHIFT)
            for chunk in range(begin >> CHUNK_SHIFT, ((end - 1) >> CHUNK_SHIFT) + 1):
                entry = latest[at_chunk + chunk]
                if entry == 0 or _ordered(clock, entry - 1, here, queue_of, sequence, interlocked):
                    continue  # it is complete, and so are all reads before it
                low_block, high_block = max(begin, chunk * CHUNK), min(end, (chunk + 1) * CHUNK)
                count = _entries_ordered(
                    reader[pages[at_chunk + chunk], low_block - chunk * CHUNK : high_block - chunk * CHUNK],
                    WRITE_AFTER_READ, i, here, clock, queue_of, sequence, interlocked, pc, memory,
                    region[START] + (low_block << shift), shift, records, count,
                )  # fmt: skip
        writers[:] = mine
        if not exact:
            _mark_written(low, high, written[base + first : base + last + 1])
    return count


@kernel
def _check(  # type: ignore[no-untyped-def]  # noqa: C901
    order, klass, address, core_of, pc, queue, kind, argument, interlocked, footprint_start, footprints, regions,
    region_start, region_count, writer, written, reader, latest, planes, plane_of, pages,
    events, cross_ids, cross_max, cluster_of, clusters, epoch, scalar_before, epoch_base, snapshots, cross_index,
    cross_message, cores, sequence, queue_of, records,
):  # fmt: skip
    width = cores * Q
    clocks = np.zeros((width, width), np.int32)
    done = np.zeros(width, np.int32)
    joined = np.zeros(width, np.int64)
    messages = np.zeros((cores * Q * Q * events, width), np.int32)
    last_wait = np.full(cores * Q * Q * events, -1, np.int64)
    pairs = cross_message.shape[0]
    cross_sets = np.zeros(pairs, np.int64)
    cross_waits = np.zeros(pairs, np.int64)
    cross_setter = np.full(pairs, -1, np.int64)
    cross_waiter = np.full(pairs, -1, np.int64)
    scalar_epoch = np.zeros(cores, np.int64)
    at_barrier = np.zeros(clusters + 1, np.int64)
    group_size = np.zeros(clusters + 1, np.int64)
    for c in range(cores):
        group_size[cluster_of[c]] += 1
        group_size[clusters] += 1
    everything = np.zeros(width, np.int32)
    counters = np.zeros(5, np.int64)
    count = 0
    for position in range(len(order)):
        i = order[position]
        a = klass[i]
        c = core_of[i]
        q = queue[a]
        here = c * Q + q
        what = kind[a]
        clock = clocks[here]
        n = done[here]
        sequence[i] = n
        queue_of[i] = here
        if q != S:
            if epoch[i] > joined[here]:
                _join(clock, snapshots[epoch_base[c] + epoch[i]])
                joined[here] = epoch[i]
            clock[c * Q + S] = max(clock[c * Q + S], scalar_before[i])
        if interlocked[q] or what == k.PIPE_BARRIER:
            clock[here] = n
        if what == k.SET:
            flag = c * Q * Q * events + argument[a]
            message = messages[flag]
            message[:] = clock
            message[here] = n + 1
            waited = last_wait[flag]
            if waited >= 0 and message[queue_of[waited]] <= sequence[waited]:
                count = _record(records, count, pc, DOUBLE_SET, i, waited, -1, 0)
        elif what == k.WAIT:
            flag = c * Q * Q * events + argument[a]
            _join(clock, messages[flag])
            last_wait[flag] = i
        elif what == k.CROSS_SET:
            pair = cross_index[i]
            before = cross_setter[pair]
            message = cross_message[pair, cross_sets[pair] % (cross_max + 1)]
            message[:] = clock
            message[here] = n + 1
            if before >= 0 and message[queue_of[before]] <= sequence[before]:
                count = _record(records, count, pc, UNORDERED_CROSS, i, before, -1, 0)
            cross_setter[pair] = i
            cross_sets[pair] += 1
        elif what == k.CROSS_WAIT:
            pair = cross_index[i]
            before = cross_waiter[pair]
            if before >= 0 and not _ordered(clock, before, here, queue_of, sequence, interlocked):
                if queue_of[before] != here:
                    count = _record(records, count, pc, UNORDERED_CROSS, i, before, -1, 0)
            _join(clock, cross_message[pair, cross_waits[pair] % (cross_max + 1)])
            cross_waiter[pair] = i
            cross_waits[pair] += 1
        elif what == k.BARRIER_ALL:
            for other in range(Q):
                if other != S:
                    _join(clock, clocks[c * Q + other])
                    clock[c * Q + other] = done[c * Q + other]
        elif what == k.CORE_BARRIER or what == k.CLUSTER_BARRIER:
            group = clusters if what == k.CORE_BARRIER else cluster_of[c]
            at_barrier[group] += 1
            done[here] = n + 1
            scalar_epoch[c] += 1
            if at_barrier[group] == group_size[group]:
                at_barrier[group] = 0
                everything[:] = 0
                for other in range(cores):
                    if group == clusters or cluster_of[other] == group:
                        for queue_ in range(Q):
                            _join(everything, clocks[other * Q + queue_])
                            everything[other * Q + queue_] = done[other * Q + queue_]
                for other in range(cores):
                    if group == clusters or cluster_of[other] == group:
                        clocks[other * Q + S][:] = everything
                        snapshots[epoch_base[other] + scalar_epoch[other]][:] = everything
            continue
        else:
            for f in range(footprint_start[a], footprint_start[a + 1]):
                memory, access, run = footprints[f, 1], footprints[f, 2], footprints[f, 5]
                start = address[i, footprints[f, 0]] + footprints[f, 3]
                which = region_at(start, memory, c, regions, region_start, region_count)
                region = regions[which]
                if region[BASE] < 0:
                    continue
                # Reads of one instruction come before its writes, so both halves of an "rw" see what was before.
                counters[:] = 0
                while counters[0] < footprints[f, 6]:
                    low = start + offset_in(footprints[f], counters)
                    count = _touch(
                        low, low + run, access, region, i, here, clock, writer, written, reader, latest,
                        plane_of[which, here], planes, pages, queue_of, sequence, interlocked, pc, memory, records,
                        count,
                    )  # fmt: skip
                    count_on(footprints[f], counters)
        done[here] = n + 1
        if q == S:
            clock[here] = n + 1
            if what == k.WAIT or what == k.CROSS_WAIT or what == k.BARRIER_ALL:
                scalar_epoch[c] += 1
                snapshots[epoch_base[c] + scalar_epoch[c]][:] = clock
        if count >= len(records):
            break
    return count


# ---- around the kernel -----------------------------------------------------------------------------------------------


@kernel
def _epochs(klass, core_start, queue, kind, epoch, scalar_before):  # type: ignore[no-untyped-def]
    """Per dynamic instruction: how many waits and instructions of the scalar unit were dispatched before it."""
    for c in range(len(core_start) - 1):
        waits, scalars = 0, 0
        for i in range(core_start[c], core_start[c + 1]):
            epoch[i] = waits
            scalar_before[i] = scalars
            a = klass[i]
            if queue[a] == S:
                scalars += 1
                if kind[a] != k.PLAIN and kind[a] != k.SET and kind[a] != k.CROSS_SET:
                    waits += 1


def check_order(stream: Stream, classes: ClassTable, schedule: Schedule, program: Program, chip: Chip) -> list[Race]:
    """Every race, uninitialised read and doubled flag of a run, one per pair of static instructions."""
    cores, count = stream.cores, stream.size
    core_of = np.repeat(np.arange(cores, dtype=np.int32), np.diff(stream.core_start))
    epoch, scalar_before = np.zeros(count, np.int32), np.zeros(count, np.int32)
    _epochs(stream.klass, stream.core_start, classes.queue, classes.kind, epoch, scalar_before)
    waits = [int(epoch[a:b].max(initial=0)) + 2 for a, b in zip(stream.core_start, stream.core_start[1:], strict=False)]
    epoch_base = np.concatenate([[0], np.cumsum(waits)]).astype(np.int64)
    shadow = Shadow(stream, classes, program, chip, core_of)
    cross_index, pairs = _cross_pairs(stream, classes, chip, core_of)
    clocks = int(epoch_base[-1]) + cores * Q + cores * Q * Q * chip.event_ids + pairs * (chip.cross_flag_max + 1)
    limit_memory(clocks * cores * Q * 4 + shadow.bytes)
    records = np.zeros((MAX_RECORDS, 7), np.int64)
    found = _check(
        schedule.order[schedule.order >= 0], stream.klass, stream.address, core_of, stream.pc,
        classes.queue, classes.kind, classes.argument, np.array([queue in INTERLOCKED for queue in Queue]),
        classes.footprint_start, classes.footprints, shadow.regions, shadow.region_start, shadow.region_count,
        shadow.writer, shadow.written, shadow.reader, shadow.latest, shadow.planes, shadow.plane_of,
        shadow.pages, chip.event_ids, chip.cross_flag_ids, chip.cross_flag_max,
        stream.cluster_of, chip.clusters, epoch, scalar_before,
        epoch_base, np.zeros((int(epoch_base[-1]), cores * Q), np.int32), cross_index,
        np.zeros((pairs, chip.cross_flag_max + 1, cores * Q), np.int32), cores, np.zeros(count, np.int32),
        np.zeros(count, np.int32), records,
    )  # fmt: skip
    return [
        Race(int(r[0]), int(r[1]), int(r[2]), MEMORIES[r[3]] if r[3] >= 0 else "", int(r[4])) for r in records[:found]
    ]


def _cross_pairs(stream: Stream, classes: ClassTable, chip: Chip, core_of: np.ndarray) -> tuple[np.ndarray, int]:
    """Number the (source core, destination core, id) triples that occur; index per dynamic instruction."""
    kind = classes.kind[stream.klass]
    index = np.zeros(stream.size, np.int32)
    used = np.flatnonzero((kind == k.CROSS_SET) | (kind == k.CROSS_WAIT))
    if not used.size:
        return index, 1
    other, number = np.divmod(classes.flags(stream, chip)[used], chip.cross_flag_ids)
    mine = core_of[used].astype(np.int64)
    sets = kind[used] == k.CROSS_SET
    source, target = np.where(sets, mine, other), np.where(sets, other, mine)
    keys, inverse = np.unique((source * chip.cores + target) * chip.cross_flag_ids + number, return_inverse=True)
    index[used] = inverse
    return index, len(keys)
