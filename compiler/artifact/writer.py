"""From a compiled model to an artifact. The same model, chip, options and source give the same bytes, anywhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from compiler.artifact import canonical, constants, container, debug, manifest
from compiler.artifact.files import write_atomically
from compiler.artifact.manifest import OptionValue
from compiler.artifact.typed import SchemaFault
from compiler.errors import InvalidError, Problem, UsageError
from compiler.isa.dtypes import DTYPES
from compiler.isa.encoding import encode
from compiler.isa.program import Program
from compiler.isa.verifier import verify
from compiler.runtime.model import CompiledModel, HostSegment, ProgramSegment
from compiler.target import Chip


def write_model(path: str | os.PathLike[str], model: CompiledModel) -> None:
    """Write the artifact of a model; the file appears whole or not at all."""
    data = model_to_bytes(model)
    write_atomically(path, lambda file: _write_all(file, data), "the artifact")


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
    write_model(path, _as_model(program, chip, options, source_text, constants))


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
    """The bytes of a program's artifact.

    ``constants`` are contents of input buffers, by name; who runs the program need not supply these inputs.
    """
    return model_to_bytes(_as_model(program, chip, options, source_text, constants))


def _as_model(
    program: Program,
    chip: Chip,
    options: Mapping[str, OptionValue] | None,
    source_text: bytes | None,
    contents: Mapping[str, np.ndarray] | None,
) -> CompiledModel:
    inputs = [b.name for b in program.buffers if b.role in ("input", "inout")]
    unknown = sorted(set(contents or {}) - set(inputs))
    if unknown:
        raise UsageError(Problem("TW1506", f"the program has no input {unknown[0]}", hint=f"inputs: {sorted(inputs)}"))
    return CompiledModel(
        program.name,
        chip,
        (ProgramSegment(program, ()),),
        (),
        (),
        {name: contents[name] for name in inputs if name in contents} if contents else {},
        program.source,
        "" if source_text is None else hashlib.sha256(source_text).hexdigest(),
        options or {},
    )


def model_to_bytes(model: CompiledModel) -> bytes:
    """The artifact's bytes. What reading would refuse is refused here, as the model's mistake."""
    programs = [segment for segment in model.segments if isinstance(segment, ProgramSegment)]
    functions = [segment.function for segment in model.segments if isinstance(segment, HostSegment)]
    for segment in programs:
        verify(segment.program, model.chip)
    placed, weights = _weights(model)
    described = manifest.build(model, placed)
    contents = {
        container.MANIFEST: canonical.dumps(described),
        container.WEIGHTS: weights,
        container.PROGRAMS: b"".join(encode(segment.program.instrs) for segment in programs),
    }
    if functions:
        contents[container.HOST] = "".join(functions).encode()
    traced = debug.build(programs)
    try:
        manifest.read(described, len(weights))
        if not debug.is_empty(traced):
            debug.read(traced, [segment.program for segment in programs])
            contents[container.DEBUG] = canonical.dumps(traced)
    except SchemaFault as fault:
        raise InvalidError(Problem("TW1500", f"the program cannot be stored: {fault}")) from fault
    return container.pack(contents, container.HAS_HOST if functions else 0)


# ---- constants ----------------------------------------------------------------------------------------------------


def _weights(model: CompiledModel) -> tuple[tuple[constants.Constant, ...], bytes]:
    """The constants that something reads, checked against who reads them, and their bytes."""
    readers: dict[str, Any] = {}
    for segment in model.segments:
        if isinstance(segment, HostSegment):
            for name in segment.arguments:
                readers.setdefault(name, None)
        else:
            readers |= {b.name: b for b in segment.program.buffers if b.role in ("input", "inout")}
    wanted = set(readers) | {port.buffer for port in model.outputs}
    kept = {
        name: _as_stored(name, array, readers.get(name))
        for name, array in model.constants.items()
        if name in wanted and array.size
    }
    return constants.lay_out(kept, {name: buffer.dtype for name, buffer in readers.items() if buffer is not None})


def _as_stored(name: str, array: np.ndarray, buffer: Any) -> np.ndarray:
    content = np.ascontiguousarray(array).reshape(np.shape(array))
    if content.dtype == np.bool_:
        content = content.view(np.uint8)
    if buffer is not None and (content.dtype != DTYPES[buffer.dtype].numpy or content.shape != buffer.shape):
        text = f"constant {name} is {content.dtype} {list(content.shape)}"
        raise InvalidError(Problem("TW1507", f"{text}; its buffer is {buffer.dtype} {list(buffer.shape)}"))
    return content
