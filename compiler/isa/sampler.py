"""Random instructions of any row: operands drawn from what the row declares, kept or refused by the row's own rules.

Nothing here knows an instruction by name. What a draw needs beyond the row is how big the world is: the regions of
each memory in which operands may lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from compiler.isa.model import (
    IMMEDIATE_MAX,
    IMMEDIATE_MIN,
    Args,
    Instr,
    Row,
    Shape,
    Slot,
    Tensor,
    View,
    alignment_bytes,
    bind,
)
from compiler.target import Chip

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 20, 31, 32, 32, 33, 48, 64)
INTEGERS = (0, 1, -1, 2, 3, 5, -7, 31, 32, 100, 255, -128, 2**15, IMMEDIATE_MAX, IMMEDIATE_MIN)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.25, 1e-3, 1e6, -1e30, 1e-40, float("inf"), float("-inf"), float("nan"))
# Slots whose useful values are few among all that are legal.
HINTS: dict[str, tuple[int, ...]] = {"k_start": (0, 0, 0, 8, 16, 32, 64), "m_start": (0, 0, 1, 2, 5)}
_ATTEMPTS = 400
_MOST_ELEMENTS = 4096  # with strides of zero an operand can count many more than it has bytes


@dataclass(eq=False)
class Region:
    """A piece of one memory in which operands lie. Cores have their own: ``core_stride`` bytes apart where shared."""

    memory: str
    start: int
    size: int
    core_stride: int = 0
    writable: bool = True
    ready: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # which bytes hold values
    holds: str = ""  # the type of what was written last
    dirty: bool = False  # holds a result that no output shows yet

    def __post_init__(self) -> None:
        if not self.ready.size:
            self.ready = np.zeros(self.size, bool)

    @property
    def full(self) -> bool:
        return bool(self.ready.all())


@dataclass(frozen=True)
class Draw:
    """A legal instruction: its values by slot, bound on core 0, and the region of each tensor operand."""

    row: Row
    mods: tuple[str, ...]
    values: tuple[int, ...]
    args: Args
    places: tuple[Region, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.row.slots(self.mods)

    def address(self, operand: int) -> int:
        return int(getattr(self.args, self.row.tensors[operand].name))


Regions = Mapping[str, Sequence[Region]]


class Sampler:
    """Draws instructions for one chip."""

    def __init__(self, rng: Random, chip: Chip) -> None:
        self.rng, self.chip = rng, chip
        self.refused: set[tuple[str, str]] = set()  # (mnemonic, rule) of what a rule turned down

    def draw(self, row: Row, regions: Regions, attempts: int = _ATTEMPTS) -> Draw | None:
        """A legal instruction of the row with every operand inside one region, or nothing where none was found."""
        for attempt in range(attempts):
            found = self._attempt(row, regions, largest=max(2, 64 >> attempt * 6 // attempts))
            if found is not None:
                return found
        return None

    def wild(self, row: Row) -> Args:
        """An instruction of the right form, legal or not: addresses close together, strides and extents at random."""
        mods = self._mods(row)
        largest = self.rng.choice((2, 5, 40, 40))
        values = {slot.name: self._value(slot, largest) for slot in row.slots(mods)}
        for tensor in row.tensors:
            for slot in tensor.slots(row.rank(mods))[1:]:
                values[slot.name] = self.rng.choice((0, 1, 1, 2, 5, 12))
            values[tensor.name] = self.rng.choice((0, 32 * self.rng.randrange(96), 1024 * self.rng.randrange(4)))
        for operand in row.operands:
            if isinstance(operand, Shape):
                for slot in operand.slots(row.rank(mods)):
                    values[slot.name] = min(slot.hi, self.rng.choice(EXTENTS) % largest + 1)
        return self._bound(row, mods, values)

    # ---- one attempt

    def _attempt(self, row: Row, regions: Regions, largest: int) -> Draw | None:
        rng, mods = self.rng, self._mods(row)
        values = {slot.name: self._value(slot, largest) for slot in row.slots(mods)}
        cap = rng.choice((largest, largest, 8, 4))
        for operand in row.operands:
            if isinstance(operand, Shape):
                for slot in operand.slots(row.rank(mods)):
                    choices = [n for n in EXTENTS if n <= min(cap if slot.name != "n0" else largest, slot.hi)]
                    values[slot.name] = rng.choice(choices)
        if any(tensor.strides is None for tensor in row.tensors):
            args = self._bound(row, mods, values)
            for tensor, view in zip(row.tensors, args.views, strict=True):
                if tensor.strides is None:
                    self._draw_strides(tensor, view, row.rank(mods), values)
        args = self._bound(row, mods, values)
        places = self._placed(row, args, regions, values)
        if places is None:
            return None
        args = self._bound(row, mods, values)
        broken = [rule for rule in row.rules if not rule(args)]
        self.refused.update((row.mnemonic, rule.__name__) for rule in broken)
        if broken:
            return None
        return Draw(row, mods, tuple(values[slot.name] for slot in row.slots(mods)), args, tuple(places))

    def _mods(self, row: Row) -> tuple[str, ...]:
        return tuple(self.rng.choice(modifier.choices) for modifier in row.modifiers)

    def _bound(self, row: Row, mods: tuple[str, ...], values: Mapping[str, int]) -> Args:
        in_order = [values[slot.name] for slot in row.slots(mods)]
        return bind(Instr(row, mods, tuple(in_order)), in_order, self.chip)

    def _value(self, slot: Slot, largest: int) -> int:
        """Any value of a slot that is no extent; addresses and strides come later."""
        rng = self.rng
        if slot.kind == "float":
            number = rng.choice(FLOATS) if rng.random() < 0.4 else rng.gauss(0, 2)
            return int(np.float32(number).view(np.uint32))
        if slot.kind in ("dest", "target", "addr"):
            return 0
        if slot.name in HINTS:
            return rng.choice(HINTS[slot.name])
        if slot.lo <= IMMEDIATE_MIN and slot.hi >= IMMEDIATE_MAX:
            return rng.choice(INTEGERS) if rng.random() < 0.7 else rng.randint(IMMEDIATE_MIN, IMMEDIATE_MAX)
        if slot.lo < 0:
            return max(slot.lo, min(slot.hi, rng.randint(-largest, largest)))
        value = slot.lo + rng.choice((0, 0, 1, 1, 2, 3, rng.randrange(16), rng.randrange(largest + 4)))
        return min(slot.hi, -(-value // slot.multiple) * slot.multiple)

    def _draw_strides(self, tensor: Tensor, view: View, rank: int, values: dict[str, int]) -> None:
        """Strides that keep elements apart, mostly row-major; what is only read may repeat elements."""
        rng = self.rng
        axes = list(range(len(view.shape)))[::-1]
        if rng.random() < 0.15:
            rng.shuffle(axes)
        names = [slot.name for slot in tensor.slots(rank)[1:]]
        stride = rng.choice((1, 1, 1, 1, 2, 3))
        for axis in axes:
            repeats = tensor.role == "r" and rng.random() < 0.1
            values[names[axis]] = 0 if repeats else stride
            if not repeats:
                stride = stride * view.shape[axis] + rng.choice((0, 0, 0, 1, 3, 8))

    # ---- places

    def _placed(self, row: Row, args: Args, regions: Regions, values: dict[str, int]) -> list[Region] | None:
        """Choose a region and an address for every tensor: destinations apart, sometimes one source in place."""
        places: list[Region] = []
        in_place = self.rng.random() < 0.2
        for tensor, view in zip(row.tensors, args.views, strict=True):
            lead = view.address - getattr(args, tensor.name)  # from the address to the first element
            need = lead + view.extent_bytes
            taken = [p for p, t in zip(places, row.tensors, strict=False) if "w" in t.role]
            if view.size > _MOST_ELEMENTS:
                return None
            if in_place and tensor.role == "r" and places and view.memory == args.views[0].memory and taken:
                values[tensor.name] = values[row.tensors[0].name]
                places.append(places[0])
                if need > places[0].start + places[0].size - values[tensor.name]:
                    return None
                continue
            fitting = [
                region
                for region in regions.get(view.memory, ())
                if need <= region.size and region not in taken and (region.writable or tensor.role == "r")
                and ("w" not in tensor.role or region not in places)
            ]  # fmt: skip
            if not fitting:
                return None
            alike = [region for region in fitting if region.holds == view.dtype.name]
            region = self.rng.choice(alike if alike and "r" in tensor.role and self.rng.random() < 0.8 else fitting)
            unit = alignment_bytes(tensor, args)
            slack = (region.size - need) // unit
            values[tensor.name] = region.start + unit * self.rng.choice((0, self.rng.randint(0, slack)))
            places.append(region)
        return places
