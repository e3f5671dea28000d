"""A kernel's instructions laid out in arrays, one row per instruction, as the walk reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

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

    def part(self, begin: int, end: int) -> Code:
        """The instructions from ``begin`` to ``end``, which branch among each other."""
        found = {each.name: getattr(self, each.name)[begin:end] for each in fields(self)}
        return Code(**{**found, "target": found["target"] - begin})


@dataclass(frozen=True)
class _Form:
    """What is the same in all instructions of a row and its modifiers."""

    scalars: tuple[int, ...]  # kind, opcode, count of slots, cycles, system register, whether it is an access to UB
    destination: int | None  # these three are places among the values of an instruction
    target: int | None
    sources: tuple[int, ...]
    key_mask: np.ndarray
    line_mask: np.ndarray


def lay_out(instrs: Sequence[Instr], chip: Chip) -> Code:
    count, masks = len(instrs), _address_masks(chip)
    numbers, forms = dict[tuple[Row, tuple[str, ...]], int](), list[_Form]()
    form_of, destination, target = np.zeros(count, np.int64), np.zeros(count, np.int32), np.zeros(count, np.int32)
    taken, indices, offsets = list[int](), list[int](), list[int]()
    for pc, instr in enumerate(instrs):
        key, values = (instr.row, instr.mods), instr.values
        number = numbers.setdefault(key, len(forms))
        if number == len(forms):
            forms.append(_form_of(*key, chip, masks))
        form = forms[number]
        form_of[pc] = number
        if form.destination is not None and isinstance(value := values[form.destination], int):
            destination[pc] = value
        if form.target is not None:
            value = values[form.target]
            target[pc] = pc + int(value if not isinstance(value, Reg) else 0)
        for at, source in enumerate(form.sources):
            value = values[source]
            taken.append(pc * MAX_SLOTS + at)
            if isinstance(value, Reg):
                indices.append(value.index)
                offsets.append(value.offset)
            else:
                indices.append(0)
                offsets.append(value)
    register, immediate = np.zeros((count, MAX_SLOTS), np.int32), np.zeros((count, MAX_SLOTS), np.int64)
    np.put(register, taken, indices)
    np.put(immediate, taken, offsets)
    scalars = np.array([form.scalars for form in forms], np.int64).reshape(-1, 6)[form_of].T
    nothing = np.zeros((0, MAX_SLOTS), np.int64)
    key_mask, line_mask = (
        np.stack(each)[form_of] if each else nothing
        for each in ([form.key_mask for form in forms], [form.line_mask for form in forms])
    )
    kinds = np.int8, np.int32, np.int32, np.int64, np.int32, np.bool_
    columns: list[Any] = [np.ascontiguousarray(column, kind) for column, kind in zip(scalars, kinds, strict=True)]
    kind, operation, slots, cycles, system, in_ub = columns
    return Code(
        kind, operation, slots, register, immediate, key_mask, line_mask, destination, target, cycles, system, in_ub,
    )  # fmt: skip


def _form_of(row: Row, mods: tuple[str, ...], chip: Chip, masks: dict[str, int]) -> _Form:
    kind = SCALAR_STORE if row.mnemonic == "sst" else _KIND.get(row.kind, DISPATCH)
    key_mask, line_mask = np.zeros(MAX_SLOTS, np.int64), np.zeros(MAX_SLOTS, np.int64)
    memories, sources = iter(row.memories(mods)), list[int]()
    destination = target = None
    for place, slot in enumerate(row.slots(mods)):
        if slot.kind == "target":
            target = place
            continue
        if slot.kind == "dest":
            destination = place
            if kind != SCALAR_LOAD:
                continue
        at = len(sources)
        if slot.kind == "addr":
            memory = next(memories)
            key_mask[at] = masks[memory]
            line_mask[at] = masks[memory] if memory in SHARED_MEMORIES else _FREE
        else:
            key_mask[at] = _FREE if slot.kind in ("float", "dest") else WHOLE
        sources.append(place)
    cycles = chip.scalar.load_cycles if row.kind in ("ldt", "ldtc") else chip.scalar.issue_cycles
    system = SYSTEM_REGISTERS.index(mods[0]) if row.kind == "getsr" else 0
    in_ub = int(row.mnemonic in ("sld", "sst") and mods[0] == "ub")
    scalars = (kind, row.opcode, len(sources), cycles, system, in_ub)
    return _Form(scalars, destination, target, tuple(sources), key_mask, line_mask)


def _address_masks(chip: Chip) -> dict[str, int]:
    """Which bits of an address a row's timing looks at: lines of shared memories, groups and banks of UB."""
    line = chip.transfer.ddr_line_bytes
    banks = chip.vector.banks
    groups = (banks.groups << banks.group_shift) - 1
    in_bank = (1 << banks.bank_shift) - 1
    by_memory = {name: line - 1 if name in SHARED_MEMORIES else _FREE for name in MEMORIES}
    return {**by_memory, "ub": groups | ~in_bank}
