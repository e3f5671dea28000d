"""From a row, a placement of loops and accesses to the slots of an instruction: as TIR, and as numbers to cost it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.emission import calls
from compiler.emission.costs import instruction_cycles
from compiler.emission.dims import Placement
from compiler.emission.nest import Access
from compiler.isa.dtypes import DTYPES
from compiler.isa.model import Row
from compiler.target import Chip

# Operands that are not placed yet are costed far enough apart to be different, at addresses of different bank groups.
_APART_BYTES = 1 << 24


@dataclass(eq=False)
class Operands:
    """What fills a row's tensors: an access each, and its strides per dimension of the instruction."""

    row: Row
    mods: tuple[str, ...]
    accesses: Mapping[str, Access]
    strides: Mapping[str, Sequence[int]]  # per tensor, outermost first, as many as its own slots
    scalars: Mapping[str, Any]
    extents: Sequence[Any]  # of the shape operand, outermost first
    bounds: Sequence[int]
    shape: Sequence[str] = ("n2", "n1", "n0")  # the shape operand's names, of which the last ones count

    @property
    def name(self) -> str:
        return ".".join((self.row.mnemonic, *self.mods))

    def cycles(self, chip: Chip) -> int | str:
        """Cycles of one execution, or the rule that is broken, with addresses that stand for the real ones."""
        values = {**{name: _as_number(value) for name, value in self.scalars.items()}, **self._addresses()}
        return self._cost(values, chip)

    def _cost(self, values: Mapping[str, int], chip: Chip) -> int | str:
        every = {**self._strides(), **self._shape(self.bounds), **values}
        slots = self.row.slots(self.mods)
        return instruction_cycles(self.row.mnemonic, self.mods, tuple(every[slot.name] for slot in slots), chip)

    def statement(self, placement: Placement) -> Any:
        """The instruction's call, with every loop of a dimension at its first iteration."""
        at = placement.values()
        values: dict[str, Any] = {**self._strides(), **self._shape(self.extents)}
        for name, value in self.scalars.items():
            values[name] = getattr(value, "key", value)
        for name, access in self.accesses.items():
            values[name] = calls.address(access.buffer, access.at(at))
        slots = self.row.slots(self.mods)
        ordered = [float(values[s.name]) if s.kind == "float" else values[s.name] for s in slots]
        return calls.instruction(self.row.mnemonic, self.mods, ordered)

    def _strides(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for tensor in self.row.tensors:
            if tensor.strides is None:
                strides = self.strides[tensor.name]
                for back, stride in enumerate(reversed(strides)):
                    found[f"{tensor.name}.s{back}"] = stride
        return found

    def _shape(self, extents: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(reversed(self.shape), reversed(extents), strict=False))

    def _addresses(self) -> dict[str, int]:
        """Numbers for the addresses: equal where the places are, else as far apart as is known or not overlapping."""
        found: dict[str, int] = {}
        placed: list[tuple[Access, int]] = []
        for position, tensor in enumerate(self.row.tensors):
            access = self.accesses[tensor.name]
            found[tensor.name] = _address(access, placed, position)
            placed.append((access, found[tensor.name]))
        return found


def _address(access: Access, placed: Sequence[tuple[Access, int]], position: int) -> int:
    for other, known in placed:
        if other.buffer.same_as(access.buffer):
            if other is access:
                return known
            difference = distance(other, access)
            if difference is not None:
                return known + difference * DTYPES[access.dtype].itemsize
    return (1 + position) * _APART_BYTES + 32 * 5 * position


def distance(start: Access, end: Access) -> int | None:
    """Elements from one access' first iteration to the other's, if that is a known number."""
    if start.buffer.same_as(end.buffer):
        low, high = start.surroundings.bounds(end.surroundings.simplify(end.base - start.base))
        if low == high:
            return low
    return None


def _as_number(value: Any) -> int:
    if isinstance(value, float):
        return int.from_bytes(struct.pack("<f", value), "little") if abs(value) < 3.4e38 else 0x7F800000
    return value if isinstance(value, int) else 1


def padded(strides: Sequence[int], rank: int) -> tuple[int, ...]:
    """Strides of a lower rank with outer dimensions of one iteration in front."""
    return (0,) * (rank - len(strides)) + tuple(strides)
