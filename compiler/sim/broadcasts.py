"""Loads that cores of several clusters have in common: whether they have."""

from __future__ import annotations

import numpy as np

from compiler.errors import InvalidError, Problem
from compiler.isa.program import Program
from compiler.sim.classes import ClassTable
from compiler.sim.expand import Stream
from compiler.target import Chip


def check_broadcasts(stream: Stream, classes: ClassTable, program: Program, chip: Chip) -> None:
    """Of the cores of one number in all clusters, every `pld` has to load the same bytes as those it meets.

    Queues work in order, so the first of one core meets the first of each other, and so on. One that meets nobody is
    found as a deadlock.
    """
    if not classes.broadcast.any():
        return
    source = np.full(classes.broadcast.shape, -1)  # which bytes, from the address on
    known = dict[object, int]()
    for klass in np.flatnonzero(classes.broadcast).tolist():
        view = classes.args[klass].view("src")
        source[klass] = known.setdefault((view.shape, view.strides, view.dtype.itemsize), len(known))
    found = [np.flatnonzero(classes.broadcast[stream.klass[_span(stream, core)]]) for core in range(stream.cores)]
    for core in range(chip.cores_per_cluster, stream.cores):
        first = core % chip.cores_per_cluster
        both = min(len(found[first]), len(found[core]))
        one, other = (found[each][:both] + int(stream.core_start[each]) for each in (first, core))
        same = source[stream.klass[one]] == source[stream.klass[other]]
        same &= _addresses(stream, classes, one) == _addresses(stream, classes, other)
        if not same.all():
            index = int(other[np.argmin(same)])
            text = f"core {core} and core {first} are to load the same bytes, and do not"
            raise InvalidError(Problem("TW1312", f"pld: {text}", program.place(int(stream.pc[index]))))


def _span(stream: Stream, core: int) -> slice:
    return slice(int(stream.core_start[core]), int(stream.core_start[core + 1]))


def _addresses(stream: Stream, classes: ClassTable, at: np.ndarray) -> np.ndarray:
    row = next(args.row for args, each in zip(classes.args, classes.broadcast.tolist(), strict=True) if each)
    found: np.ndarray = stream.address[at, row.tensor_index["src"]]
    return found
