"""Cut on-chip buffers to the positions that are really used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from compiler.target import Chip
from compiler.tiling.footprint import shrink_buffers
from passes.base import Pass


@dataclass(frozen=True)
class ShrinkBuffers(Pass):
    """Make each dimension of an on-chip buffer as long as its largest index needs.

    b = alloc(17); for i in 5: if 4*y + i < 16: b[i] = ...
    -> b = alloc(5); ...

    TVM sizes a buffer by the extent of a region that guards have cut, of which it then knows little. Legal because
    a position that no index reaches holds nothing; an index that is not understood keeps its dimension as it is.
    """

    name: ClassVar[str] = "shrink-buffers"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return shrink_buffers(subject)
