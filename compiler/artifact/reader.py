"""From an artifact to a program. Nothing in the file is believed: each step checks what the next one relies on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from compiler.artifact import canonical, container, debug, manifest
from compiler.artifact.container import DEBUG, HAS_HOST, MANIFEST, PROGRAMS, WEIGHTS, Header, Section
from compiler.artifact.files import open_regular
from compiler.artifact.manifest import Constant, Manifest
from compiler.artifact.typed import SchemaFault
from compiler.errors import (
    CorruptError,
    IncompatibleError,
    InputError,
    Place,
    Problem,
    TilewrightError,
)
from compiler.isa.dtypes import DTYPES
from compiler.isa.encoding import decode
from compiler.isa.program import Program
from compiler.isa.verifier import verify
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
class Artifact:
    """What an artifact holds, checked down to the last instruction."""

    program: Program
    chip: Chip
    manifest: Mapping[str, Any]
    sections: tuple[Section, ...]
    constants: Mapping[str, np.ndarray]  # read-only contents of input buffers


def read_program(source: str | os.PathLike[str] | bytes, *, allow_host: bool = False) -> Artifact:
    """Read an artifact from a path, or from its bytes.

    CorruptError where bytes do not fit their checksums or each other, IncompatibleError where they are for another
    build, InputError where the file cannot be read or holds host kernels that are not allowed.
    """
    return open_frame(read_frame(source), allow_host=allow_host)


def open_frame(frame: Frame, *, allow_host: bool = False) -> Artifact:
    """What an undamaged artifact means, if it is for this build."""
    with _naming(frame.file):
        if frame.header.flags & HAS_HOST and not allow_host:
            text = "the artifact holds host kernels, which are code for this machine"
            raise InputError(Problem("TW1508", text, hint="allow them only for artifacts you trust"))
        if found := frame.incompatibilities:
            raise IncompatibleError([Problem("TW1542", text, hint=container.REBUILD) for text in found])
        return _artifact(frame)


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


def _artifact(frame: Frame) -> Artifact:
    weights = frame.contents[WEIGHTS]
    try:
        read = manifest.read(frame.tables, len(weights))
        program = replace(read.program, instrs=_instructions(frame.contents[PROGRAMS], read))
        if DEBUG in frame.contents:
            lines, labels = debug.read(_parsed(frame.contents, DEBUG), len(program.instrs))
            program = replace(program, lines=lines, labels=labels)
    except SchemaFault as fault:
        raise CorruptError(Problem("TW1530", str(fault))) from fault
    _verified(program, read.chip)
    constants = {c.name: _array(weights, c) for c in read.constants}
    return Artifact(program, read.chip, read.tables, frame.header.sections, MappingProxyType(constants))


def _parsed(contents: Mapping[int, memoryview], kind: int) -> Any:
    try:
        return canonical.loads(bytes(contents[kind]))
    except canonical.NotCanonical as error:
        name = container.SECTIONS[kind][0]
        raise CorruptError(Problem("TW1520", f"section {name}: {error}")) from error


def _instructions(data: memoryview, read: Manifest) -> tuple[Any, ...]:
    try:
        instrs = decode(bytes(data))
    except TilewrightError as error:
        raise CorruptError(error.problems) from error
    if len(instrs) != read.instructions:
        raise SchemaFault(f"program.instructions is {read.instructions}; section programs has {len(instrs)}")
    return instrs


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
