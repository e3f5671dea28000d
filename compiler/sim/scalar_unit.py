"""The scalar unit itself: one core's program counter, registers and loops, in compiled code."""

from __future__ import annotations

import numpy as np

from compiler.isa.jit import inlined, kernel
from compiler.isa.scalar_functions import alu, branch, falu, fcmp, itof
from compiler.isa.table.control import LOOP_DEPTH, SYSTEM_REGISTERS
from compiler.sim import code as kinds
from compiler.sim.code import MAX_SLOTS

# What a run of the unit ends with.
DONE, STREAM_FULL, CLASSES_FULL, STEP_LIMIT, NEEDS_VALUE, TRAPPED, BAD_TARGET, LOOPS_TOO_DEEP, BAD_TILING = range(9)

CLUSTER = SYSTEM_REGISTERS.index("cluster")

# Indices into the resumable state of one core.
PC, LOOP_SP, GAP, STEPS, EMITTED, CLASSES, FAULT = range(7)


@inlined
def _hash(pc, slots, values):  # type: ignore[no-untyped-def]
    h = np.uint64(pc) * np.uint64(0x9E3779B97F4A7C15)
    for k in range(slots):
        h = (h ^ np.uint64(values[k])) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(29)
    return h


@inlined
def _find_class(pc, slots, values, state, class_pc, class_values, hashed):  # type: ignore[no-untyped-def]
    """The class of these values at pc; a new one is entered. -1 where there is no room."""
    mask = np.uint64(len(hashed) - 1)
    at = _hash(pc, slots, values) & mask
    while hashed[at] >= 0:
        found = hashed[at]
        if class_pc[found] == pc:
            same = True
            for k in range(slots):
                if class_values[found, k] != values[k]:
                    same = False
                    break
            if same:
                return found
        at = (at + np.uint64(1)) & mask
    classes = np.int32(state[CLASSES])
    if classes >= len(class_pc):
        return np.int32(-1)
    hashed[at] = classes
    class_pc[classes] = pc
    for k in range(slots):
        class_values[classes, k] = values[k]
    state[CLASSES] += 1
    return classes


@kernel
def rehash(classes, slots, class_pc, class_values, hashed):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(hashed) - 1)
    for entry in range(classes):
        at = _hash(class_pc[entry], slots[class_pc[entry]], class_values[entry]) & mask
        while hashed[at] >= 0:
            at = (at + np.uint64(1)) & mask
        hashed[at] = entry


@kernel
def run(  # type: ignore[no-untyped-def]  # noqa: C901
    kind, operation, slots, register, immediate, key_mask, addresses, address_slot, destination, target,
    cycles, system, tiling, system_values, branch_cycles, regs, state, loops, stream_class, stream_gap, stream_address,
    class_pc, class_values, class_last, hashed, max_steps,
):  # fmt: skip
    """Run one core until it halts or needs something: see the status codes."""
    bits = np.zeros(1, np.int64)
    bits_f32 = bits.view(np.float32)
    values = np.zeros(MAX_SLOTS, np.int64)
    count = len(kind)
    pc, sp, gap, steps, emitted = state[PC], state[LOOP_SP], state[GAP], state[STEPS], state[EMITTED]
    status = -1
    while status < 0:
        while sp > 0 and pc == loops[sp - 1, 1]:
            top = sp - 1
            loops[top, 3] += 1
            if loops[top, 3] < loops[top, 2]:
                if loops[top, 4] != 0:
                    regs[loops[top, 4]] = loops[top, 3]
                pc = loops[top, 0]
            else:
                sp -= 1
        if pc < 0 or pc >= count:
            status = BAD_TARGET
            break
        if steps >= max_steps:
            status = STEP_LIMIT
            break
        what = kind[pc]
        if what == kinds.DISPATCH or what == kinds.SLD:
            if emitted >= len(stream_class):
                status = STREAM_FULL
                break
            used = slots[pc]
            found = class_last[pc]
            same = found >= 0
            for k in range(used):
                value = immediate[pc, k] + regs[register[pc, k]]
                values[k] = value
                same = same and (value & key_mask[pc, k]) == class_values[found, k]
            for k in range(addresses[pc]):
                stream_address[emitted, k] = values[address_slot[pc, k]]
            if not same:
                for k in range(used):
                    values[k] &= key_mask[pc, k]
                found = _find_class(pc, used, values, state, class_pc, class_values, hashed)
                if found < 0:
                    status = CLASSES_FULL
                    break
                class_last[pc] = found
            stream_class[emitted] = found
            stream_gap[emitted] = gap
            gap = 0
            emitted += 1
            steps += 1
            pc += 1
            if what == kinds.SLD:
                status = NEEDS_VALUE
            continue
        steps += 1
        gap += cycles[pc]
        if what <= kinds.ITOF:
            d = destination[pc]
            if what == kinds.ALU:
                result = alu(
                    operation[pc],
                    immediate[pc, 0] + regs[register[pc, 0]],
                    immediate[pc, 1] + regs[register[pc, 1]],
                    immediate[pc, 2] + regs[register[pc, 2]],
                )
                if d != 0:
                    regs[d] = result
            elif what == kinds.ITOF:
                bits_f32[0] = itof(operation[pc], immediate[pc, 0] + regs[register[pc, 0]], 0, 0)
                if d != 0:
                    regs[d] = bits[0] & 0xFFFFFFFF
            else:
                bits[0] = immediate[pc, 0] + regs[register[pc, 0]]
                a = bits_f32[0]
                bits[0] = immediate[pc, 1] + regs[register[pc, 1]]
                b = bits_f32[0]
                if what == kinds.FALU:
                    bits_f32[0] = falu(operation[pc], a, b, np.float32(0))
                    if d != 0:
                        regs[d] = bits[0] & 0xFFFFFFFF
                else:
                    result = fcmp(operation[pc], a, b, np.float32(0))
                    if d != 0:
                        regs[d] = result
            pc += 1
        elif what == kinds.BRANCH:
            a = immediate[pc, 0] + regs[register[pc, 0]]
            b = immediate[pc, 1] + regs[register[pc, 1]]
            if branch(operation[pc], a, b):
                pc = target[pc]
                gap += branch_cycles - 1
                while sp > 0 and not (loops[sp - 1, 0] <= pc <= loops[sp - 1, 1]):
                    sp -= 1
            else:
                pc += 1
        elif what == kinds.LOOP:
            trips = immediate[pc, 0] + regs[register[pc, 0]]
            if trips <= 0:
                pc = target[pc]
            elif target[pc] <= pc + 1:
                # Nothing to repeat: only the last count is left.
                if destination[pc] != 0:
                    regs[destination[pc]] = trips - 1
                pc = target[pc]
            elif sp >= LOOP_DEPTH:
                status = LOOPS_TOO_DEEP
            else:
                loops[sp, 0] = pc + 1
                loops[sp, 1] = target[pc]
                loops[sp, 2] = trips
                loops[sp, 3] = 0
                loops[sp, 4] = destination[pc]
                sp += 1
                if destination[pc] != 0:
                    regs[destination[pc]] = 0
                pc += 1
        elif what == kinds.LDT or what == kinds.LDTC:
            index = immediate[pc, 0] + regs[register[pc, 0]]
            if what == kinds.LDTC and index >= 0:
                index += system_values[CLUSTER]
            if index < 0 or index >= len(tiling):
                state[FAULT] = index
                status = BAD_TILING
            else:
                if destination[pc] != 0:
                    regs[destination[pc]] = tiling[index]
                pc += 1
        elif what == kinds.GETSR:
            if destination[pc] != 0:
                regs[destination[pc]] = system_values[system[pc]]
            pc += 1
        elif what == kinds.NOP:
            pc += 1
        elif what == kinds.HALT:
            status = DONE
        else:
            state[FAULT] = immediate[pc, 0] + regs[register[pc, 0]]
            status = TRAPPED
    state[PC], state[LOOP_SP], state[GAP], state[STEPS], state[EMITTED] = pc, sp, gap, steps, emitted
    return status
