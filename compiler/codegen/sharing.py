"""Who loads the same bytes of DDR, and how these lie in LLB once they are there.

A *piece* is what a load reads in one turn of the loops that it follows, its rows at the start of lines. For each group
of cores that loads the same, pieces lie one after another in *slots* of LLB: each in one of its own where they all fit,
else in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import gcd, prod
from typing import Any

import numpy as np

from compiler.codegen.far_loads import FarLoad
from compiler.target import Chip
from compiler.tir.evaluate import Values

LONGEST = 65535  # the greatest extent of an instruction
DEEPEST = 3  # the most axes of one
LEAST_SLOTS = 4  # where they are reused: one is loaded, one has arrived, others are on their way
LEAST_ROUNDS = 2  # pieces that each core brings, at least, for cores to take turns in it


@dataclass(frozen=True)
class Group:
    """Cores of one cluster that load the same bytes in the same turns: ``first``, ``first + step``, ..."""

    first: int
    step: int
    count: int
    region: int  # which part of the pieces in LLB is theirs

    @property
    def cores(self) -> range:
        return range(self.first, self.first + self.step * self.count, self.step)


@dataclass(frozen=True)
class Axis:
    """An axis of a piece: axes of the source that follow each other without a gap are one."""

    extent: Any  # an expression, or a number
    most: int
    far_stride: int  # elements between neighbours in DDR
    stride: int  # and in LLB


@dataclass(frozen=True)
class Layout:
    """How a piece lies in LLB, and along which axis cores share in bringing it, in units of so many elements."""

    axes: tuple[Axis, ...]  # outermost first, the last one contiguous
    strides: tuple[int, ...]  # elements between neighbours of each axis of the source
    elements: int  # of a piece
    split: int
    unit: int


@dataclass(frozen=True)
class Sharing:
    """A load that groups of cores have in common.

    In each of ``period`` turns another part of a group brings the piece, so that DDR does not rest while other cores
    load from LLB. A part's cores have a share of the piece each, which they bring to so many clusters at once as do
    load the same.
    """

    load: FarLoad
    layout: Layout
    groups: tuple[Group, ...]
    slots: int
    period: int = 1

    @property
    def pieces(self) -> int:
        return prod(trips for trips, follows in zip(self.load.grid.trips, self.load.followed, strict=True) if follows)

    @property
    def slot_bytes(self) -> int:
        """A slot of each group of a cluster."""
        return self.layout.elements * self.load.itemsize * (1 + max(group.region for group in self.groups))

    @property
    def size_bytes(self) -> int:
        """In the LLB of a cluster."""
        return self.slot_bytes * self.slots

    @property
    def reuses(self) -> bool:
        """Whether a piece has to leave before another one comes."""
        return self.slots < self.pieces

    @property
    def periods(self) -> list[int]:
        """All that are worth a try: every part of every group has as many cores, and brings several pieces.

        The first pieces come together: with few of them, the first one would come late.
        """
        common = gcd(*(group.count for group in self.groups))
        longest = max(1, min(common, self.pieces // LEAST_ROUNDS))
        return [period for period in range(1, longest + 1) if common % period == 0]

    @property
    def flags(self) -> int:
        """Flags between two cores: a share is there, and where slots are reused, a piece is loaded."""
        return 2 if self.reuses else 1

    def within(self, room_bytes: int, most_slots: int) -> Sharing | None:
        """The same in some bytes of LLB: all pieces, or in slots that are reused; None where there is no room."""
        if self.size_bytes <= room_bytes:
            return self
        load = self.load.in_all_turns()
        slots = min(most_slots, room_bytes // self.slot_bytes // self.period) * self.period
        if slots < max(LEAST_SLOTS, 2 * self.period) or not load.grid.runs.all():
            return None
        return replace(self, load=load, slots=slots)

    @cached_property
    def staged_bytes(self) -> Values:
        """What each core brings to LLB."""
        once = self.load.first_turns(self.load.moved_bytes).sum(axis=1)
        brought = np.zeros(len(once))
        for group in self.groups:
            brought[list(group.cores)] = once[group.first] / group.count
        return brought

    @cached_property
    def loaded_bytes(self) -> Values:
        """What each core loads, from wherever it is, as long as it takes."""
        return self.load.taken_bytes.reshape(self.load.grid.runs.shape[0], -1).sum(axis=1)

    @property
    def far_bytes(self) -> float:
        """What DDR moves for a cluster."""
        return float(self.staged_bytes.sum()) / self.load.alike

    @property
    def saved_bytes(self) -> float:
        """Of what DDR moves for a cluster."""
        return float(self.loaded_bytes.sum()) / self.load.alike - self.far_bytes


def rotation_cycles(parts: int, far_cycles: float, other_cycles: float) -> float:
    """Of one turn, where so many parts of the cores bring pieces in rotation: a piece takes DDR ``far_cycles``, and in
    every turn each core does something else for ``other_cycles`` (mean value analysis of a closed network).

    Parts do not stay evenly apart. With few of them DDR rests while all are at work elsewhere: it is used for 82 % of
    the time by two of which each is so for half of a turn, for 92 % by four (measured: 80 % and 93 %).
    """
    waiting = turn = 0.0
    for others in range(parts):
        bring = far_cycles * (1 + waiting)
        turn = (bring + parts * other_cycles) / (others + 1)
        waiting = bring / turn
    return turn


def sharing(load: FarLoad, chip: Chip) -> Sharing | None:
    """None where no two cores of a cluster load the same, or it does not lie in LLB as it is."""
    if not load.starts_first:
        load = load.in_all_turns()
    groups, layout = tuple(groups_of(load, chip)), layout_of(load, chip)
    # Pieces are brought from where earlier ones are loaded.
    if not load.runs_from_the_start or layout is None or all(group.count == 1 for group in groups):
        return None
    runs = load.grid.runs.reshape(load.grid.runs.shape[0], -1).any(axis=1)
    if sum(group.count for group in groups) != int(runs.sum()):
        return None
    pieces = prod(trips for trips, follows in zip(load.grid.trips, load.followed, strict=True) if follows)
    return Sharing(load, layout, groups, pieces)


def groups_of(load: FarLoad, chip: Chip) -> Iterator[Group]:
    """In order of their first cores; those whose cores are not evenly spaced are left out."""
    runs = load.first_turns(load.grid.runs)
    place = np.stack([load.first_turns(each) for each in (load.offsets, *load.extents)])
    place = np.where(runs, place, -1)
    same: dict[tuple[int, bytes], list[int]] = {}
    for core in range(runs.shape[0]):
        if runs[core].any():
            same.setdefault((chip.cluster_of(core), place[:, core].tobytes()), []).append(core)
    regions: dict[int, int] = {}
    for (cluster, _), cores in same.items():
        step = cores[1] - cores[0] if len(cores) > 1 else 1
        if all(b - a == step for a, b in pairwise(cores)):
            yield Group(cores[0], step, len(cores), regions.setdefault(cluster, 0))
            regions[cluster] += 1


# ---- layout ------------------------------------------------------------------------------------------------------


def layout_of(load: FarLoad, chip: Chip) -> Layout | None:
    """None where rows overlap, are not contiguous, or lie at distances that change."""
    runs = load.grid.runs
    if not runs.any():
        return None
    most, least = ([int(f(each[runs])) for each in load.extents] for f in (np.max, np.min))
    far = [each[runs] for each in load.strides]
    if any((each != each[0]).any() for each in far) or min(least) < 1:
        return None
    strides = [int(each[0]) for each in far]
    order = sorted((at for at in range(len(most)) if most[at] > 1 and strides[at]), key=lambda at: strides[at])
    if order and strides[order[0]] != 1:
        return None
    line = chip.transfer.ddr_line_bytes // load.itemsize
    merged: list[_Merged] = []
    for at in order:
        inner = merged[-1] if merged else None
        if inner is not None and strides[at] < inner.far_stride * inner.most:
            return None
        if inner is not None and inner.continues(strides[at], most[at]):
            inner.extent, inner.most = load.source.shape[at] * inner.most, most[at] * inner.most
            inner.fixed = most[at] == least[at]
            inner.members.append(at)
        else:
            merged.append(_Merged(load.source.shape[at], most[at], most[at] == least[at], strides[at], [at]))
    merged = merged or [_Merged(1, 1, True, 1, [])]
    if len(merged) > DEEPEST or merged[0].most > LONGEST * 8:
        return None
    elements, found = 1, list[Axis]()
    own = [stride if most[at] == 1 or not stride else 0 for at, stride in enumerate(strides)]
    for axis in merged:
        found.append(Axis(axis.extent, axis.most, axis.far_stride, elements))
        for at in axis.members:
            own[at] = strides[at] // axis.far_stride * elements
        elements = -(-elements * axis.most // line) * line
    axes = tuple(reversed(found))
    units = [axis.most if axis.far_stride > 1 else axis.most // line for axis in axes]
    split = units.index(max(units))
    unit = 1 if axes[split].far_stride > 1 else line
    return Layout(axes, tuple(own), elements, split, unit)


@dataclass
class _Merged:
    extent: Any
    most: int
    fixed: bool  # whether the extent is always the same
    far_stride: int
    members: list[int]

    def continues(self, stride: int, count: int) -> bool:
        """Whether an axis of this stride goes on where this one ends."""
        return self.fixed and stride == self.far_stride * self.most and count * self.most <= LONGEST
