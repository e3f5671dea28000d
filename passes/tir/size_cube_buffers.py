"""Say how many bytes the buffers around the cube take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import tvm_ffi
from tvm import tirx

from compiler.emission.cube.sizes import physical_sizes
from compiler.target import Chip
from passes.base import Pass

BYTES = "tw.bytes"


@dataclass(frozen=True)
class SizeCubeBuffers(Pass):
    """Annotate buffers that hold fractal layouts with what these take, since their logical shape does not tell.

    a = alloc((100, 77), "float16", scope="local.l0a")
    -> a = alloc((100, 77), "float16", scope="local.l0a", annotations={"tw.bytes": 17920})
    """

    name: ClassVar[str] = "size-cube-buffers"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        sizes = physical_sizes(subject.body)
        if not sizes:
            return subject

        def annotate(statement: Any) -> Any:
            size = sizes.get(statement.buffer)
            if size is None or size == int(statement.annotations.get(BYTES, 0)):
                return statement
            return tirx.AllocBuffer(statement.buffer, {**dict(statement.annotations), BYTES: size}, statement.span)

        return tvm_ffi.structural_map(subject, (tirx.AllocBuffer, annotate))
