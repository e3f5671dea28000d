"""Instructions to bytes and back. Every bit of the encoding is written and checked.

An instruction is a 64-bit header and 32-bit slots, padded with a zero word to a multiple of 64 bits; all
little-endian. The header's fields are :data:`HEADER_FIELDS`. A slot in register form holds the register in bits
0-4 and a signed offset in bits 5-31; in immediate form an int32 (for a float the bits of an fp32, for a
destination the register's number, for a target the distance in instructions from this one).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from compiler.errors import CorruptError, Diagnostics, InvalidError, Problem
from compiler.isa.model import (
    IMMEDIATE_MAX,
    IMMEDIATE_MIN,
    OFFSET_MAX,
    OFFSET_MIN,
    REGISTERS,
    Instr,
    Reg,
    Row,
    Slot,
    Value,
)
from compiler.isa.program import MAX_INSTRUCTIONS
from compiler.isa.table import by_opcode

HEADER_FIELDS: tuple[tuple[str, int, int], ...] = (
    ("opcode", 0, 10),
    ("modifiers", 10, 24),
    ("register mask", 34, 24),
    ("slot count", 58, 6),
)
MAX_SLOTS = 24
MAX_PROGRAM_BYTES = 64 << 20
_FLOAT_MAX = 2**32 - 1


class Form(NamedTuple):
    """What a row and its modifiers fix: the header without its register mask, and the slots."""

    header: int
    slots: tuple[Slot, ...]


@lru_cache(maxsize=65536)
def form(row: Row, mods: tuple[str, ...]) -> Form:
    """The fixed part of the encoding; raises ValueError for a modifier that the row does not have."""
    if len(mods) != len(row.modifiers):
        raise ValueError(f"{row.mnemonic} has {len(row.modifiers)} modifiers, not {len(mods)}")
    header, shift = row.opcode, 10
    for modifier, choice in zip(row.modifiers, mods, strict=True):
        if choice not in modifier.choices:
            raise ValueError(f"{row.mnemonic}: {modifier.name} is {choice}; allowed: {', '.join(modifier.choices)}")
        header |= modifier.choices.index(choice) << shift
        shift += modifier.bits
    slots = row.slots(mods)
    return Form(header | len(slots) << 58, slots)


def allowed(slot: Slot) -> tuple[int, int]:
    """The least and the greatest immediate of a slot."""
    if slot.kind == "float":
        return 0, _FLOAT_MAX
    return max(slot.lo, IMMEDIATE_MIN), min(slot.hi, IMMEDIATE_MAX)


def value_fault(slot: Slot, value: Value) -> str | None:
    """What is wrong with a slot's value: the value and what is allowed; or None."""
    if isinstance(value, Reg):
        return _register_fault(slot, value)
    low, high = allowed(slot)
    if not low <= value <= high:
        hint = " (a greater one fits a register)" if high < slot.hi else ""
        return f"{slot.name} is {value}; allowed: {low} to {high}{hint}"
    if slot.multiple > 1 and value % slot.multiple:
        return f"{slot.name} is {value}; allowed: multiples of {slot.multiple}"
    return None


def _register_fault(slot: Slot, value: Reg) -> str | None:
    if slot.kind in ("dest", "target"):
        what = "a register's number" if slot.kind == "dest" else "a distance in instructions"
        return f"{slot.name} has register form; allowed: {what} in immediate form"
    if not 0 <= value.index < REGISTERS:
        return f"{slot.name} is register {value.index}; allowed: 0 to {REGISTERS - 1}"
    if slot.kind == "float" and value.offset:
        return f"{slot.name} is a register with offset {value.offset}; allowed: a float register has offset 0"
    if not OFFSET_MIN <= value.offset <= OFFSET_MAX:
        return f"{slot.name} is a register with offset {value.offset}; allowed: {OFFSET_MIN} to {OFFSET_MAX}"
    return None


def target_fault(slot: Slot, value: Value, index: int, count: int) -> str | None:
    """What is wrong with the landing place of instruction ``index`` of ``count``; or None."""
    if slot.kind != "target" or isinstance(value, Reg) or 0 <= index + value <= count:
        return None
    return f"{slot.name} is {value}, which leads to instruction {index + value}; allowed: 0 to {count}"


# ---- encoding -------------------------------------------------------------------------------------------


def encode(instrs: Sequence[Instr]) -> bytes:
    """The bytes of a program; InvalidError with every value that has no encoding."""
    if len(instrs) > MAX_INSTRUCTIONS:
        raise InvalidError(Problem("TW1250", f"a program has {len(instrs)} instructions; allowed: {MAX_INSTRUCTIONS}"))
    problems = Diagnostics()
    chunks: list[bytes] = []
    for index, instr in enumerate(instrs):
        for text in instr_faults(instr, index, len(instrs)):
            problems.add("TW1251", f"instruction {index} ({instr.row.mnemonic}): {text}")
        if len(problems.problems) > problems.limit:
            break
        if not problems.problems:
            chunks.append(_words(instr))
    problems.raise_if_any()
    return b"".join(chunks)


def instr_faults(instr: Instr, index: int, count: int) -> list[str]:
    """Everything that keeps one instruction from being encoded at ``index`` of a program of ``count``."""
    try:
        slots = form(instr.row, instr.mods).slots
    except ValueError as error:
        return [str(error)]
    if len(slots) != len(instr.values):
        return [f"has {len(instr.values)} slots; allowed: {len(slots)}"]
    found = []
    for slot, value in zip(slots, instr.values, strict=True):
        fault = value_fault(slot, value) or target_fault(slot, value, index, count)
        if fault:
            found.append(fault)
    return found


def _words(instr: Instr) -> bytes:
    header, slots = form(instr.row, instr.mods)
    words: list[int] = []
    for bit, value in enumerate(instr.values):
        if isinstance(value, Reg):
            header |= 1 << (34 + bit)
            words.append(value.index | (value.offset & 0x7FFFFFF) << 5)
        else:
            words.append(value & 0xFFFFFFFF)
    if len(slots) % 2:
        words.append(0)
    return struct.pack(f"<Q{len(words)}I", header, *words)


# ---- decoding -------------------------------------------------------------------------------------------


class _Header(NamedTuple):
    """What a header says, or its faults."""

    row: Row | None
    mods: tuple[str, ...]
    slots: tuple[Slot, ...]
    mask: int
    faults: tuple[str, ...]


def decode(data: bytes) -> tuple[Instr, ...]:
    """The instructions in ``data``; InvalidError or CorruptError with everything that is wrong, up to a limit."""
    if len(data) > MAX_PROGRAM_BYTES:
        raise InvalidError(Problem("TW1250", f"a program has {len(data)} bytes; allowed: at most {MAX_PROGRAM_BYTES}"))
    if len(data) % 8:
        raise CorruptError(Problem("TW1252", f"a program has {len(data)} bytes; allowed: a multiple of 8"))
    return _Decoder(data).run()


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self.words = np.frombuffer(data, "<u4")
        self.headers = np.frombuffer(data, "<u8")
        self.known: dict[int, _Header] = {}
        self.instrs: list[Instr] = []
        self.targets: list[tuple[int, int, str, Slot, int]] = []  # word, instruction, mnemonic, slot, distance
        self.problems = Diagnostics()
        self.count = 0

    def run(self) -> tuple[Instr, ...]:
        position, total = 0, len(self.words)
        while position < total and len(self.problems.problems) < self.problems.limit:
            if self.count == MAX_INSTRUCTIONS:
                self._add(position, f"the program goes on; allowed: {MAX_INSTRUCTIONS} instructions", "TW1250")
                break
            word = int(self.headers[position // 2])
            header = self.known.get(word) or self.known.setdefault(word, _read_header(word))
            count = word >> 58
            size = 2 + count + count % 2
            if position + size > total:
                self._add(position, f"the instruction has {size} words; only {total - position} are left", "TW1252")
                self.problems.raise_if_any(CorruptError)
            if header.row is None:
                for text in header.faults:
                    self._add(position, text)
            else:
                self._slots(position, header, header.row, self.words[position + 2 : position + size].tolist())
            position += size
            self.count += 1
        for position, index, mnemonic, slot, distance in self.targets:
            if fault := target_fault(slot, distance, index, self.count):
                self._add(position, f"{mnemonic}: {fault}", index=index)
        self.problems.raise_if_any()
        return tuple(self.instrs)

    def _add(self, position: int, text: str, code: str = "TW1251", index: int | None = None) -> None:
        where = f"word {position} (instruction {self.count if index is None else index})"
        self.problems.add(code, f"{where}: {text}")

    def _slots(self, position: int, header: _Header, row: Row, words: list[int]) -> None:
        values: list[Value] = []
        for bit, slot in enumerate(header.slots):
            word = words[bit]
            value: Value
            if header.mask >> bit & 1:
                value = Reg(word & 31, (word >> 5) - (word >> 31 << 27))
            else:
                value = word if slot.kind == "float" or word < 1 << 31 else word - (1 << 32)
                if slot.kind == "target":
                    self.targets.append((position + 2 + bit, self.count, row.mnemonic, slot, value))
            if fault := value_fault(slot, value):
                self._add(position + 2 + bit, f"{row.mnemonic}: {fault}")
            values.append(value)
        if len(words) > len(values) and words[-1]:
            self._add(position + 1 + len(words), f"{row.mnemonic}: the padding is {words[-1]:#x}; allowed: 0")
        self.instrs.append(Instr(row, header.mods, tuple(values)))


def _read_header(word: int) -> _Header:
    opcode, codes, mask, count = (word >> first & (1 << bits) - 1 for _, first, bits in HEADER_FIELDS)
    row = by_opcode().get(opcode)
    if row is None:
        return _Header(None, (), (), 0, (f"opcode is {opcode}; allowed: the opcodes of the instruction table",))
    mods, faults = [], []
    for modifier in row.modifiers:
        code = codes & (1 << modifier.bits) - 1
        codes >>= modifier.bits
        if code < len(modifier.choices):
            mods.append(modifier.choices[code])
        else:
            faults.append(
                f"{row.mnemonic}: modifier {modifier.name} is {code}; allowed: 0 to {len(modifier.choices) - 1}"
            )
    if codes:
        faults.append(f"{row.mnemonic}: the unused modifier bits are {codes:#x}; allowed: 0")
    if faults:
        return _Header(None, (), (), 0, tuple(faults))
    slots = row.slots(tuple(mods))
    if count != len(slots):
        faults.append(f"{row.mnemonic}: slot count is {count}; allowed: {len(slots)}")
    if mask >> len(slots):
        faults.append(f"{row.mnemonic}: register mask is {mask:#x}; allowed: bits 0 to {len(slots) - 1} only")
    return _Header(None if faults else row, tuple(mods), slots, mask, tuple(faults))
