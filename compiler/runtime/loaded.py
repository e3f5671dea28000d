"""A compiled model, loaded: it takes arrays by the names of its inputs, and returns arrays by those of its outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from threading import RLock
from typing import Any

import numpy as np

from compiler.artifact import read_artifact
from compiler.errors import CorruptError, HazardError, InputError, Problem
from compiler.isa.dtypes import DTYPES
from compiler.isa.program import Program
from compiler.runtime import ports
from compiler.runtime.host import HostFunction
from compiler.runtime.kernel_cycles import KernelCycles, kernel_cycles
from compiler.runtime.model import CompiledModel, HostSegment, Port, ProgramSegment
from compiler.runtime.program import ReadyProgram
from compiler.runtime.sources import traced
from compiler.sim.expand import UnknownLoad
from compiler.sim.simulator import GIVEN, Run, prepare
from compiler.sim.statistics import Statistics, statistics


def load(source: str | os.PathLike[str] | bytes | CompiledModel, *, host_kernels: bool = True) -> LoadedModel:
    """A model from its artifact, or as the compiler made it; raises what reading an artifact raises.

    Without ``host_kernels`` a model that holds some is refused.
    """
    if not isinstance(source, CompiledModel):
        return LoadedModel(read_artifact(source, allow_host=host_kernels).model)
    if not host_kernels and any(isinstance(segment, HostSegment) for segment in source.segments):
        raise InputError(Problem("TW1508", "the model holds host kernels, which are not allowed here"))
    return LoadedModel(source)


class LoadedModel:
    """What `run` found out about the last run stands in ``cycles``, ``statistics`` and ``hazards``."""

    def __init__(self, model: CompiledModel) -> None:
        self.model = model
        self.inputs, self.outputs = _signature(model)
        self._segments = [
            HostFunction(segment) if isinstance(segment, HostSegment) else ReadyProgram(segment.program, model.chip)
            for segment in model.segments
        ]
        self._needed_after = _needed_after(model, self.outputs)
        self._one_at_a_time = RLock()  # threads take turns: what a program works on is there once
        self.kernel_cycles: tuple[KernelCycles, ...] = ()

    # ---- running

    def setup(self) -> int:
        """Make everything ready that needs no inputs, once; returns the bytes of DDR that running needs."""
        with self._one_at_a_time:
            for segment in self._segments:
                segment.set_up()
        return self.workspace_bytes

    @property
    def workspace_bytes(self) -> int:
        """Of the program that needs most: inputs, outputs, constants and what lies between."""
        spans = [max((b.end for b in p.buffers if b.memory == "ddr"), default=0) for p in self._programs]
        return max(spans, default=0)

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        hazards: bool = False,
        workers: int | None = None,
        profile: bool = False,
    ) -> dict[str, np.ndarray]:
        """The outputs by name. Inputs are arrays of the ONNX types and shapes of ``self.inputs``.

        With ``hazards`` a race, a read of what nobody wrote or a flag that is left set raises HazardError. With
        ``profile`` the cycles of each kernel are worked out, for ``kernel_cycles``. Threads may share a model: they
        take turns.
        """
        with self._one_at_a_time:
            return self._run(inputs, hazards, workers, profile)

    def _run(
        self, inputs: Mapping[str, Any], hazards: bool, workers: int | None, profile: bool
    ) -> dict[str, np.ndarray]:
        there: dict[str, np.ndarray] = dict(self.model.constants)
        there |= ports.to_buffers(self.inputs, inputs)
        for index, segment in enumerate(self._segments):
            if isinstance(segment, HostFunction):
                there |= segment.run(there)
            else:
                there |= self._run_program(index, segment, _wanted(segment.program, there), hazards, workers)
            for name in [name for name in there if name not in self._needed_after[index]]:
                del there[name]
        if profile:
            self.kernel_cycles = kernel_cycles(self.model, self.runs)
        return {port.name: self._output(port, there) for port in self.outputs}

    def timed(self, inputs: Mapping[str, Any] | None = None, *, hazards: bool = False) -> tuple[Run, ...] | None:
        """Runs of all programs that compute nothing; None where only data tell times, and these are not given, or are
        made on the way.
        """
        programs, there = self._programs, dict[str, np.ndarray]()
        given = inputs is not None and len(self.model.segments) == 1
        if inputs is not None and given:
            there = dict(self.model.constants) | ports.to_buffers(self.inputs, inputs)
        try:
            return tuple(
                prepare(program, self.model.chip, _wanted(program, there) if given else None, hazards=hazards)
                for program in programs
            )
        except UnknownLoad:
            return None

    def _run_program(
        self, index: int, ready: ReadyProgram, inputs: Mapping[str, np.ndarray], hazards: bool, workers: int | None
    ) -> dict[str, np.ndarray]:
        try:
            return ready.run(inputs, hazards, workers)
        except HazardError as error:
            segment = self.model.segments[index]
            raise traced(error, self.model, segment) if isinstance(segment, ProgramSegment) else error from None

    def _output(self, port: Port, there: Mapping[str, np.ndarray]) -> np.ndarray:
        if not prod(port.shape):
            return np.empty(port.shape, ports.ONNX_DTYPES[port.onnx_dtype])
        array = ports.from_chip(port, there[port.buffer])
        if not port.count:
            return array
        count = int(there[port.count].reshape(-1)[0])
        if not 0 <= count <= len(array):
            text = f"output {port.name} has {count} rows, but room for {len(array)}"
            raise CorruptError(Problem("TW1607", text))
        return array[:count]

    # ---- what is known of the last run

    @property
    def runs(self) -> tuple[Run, ...]:
        """The last run of each program."""
        found = [segment.ran for segment in self._segments if isinstance(segment, ReadyProgram)]
        return tuple(run for run in found if run is not None)

    @property
    def cycles(self) -> int:
        """Of all programs, one after the other."""
        return sum(run.cycles for run in self.runs)

    @property
    def statistics(self) -> tuple[Statistics, ...]:
        """Of each program."""
        return tuple(statistics(run) for run in self.runs)

    @property
    def hazards(self) -> list[Problem]:
        """Those that were found, where they were looked for."""
        return [problem for run in self.runs for problem in run.hazards]

    @property
    def _programs(self) -> list[Any]:
        return [s.program for s in self.model.segments if isinstance(s, ProgramSegment)]


def _signature(model: CompiledModel) -> tuple[Sequence[Port], Sequence[Port]]:
    """The model's own, or for a program as somebody wrote it the buffers that the caller has to do with."""
    if model.has_signature:
        return model.inputs, model.outputs
    buffers = [b for s in model.segments if isinstance(s, ProgramSegment) for b in s.program.buffers]
    given = [b for b in buffers if b.role in ("input", "inout") and b.name not in model.constants]
    made = [b for b in buffers if b.role in ("output", "inout")]
    return tuple(map(ports.port_of, given)), tuple(map(ports.port_of, made))


def _wanted(program: Program, there: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a program reads of what is there, in the shape in which it reads it."""
    found = {}
    for buffer in (b for b in program.buffers if b.role in GIVEN):
        array, kind = there[buffer.name], DTYPES[buffer.dtype].numpy
        if array.size != prod(buffer.shape) or array.dtype.itemsize != kind.itemsize:
            text = f"a host kernel wrote {array.dtype} {list(array.shape)} to {buffer.name}"
            raise CorruptError(Problem("TW1608", f"{text}; the program reads {buffer.dtype} {list(buffer.shape)}"))
        found[buffer.name] = array.view(kind).reshape(buffer.shape)
    return found


def _needed_after(model: CompiledModel, outputs: Sequence[Port]) -> list[set[str]]:
    """For each segment what is still read after it."""
    needed = {port.buffer for port in outputs} | {port.count for port in outputs if port.count}
    found = []
    for segment in reversed(model.segments):
        found.append(set(needed))
        if isinstance(segment, HostSegment):
            needed |= set(segment.arguments)
        else:
            needed |= {b.name for b in segment.program.buffers if b.role in ("input", "inout")}
    return found[::-1]
