"""Rows that one instruction works on, some at once on every core: how they lie in UB, and which core has which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compiler.isa.timing import ceil_div
from compiler.operators.prim_functions import Buffer, scratch, store

PITCH = 32  # elements: rows begin with a block of memory whatever their type


@dataclass(frozen=True)
class Spread:
    """``rows`` at once, ``trips`` times on each core."""

    rows: int
    cores: int
    trips: int

    @staticmethod
    def of(tiles: int, rows: int, cores: int) -> Spread:
        """Of so many tiles of rows, as even as they can be."""
        trips = ceil_div(tiles, cores)
        return Spread(rows, ceil_div(tiles, trips), trips)


@dataclass(frozen=True, eq=False)
class NearRows:
    """Rows in UB. In one dimension: an instruction counts from row to row by ``pitch``, and no pass changes that."""

    buffer: Buffer
    pitch: int

    @staticmethod
    def of(rows: int, pitch: int, dtype: str) -> NearRows:
        return NearRows(scratch((rows * pitch,), dtype, "local.ub"), pitch)

    def __getitem__(self, place: tuple[Any, Any]) -> Any:
        return self.buffer[place[0] * self.pitch + place[1]]

    def store(self, value: Any, row: Any, i: Any) -> None:
        store(self.buffer, value, row * self.pitch + i)
