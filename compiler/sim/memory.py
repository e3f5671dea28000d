"""The bytes a program works on: DDR and one LLB per cluster for its buffers, the on-chip memories of every core."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from compiler.errors import CapacityError, InvalidError, Problem, UsageError
from compiler.isa.dtypes import DTYPES, SHARED_MEMORIES
from compiler.isa.program import Buffer, Program
from compiler.target import Chip

# What a run may ask of the host, for all memories together.
MAX_HOST_BYTES = 8 << 30
# On-chip memory starts with this in every byte: a NaN in all float types, so that an uninitialised read shows.
UNINITIALISED = 0xFF


class Memories:
    """All memories of one run."""

    def __init__(
        self, program: Program, chip: Chip, cores: int, inputs: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self.program, self.chip = program, chip
        self._check_size(cores)
        self.ddr = self._filled(self._span("ddr"))
        self.llb = [self._filled(self._span("llb")) for _ in range(chip.clusters)]
        self._cores = [_CoreMemories(self, core) for core in range(cores)]
        self.fill(inputs or {})

    def clear(self) -> None:
        """Make all bytes as they were before the first input."""
        for memory in (self.ddr, *self.llb, *(each for core in self._cores for each in core.own)):
            memory.fill(UNINITIALISED)

    def fill(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Put the inputs where the program looks for them."""
        for name, array in checked_inputs(self.program, inputs).items():
            buffer = next(b for b in self.program.buffers if b.name == name)
            for memory in [self.ddr] if buffer.memory == "ddr" else self.llb:
                content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                memory[buffer.offset : buffer.offset + content.size] = content

    def of(self, core: int) -> Mapping[str, np.ndarray]:
        """The memories as one core sees them, by name."""
        return self._cores[core]

    def outputs(self) -> dict[str, np.ndarray]:
        """The output and inout buffers' contents."""
        return {b.name: self.read(b) for b in self.program.buffers if b.role in ("output", "inout")}

    def read(self, buffer: Buffer) -> np.ndarray:
        """A buffer's array, which may end before the buffer does."""
        memory, dtype = self.ddr if buffer.memory == "ddr" else self.llb[0], DTYPES[buffer.dtype]
        end = buffer.offset + prod(buffer.shape) * dtype.itemsize
        return memory[buffer.offset : end].view(dtype.numpy).reshape(buffer.shape).copy()

    def _span(self, memory: str) -> int:
        return max((b.end for b in self.program.buffers if b.memory == memory), default=0)

    def _filled(self, size: int) -> np.ndarray:
        return np.full(size, UNINITIALISED, np.uint8)

    def _check_size(self, cores: int) -> None:
        for name in SHARED_MEMORIES:
            if self._span(name) > self.chip.memory_bytes(name):
                has = f"{self.chip.name} has {self.chip.memory_bytes(name)}"
                raise CapacityError(Problem("TW1330", f"the {name} buffers need {self._span(name)} bytes; {has}"))
        local = sum(self.chip.memory_bytes(name) for name in ("l1", "l0a", "l0b", "l0c", "ub", "bt", "fb"))
        total = self._span("ddr") + self._span("llb") * self.chip.clusters + local * cores
        if total > MAX_HOST_BYTES:
            raise CapacityError(
                Problem("TW1331", f"emulating this needs {total >> 20} MiB; limit {MAX_HOST_BYTES >> 20} MiB")
            )


class _CoreMemories(dict[str, np.ndarray]):
    """One core's view: its own memories come into being when first touched."""

    def __init__(self, owner: Memories, core: int) -> None:
        super().__init__(ddr=owner.ddr, llb=owner.llb[owner.chip.cluster_of(core)])
        self._chip = owner.chip

    @property
    def own(self) -> list[np.ndarray]:
        return [memory for name, memory in self.items() if name not in SHARED_MEMORIES]

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = np.full(self._chip.memory_bytes(name), UNINITIALISED, np.uint8)
        return self[name]


def checked_inputs(program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs, if there is exactly one array of the right type and shape for each."""
    wanted = {b.name: b for b in program.buffers if b.role in ("input", "inout")}
    unknown = sorted(set(inputs) - set(wanted))
    if unknown:
        raise UsageError(Problem("TW1332", f"the program has no input {unknown}; it has {sorted(wanted)}"))
    missing = sorted(set(wanted) - set(inputs))
    if missing:
        raise UsageError(Problem("TW1333", f"no array is given for input {missing}"))
    checked = {}
    for name, array in inputs.items():
        buffer, dtype = wanted[name], DTYPES[wanted[name].dtype]
        if array.dtype != dtype.numpy and array.dtype.itemsize == dtype.itemsize == 2 and array.dtype.kind in "uV":
            array = array.view(dtype.numpy)  # .npy files cannot name bf16: two raw bytes stand for it
        if array.dtype != dtype.numpy and not (dtype.name == "bool" and array.dtype == np.bool_):
            raise InvalidError(
                Problem("TW1334", f"input {name} has type {array.dtype}; the program wants {buffer.dtype}")
            )
        if array.shape != buffer.shape:
            raise InvalidError(
                Problem("TW1335", f"input {name} has shape {array.shape}; the program wants {buffer.shape}")
            )
        checked[name] = array
    return checked
