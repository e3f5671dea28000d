"""What scalar loads read, where the scalar unit alone tells: what it stored itself, and what the program is given.

Loads are resolved while the stream is expanded, as if nobody else wrote to these bytes, and the stream shows whether
anybody does. All before the first load that read something else is right, so the write that changed it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from compiler.errors import Problem
from compiler.isa.dtypes import MEMORIES
from compiler.isa.execute import store
from compiler.isa.jit import kernel
from compiler.isa.model import Args, bind
from compiler.isa.program import Buffer, Program
from compiler.sim.classes import WRITE, ClassTable
from compiler.sim.expand import Expander, Stream, UnknownLoad, unknown_load
from compiler.sim.memory import checked_inputs
from compiler.target import Chip

OWN = "ub"  # the memory that no other core writes to


class _Read(NamedTuple):
    """Bytes that a core's scalar unit stored, and loaded again later: indices of the stream."""

    core: int
    low: int
    high: int
    stored: int
    loaded: int


class KnownLoads:
    """The scalar loads of one expansion. Without ``inputs``, what the program is given is not known."""

    def __init__(self, program: Program, chip: Chip, inputs: Mapping[str, np.ndarray] | None = None) -> None:
        self.program, self.chip = program, chip
        self.loaded: list[list[int]] = []
        arrays = checked_inputs(program, inputs) if inputs is not None else {}
        self._given = {
            b: np.ascontiguousarray(arrays[b.name]).reshape(-1).view(np.uint8)
            for b in program.buffers
            if b.name in arrays
        }
        self._stores = np.array([i.row.mnemonic == "sst" and i.mods[0] == OWN for i in program.instrs], np.bool_)
        self._bytes = np.zeros(chip.memory_bytes(OWN), np.uint8)
        self._stored_at = np.full(chip.memory_bytes(OWN), -1, np.int64)
        self._seen = 0
        self._bound = dict[int, Args]()  # by class
        self._contents = dict[int, Any]()  # of what a class of stores stores
        self._reads: list[_Read] = []
        self._used = set[Buffer]()

    @property
    def depend_on_inputs(self) -> bool:
        return bool(self._used)

    def begin(self, first: int) -> None:
        """The stream of the next core begins at this index."""
        self.loaded.append([])
        self._stored_at.fill(-1)
        self._seen = first

    def value(self, expander: Expander, at: int) -> int:
        """What is read by the load that was issued last, at this index of the stream."""
        self._keep_stores(expander, at)
        args, low = self._args(expander, at), int(expander.arrays.address[at, 0])
        view = args.views[0]
        if view.memory == OWN:
            content = self._kept(low, view.extent_bytes, at)
        else:
            content = self._of_input(view.memory, low, view.extent_bytes)
        if content is None:
            raise unknown_load(self.program, int(expander.arrays.class_pc[expander.arrays.klass[at]]))
        value = int(args.row.function(args, content.view(view.dtype.numpy)[0]))
        self.loaded[-1].append(value)
        return value

    def confirm(self, stream: Stream, classes: ClassTable) -> None:
        """Refuse what was resolved where somebody else writes to it."""
        own = self._stores[classes.pc]
        if self._used:
            spans = [(b.memory, b.offset, b.end) for b in self._used]
            if any(_writers(stream, classes, own, span, 0, stream.size).size for span in spans):
                raise self._changed()
        by_place = dict[tuple[int, int, int], list[_Read]]()
        for read in self._reads:
            by_place.setdefault(read[:3], []).append(read)
        for (core, low, high), reads in by_place.items():
            first, last = int(stream.core_start[core]), int(stream.core_start[core + 1])
            written = _writers(stream, classes, own, (OWN, low, high), first, last)
            between = np.array([(read.stored, read.loaded) for read in reads])
            if np.diff(np.searchsorted(written, between)).any():
                raise self._changed()

    def _changed(self) -> UnknownLoad:
        text = "a scalar load reads what other instructions of the program write"
        return UnknownLoad(Problem("TW1303", text, hint="give the inputs, so that the run can be functional"))

    def _keep_stores(self, expander: Expander, at: int) -> None:
        """Remember what was stored before this index."""
        arrays = expander.arrays
        stores = self._stores[arrays.class_pc[arrays.klass[self._seen : at]]]
        for index in (np.flatnonzero(stores) + self._seen).tolist():
            klass = int(arrays.klass[index])
            args = self._args(expander, index)
            if klass not in self._contents:
                element = np.empty((), args.views[0].dtype.numpy)
                store(element, args.row.function(args))
                self._contents[klass] = element.reshape(1).view(np.uint8)
            low, content = int(arrays.address[index, 0]), self._contents[klass]
            if 0 <= low <= len(self._bytes) - len(content):
                self._bytes[low : low + len(content)] = content
                self._stored_at[low : low + len(content)] = index
        self._seen = at

    def _args(self, expander: Expander, at: int) -> Args:
        klass = int(expander.arrays.klass[at])
        if klass not in self._bound:
            instr = self.program.instrs[int(expander.arrays.class_pc[klass])]
            values = expander.arrays.class_values[klass].tolist()
            self._bound[klass] = bind(instr, values[: len(instr.row.slots(instr.mods))], self.chip)
        return self._bound[klass]

    def _kept(self, low: int, size: int, at: int) -> Any:
        """The bytes, if all of them were stored."""
        stored = self._stored_at[max(0, low) : low + size]
        if len(stored) < size or stored.min() < 0:
            return None
        self._reads.append(_Read(len(self.loaded) - 1, low, low + size, int(stored.min()), at))
        return self._bytes[low : low + size].copy()

    def _of_input(self, memory: str, low: int, size: int) -> Any:
        for buffer, content in self._given.items():
            if buffer.memory == memory and 0 <= low - buffer.offset <= len(content) - size:
                self._used.add(buffer)
                return content[low - buffer.offset :][:size].copy()
        return None


def _writers(
    stream: Stream, classes: ClassTable, left_out: np.ndarray, span: tuple[str, int, int], first: int, last: int
) -> np.ndarray:
    """Where in a part of the stream other classes write to these bytes."""
    memory, low, high = span
    found = _write(
        stream.klass[first:last], stream.address[first:last], classes.footprint_start, classes.footprints, left_out,
        MEMORIES.index(memory), low, high,
    )  # fmt: skip
    return np.flatnonzero(found) + first


@kernel
def _write(klass, address, footprint_start, footprints, left_out, memory, low, high):  # type: ignore[no-untyped-def]
    found = np.zeros(len(klass), np.bool_)
    for i in range(len(klass)):
        if left_out[klass[i]]:
            continue
        for f in range(footprint_start[klass[i]], footprint_start[klass[i] + 1]):
            if footprints[f, 1] == memory and footprints[f, 2] & WRITE:
                start = address[i, footprints[f, 0]] + footprints[f, 3]
                if start < high and low < start + footprints[f, 4]:
                    found[i] = True
    return found
