"""A program: instructions, the buffers they work on, tiling data, and where each core starts."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.errors import Place
from compiler.isa.model import Instr

MAX_INSTRUCTIONS = 1 << 20
ROLES = ("input", "output", "inout", "scratch")


@dataclass(frozen=True)
class Buffer:
    """A named piece of one memory, ``offset`` bytes from its start; inputs and outputs are the caller's arrays."""

    name: str
    memory: str
    offset: int
    size_bytes: int
    dtype: str
    shape: tuple[int, ...]
    role: str  # one of ROLES

    @property
    def end(self) -> int:
        return self.offset + self.size_bytes


@dataclass(frozen=True)
class TilingWord:
    """An int64 that ``ldt`` loads at run time; its index is its place in the program's tiling data."""

    name: str
    value: int


@dataclass(frozen=True)
class Program:
    """What an artifact stores and the engines run. Targets are distances, so ``instrs`` needs no labels."""

    name: str
    chip: str | None = None  # the only chip it is for
    cores: int | None = None
    instrs: tuple[Instr, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    tiling: tuple[TilingWord, ...] = ()
    entries: tuple[int, ...] = ()  # where each core starts; empty: all at instruction 0
    lines: tuple[int, ...] = ()  # source line of each instruction; may be empty
    source: str = ""
    labels: tuple[tuple[str, int], ...] = ()

    def same_code(self, other: Program) -> bool:
        """Whether both do the same, whatever their labels, lines and source files."""
        return self._code() == other._code()

    def _code(self) -> tuple[object, ...]:
        entries = self.entries if any(self.entries) else ()
        return (self.name, self.chip, self.cores, self.instrs, self.buffers, self.tiling, entries)

    def place(self, index: int) -> Place:
        """Where instruction ``index`` stands in the source."""
        return Place(self.source or "<program>", self.lines[index] if index < len(self.lines) else 0)
