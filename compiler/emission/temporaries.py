"""The loops that values are split in, and the buffers in UB that hold what is split off."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx

from compiler.emission.written import Span
from compiler.isa.dtypes import DTYPES
from compiler.tir.scopes import ISA_DTYPE

SCOPE = "local.ub"


@dataclass(frozen=True, eq=False)
class ChainLoop:
    """A loop of the nest being split: ``start`` is where it counts from."""

    var: Any
    start: Any
    extent: Any
    bound: int
    least: int = 1

    @property
    def span(self) -> Span:
        return Span(self.var, self.start, self.extent)

    @property
    def position(self) -> Any:
        """How many iterations came before this one."""
        zero = isinstance(self.start, tirx.IntImm) and int(self.start.value) == 0
        return self.var if zero else self.var - self.start


@dataclass(eq=False)
class Temporary:
    """A buffer in UB, from its first to its last statement."""

    buffer: Any
    first: int
    last: int

    @property
    def bytes(self) -> int:
        return prod(int(n) for n in self.buffer.shape) * DTYPES[ISA_DTYPE[str(self.buffer.dtype)]].itemsize
