"""From an artifact to a compiled model. Nothing in the file is believed: each step checks what the next relies on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from compiler.artifact import canonical, container, debug, manifest
from compiler.artifact.constants import Constant
from compiler.artifact.container import DEBUG, HAS_HOST, HOST, MANIFEST, PROGRAMS, WEIGHTS, Header, Section
from compiler.artifact.files import open_regular
from compiler.artifact.manifest import Manifest
from compiler.artifact.segments import HostEntry, ProgramEntry, split
from compiler.artifact.typed import SchemaFault
from compiler.errors import (
    CorruptError,
    IncompatibleError,
    InputError,
    Place,
    Problem,
    TilewrightError,
    UsageError,
)
from compiler.isa.dtypes import DTYPES
from compiler.isa.encoding import decode
from compiler.isa.program import Program
from compiler.isa.verifier import verify
from compiler.runtime.model import CompiledModel, HostSegment, ProgramSegment, Segment
from compiler.target import Chip


@dataclass(frozen=True)
class Frame:
    """An artifact whose bytes are proven undamaged, and whose meaning nobody has looked at yet."""

    file: str
    header: Header
    contents: Mapping[int, memoryview]
    tables: Any  # the manifest as it was parsed

    @property
    def incompatibilities(self) -> list[str]:
        return manifest.incompatibilities(self.tables)


@dataclass(frozen=True)
class Stored:
    """What an artifact holds, checked down to the last instruction. Constants are read-only."""

    model: CompiledModel
    manifest: Mapping[str, Any]
    sections: tuple[Section, ...]

    @property
    def chip(self) -> Chip:
        return self.model.chip

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        return self.model.constants

    @property
    def program(self) -> Program:
        """The program, of an artifact that is no more than one; UsageError for others."""
        return _only_program(self.model)


def read_artifact(source: str | os.PathLike[str] | bytes, *, allow_host: bool = False) -> Stored:
    """Read an artifact from a path, or from its bytes.

    CorruptError where bytes do not fit their checksums or each other, IncompatibleError where they are for another
    build, InputError where the file cannot be read or holds host kernels that are not allowed.
    """
    return open_frame(read_frame(source), allow_host=allow_host)


def read_program(source: str | os.PathLike[str] | bytes) -> Stored:
    """Read an artifact that is to be run as one program; UsageError for others, and all that read_artifact raises."""
    stored = read_artifact(source)
    with _naming("<bytes>" if isinstance(source, bytes) else os.fspath(source)):
        _only_program(stored.model)
    return stored


def _only_program(model: CompiledModel) -> Program:
    segment = model.segments[0] if len(model.segments) == 1 else None
    if not isinstance(segment, ProgramSegment):
        text = f"the artifact is a model of {len(model.segments)} segments, and not one program"
        raise UsageError(Problem("TW1509", text, hint="`tilewright run` runs models"))
    return segment.program


def open_frame(frame: Frame, *, allow_host: bool = False) -> Stored:
    """What an undamaged artifact means, if it is for this build."""
    with _naming(frame.file):
        if frame.header.flags & HAS_HOST and not allow_host:
            text = "the artifact holds host kernels, which are code that would run on this machine"
            raise InputError(Problem("TW1508", text, hint="allow them only for artifacts you trust"))
        if found := frame.incompatibilities:
            raise IncompatibleError([Problem("TW1542", text, hint=container.REBUILD) for text in found])
        return _stored(frame)


def read_frame(source: str | os.PathLike[str] | bytes) -> Frame:
    """The container and the parsed manifest, which may be one that this build does not understand."""
    file = "<bytes>" if isinstance(source, bytes) else os.fspath(source)
    with _naming(file):
        header, data = _load(source)
        contents = container.read_sections(header, data)
        return Frame(file, header, MappingProxyType(contents), _parsed(contents, MANIFEST))


def _load(source: str | os.PathLike[str] | bytes) -> tuple[Header, bytes]:
    if isinstance(source, bytes):
        if len(source) > container.MAX_FILE_BYTES:
            raise container.too_large(len(source))
        return container.read_header(source[: container.HEADER_BYTES], len(source)), source
    with open_regular(source, "an artifact") as (file, size):
        if size > container.MAX_FILE_BYTES:
            raise container.too_large(size)
        head = file.read(container.HEADER_BYTES)
        header = container.read_header(head, size)
        return header, head + file.read(size - len(head) + 1)


def _stored(frame: Frame) -> Stored:
    contents = frame.contents
    try:
        read = manifest.read(frame.tables, len(contents[WEIGHTS]))
        if read.has_host != (HOST in contents):
            raise SchemaFault("the segments and the section table disagree about host kernels")
        programs = _programs(contents[PROGRAMS], read)
        traced = tuple(ProgramSegment(program, ()) for program in programs)
        if DEBUG in contents:
            traced = debug.read(_parsed(contents, DEBUG), programs)
        functions = _functions(contents.get(HOST, memoryview(b"")), read)
    except SchemaFault as fault:
        raise CorruptError(Problem("TW1530", str(fault))) from fault
    for program in programs:
        _verified(program, read.chip)
    found: dict[type, Iterator[Segment]] = {ProgramEntry: iter(traced), HostEntry: iter(functions)}
    segments = tuple(next(found[type(entry)]) for entry in read.entries)
    constants = {c.name: _array(contents[WEIGHTS], c) for c in read.constants}
    model = CompiledModel(
        read.name,
        read.chip,
        segments,
        read.signature.inputs,
        read.signature.outputs,
        MappingProxyType(constants),
        read.source,
        read.source_sha256,
        read.options,
        read.kernels,
    )
    return Stored(model, read.tables, frame.header.sections)


def _parsed(contents: Mapping[int, memoryview], kind: int) -> Any:
    try:
        return canonical.loads(bytes(contents[kind]))
    except canonical.NotCanonical as error:
        name = container.SECTIONS[kind][0]
        raise CorruptError(Problem("TW1520", f"section {name}: {error}")) from error


def _programs(data: memoryview, read: Manifest) -> list[Program]:
    """The programs with their instructions, which follow each other in the section."""
    try:
        instrs = decode(bytes(data))
    except TilewrightError as error:
        raise CorruptError(error.problems) from error
    entries = [(i, entry) for i, entry in enumerate(read.entries) if isinstance(entry, ProgramEntry)]
    counts = {f"segments[{i}].instructions": entry.instructions for i, entry in entries}
    parts = split(len(instrs), counts, "programs").values()
    return [
        replace(entry.program, instrs=instrs[begin:end])
        for (_, entry), (begin, end) in zip(entries, parts, strict=True)
    ]


def _functions(data: memoryview, read: Manifest) -> list[HostSegment]:
    """The host segments with their functions, which follow each other in the section."""
    entries = [(i, entry) for i, entry in enumerate(read.entries) if isinstance(entry, HostEntry)]
    counts = {f"segments[{i}].function_bytes": entry.function_bytes for i, entry in entries}
    found = []
    for (i, entry), (begin, end) in zip(entries, split(len(data), counts, "host").values(), strict=True):
        try:
            function = bytes(data[begin:end]).decode()
        except UnicodeDecodeError as error:
            raise SchemaFault(f"segments[{i}]: its function is no UTF-8") from error
        found.append(replace(entry.segment, function=function))
    return found


def _verified(program: Program, chip: Chip) -> None:
    """Hold the program against the chip it is stored with: writing has done so, and only a forger skips it."""
    try:
        verify(program, chip)
    except TilewrightError as error:
        raise CorruptError(error.problems) from error


def _array(weights: memoryview, constant: Constant) -> np.ndarray:
    content = weights[constant.offset : constant.offset + constant.size_bytes]
    return np.frombuffer(content, DTYPES[constant.dtype].numpy).reshape(constant.shape)


class _naming:
    """Gives every problem that has no place yet the artifact's name."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TilewrightError):
            placed = [p if p.place else replace(p, place=Place(self.file)) for p in error.problems]
            raise type(error)(placed) from error
