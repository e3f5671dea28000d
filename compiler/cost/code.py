"""A kernel's instructions laid out in arrays, one row per instruction, as the walk reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.isa.dtypes import MEMORIES, SHARED_MEMORIES
from compiler.isa.model import Instr, Reg, Row
from compiler.isa.table.control import SYSTEM_REGISTERS
from compiler.target import Chip

MAX_SLOTS = 24
CLUSTER = SYSTEM_REGISTERS.index("cluster")
# What the walk does with an instruction.
ALU, FALU, FCMP, ITOF, BRANCH, LOOP, LDT, LDTC, GETSR, NOP, HALT, DISPATCH, SCALAR_LOAD, SCALAR_STORE = range(14)
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
    "trap": HALT,
    "sld": SCALAR_LOAD,
}
# Operands of a row that can decide neither its cost nor which flag it is.
_FREE = 0
WHOLE = -1


@dataclass(frozen=True)
class Code:
    """The arrays; index is the instruction, second index the slot."""

    kind: np.ndarray
    operation: np.ndarray  # opcode
    slots: np.ndarray  # count
    register: np.ndarray  # x0, which is zero, where a slot is an immediate
    immediate: np.ndarray
    key_mask: np.ndarray  # the bits of a slot's value that can change what the instruction costs
    line_mask: np.ndarray  # of addresses in shared memories, those that say where in a line it is
    destination: np.ndarray
    target: np.ndarray
    cycles: np.ndarray
    system: np.ndarray  # system register number
    in_ub: np.ndarray  # scalar accesses: whether they are to UB, where spilled registers are


def lay_out(instrs: Sequence[Instr], chip: Chip) -> Code:
    count = len(instrs)
    kind, in_ub = np.zeros(count, np.int8), np.zeros(count, np.bool_)
    operation, slots, destination, target, system = (np.zeros(count, np.int32) for _ in range(5))
    register = np.zeros((count, MAX_SLOTS), np.int32)
    immediate = np.zeros((count, MAX_SLOTS), np.int64)
    key_mask, line_mask = np.zeros((count, MAX_SLOTS), np.int64), np.zeros((count, MAX_SLOTS), np.int64)
    cycles = np.full(count, chip.scalar.issue_cycles, np.int64)
    masks = _address_masks(chip)
    for pc, instr in enumerate(instrs):
        row = instr.row
        kind[pc] = _kind(row)
        operation[pc] = row.opcode
        if row.kind in ("ldt", "ldtc"):
            cycles[pc] = chip.scalar.load_cycles
        elif row.kind == "getsr":
            system[pc] = SYSTEM_REGISTERS.index(instr.mods[0])
        elif row.mnemonic in ("sld", "sst"):
            in_ub[pc] = instr.mods[0] == "ub"
        memories = iter(_memories(row, instr.mods))
        at = 0
        for slot, value in zip(row.slots(instr.mods), instr.values, strict=True):
            if slot.kind == "dest":
                destination[pc] = value if isinstance(value, int) else 0
                if kind[pc] != SCALAR_LOAD:
                    continue
            elif slot.kind == "target":
                target[pc] = pc + int(value if not isinstance(value, Reg) else 0)
                continue
            if isinstance(value, Reg):
                register[pc, at], immediate[pc, at] = value.index, value.offset
            else:
                immediate[pc, at] = value
            if slot.kind == "addr":
                memory = next(memories)
                key_mask[pc, at] = masks[memory]
                line_mask[pc, at] = masks[memory] if memory in SHARED_MEMORIES else _FREE
            else:
                key_mask[pc, at] = _FREE if slot.kind in ("float", "dest") else WHOLE
            at += 1
        slots[pc] = at
    return Code(
        kind, operation, slots, register, immediate, key_mask, line_mask, destination, target, cycles, system, in_ub,
    )  # fmt: skip


def _kind(row: Row) -> int:
    return SCALAR_STORE if row.mnemonic == "sst" else _KIND.get(row.kind, DISPATCH)


def _memories(row: Row, mods: tuple[str, ...]) -> list[str]:
    chosen = {m.name: choice for m, choice in zip(row.modifiers, mods, strict=True)}
    return [chosen[t.memory[1:]] if t.memory.startswith("@") else t.memory for t in row.tensors]


def _address_masks(chip: Chip) -> dict[str, int]:
    """Which bits of an address a row's timing looks at: lines of shared memories, groups and banks of UB."""
    line = chip.transfer.ddr_line_bytes
    banks = chip.vector.banks
    groups = (banks.groups << banks.group_shift) - 1
    in_bank = (1 << banks.bank_shift) - 1
    by_memory = {name: line - 1 if name in SHARED_MEMORIES else _FREE for name in MEMORIES}
    return {**by_memory, "ub": groups | ~in_bank}
