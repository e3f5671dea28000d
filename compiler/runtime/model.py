"""A compiled model as the runtime sees it: segments in order, and the arrays that go between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from compiler.isa.program import Program
from compiler.target import Chip


@dataclass(frozen=True)
class Port:
    """An input or output: the caller's arrays have ``onnx_dtype``, the buffer ``dtype``; same ``shape``.

    Where ``count`` is set, only as many leading rows of an output count as that (hidden) buffer says.
    """

    name: str
    buffer: str
    onnx_dtype: str
    dtype: str
    shape: tuple[int, ...]
    count: str = ""


@dataclass(frozen=True)
class ProgramSegment:
    """Work for the chip: its input, output and constant buffers go by the model's buffer names."""

    program: Program
    listing: tuple[str, ...]  # what the program's lines are


@dataclass(frozen=True)
class HostSegment:
    """Work for the host: one function of TVM's, as the JSON of its IR, and the buffers it is called with."""

    name: str
    reason: str
    function: str
    arguments: tuple[str, ...]
    written: tuple[str, ...]  # those of the arguments that it writes
    operator: str = ""  # as ONNX calls what it does


Segment = ProgramSegment | HostSegment


@dataclass(frozen=True)
class CompiledModel:
    """Without ``inputs`` and ``outputs`` it is one program as somebody wrote it, called by its own buffers."""

    name: str
    chip: Chip
    segments: tuple[Segment, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    constants: Mapping[str, np.ndarray]  # by buffer
    source: str = ""  # the file that it was made from
    source_sha256: str = ""
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    kernels: tuple[tuple[str, tuple[str, ...]], ...] = ()  # every kernel and the ONNX nodes that it does

    @property
    def has_signature(self) -> bool:
        return bool(self.inputs or self.outputs)
