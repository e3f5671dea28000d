"""One core's way through a kernel: every queue's clock, without repeating what repeats.

A core dispatches in program order, and in every program that cannot deadlock alone a flag is set before it is waited
for in that order. So one pass in program order gives all times, as maxima and sums of earlier ones. At the end of every
turn of a loop the clocks are kept. When all queues that the loop uses have gone on by the same number of cycles for a
period of turns as for the period before it, and the same way through the loop, the loop is in its steady state: what is
left of it moves all clocks by that number for each period, up to the first turn in which a branch would go another way.

Other cores are not walked: they take their share of DDR and LLB, and send the flags that this core sends.
"""

from __future__ import annotations

import numpy as np

from compiler.cost import code as kinds
from compiler.cost.bandwidth import forgotten, transferred
from compiler.cost.code import MAX_SLOTS
from compiler.cost.growth import BUSY, CONFLICT, DDR_BYTES, FREE, GROWING, LLB_BYTES, RESULT, TAKEN, Q, S
from compiler.cost.steady_state import (
    COUNT,
    COUNTER,
    END,
    FIRST,
    PERIODS,
    SEEN,
    TRIPS,
    TURNS_KEPT,
    mark,
    period_of,
    turns_alike,
)
from compiler.isa.jit import kernel
from compiler.isa.scalar_functions import alu, branch, falu, fcmp, itof

# Kinds of instructions that queues take.
PLAIN, TRANSFER, SET, WAIT, PIPE_BARRIER, BARRIER_ALL, CORE_BARRIER, CLUSTER_BARRIER, CROSS_SET, CROSS_WAIT = range(10)
# What a walk ends with.
DONE, NEEDS_CLASS, TOO_LONG, LOST = range(4)
# Resumable state of a walk, in whole numbers.
PC, DEPTH, STEPS, EMITTED, FLOWS, CLASSES, BARRIERS = range(7)
# Columns of a class.
QUEUE, WHAT, ARGUMENT, SHARES = range(4)
CYCLES, LATENCY, RATE, LINE_BYTES, CONFLICT_CYCLES = range(5)


@kernel
def walk(  # type: ignore[no-untyped-def]  # noqa: C901
    kind, operation, slots, register, immediate, key_mask, destination, target, scalar_cycles, system, in_ub,
    words, system_values, branch_cycles, issue_cycles, depth, interlocked, limits, cross_ids, cores_per_cluster,
    max_steps, class_at, class_next, class_values, class_numbers, class_costs, wanted, regs, state, loops, grown,
    traces, traces_kept, mark_count, marks, emitted_kept, now, ring, pushed, flag_time, flag_stamp, cross_time,
    cross_first, cross_count, cross_last, flow_from, flow_used, barriers, spilled,
):  # fmt: skip
    """Walk until the kernel ends or an instruction is met whose cost nobody knows yet; then it can go on."""
    bits = np.zeros(1, np.int64)
    bits_f32 = bits.view(np.float32)
    values = np.zeros(MAX_SLOTS, np.int64)
    count = len(kind)
    core = system_values[0]
    pc, sp, steps, flows = state[PC], state[DEPTH], state[STEPS], state[FLOWS]
    while True:
        # ---- the end of a turn
        while sp > 0 and pc == loops[sp - 1, END]:
            top = sp - 1
            seen = loops[top, SEEN] + 1
            loops[top, SEEN] = seen
            kept = seen % TURNS_KEPT
            grown[top, kept] = now
            traces_kept[top, kept] = traces[top]
            emitted_kept[top, kept] = state[EMITTED]
            marked = mark_count[top]
            traces[top] = 0
            mark_count[top] = 0
            loops[top, COUNT] += 1
            left = loops[top, TRIPS] - loops[top, COUNT]
            if left > 2 and seen >= 3:
                period, cycles = period_of(top, seen, grown, traces_kept)
                if period > 0:
                    periods = (left - 1) // period
                    if period in PERIODS:
                        periods = min(periods, turns_alike(top, seen, period, marked, marks))
                    if periods > 0:
                        before = (seen - period) % TURNS_KEPT
                        moved = cycles * periods
                        for q in range(Q):
                            if q == S or now[TAKEN + q] != grown[top, before, TAKEN + q]:
                                now[FREE + q] += moved
                                now[RESULT + q] += moved
                                for slot in range(depth):
                                    ring[q, slot] += moved
                        for each in range(BUSY, GROWING):
                            now[each] += (now[each] - grown[top, before, each]) * periods
                        for f in range(len(flag_time)):
                            if flag_stamp[f] >= emitted_kept[top, before]:
                                flag_time[f] += moved
                        cross_time += moved
                        cross_last += moved
                        for f in range(flows):
                            flow_from[f] += moved
                        loops[top, COUNT] += periods * period
                        loops[top, SEEN] = 0
                        grown[top, 0] = now
                        emitted_kept[top, 0] = state[EMITTED]
            if loops[top, COUNT] < loops[top, TRIPS]:
                if loops[top, COUNTER] != 0:
                    regs[loops[top, COUNTER]] = loops[top, COUNT]
                pc = loops[top, FIRST]
            else:
                sp -= 1
        if pc >= count:
            state[PC], state[DEPTH], state[STEPS], state[FLOWS] = pc, sp, steps, flows
            return DONE
        if pc < 0:
            return LOST
        if steps >= max_steps:
            return TOO_LONG
        what = kind[pc]
        if what == kinds.DISPATCH or what >= kinds.SCALAR_LOAD:
            # ---- its class: what it costs
            used = slots[pc]
            for k in range(used):
                values[k] = immediate[pc, k] + regs[register[pc, k]]
            found = class_at[pc]
            while found >= 0:
                same = True
                for k in range(used):
                    if values[k] & key_mask[pc, k] != class_values[found, k]:
                        same = False
                        break
                if same:
                    break
                found = class_next[found]
            if found < 0:
                wanted[:used] = values[:used]
                state[PC], state[DEPTH], state[STEPS], state[FLOWS] = pc, sp, steps, flows
                return NEEDS_CLASS
            steps += 1
            state[EMITTED] += 1
            q, event = class_numbers[found, QUEUE], class_numbers[found, WHAT]
            argument, shares = class_numbers[found, ARGUMENT], class_numbers[found, SHARES]
            cycles, latency = class_costs[found, CYCLES], class_costs[found, LATENCY]
            if what == kinds.SCALAR_LOAD:
                value = np.int64(0)
                if in_ub[pc]:
                    value = spilled[(values[1] >> 2) % len(spilled)]
                if destination[pc] != 0:
                    regs[destination[pc]] = value
            elif what == kinds.SCALAR_STORE and in_ub[pc]:
                spilled[(values[0] >> 2) % len(spilled)] = values[used - 1]
            if event == SET or event == WAIT or event == CROSS_SET or event == CROSS_WAIT:
                mark(loops, sp, traces, mark_count, marks, pc * 4096 + argument, np.int64(0))
            # ---- when it is in its queue
            t = now[FREE + S]
            if q != S:
                place = pushed[q] % depth
                t = max(t, ring[q, place]) + issue_cycles
                now[BUSY + S] += issue_cycles
                now[FREE + S] = t
                now[TAKEN + q] += 1
            begin = max(t, now[FREE + q])
            if event == WAIT:
                begin = max(begin, flag_time[argument])
            elif event == CROSS_WAIT:
                source, flag = argument // cross_ids, argument % cross_ids
                slot = ((core - source) % cores_per_cluster) * cross_ids + flag
                if cross_count[slot] > 0:
                    cross_count[slot] -= 1
                    first = cross_first[slot]
                    cross_first[slot] = (first + 1) % cross_time.shape[1]
                    begin = max(begin, cross_time[slot, first])
                else:
                    begin = max(begin, cross_last[flag])
            elif event == PIPE_BARRIER:
                begin = max(begin, now[RESULT + q])
            elif event == BARRIER_ALL or event == CORE_BARRIER or event == CLUSTER_BARRIER:
                for other in range(Q):
                    begin = max(begin, max(now[FREE + other], now[RESULT + other]))
                if event == CORE_BARRIER and state[BARRIERS] < len(barriers):
                    barriers[state[BARRIERS]] = begin
                    state[BARRIERS] += 1
            if q != S:
                ring[q, place] = begin
                pushed[q] += 1
            done = begin + cycles
            alone = cycles
            if event == TRANSFER:
                amount, rate = class_costs[found, LINE_BYTES], class_costs[found, RATE]
                flows = forgotten(now[FREE + S], flows, flow_from, flow_used)
                finished, flows = transferred(begin, amount, rate, shares, limits, flows, flow_from, flow_used)
                done = max(done, np.ceil(finished))
                alone = max(cycles, amount / rate)
                if shares & 1:
                    now[DDR_BYTES] += amount
                if shares & 2:
                    now[LLB_BYTES] += amount
            finish = done + latency
            if event == SET or event == CROSS_SET:
                finish = max(begin, now[RESULT + q]) + cycles + latency
                if event == SET:
                    flag_time[argument] = finish if q != S else done
                    flag_stamp[argument] = state[EMITTED]
                else:
                    other, flag = argument // cross_ids, argument % cross_ids
                    slot = ((other - core) % cores_per_cluster) * cross_ids + flag
                    if cross_count[slot] == cross_time.shape[1]:
                        cross_first[slot] = (cross_first[slot] + 1) % cross_time.shape[1]
                        cross_count[slot] -= 1
                    cross_time[slot, (cross_first[slot] + cross_count[slot]) % cross_time.shape[1]] = finish
                    cross_count[slot] += 1
                    cross_last[flag] = finish
            elif event == PLAIN and interlocked[q]:
                done = finish
            if event == PLAIN or event == TRANSFER:
                now[RESULT + q] = max(now[RESULT + q], finish)
            now[FREE + q] = done
            now[BUSY + q] += alone
            now[CONFLICT] += class_costs[found, CONFLICT_CYCLES]
            pc += 1
            continue
        steps += 1
        now[FREE + S] += scalar_cycles[pc]
        now[BUSY + S] += scalar_cycles[pc]
        d = destination[pc]
        a = immediate[pc, 0] + regs[register[pc, 0]]
        b = immediate[pc, 1] + regs[register[pc, 1]]
        if what == kinds.ALU:
            result = alu(operation[pc], a, b, immediate[pc, 2] + regs[register[pc, 2]])
            if d != 0:
                regs[d] = result
            pc += 1
        elif what == kinds.BRANCH:
            taken = branch(operation[pc], a, b)
            mark(loops, sp, traces, mark_count, marks, 2 * pc + taken, a - b)
            if taken:
                pc = target[pc]
                now[FREE + S] += branch_cycles - 1
                now[BUSY + S] += branch_cycles - 1
                while sp > 0 and not (loops[sp - 1, FIRST] <= pc <= loops[sp - 1, END]):
                    sp -= 1
            else:
                pc += 1
        elif what == kinds.LOOP:
            mark(loops, sp, traces, mark_count, marks, pc * 4096 + a, np.int64(0))
            if d != 0 and a > 0:
                regs[d] = 0
            if a <= 0:
                pc = target[pc]
            elif target[pc] <= pc + 1:
                if d != 0:
                    regs[d] = a - 1
                pc = target[pc]
            else:
                if sp >= len(loops):
                    return LOST
                loops[sp, FIRST], loops[sp, END], loops[sp, TRIPS] = pc + 1, target[pc], a
                loops[sp, COUNT], loops[sp, COUNTER], loops[sp, SEEN] = 0, d, 0
                grown[sp, 0] = now
                emitted_kept[sp, 0] = state[EMITTED]
                traces[sp] = 0
                mark_count[sp] = 0
                sp += 1
                pc += 1
        elif what == kinds.ITOF:
            bits_f32[0] = itof(operation[pc], a, 0, 0)
            if d != 0:
                regs[d] = bits[0] & 0xFFFFFFFF
            pc += 1
        elif what == kinds.FALU or what == kinds.FCMP:
            bits[0] = a
            left_f32 = bits_f32[0]
            bits[0] = b
            right_f32 = bits_f32[0]
            if what == kinds.FCMP:
                compared = fcmp(operation[pc], left_f32, right_f32, np.float32(0))
                if d != 0:
                    regs[d] = compared
            else:
                bits_f32[0] = falu(operation[pc], left_f32, right_f32, np.float32(0))
                if d != 0:
                    regs[d] = bits[0] & 0xFFFFFFFF
            pc += 1
        elif what == kinds.LDT:
            if d != 0:
                regs[d] = words[a % len(words)]
            pc += 1
        elif what == kinds.GETSR:
            if d != 0:
                regs[d] = system_values[system[pc]]
            pc += 1
        elif what == kinds.NOP:
            pc += 1
        else:
            pc = count
