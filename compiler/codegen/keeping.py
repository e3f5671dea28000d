"""Loads that a core repeats, of what no other core of its cluster loads, and the statements that keep it in LLB."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from compiler.codegen.far_loads import FarLoad
from compiler.codegen.sharing import Group, Sharing, groups_of, layout_of
from compiler.codegen.staging import QUEUE, Staging
from compiler.emission.calls import address, instruction, sequence
from compiler.target import Chip
from compiler.tir.evaluate import Values


@dataclass(frozen=True)
class Repeated:
    """A load that some loops around it do not move. What is loaded in one turn of those around the outermost of these,
    the *epoch*, has a slot of its own each.
    """

    sharing: Sharing  # with nobody: every core is a group
    outer: int  # loops around the outermost one that repeats it

    @property
    def load(self) -> FarLoad:
        return self.sharing.load

    @property
    def begins_anew(self) -> bool:
        """Whether there are several epochs."""
        return any(
            follows and trips > 1
            for follows, trips in zip(self.load.followed[: self.outer], self.load.grid.trips[: self.outer], strict=True)
        )

    @property
    def bytes_per_cluster(self) -> int:
        return self.sharing.size_bytes

    @cached_property
    def brought_bytes(self) -> Values:
        """By each core, to LLB."""
        return self.load.first_turns(self.load.moved_bytes).sum(axis=1)

    @cached_property
    def loaded_bytes(self) -> Values:
        return self.sharing.loaded_bytes

    @property
    def times(self) -> int:
        """That a core brings something, at most."""
        return int(self.load.first_turns(self.load.grid.runs).sum(axis=1).max())


def repeated(load: FarLoad, chip: Chip) -> Repeated | None:
    """None where nothing is loaded again, others load it, too, or it does not lie in LLB as it is."""
    turns = list(zip(load.followed, load.grid.trips, strict=True))
    outer = next((at for at, (follows, trips) in enumerate(turns) if not follows and trips > 1), None)
    if outer is None or not load.starts_first or not load.moved_bytes.any():
        return None
    groups, layout = tuple(groups_of(load, chip)), layout_of(load, chip)
    cores = int(load.grid.runs.reshape(load.grid.runs.shape[0], -1).any(axis=1).sum())
    if layout is None or len(groups) != cores:  # some load the same
        return None
    inner = [trips for follows, trips in turns[outer:] if follows]
    runs = load.first_turns(load.grid.runs).any(axis=0).reshape(-1, prod(inner)).any(axis=0)
    slots = int(np.flatnonzero(runs)[-1]) + 1
    alone = tuple(Group(group.first, 1, 1, group.region) for group in groups)
    return Repeated(Sharing(load, layout, alone, slots), outer)


@dataclass
class Keeping(Staging):
    """What stands in the place of a repeated load: it comes from LLB, and to LLB when it is needed first."""

    outer: int = 0
    begins_anew: bool = False

    @classmethod
    def of(cls, each: Repeated, core: Any, flag: int) -> Keeping:
        return cls(each.sharing, core, flag, 0, outer=each.outer, begins_anew=each.begins_anew)

    @property
    def first(self) -> list[tuple[int, Any]]:
        return []

    @property
    def instead(self) -> Any:
        slot = self._turn()
        return sequence([self._where_it_is_first(self._bring(slot)), self._load(slot)])

    def _bring(self, slot: Any) -> Any:
        """Nothing is read from a slot before it is there, nor written to one that may still be read: the core tells
        itself so.
        """
        load, axes = self.sharing.load, self.sharing.layout.axes
        source = address(load.address.buffer, load.address.indices)
        if load.address.byte_offset is not None:
            source = tirx.call_extern("handle", "tw.at", source, load.address.byte_offset)
        near, far = [axis.stride for axis in axes], [axis.far_stride for axis in axes]
        target = address(self.buffer, [self._simple(self._piece(slot))])
        slots = [target, *near, source, *far, *(self._simple(axis.extent) for axis in axes)]
        told = [instruction(flag, (QUEUE,), (self.core, self.flag)) for flag in ("cross_set", "cross_wait")]
        return sequence([*(told if self.begins_anew else ()), self._to_llb(slots), *told])

    def _followed(self) -> list[tuple[Any, int]]:
        """Loops within an epoch."""
        loops = [loop for loop in self.sharing.load.site.loops[: self.outer]]
        return [(loop, trips) for loop, trips in super()._followed() if not any(map(loop.same_as, loops))]

    def _piece(self, turn: Any) -> Any:
        slots, elements = self.sharing.slots, self.sharing.layout.elements
        return self._region * (slots * elements) + turn * elements
