"""One core's way through a kernel: every queue's clock, without repeating what repeats.

The scalar unit dispatches until it has to wait, then every queue goes as far as it can, then the next transfer starts
or ends: the rules are those of the instruction table's page on order. At the end of every turn of a loop the clocks are
kept. When all queues that the loop uses have gone on by the same number of cycles for a period of turns as for the
period before it, and the same way through the loop, the loop is in its steady state: what is left of it moves all
clocks by that number for each period, up to the first turn in which a branch would go another way.

Other cores are not walked: they take their share of DDR and LLB, and tell this core when it tells them.
"""

from __future__ import annotations

import numpy as np

from compiler.cost import code as kinds
from compiler.cost.bandwidth import share
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
from compiler.isa.jit import inlined, kernel
from compiler.isa.scalar_functions import alu, branch, falu, fcmp, itof

# Kinds of instructions that queues take.
PLAIN, TRANSFER, SET, WAIT, PIPE_BARRIER, BARRIER_ALL, CORE_BARRIER, CLUSTER_BARRIER, CROSS_SET, CROSS_WAIT = range(10)
# What a walk ends with.
DONE, NEEDS_CLASS, TOO_LONG, LOST = range(4)
# Resumable state of a walk, in whole numbers.
PC, DEPTH, STEPS, EMITTED, CLASSES, BARRIERS = range(6)
# Columns of a class.
QUEUE, WHAT, ARGUMENT, SHARES = range(4)
CYCLES, LATENCY, RATE, LINE_BYTES, CONFLICT_CYCLES, DDR_PART = range(6)  # ..., how much of its bytes are DDR's work
# Columns of a queue's transfer.
BEGAN, LEFT, OF, PART = range(4)  # ..., its class: its place in the queue may have been taken again; DDR's part
NEVER = 1e300
# Which flags are taken to be set, though nobody has set them.
NONE, FROM_CORES, EVERY = range(3)


@inlined
def _advance(  # type: ignore[no-untyped-def]  # noqa: C901
    now, pushed, popped, pending, dispatched, freed, under_way, transfer, transfer_rate, transfer_uses, class_numbers,
    class_costs, interlocked, depth, flag_set, flag_time, flag_stamp, stamp, cross_time, cross_first,
    cross_count, forced,
):  # fmt: skip
    """Every queue goes as far as it can without a transfer that ends; whether any went on."""
    went_on = False
    progress = True
    while progress:
        progress = False
        for q in range(1, Q):
            while popped[q] < pushed[q] and not under_way[q]:
                place = popped[q] % depth
                found = pending[q, place]
                event, argument = class_numbers[found, WHAT], class_numbers[found, ARGUMENT]
                cycles, latency = class_costs[found, CYCLES], class_costs[found, LATENCY]
                begin = max(now[FREE + q], dispatched[q, place])
                if event == WAIT:
                    if not flag_set[argument] and forced != EVERY:
                        break
                    flag_set[argument] = False
                    begin = max(begin, flag_time[argument])
                elif event == CROSS_WAIT:
                    if cross_count[argument] == 0 and forced == NONE:
                        break
                    if cross_count[argument] > 0:
                        first = cross_first[argument]
                        cross_count[argument] -= 1
                        cross_first[argument] = (first + 1) % cross_time.shape[1]
                        begin = max(begin, cross_time[argument, first])
                elif event == PIPE_BARRIER:
                    begin = max(begin, now[RESULT + q])
                forced = NONE
                freed[q, place] = begin
                popped[q] += 1
                progress = went_on = True
                now[CONFLICT] += class_costs[found, CONFLICT_CYCLES]
                if event == TRANSFER:
                    under_way[q] = 1
                    transfer[q, BEGAN], transfer[q, LEFT] = begin, class_costs[found, LINE_BYTES]
                    transfer[q, OF], transfer[q, PART] = found, class_costs[found, DDR_PART]
                    transfer_rate[q], transfer_uses[q] = class_costs[found, RATE], class_numbers[found, SHARES]
                    break
                done = begin + cycles
                now[BUSY + q] += cycles
                finish = done + latency
                if event == SET or event == CROSS_SET:
                    finish = max(begin, now[RESULT + q]) + cycles + latency
                    if event == SET:
                        flag_set[argument] = True
                        flag_time[argument] = finish
                        flag_stamp[argument] = stamp
                    else:
                        if cross_count[argument] == cross_time.shape[1]:
                            cross_first[argument] = (cross_first[argument] + 1) % cross_time.shape[1]
                            cross_count[argument] -= 1
                        at = (cross_first[argument] + cross_count[argument]) % cross_time.shape[1]
                        cross_time[argument, at] = finish
                        cross_count[argument] += 1
                elif event == PLAIN:
                    if interlocked[q]:
                        done = finish
                    now[RESULT + q] = max(now[RESULT + q], finish)
                now[FREE + q] = done
    return went_on


@inlined
def _transfer(  # type: ignore[no-untyped-def]
    clock, now, under_way, transfer, transfer_rate, transfer_uses, rates, limits, class_costs
):  # fmt: skip
    """The next transfer starts or ends; when, or NEVER where none is under way.

    One that waits to start (2) begins at its own time, since others may end before that.
    """
    next_end, ending = NEVER, -1
    next_start, starting = NEVER, -1
    for q in range(1, Q):
        if under_way[q] == 2:
            end = clock + transfer[q, LEFT] / rates[q]
            if end < next_end:
                next_end, ending = end, q
        elif under_way[q] == 1 and transfer[q, BEGAN] < next_start:
            next_start, starting = transfer[q, BEGAN], q
    if ending < 0 and starting < 0:
        return NEVER
    at = max(clock, min(next_end, next_start))
    for q in range(1, Q):
        if under_way[q] == 2:
            transfer[q, LEFT] = max(0.0, transfer[q, LEFT] - rates[q] * (at - clock))
    if next_end <= next_start:
        q = ending
        found = int(transfer[q, OF])
        cycles, amount = class_costs[found, CYCLES], class_costs[found, LINE_BYTES]
        done = max(np.ceil(at - 1e-6), transfer[q, BEGAN] + cycles)
        now[FREE + q] = done
        now[RESULT + q] = max(now[RESULT + q], done + class_costs[found, LATENCY])
        now[BUSY + q] += max(cycles, amount / class_costs[found, RATE])
        if transfer_uses[q] & 1:
            now[DDR_BYTES] += amount * transfer[q, PART]
        if transfer_uses[q] & 2:
            now[LLB_BYTES] += amount
        under_way[q] = 0
    else:
        under_way[starting] = 2
    share(under_way == 2, transfer_rate, transfer_uses, transfer[:, PART], limits, rates)
    return at


@inlined
def _is_idle(pushed, popped, under_way):  # type: ignore[no-untyped-def]
    for q in range(1, Q):
        if pushed[q] != popped[q] or under_way[q]:
            return False
    return True


@inlined
def _copied(source, target, count):  # type: ignore[no-untyped-def]
    """One number after another: an assignment of slices takes seconds to compile, for the message when sizes differ."""
    for index in range(count):
        target[index] = source[index]


@kernel
def walk(  # type: ignore[no-untyped-def]  # noqa: C901
    kind, operation, slots, register, immediate, key_mask, destination, target, scalar_cycles, system, in_ub,
    words, system_values, branch_cycles, issue_cycles, depth, interlocked, limits,
    max_steps, class_at, class_next, class_values, class_numbers, class_costs, wanted, regs, state, loops, grown,
    traces, traces_kept, mark_count, marks, emitted_kept, now, pushed, popped, pending, dispatched, freed, under_way,
    transfer, transfer_rate, transfer_uses, rates, clock, flag_set, flag_time, flag_stamp, cross_time, cross_first,
    cross_count, barriers, spilled,
):  # fmt: skip
    """Walk until the kernel ends or an instruction is met whose cost nobody knows yet; then it can go on."""
    bits = np.zeros(1, np.int64)
    bits_f32 = bits.view(np.float32)
    values = np.zeros(MAX_SLOTS, np.int64)
    count = len(kind)
    pc, sp, steps = state[PC], state[DEPTH], state[STEPS]
    waiting, forced = False, NONE
    while True:
        # ---- where the scalar unit waits, or a turn ends, all that can happens without it
        ends = sp > 0 and pc == loops[sp - 1, END]
        if waiting or ends:
            went_on = _advance(
                now, pushed, popped, pending, dispatched, freed, under_way, transfer, transfer_rate, transfer_uses,
                class_numbers, class_costs, interlocked, depth, flag_set, flag_time, flag_stamp, state[EMITTED],
                cross_time, cross_first, cross_count, forced,
            )  # fmt: skip
            if waiting and not went_on:
                at = _transfer(
                    clock[0], now, under_way, transfer, transfer_rate, transfer_uses, rates, limits, class_costs
                )
                if at < NEVER:
                    clock[0], waiting = at, False
                elif forced == EVERY:
                    return LOST
                else:
                    forced += 1
                continue
            waiting, forced = False, NONE
        # ---- the end of a turn
        if ends:
            top = sp - 1
            seen = loops[top, SEEN] + 1
            loops[top, SEEN] = seen
            kept = seen % TURNS_KEPT
            _copied(now, grown[top, kept], len(now))
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
                        clock[0] += moved
                        for q in range(Q):
                            if q == S or now[TAKEN + q] != grown[top, before, TAKEN + q]:
                                now[FREE + q] += moved
                                now[RESULT + q] += moved
                                freed[q] += moved
                                dispatched[q] += moved
                                transfer[q, BEGAN] += moved
                            elif under_way[q] == 2:
                                transfer[q, LEFT] = max(0.0, transfer[q, LEFT] - rates[q] * moved)
                        for each in range(BUSY, GROWING):
                            now[each] += (now[each] - grown[top, before, each]) * periods
                        for f in range(len(flag_time)):
                            if flag_stamp[f] >= emitted_kept[top, before]:
                                flag_time[f] += moved
                        cross_time += moved
                        loops[top, COUNT] += periods * period
                        loops[top, SEEN] = 0
                        _copied(now, grown[top, 0], len(now))
                        emitted_kept[top, 0] = state[EMITTED]
            if loops[top, COUNT] < loops[top, TRIPS]:
                if loops[top, COUNTER] != 0:
                    regs[loops[top, COUNTER]] = loops[top, COUNT]
                pc = loops[top, FIRST]
            else:
                sp -= 1
            continue
        if pc >= count:
            state[PC], state[DEPTH], state[STEPS] = pc, sp, steps
            if _is_idle(pushed, popped, under_way):
                return DONE
            waiting = True
            continue
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
                _copied(values, wanted, used)
                state[PC], state[DEPTH], state[STEPS] = pc, sp, steps
                return NEEDS_CLASS
            q, event = class_numbers[found, QUEUE], class_numbers[found, WHAT]
            argument, cycles = class_numbers[found, ARGUMENT], class_costs[found, CYCLES]
            # ---- what the scalar unit waits for
            drains = event == BARRIER_ALL or event == CORE_BARRIER or event == CLUSTER_BARRIER
            waiting = (
                (q != S and pushed[q] - popped[q] >= depth)
                or (q == S and event == WAIT and not flag_set[argument])
                or (drains and not _is_idle(pushed, popped, under_way))
            )
            if waiting:
                continue
            steps += 1
            state[EMITTED] += 1
            pc += 1
            if event == SET or event == WAIT or event == CROSS_SET or event == CROSS_WAIT:
                mark(loops, sp, traces, mark_count, marks, pc * 4096 + argument, np.int64(0))
            if q != S:
                place = pushed[q] % depth
                now[FREE + S] = max(now[FREE + S], freed[q, place]) + issue_cycles
                now[BUSY + S] += issue_cycles
                now[TAKEN + q] += 1
                pending[q, place], dispatched[q, place] = found, now[FREE + S]
                pushed[q] += 1
                continue
            # ---- what it does itself
            if what == kinds.SCALAR_LOAD:
                value = np.int64(0)
                if in_ub[pc - 1]:
                    value = spilled[(values[1] >> 2) % len(spilled)]
                if destination[pc - 1] != 0:
                    regs[destination[pc - 1]] = value
            elif what == kinds.SCALAR_STORE and in_ub[pc - 1]:
                spilled[(values[0] >> 2) % len(spilled)] = values[used - 1]
            begin = now[FREE + S]
            if event == WAIT:
                flag_set[argument] = False
                begin = max(begin, flag_time[argument])
            elif drains:
                for other in range(Q):
                    begin = max(begin, max(now[FREE + other], now[RESULT + other]))
                if (event == CORE_BARRIER or event == CLUSTER_BARRIER) and state[BARRIERS] < len(barriers):
                    barriers[state[BARRIERS]] = begin
                    state[BARRIERS] += 1
            now[FREE + S] = begin + cycles
            now[BUSY + S] += cycles
            if event == SET:
                flag_set[argument] = True
                flag_time[argument] = begin + cycles
                flag_stamp[argument] = state[EMITTED]
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
                _copied(now, grown[sp, 0], len(now))
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
        elif what == kinds.LDT or what == kinds.LDTC:
            if what == kinds.LDTC:
                a += system_values[kinds.CLUSTER]
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
