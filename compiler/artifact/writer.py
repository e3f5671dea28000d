"""From a program to an artifact. The same program, chip, options and source give the same bytes, anywhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

from compiler.artifact import canonical, container, debug, manifest
from compiler.artifact.files import write_atomically
from compiler.artifact.manifest import CONSTANT_ALIGNMENT, Constant, OptionValue
from compiler.artifact.typed import SchemaFault
from compiler.errors import InvalidError, Problem, UsageError
from compiler.isa.dtypes import DTYPES
from compiler.isa.encoding import encode
from compiler.isa.program import Program
from compiler.isa.verifier import verify
from compiler.target import Chip


def write_program(
    path: str | os.PathLike[str],
    program: Program,
    chip: Chip,
    *,
    options: Mapping[str, OptionValue] | None = None,
    source_text: bytes | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write the artifact of a program; the file appears whole or not at all."""
    data = to_bytes(program, chip, options=options, source_text=source_text, constants=constants)
    write_atomically(path, lambda file: _write_all(file, data), "the artifact")


def _write_all(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def to_bytes(
    program: Program,
    chip: Chip,
    *,
    options: Mapping[str, OptionValue] | None = None,
    source_text: bytes | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
) -> bytes:
    """The artifact's bytes. What reading would refuse is refused here, as the program's mistake.

    ``constants`` are contents of input buffers, by name; who runs the program need not supply these inputs.
    """
    verify(program, chip)
    entries, weights = _weights(program, constants or {})
    source_hash = None if source_text is None else hashlib.sha256(source_text).hexdigest()
    described = manifest.build(program, chip, entries, options or {}, source_hash)
    contents = {
        container.MANIFEST: canonical.dumps(described),
        container.WEIGHTS: weights,
        container.PROGRAMS: encode(program.instrs),
    }
    traced = debug.build(program) if program.lines or program.labels else None
    try:
        manifest.read(described, len(weights))
        if traced is not None:
            debug.read(traced, len(program.instrs))
            contents[container.DEBUG] = canonical.dumps(traced)
    except SchemaFault as fault:
        raise InvalidError(Problem("TW1500", f"the program cannot be stored: {fault}")) from fault
    return container.pack(contents)


def _weights(program: Program, constants: Mapping[str, np.ndarray]) -> tuple[tuple[Constant, ...], bytes]:
    """The constants in the order of their buffers, and their bytes."""
    buffers = {b.name: b for b in program.buffers if b.role in ("input", "inout")}
    unknown = sorted(set(constants) - set(buffers))
    if unknown:
        raise UsageError(Problem("TW1506", f"the program has no input {unknown[0]}", hint=f"inputs: {sorted(buffers)}"))
    entries, chunks, end = [], [], 0
    for name, buffer in buffers.items():
        if name not in constants:
            continue
        content = np.ascontiguousarray(constants[name]).reshape(np.shape(constants[name]))
        if content.dtype != DTYPES[buffer.dtype].numpy or content.shape != buffer.shape:
            text = f"constant {name} is {content.dtype} {list(content.shape)}"
            raise InvalidError(Problem("TW1507", f"{text}; its buffer is {buffer.dtype} {list(buffer.shape)}"))
        offset = -(-end // CONSTANT_ALIGNMENT) * CONSTANT_ALIGNMENT
        chunks += [bytes(offset - end), content.tobytes()]
        end = offset + content.nbytes
        entries.append(Constant(name, offset, content.nbytes, buffer.dtype, buffer.shape))
    return tuple(entries), b"".join(chunks)
