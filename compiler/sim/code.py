"""A program laid out in arrays, one row per static instruction, as the scalar unit's kernel reads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.isa.model import Reg
from compiler.isa.program import Program
from compiler.target import Chip

MAX_SLOTS = 24
# Kinds of static instructions, as the scalar unit tells them apart.
ALU, FALU, FCMP, ITOF, BRANCH, LOOP, LDT, GETSR, NOP, HALT, TRAP, DISPATCH, SLD, LDTC = range(14)
_KIND = {
    "alu": ALU,
    "falu": FALU,
    "fcmp": FCMP,
    "itof": ITOF,
    "branch": BRANCH,
    "loop": LOOP,
    "ldt": LDT,
    "ldtc": LDTC,
    "getsr": GETSR,
    "nop": NOP,
    "halt": HALT,
    "trap": TRAP,
    "sld": SLD,
}
# Only these low bits of an address can change what an instruction costs or whether it is legal.
_COST_BITS = {"ub": -1, "ddr": 511, "llb": 511, "bt": 511, "fb": 511, "l1": 511, "l0a": 511, "l0b": 511, "l0c": 1023}


@dataclass(frozen=True)
class Code:
    """The arrays; index is the static instruction, second index the slot."""

    kind: np.ndarray
    operation: np.ndarray  # opcode
    slots: np.ndarray  # count
    register: np.ndarray  # x0, which is zero, where a slot is an immediate
    immediate: np.ndarray
    key_mask: np.ndarray
    addresses: np.ndarray  # count of address slots
    address_slot: np.ndarray
    destination: np.ndarray
    target: np.ndarray
    cycles: np.ndarray
    system: np.ndarray  # system register number
    width: int  # most address slots of any instruction

    @property
    def size(self) -> int:
        return len(self.kind)


def lay_out(program: Program, chip: Chip) -> Code:
    count = len(program.instrs)
    kind = np.zeros(count, np.int8)
    operation, destination, target = (np.zeros(count, np.int32) for _ in range(3))
    slots, addresses, system = (np.zeros(count, np.int32) for _ in range(3))
    register = np.zeros((count, MAX_SLOTS), np.int32)
    immediate = np.zeros((count, MAX_SLOTS), np.int64)
    key_mask = np.full((count, MAX_SLOTS), -1, np.int64)
    address_slot = np.zeros((count, MAX_SLOTS), np.int32)
    cycles = np.full(count, chip.scalar.issue_cycles, np.int32)
    for pc, instr in enumerate(program.instrs):
        row = instr.row
        kind[pc] = _KIND.get(row.kind, DISPATCH)
        operation[pc] = row.opcode
        if row.kind in ("ldt", "ldtc"):
            cycles[pc] = chip.scalar.load_cycles
        if row.kind == "getsr":
            system[pc] = row.modifiers[0].choices.index(instr.mods[0])
        memories = row.memories(instr.mods)
        # Destination and target are not read; what is left are the sources, in order from slot zero.
        at = 0
        for slot, value in zip(row.slots(instr.mods), instr.values, strict=True):
            if slot.kind == "dest":
                destination[pc] = value if isinstance(value, int) else 0
                if kind[pc] != SLD:
                    continue
            elif slot.kind == "target":
                target[pc] = pc + int(value if not isinstance(value, Reg) else 0)
                continue
            if isinstance(value, Reg):
                register[pc, at], immediate[pc, at] = value.index, value.offset
            else:
                immediate[pc, at] = value
            if slot.kind == "addr":
                address_slot[pc, addresses[pc]] = at
                key_mask[pc, at] = _COST_BITS[memories[addresses[pc]]]
                addresses[pc] += 1
            at += 1
        slots[pc] = at
    width = max(1, int(addresses.max(initial=1)))
    return Code(
        kind, operation, slots, register, immediate, key_mask, addresses,
        np.ascontiguousarray(address_slot[:, :width]), destination, target, cycles, system, width,
    )  # fmt: skip
