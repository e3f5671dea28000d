"""A program as assembly text. What it prints assembles to the same code, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from compiler.isa.declarations import Regions
from compiler.isa.dtypes import DTYPES, MEMORIES
from compiler.isa.expressions import RESERVED, float_text
from compiler.isa.lexer import quoted, string
from compiler.isa.model import Instr, Operand, Reg, Shape, Slot, Tensor, Value
from compiler.isa.program import Buffer, Program

_DIRECTIVES = {"input": ".input", "output": ".output", "inout": ".inout", "scratch": ".buffer"}


def disassemble(program: Program) -> str:
    """The text of a whole program: declarations, then instructions with generated labels."""
    labels = _labels(program)
    lines = [*_declarations(program), ""]
    for index, instr in enumerate(program.instrs):
        if index in labels:
            lines.append(f"{labels[index]}:")
        lines.append(f"    {instruction_text(instr, index, labels)}")
    if len(program.instrs) in labels:
        lines.append(f"{labels[len(program.instrs)]}:")
    entries = enumerate(program.entries)
    lines += [f".entry {core}, {labels[index]}" for core, index in entries] if any(program.entries) else []
    return "\n".join(lines) + "\n"


def instruction_text(instr: Instr, index: int = 0, labels: dict[int, str] | None = None) -> str:
    """One instruction; without labels a target is shown as its distance."""
    row = instr.row
    slots = row.slots(instr.mods)
    rank = row.rank(instr.mods)
    operands: list[str] = []
    position = 0
    for operand in row.operands:
        count = len(operand.slots(rank))
        texts = [_value_text(slots[k], instr.values[k], index, labels or {}) for k in range(position, position + count)]
        operands.append(_operand_text(operand, texts))
        position += count
    return f"{'.'.join((row.mnemonic, *instr.mods))} {', '.join(operands)}".rstrip()


def _operand_text(operand: Operand, texts: list[str]) -> str:
    if isinstance(operand, Tensor):
        return f"[{texts[0]}; {', '.join(texts[1:])}]" if len(texts) > 1 else f"[{texts[0]}]"
    return f"<{', '.join(texts)}>" if isinstance(operand, Shape) else texts[0]


def _value_text(slot: Slot, value: Value, index: int, labels: dict[int, str]) -> str:
    if isinstance(value, Reg):
        if not value.offset:
            return f"x{value.index}"
        return f"x{value.index} {'-' if value.offset < 0 else '+'} {abs(value.offset)}"
    if slot.kind == "float":
        return float_text(value)
    if slot.kind == "dest":
        return f"x{value}"
    if slot.kind == "target":
        return labels.get(index + value, f"{value:+}")
    return str(value)


def _labels(program: Program) -> dict[int, str]:
    """A label for every instruction that is jumped to or entered, apart from all other names."""
    wanted = set(program.entries) if any(program.entries) else set()
    for index, instr in enumerate(program.instrs):
        for slot, value in zip(instr.row.slots(instr.mods), instr.values, strict=True):
            if slot.kind == "target" and not isinstance(value, Reg):
                wanted.add(index + value)
    prefix, names = "L", {*(b.name for b in program.buffers), *(word.name for word in program.tiling)}
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return {index: f"{prefix}{index}" for index in sorted(wanted)}


def _declarations(program: Program) -> Iterator[str]:
    yield f".program {quoted(program.name)}"
    if program.chip is not None:
        yield f".chip {quoted(program.chip)}"
    if program.cores is not None:
        yield f".cores {program.cores}"
    regions = {memory: Regions() for memory in MEMORIES}
    for buffer in program.buffers:
        yield _buffer_text(buffer, regions[buffer.memory])
    for word in program.tiling:
        yield f".tiling {_name(word.name)} = {word.value}"


def _buffer_text(buffer: Buffer, region: Regions) -> str:
    words = [_DIRECTIVES[buffer.role], _name(buffer.name), buffer.memory, buffer.dtype]
    plain = buffer.shape and len(buffer.shape) <= 8
    words.append("x".join(map(str, buffer.shape)) if plain else f"[{', '.join(map(str, buffer.shape))}]")
    if buffer.size_bytes != prod(buffer.shape) * DTYPES[buffer.dtype].itemsize:
        words.append(f"size {buffer.size_bytes}")
    words.append(f"at {buffer.offset}")
    if region.overlapping(buffer.offset, buffer.end) is not None:
        words.append("alias")
    else:
        region.add(buffer.offset, buffer.end, buffer.name)
    return " ".join(words)


def _name(name: str) -> str:
    return string(name) if name in RESERVED else quoted(name)
