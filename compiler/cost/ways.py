"""Which cores do alike: how each goes through the kernel, found without timing anything."""

from __future__ import annotations

import numpy as np

from compiler.cost import code as kinds
from compiler.cost.steady_state import COUNT, COUNTER, END, FIRST, TRIPS, hashed
from compiler.isa.jit import kernel
from compiler.isa.scalar_functions import alu, branch


@kernel
def way(  # type: ignore[no-untyped-def]  # noqa: C901
    kind, operation, slots, register, immediate, line_mask, destination, target, system, words, system_values, regs,
    loops, max_steps,
):  # fmt: skip
    """A hash of how a core goes through the kernel, in first and last turns of loops: branches, trip counts, and where
    in a line of DDR or LLB it begins to read and write."""
    count = len(kind)
    pc, sp, steps, trace = 0, 0, 0, np.uint64(0)
    while steps < max_steps:
        steps += 1
        while sp > 0 and pc == loops[sp - 1, END]:
            top = sp - 1
            if loops[top, COUNT] + 1 < loops[top, TRIPS]:
                loops[top, COUNT] = loops[top, TRIPS] - 1
                if loops[top, COUNTER] != 0:
                    regs[loops[top, COUNTER]] = loops[top, COUNT]
                pc = loops[top, FIRST]
            else:
                sp -= 1
        if pc >= count or pc < 0:
            break
        what = kind[pc]
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
            trace = hashed(trace, 2 * pc + taken)
            pc = target[pc] if taken else pc + 1
            while sp > 0 and not (loops[sp - 1, FIRST] <= pc <= loops[sp - 1, END]):
                sp -= 1
        elif what == kinds.LOOP:
            trace = hashed(trace, pc * 4096 + a)
            if a <= 0 or target[pc] <= pc + 1:
                if d != 0 and a > 0:
                    regs[d] = a - 1
                pc = target[pc]
            else:
                if sp >= len(loops):
                    break
                loops[sp, FIRST], loops[sp, END], loops[sp, TRIPS] = pc + 1, target[pc], a
                loops[sp, COUNT], loops[sp, COUNTER] = 0, d
                if d != 0:
                    regs[d] = 0
                sp += 1
                pc += 1
        elif what == kinds.GETSR:
            if d != 0:
                regs[d] = system_values[system[pc]]
            pc += 1
        elif what == kinds.HALT:
            break
        else:
            if what == kinds.DISPATCH:
                for k in range(slots[pc]):
                    if line_mask[pc, k] != 0:
                        value = immediate[pc, k] + regs[register[pc, k]]
                        trace = hashed(trace, 64 * (value & line_mask[pc, k]) + k)
            if what == kinds.LDTC:
                a += system_values[kinds.CLUSTER]
            if d != 0:
                regs[d] = words[a % len(words)] if what == kinds.LDT or what == kinds.LDTC else 0
            pc += 1
    return trace
