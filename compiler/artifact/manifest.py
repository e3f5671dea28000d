"""What the manifest says: built from a program and a chip, and read back with every key, type and limit checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import PurePath
from typing import Any

from compiler import __version__
from compiler.artifact.typed import SchemaFault, array, choice, digest, integer, optional, record, shown, text
from compiler.isa.dtypes import DTYPES, MEMORIES, SHARED_MEMORIES
from compiler.isa.program import MAX_INSTRUCTIONS, ROLES, Buffer, Program, TilingWord
from compiler.isa.table import table_hash
from compiler.target import Chip
from compiler.target.check import faults
from compiler.target.schema import MAX_CORES

# The meaning of the manifest's keys and of what a program may expect from who runs it.
ABI_VERSION = 1

MAX_BUFFERS = MAX_TILING_WORDS = MAX_CONSTANTS = 1 << 16
MAX_OPTIONS = 1 << 10
MAX_RANK = 32
MAX_ADDRESS = 1 << 46
CONSTANT_ALIGNMENT = 64

KEYS = (
    "abi_version", "buffers", "chip", "compiler_version", "constants", "isa_table_hash", "options", "program", "source",
)  # fmt: skip
OptionValue = str | int | bool


@dataclass(frozen=True)
class Constant:
    """What an input buffer holds unless the caller says otherwise: bytes ``offset`` from the start of the weights."""

    name: str
    offset: int
    size_bytes: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """A manifest whose parts have been checked one by one, and against each other."""

    chip: Chip
    program: Program  # without instructions and debug information
    instructions: int
    constants: tuple[Constant, ...]
    tables: Mapping[str, Any]  # all of it, as it is written


def build(
    program: Program,
    chip: Chip,
    constants: tuple[Constant, ...],
    options: Mapping[str, OptionValue],
    source_hash: str | None,
) -> dict[str, Any]:
    """The manifest of a program as plain tables."""
    return {
        "abi_version": ABI_VERSION,
        "compiler_version": __version__,
        "isa_table_hash": table_hash(),
        "chip": {"name": chip.name, "content_hash": chip.content_hash, "tables": chip.to_dict()},
        "options": dict(options),
        # Only the last part: where a file lay is neither the artifact's business nor the same everywhere.
        "source": {"name": PurePath(program.source).name, "sha256": source_hash},
        "program": {
            "name": program.name,
            "chip": program.chip,
            "cores": program.cores,
            "entries": list(program.entries),
            "instructions": len(program.instrs),
            "tiling": [[word.name, word.value] for word in program.tiling],
        },
        "buffers": [
            {
                "name": b.name,
                "memory": b.memory,
                "offset": b.offset,
                "size_bytes": b.size_bytes,
                "dtype": b.dtype,
                "shape": list(b.shape),
                "role": b.role,
            }
            for b in program.buffers
        ],
        "constants": [
            {"name": c.name, "offset": c.offset, "size_bytes": c.size_bytes, "dtype": c.dtype, "shape": list(c.shape)}
            for c in constants
        ],
    }


# ---- compatibility --------------------------------------------------------------------------------------------


def incompatibilities(tables: object) -> list[str]:
    """Why this build cannot read the rest. The ABI and the instruction table decide, never a package version."""
    if not isinstance(tables, dict):
        return []
    found = []
    for key, what, ours in (
        ("abi_version", "ABI version", ABI_VERSION),
        ("isa_table_hash", "the instruction table", table_hash()),
    ):
        if key in tables and tables[key] != ours:
            found.append(f"the artifact is for {what} {shown(tables[key])}; this build has {ours}")
    return found


# ---- reading --------------------------------------------------------------------------------------------------


def read(tables: object, weights_bytes: int) -> Manifest:
    """Raises SchemaFault with the first thing that is wrong."""
    top = record(tables, "manifest", KEYS)
    integer(top["abi_version"], "abi_version", ABI_VERSION, ABI_VERSION)
    text(top["compiler_version"], "compiler_version")
    digest(top["isa_table_hash"], "isa_table_hash")
    _check_options(top["options"])
    source = record(top["source"], "source", ("name", "sha256"))
    optional(source["sha256"], "source.sha256", digest)
    chip = _chip(top["chip"])
    buffers = array(top["buffers"], "buffers", MAX_BUFFERS, _buffer)
    constants = array(top["constants"], "constants", MAX_CONSTANTS, _constant)
    program, instructions = _program(top["program"], buffers, _source_name(source["name"]))
    _check_placement(buffers, chip)
    _check_constants(constants, buffers, weights_bytes)
    return Manifest(chip, program, instructions, constants, top)


def _check_options(value: object) -> None:
    if not isinstance(value, dict) or len(value) > MAX_OPTIONS:
        raise SchemaFault(f"options is {shown(value)}; allowed: an object of at most {MAX_OPTIONS} keys")
    for name, option in value.items():
        text(name, "a key of options")
        if type(option) is not bool:
            where = f"options.{shown(name)}"
            text(option, where) if isinstance(option, str) else integer(option, where)


def _source_name(value: object) -> str:
    name = text(value, "source.name")
    if PurePath(name).name != name:
        raise SchemaFault(f"source.name is {shown(name)}; allowed: a file name without directories")
    return name


def _chip(value: object) -> Chip:
    table = record(value, "chip", ("name", "content_hash", "tables"))
    if not isinstance(table["tables"], dict):
        raise SchemaFault(f"chip.tables is {shown(table['tables'])}; allowed: an object")
    fault = next(faults(table["tables"]), None)
    if fault is not None:
        raise SchemaFault(f"chip.tables: {fault.message}")
    chip = Chip.from_dict(table["tables"])
    for key, ours in (("name", chip.name), ("content_hash", chip.content_hash)):
        if table[key] != ours:
            raise SchemaFault(f"chip.{key} is {shown(table[key])}; chip.tables says {ours}")
    return chip


def _program(value: object, buffers: tuple[Buffer, ...], source: str) -> tuple[Program, int]:
    table = record(value, "program", ("name", "chip", "cores", "entries", "instructions", "tiling"))
    program = Program(
        text(table["name"], "program.name"),
        optional(table["chip"], "program.chip", text),
        optional(table["cores"], "program.cores", lambda v, w: integer(v, w, 1, MAX_CORES)),
        buffers=buffers,
        tiling=array(table["tiling"], "program.tiling", MAX_TILING_WORDS, _tiling_word),
        entries=array(table["entries"], "program.entries", MAX_CORES, lambda v, w: integer(v, w, 0, MAX_INSTRUCTIONS)),
        source=source,
    )
    return program, integer(table["instructions"], "program.instructions", 0, MAX_INSTRUCTIONS)


def _tiling_word(value: object, where: str) -> TilingWord:
    if not isinstance(value, list) or len(value) != 2:
        raise SchemaFault(f"{where} is {shown(value)}; allowed: a name and a value")
    return TilingWord(text(value[0], f"{where}[0]"), integer(value[1], f"{where}[1]"))


def _buffer(value: object, where: str) -> Buffer:
    table = record(value, where, ("name", "memory", "offset", "size_bytes", "dtype", "shape", "role"))
    buffer = Buffer(
        text(table["name"], f"{where}.name"),
        choice(table["memory"], f"{where}.memory", MEMORIES),
        integer(table["offset"], f"{where}.offset", 0, MAX_ADDRESS),
        integer(table["size_bytes"], f"{where}.size_bytes", 1, MAX_ADDRESS),
        choice(table["dtype"], f"{where}.dtype", DTYPES),
        _shape(table["shape"], f"{where}.shape"),
        choice(table["role"], f"{where}.role", ROLES),
    )
    least = prod(buffer.shape) * DTYPES[buffer.dtype].itemsize
    if buffer.size_bytes < least:
        raise SchemaFault(f"{where}.size_bytes is {buffer.size_bytes}; allowed: {least} or more, as its shape needs")
    return buffer


def _constant(value: object, where: str) -> Constant:
    table = record(value, where, ("name", "offset", "size_bytes", "dtype", "shape"))
    constant = Constant(
        text(table["name"], f"{where}.name"),
        integer(table["offset"], f"{where}.offset", 0, MAX_ADDRESS),
        integer(table["size_bytes"], f"{where}.size_bytes", 1, MAX_ADDRESS),
        choice(table["dtype"], f"{where}.dtype", DTYPES),
        _shape(table["shape"], f"{where}.shape"),
    )
    wanted = prod(constant.shape) * DTYPES[constant.dtype].itemsize
    if constant.size_bytes != wanted:
        raise SchemaFault(f"{where}.size_bytes is {constant.size_bytes}; allowed: {wanted}, as its shape needs")
    return constant


def _shape(value: object, where: str) -> tuple[int, ...]:
    return array(value, where, MAX_RANK, lambda v, w: integer(v, w, 1, MAX_ADDRESS))


def _check_placement(buffers: tuple[Buffer, ...], chip: Chip) -> None:
    names = set[str]()
    for index, buffer in enumerate(buffers):
        where, size = f"buffers[{index}]", chip.memory_bytes(buffer.memory)
        if buffer.name in names:
            raise SchemaFault(f"{where}.name is {shown(buffer.name)}, which is there already")
        names.add(buffer.name)
        if buffer.end > size:
            raise SchemaFault(f"{where} ends at byte {buffer.end} of {buffer.memory}, which has {size} bytes")
        if buffer.role != "scratch" and buffer.memory not in SHARED_MEMORIES:
            allowed = ", ".join(sorted(SHARED_MEMORIES))
            raise SchemaFault(f"{where}.memory is {buffer.memory}; allowed for an {buffer.role}: {allowed}")


def _check_constants(constants: tuple[Constant, ...], buffers: tuple[Buffer, ...], weights_bytes: int) -> None:
    """In order, without holes, covering the whole section; each for one input of the same type and shape."""
    inputs = {b.name: b for b in buffers if b.role in ("input", "inout")}
    end = 0
    for index, constant in enumerate(constants):
        where, expected = f"constants[{index}]", -(-end // CONSTANT_ALIGNMENT) * CONSTANT_ALIGNMENT
        if constant.offset != expected:
            raise SchemaFault(f"{where}.offset is {constant.offset}; allowed: {expected}, where it follows")
        buffer = inputs.pop(constant.name, None)
        if buffer is None:
            raise SchemaFault(f"{where}.name is {shown(constant.name)}, which is no input, or has its contents already")
        if (buffer.dtype, buffer.shape) != (constant.dtype, constant.shape):
            text = f"{constant.dtype} {list(constant.shape)}; its buffer is {buffer.dtype} {list(buffer.shape)}"
            raise SchemaFault(f"{where} is {text}")
        end = constant.offset + constant.size_bytes
    if end != weights_bytes:
        raise SchemaFault(f"constants end at byte {end} of the weights, which have {weights_bytes} bytes")
