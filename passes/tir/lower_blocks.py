"""Turn a scheduled kernel of sblocks into plain loops, ifs and stores: *loop form*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from compiler.target import Chip
from compiler.tiling.footprint import lower_blocks
from compiler.tir.near import with_strides
from passes.base import Pass


@dataclass(frozen=True)
class LowerBlocks(Pass):
    """Buffers are cut to what a tile touches, inits of reductions become ifs, ragged tiles become guards.

    Parameters that are bands of other tensors get those tensors' strides: templates see them as they see all others.
    """

    name: ClassVar[str] = "lower-blocks"
    establishes: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return with_strides(lower_blocks(subject))
