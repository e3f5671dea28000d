"""When everything happens: the queues of all cores, their flags and barriers, and the bandwidth they share.

A core's queues depend on each other only through dispatch, queue space and flags, so a core runs ahead on its own
in any order: all times are maxima and sums of earlier times. Only transfers on DDR and LLB need a common clock;
they start and end in order of time. Rates are shared max-min fair, in integers, so that a run gives the same
cycles everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.errors import LimitError, Problem
from compiler.isa.dtypes import INTERLOCKED, Queue
from compiler.isa.jit import inlined, kernel
from compiler.sim import classes as k
from compiler.sim.bandwidth import heap_pop, heap_push, share
from compiler.sim.classes import ClassTable
from compiler.sim.expand import Stream
from compiler.target import Chip

NEVER = np.int64(2**62)
MAX_STATE_BYTES = 1 << 30  # of all queues and flags
Q = len(Queue)
S = int(Queue.S)
# Reasons why a queue stood still, as columns of the result.
REASONS = ("empty", "flag", "barrier", "bandwidth", "queue_full")
EMPTY, FLAG, BARRIER, BANDWIDTH, QUEUE_FULL = range(5)
# Outcomes.
FINISHED, DEADLOCK, DOUBLE_FLAG, CROSS_OVERFLOW = range(4)
# Columns of a core's state.
NEXT, TIME, GAP_DONE, AT_BARRIER, ARRIVED, FINISHED_AT = range(6)


@dataclass(frozen=True)
class Schedule:
    """Times of every dynamic instruction, and where the cycles of every queue went."""

    outcome: int
    fault: int  # dynamic index, where the outcome names one
    cycles: int
    start: np.ndarray
    end: np.ndarray  # the queue is free again
    complete: np.ndarray  # the result is there
    order: np.ndarray  # an order in which each instruction comes after all that it waits for
    busy: np.ndarray  # [core, queue]
    stalled: np.ndarray  # [core, queue, reason]
    finished_at: np.ndarray  # [core]
    next_index: np.ndarray  # [core] first instruction that was not dispatched
    heads: np.ndarray  # [core, queue] instruction at the head of the queue, -1 where it is empty


@inlined
def _delay(seed, core, index, longest):  # type: ignore[no-untyped-def]
    """A pseudo-random extra delay of a queue, from the seed: none for most instructions, long ones for a few."""
    h = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(core * 1000003 + index)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    h ^= h >> np.uint64(31)
    if h % np.uint64(4) != 0:
        return np.int64(0)
    return np.int64((h >> np.uint64(8)) % np.uint64(longest + 1))


@kernel
def _simulate(  # type: ignore[no-untyped-def]  # noqa: C901
    klass, gap, core_start, tail_gap, queue, kind, cycles, latency, argument, in_cluster, first_flag, rate, line_bytes,
    shares, broadcast, interlocked, depth, issue_cycles, events, cross_ids, cross_max, cluster_of, clusters,
    per_cluster, ddr_limit, llb_limit, seed, longest_delay, start, end, complete, order, busy, stalled, core_state,
    heads,
):  # fmt: skip
    cores = len(core_start) - 1
    queues = cores * Q
    free = np.zeros(queues, np.int64)
    last_complete = np.zeros(queues, np.int64)
    ring_index = np.zeros((queues, depth), np.int64)
    ring_time = np.zeros((queues, depth), np.int64)
    freed = np.zeros((queues, depth), np.int64)
    pushed = np.zeros(queues, np.int64)
    popped = np.zeros(queues, np.int64)
    in_flight = np.zeros(queues, np.bool_)
    flight = np.zeros(queues, np.int64)  # the transfer that a queue has under way
    flag_set = np.zeros((cores, Q * Q * events), np.bool_)
    flag_time = np.zeros((cores, Q * Q * events), np.int64)
    cross_count = np.zeros((cores, cores * cross_ids), np.int32)  # [destination, source x id]
    cross_first = np.zeros((cores, cores * cross_ids), np.int32)
    cross_time = np.zeros((cores, cores * cross_ids, cross_max + 1), np.int64)
    heap = np.zeros(queues + 1, np.int64)
    heap_size = 0
    flows = 0
    flow_queue = np.zeros(queues, np.int64)
    flow_left = np.zeros(queues, np.int64)  # in thousandths of bytes
    flow_rate = np.zeros(queues, np.int64)
    flow_cap = np.zeros(queues, np.int64)
    flow_uses = np.zeros(queues, np.int8)
    flow_first = np.zeros(queues, np.int64)  # the clusters whose LLB it takes bandwidth of
    flow_last = np.zeros(queues, np.int64)
    meeting = np.zeros(queues, np.bool_)  # a queue at a broadcast that waits for the other clusters
    met_at = np.zeros(queues, np.int64)
    work = np.zeros(cores * 64 + 64, np.int64)  # cores to advance
    queued = np.zeros(cores, np.bool_)
    work_size = 0
    ordered = 0
    now = np.int64(0)
    barrier_waiting = np.zeros(clusters + 1, np.int64)  # the last entry is the barrier of all cores
    cores_in = np.zeros(clusters + 1, np.int64)
    for c in range(cores):
        core_state[c, NEXT] = core_start[c]
        cores_in[cluster_of[c]] += 1
        cores_in[clusters] += 1
    for c in range(cores - 1, -1, -1):
        work[work_size] = c
        queued[c] = True
        work_size += 1
    while True:
        while work_size > 0:
            work_size -= 1
            c = work[work_size]
            queued[c] = False
            base = c * Q
            progress = True
            while progress:
                progress = False
                # ---- the scalar unit dispatches in program order
                while core_state[c, NEXT] < core_start[c + 1] and core_state[c, AT_BARRIER] == 0:
                    i = core_state[c, NEXT]
                    a = klass[i]
                    q = queue[a]
                    what = kind[a]
                    if core_state[c, GAP_DONE] == 0:
                        core_state[c, TIME] += gap[i]
                        busy[c, S] += gap[i]
                        core_state[c, GAP_DONE] = 1
                    t = core_state[c, TIME]
                    if q != S:
                        here = base + q
                        count = pushed[here]
                        if count - popped[here] >= depth:
                            break
                        if count >= depth and freed[here, count % depth] > t:
                            stalled[c, S, QUEUE_FULL] += freed[here, count % depth] - t
                            t = freed[here, count % depth]
                        t += issue_cycles
                        busy[c, S] += issue_cycles
                        ring_index[here, count % depth] = i
                        ring_time[here, count % depth] = t
                        pushed[here] += 1
                        core_state[c, TIME] = t
                    else:
                        begin = t
                        if what == k.WAIT:
                            if not flag_set[c, argument[a]]:
                                break
                            flag_set[c, argument[a]] = False
                            begin = max(t, flag_time[c, argument[a]])
                            stalled[c, S, FLAG] += begin - t
                        elif what == k.CROSS_WAIT:
                            slot = argument[a] + in_cluster[a] * first_flag[c]
                            if cross_count[c, slot] == 0:
                                break
                            cross_count[c, slot] -= 1
                            first = cross_first[c, slot]
                            cross_first[c, slot] = (first + 1) % (cross_max + 1)
                            begin = max(t, cross_time[c, slot, first])
                            stalled[c, S, FLAG] += begin - t
                        elif what == k.BARRIER_ALL or what == k.CORE_BARRIER or what == k.CLUSTER_BARRIER:
                            drained = True
                            for other in range(1, Q):
                                if pushed[base + other] != popped[base + other] or in_flight[base + other]:
                                    drained = False
                                    break
                                begin = max(begin, max(free[base + other], last_complete[base + other]))
                            if not drained:
                                break
                            stalled[c, S, BARRIER] += begin - t
                            if what != k.BARRIER_ALL:
                                group = clusters if what == k.CORE_BARRIER else cluster_of[c]
                                core_state[c, ARRIVED] = begin
                                core_state[c, AT_BARRIER] = 1 + group
                                start[i] = begin
                                barrier_waiting[group] += 1
                                if barrier_waiting[group] == cores_in[group]:
                                    barrier_waiting[group] = 0
                                    release = np.int64(0)
                                    for other in range(cores):
                                        if core_state[other, AT_BARRIER] == 1 + group:
                                            release = max(release, core_state[other, ARRIVED])
                                    for other in range(cores):
                                        if core_state[other, AT_BARRIER] == 1 + group:
                                            j = core_state[other, NEXT]
                                            done = release + cycles[klass[j]]
                                            stalled[other, S, BARRIER] += done - core_state[other, ARRIVED]
                                            end[j] = complete[j] = done
                                            order[ordered] = j
                                            ordered += 1
                                            core_state[other, AT_BARRIER] = 0
                                            core_state[other, GAP_DONE] = 0
                                            core_state[other, TIME] = done
                                            core_state[other, NEXT] = j + 1
                                            if not queued[other] and other != c:
                                                work[work_size] = other
                                                queued[other] = True
                                                work_size += 1
                                    progress = True
                                continue
                        elif what == k.SET or what == k.CROSS_SET:
                            begin = t
                        start[i] = begin
                        done = begin + cycles[a]
                        end[i] = done
                        complete[i] = done + latency[a]
                        busy[c, S] += cycles[a]
                        core_state[c, TIME] = done
                        order[ordered] = i
                        ordered += 1
                        if what == k.SET:
                            if flag_set[c, argument[a]]:
                                return DOUBLE_FLAG, i, now
                            flag_set[c, argument[a]] = True
                            flag_time[c, argument[a]] = done
                        elif what == k.CROSS_SET:
                            flag = argument[a] + in_cluster[a] * first_flag[c]
                            other, slot = flag // cross_ids, c * cross_ids + flag % cross_ids
                            if cross_count[other, slot] >= cross_max:
                                return CROSS_OVERFLOW, i, now
                            place = (cross_first[other, slot] + cross_count[other, slot]) % (cross_max + 1)
                            cross_time[other, slot, place] = done + latency[a]
                            cross_count[other, slot] += 1
                            if not queued[other] and other != c:
                                work[work_size] = other
                                queued[other] = True
                                work_size += 1
                    core_state[c, NEXT] += 1
                    core_state[c, GAP_DONE] = 0
                    progress = True
                # ---- every queue goes as far as it can
                for q in range(1, Q):
                    here = base + q
                    while popped[here] < pushed[here] and not in_flight[here]:
                        position = popped[here] % depth
                        i = ring_index[here, position]
                        a = klass[i]
                        what = kind[a]
                        since = free[here]
                        t = max(since, ring_time[here, position])
                        begin = t
                        reason = FLAG
                        if what == k.WAIT:
                            if not flag_set[c, argument[a]]:
                                break
                            flag_set[c, argument[a]] = False
                            begin = max(t, flag_time[c, argument[a]])
                        elif what == k.CROSS_WAIT:
                            slot = argument[a] + in_cluster[a] * first_flag[c]
                            if cross_count[c, slot] == 0:
                                break
                            cross_count[c, slot] -= 1
                            first = cross_first[c, slot]
                            cross_first[c, slot] = (first + 1) % (cross_max + 1)
                            begin = max(t, cross_time[c, slot, first])
                        elif what == k.PIPE_BARRIER:
                            begin = max(t, last_complete[here])
                            reason = BARRIER
                        elif seed > 0 and (what == k.PLAIN or what == k.TRANSFER):
                            begin += _delay(seed, c, i - core_start[c], longest_delay)
                        if broadcast[a]:
                            # It starts once the queue is there on every core of this number; the first core has it.
                            meeting[here] = True
                            met_at[here] = begin
                            first = here % (per_cluster * Q)
                            for other in range(first, queues, per_cluster * Q):
                                if not meeting[other]:
                                    first = -1
                                    break
                                begin = max(begin, met_at[other])
                            if first < 0:
                                break
                            for other in range(first, queues, per_cluster * Q):
                                position = popped[other] % depth
                                i = ring_index[other, position]
                                since = free[other]
                                t = max(since, ring_time[other, position])
                                stalled[other // Q, q, EMPTY] += t - since
                                stalled[other // Q, q, FLAG] += begin - t
                                freed[other, position] = begin
                                start[i] = begin
                                order[ordered] = i
                                ordered += 1
                                popped[other] += 1
                                meeting[other] = False
                                in_flight[other] = True
                                flight[other] = i
                                if other != here and not queued[other // Q]:
                                    work[work_size] = other // Q
                                    queued[other // Q] = True
                                    work_size += 1
                            heap_push(heap, heap_size, begin << 14 | first)
                            heap_size += 1
                            progress = True
                            break
                        stalled[c, q, EMPTY] += t - since
                        stalled[c, q, reason] += begin - t
                        freed[here, position] = begin
                        start[i] = begin
                        order[ordered] = i
                        ordered += 1
                        popped[here] += 1
                        progress = True
                        if what == k.TRANSFER:
                            in_flight[here] = True
                            # One heap entry orders by time, then by queue: 2^14 queues, 2^48 cycles.
                            heap_push(heap, heap_size, begin << 14 | here)
                            heap_size += 1
                            flight[here] = i
                            break
                        done = begin + cycles[a]
                        free[here] = done
                        end[i] = done
                        busy[c, q] += cycles[a]
                        finish = done + latency[a]
                        if what == k.SET or what == k.CROSS_SET:
                            finish = max(begin, last_complete[here]) + cycles[a] + latency[a]
                        complete[i] = finish
                        if what == k.SET:
                            if flag_set[c, argument[a]]:
                                return DOUBLE_FLAG, i, now
                            flag_set[c, argument[a]] = True
                            flag_time[c, argument[a]] = finish
                        elif what == k.CROSS_SET:
                            flag = argument[a] + in_cluster[a] * first_flag[c]
                            other, slot = flag // cross_ids, c * cross_ids + flag % cross_ids
                            if cross_count[other, slot] >= cross_max:
                                return CROSS_OVERFLOW, i, now
                            place = (cross_first[other, slot] + cross_count[other, slot]) % (cross_max + 1)
                            cross_time[other, slot, place] = finish
                            cross_count[other, slot] += 1
                            if not queued[other] and other != c:
                                work[work_size] = other
                                queued[other] = True
                                work_size += 1
                        elif what == k.PLAIN:
                            if interlocked[q]:
                                free[here] = finish
                            last_complete[here] = max(last_complete[here], finish)
        # ---- nothing moves without shared bandwidth: the next start or end of a transfer
        next_end, ending = NEVER, -1
        for f in range(flows):
            finish = now + -(-flow_left[f] // flow_rate[f])
            if finish < next_end:
                next_end, ending = finish, f
        next_start = NEVER
        if heap_size > 0:
            next_start = heap[0] >> 14
        if ending < 0 and heap_size == 0:
            break
        at = min(next_end, next_start)
        for f in range(flows):
            flow_left[f] = max(np.int64(0), flow_left[f] - flow_rate[f] * (at - now))
        now = at
        if next_end <= next_start:
            here = flow_queue[ending]
            flows -= 1
            flow_queue[ending] = flow_queue[flows]
            flow_left[ending] = flow_left[flows]
            flow_rate[ending] = flow_rate[flows]
            flow_cap[ending] = flow_cap[flows]
            flow_uses[ending] = flow_uses[flows]
            flow_first[ending] = flow_first[flows]
            flow_last[ending] = flow_last[flows]
            # A broadcast ends for all that have it in common.
            last = queues if broadcast[klass[flight[here]]] else here + 1
            for each in range(here, last, per_cluster * Q):
                c = each // Q
                i = flight[each]
                a = klass[i]
                alone = max(cycles[a], -(-line_bytes[a] * 1000 // rate[a]))
                done = max(now, start[i] + cycles[a])
                end[i] = done
                complete[i] = done + latency[a]
                free[each] = done
                last_complete[each] = max(last_complete[each], complete[i])
                busy[c, each % Q] += alone
                stalled[c, each % Q, BANDWIDTH] += done - start[i] - alone
                in_flight[each] = False
                if not queued[c]:
                    work[work_size] = c
                    queued[c] = True
                    work_size += 1
        else:
            here = heap_pop(heap, heap_size) & 16383
            heap_size -= 1
            i = flight[here]
            a = klass[i]
            flow_queue[flows] = here
            flow_left[flows] = line_bytes[a] * 1000
            flow_cap[flows] = rate[a]
            flow_uses[flows] = shares[a]
            flow_first[flows] = flow_last[flows] = cluster_of[here // Q]
            if broadcast[a]:
                flow_last[flows] = cluster_of[cores - 1 - (cores - 1 - here // Q) % per_cluster]
            flows += 1
        for f in range(flows):
            flow_rate[f] = flow_cap[f]
        share(flows, flow_rate, flow_cap, flow_uses, ddr_limit, 1, 0, flow_first, flow_last, True)
        for each in range(clusters):
            # What DDR leaves to a flow is all that it takes of LLB.
            share(flows, flow_rate, flow_rate, flow_uses, llb_limit, 2, each, flow_first, flow_last, False)
    # ---- all queues are empty, or nobody can go on
    outcome = FINISHED
    total = np.int64(0)
    for c in range(cores):
        core_state[c, TIME] += tail_gap[c]
        busy[c, S] += tail_gap[c]
        core_state[c, FINISHED_AT] = core_state[c, TIME]
        if core_state[c, NEXT] < core_start[c + 1]:
            outcome = DEADLOCK
        for q in range(1, Q):
            here = c * Q + q
            heads[c, q] = -1
            if popped[here] < pushed[here]:
                outcome = DEADLOCK
                heads[c, q] = ring_index[here, popped[here] % depth]
            finish = max(free[here], last_complete[here])
            core_state[c, FINISHED_AT] = max(core_state[c, FINISHED_AT], finish)
        total = max(total, core_state[c, FINISHED_AT])
    return outcome, -1, total


def _check_size(cores: int, chip: Chip, cross_ids: int, cross_max: int) -> None:
    flags, crossing = cores * Q * Q * chip.event_ids, cores * cores * cross_ids
    needed = cores * Q * chip.queues.depth * 24 + flags * 9 + crossing * (8 + 8 * (cross_max + 1))
    if needed > MAX_STATE_BYTES:
        text = f"the queues and flags of {cores} cores need {needed >> 20} MiB; limit {MAX_STATE_BYTES >> 20} MiB"
        raise LimitError(Problem("TW1322", text, hint="run on fewer cores, or on a chip with fewer cross-core flags"))


def schedule(stream: Stream, classes: ClassTable, chip: Chip, *, seed: int = 0, longest_delay: int = 4000) -> Schedule:
    """Time a stream. A seed above zero delays queues at random, to shake out what only timing keeps right."""
    cores, count = stream.cores, stream.size
    start, end, complete = (np.zeros(count, np.int64) for _ in range(3))
    order = np.full(count, -1, np.int64)
    busy = np.zeros((cores, Q), np.int64)
    stalled = np.zeros((cores, Q, len(REASONS)), np.int64)
    state = np.zeros((cores, 6), np.int64)
    heads = np.full((cores, Q), -1, np.int64)
    interlocked = np.array([queue in INTERLOCKED for queue in Queue])
    # Cross-core flags are there for every pair of cores: too many to allow for where no instruction uses one.
    crossing = bool(np.isin(classes.kind, (k.CROSS_SET, k.CROSS_WAIT)).any())
    cross_ids, cross_max = (chip.cross_flag_ids, chip.cross_flag_max) if crossing else (1, 0)
    _check_size(cores, chip, cross_ids, cross_max)
    first_flag = np.arange(cores) // chip.cores_per_cluster * chip.cores_per_cluster * cross_ids
    outcome, fault, cycles = _simulate(
        stream.klass, stream.gap, stream.core_start, stream.tail_gap, classes.queue, classes.kind, classes.cycles,
        classes.latency, classes.argument, classes.in_cluster, first_flag, classes.rate, classes.line_bytes,
        classes.shares, classes.broadcast, interlocked, chip.queues.depth, chip.scalar.issue_cycles, chip.event_ids,
        cross_ids, cross_max, stream.cluster_of, chip.clusters, chip.cores_per_cluster,
        chip.bandwidth.ddr_bytes_per_kilocycle, chip.bandwidth.llb_bytes_per_kilocycle, seed, longest_delay,
        start, end, complete, order, busy, stalled, state, heads,
    )  # fmt: skip
    return Schedule(
        int(outcome), int(fault), int(cycles), start, end, complete, order, busy, stalled,
        state[:, FINISHED_AT].copy(), state[:, NEXT].copy(), heads,
    )  # fmt: skip
