"""The segments in a manifest: programs with their buffers, and functions for the host, as tables and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import PurePath
from typing import Any

from compiler.artifact.typed import SchemaFault, array, choice, integer, optional, record, shown, text
from compiler.isa.dtypes import DTYPES, MEMORIES, SHARED_MEMORIES
from compiler.isa.program import MAX_INSTRUCTIONS, ROLES, Buffer, Program, TilingWord
from compiler.runtime.model import HostSegment, Segment
from compiler.target import Chip
from compiler.target.schema import MAX_CORES

MAX_SEGMENTS = MAX_ARGUMENTS = 1 << 12
MAX_BUFFERS = MAX_TILING_WORDS = 1 << 16
MAX_FUNCTION_BYTES = 64 << 20
MAX_RANK = 32
MAX_ADDRESS = 1 << 46

_PROGRAM_KEYS = ("buffers", "chip", "cores", "entries", "instructions", "kind", "name", "source", "tiling")
_HOST_KEYS = ("arguments", "function_bytes", "kind", "name", "operator", "reason", "written")


@dataclass(frozen=True)
class ProgramEntry:
    """A program without instructions, debug information and how many instructions it has."""

    program: Program
    instructions: int


@dataclass(frozen=True)
class HostEntry:
    """A host segment without its function, and how many bytes that has."""

    segment: HostSegment
    function_bytes: int


Entry = ProgramEntry | HostEntry


# ---- building ---------------------------------------------------------------------------------------------------


def build(segment: Segment) -> dict[str, Any]:
    if isinstance(segment, HostSegment):
        return {
            "kind": "host",
            "name": segment.name,
            "operator": segment.operator,
            "reason": segment.reason,
            "function_bytes": len(segment.function.encode()),
            "arguments": list(segment.arguments),
            "written": list(segment.written),
        }
    program = segment.program
    return {
        "kind": "program",
        "name": program.name,
        "chip": program.chip,
        "cores": program.cores,
        "entries": list(program.entries),
        "instructions": len(program.instrs),
        "source": source_name(program.source),
        "tiling": [[word.name, word.value] for word in program.tiling],
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
    }


def source_name(path: str) -> str:
    """Only the last part: where a file lay is neither the artifact's business nor the same everywhere."""
    return PurePath(path).name


# ---- reading ----------------------------------------------------------------------------------------------------


def read(value: object, where: str, chip: Chip) -> Entry:
    if not isinstance(value, dict) or "kind" not in value:
        raise SchemaFault(f"{where} lacks kind")
    kind = choice(value["kind"], f"{where}.kind", ("program", "host"))
    return _host(value, where) if kind == "host" else _program(value, where, chip)


def _host(value: object, where: str) -> HostEntry:
    table = record(value, where, _HOST_KEYS)
    names = {key: array(table[key], f"{where}.{key}", MAX_ARGUMENTS, text) for key in ("arguments", "written")}
    for key, listed in names.items():
        if len(set(listed)) != len(listed):
            raise SchemaFault(f"{where}.{key} names a buffer twice")
    unknown = sorted(set(names["written"]) - set(names["arguments"]))
    if unknown:
        raise SchemaFault(f"{where}.written has {shown(unknown[0])}, which is none of its arguments")
    segment = HostSegment(
        text(table["name"], f"{where}.name"),
        text(table["reason"], f"{where}.reason"),
        "",
        names["arguments"],
        names["written"],
        text(table["operator"], f"{where}.operator"),
    )
    return HostEntry(segment, integer(table["function_bytes"], f"{where}.function_bytes", 1, MAX_FUNCTION_BYTES))


def _program(value: object, where: str, chip: Chip) -> ProgramEntry:
    table = record(value, where, _PROGRAM_KEYS)
    buffers = array(table["buffers"], f"{where}.buffers", MAX_BUFFERS, _buffer)
    _check_placement(buffers, chip, where)
    program = Program(
        text(table["name"], f"{where}.name"),
        optional(table["chip"], f"{where}.chip", text),
        optional(table["cores"], f"{where}.cores", lambda v, w: integer(v, w, 1, MAX_CORES)),
        buffers=buffers,
        tiling=array(table["tiling"], f"{where}.tiling", MAX_TILING_WORDS, _tiling_word),
        entries=array(table["entries"], f"{where}.entries", MAX_CORES, lambda v, w: integer(v, w, 0, MAX_INSTRUCTIONS)),
        source=file_name(table["source"], f"{where}.source"),
    )
    return ProgramEntry(program, integer(table["instructions"], f"{where}.instructions", 0, MAX_INSTRUCTIONS))


def file_name(value: object, where: str) -> str:
    name = text(value, where)
    if source_name(name) != name:
        raise SchemaFault(f"{where} is {shown(name)}; allowed: a file name without directories")
    return name


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
        shape(table["shape"], f"{where}.shape"),
        choice(table["role"], f"{where}.role", ROLES),
    )
    least = prod(buffer.shape) * DTYPES[buffer.dtype].itemsize
    if buffer.size_bytes < least:
        raise SchemaFault(f"{where}.size_bytes is {buffer.size_bytes}; allowed: {least} or more, as its shape needs")
    return buffer


def shape(value: object, where: str, least: int = 1) -> tuple[int, ...]:
    return array(value, where, MAX_RANK, lambda v, w: integer(v, w, least, MAX_ADDRESS))


def _check_placement(buffers: tuple[Buffer, ...], chip: Chip, program: str) -> None:
    names = set[str]()
    for index, buffer in enumerate(buffers):
        where, size = f"{program}.buffers[{index}]", chip.memory_bytes(buffer.memory)
        if buffer.name in names:
            raise SchemaFault(f"{where}.name is {shown(buffer.name)}, which is there already")
        names.add(buffer.name)
        if buffer.end > size:
            raise SchemaFault(f"{where} ends at byte {buffer.end} of {buffer.memory}, which has {size} bytes")
        if buffer.role != "scratch" and buffer.memory not in SHARED_MEMORIES:
            allowed = ", ".join(sorted(SHARED_MEMORIES))
            raise SchemaFault(f"{where}.memory is {buffer.memory}; allowed for an {buffer.role}: {allowed}")


def split(total: int, counts: Mapping[str, int], section: str) -> dict[str, tuple[int, int]]:
    """(begin, end) of each entry's part of a section that the entries share in order; they must cover all of it."""
    parts, end = dict[str, tuple[int, int]](), 0
    for where, count in counts.items():
        parts[where] = (end, end + count)
        end += count
        if end > total:
            raise SchemaFault(f"{where} is {count}; section {section} has {total - parts[where][0]} left")
    if end != total:
        raise SchemaFault(f"the segments use {end} of section {section}, which has {total}")
    return parts
