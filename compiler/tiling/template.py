"""What every schedule template gives: a kernel cut into tiles, or the reason why there is none left to try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from compiler.errors import CapacityError, Problem
from compiler.target import Chip


@dataclass(frozen=True)
class Tiled:
    """A scheduled kernel: sblocks with scopes and a core loop, before lowering."""

    func: Any  # tirx.PrimFunc
    description: str  # the tile in words, for reports: "rows 16 of 1000, 63 tiles on 32 cores"


def name_of(func: Any, kind: str) -> str:
    """What messages call a kernel; one that has no name is of a kind."""
    return str(func.attrs.get("global_symbol", kind))


class NoFeasibleTile(CapacityError):
    """Every tile was tried: the kernel needs less work in one piece (un-fuse it), or more memory."""

    def __init__(self, what: str, tried: str) -> None:
        super().__init__(Problem("TW2401", f"{what}: no tile fits the chip", hint=f"tried: {tried}"))


class Template(Protocol):
    """Attempt 0 is the best tile by the template's own cost, each next one asks for less memory."""

    def __call__(self, func: Any, chip: Chip, attempt: int) -> Tiled: ...
