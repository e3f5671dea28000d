"""From a model file to a compiled model: load, import, group, compile every kernel, link."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from compiler import pipeline
from compiler.buffers import Buffers
from compiler.clusters import clusters_of, of_all, rivals_of, together
from compiler.codegen.link import LLB_PLACEMENT, OVERLAP, Linked, link
from compiler.codegen.residence import FarResult, GraphBuffer, PlacedKernel
from compiler.cost import Unpredictable, predict_program
from compiler.decisions import Decisions, Memory
from compiler.fetching import FETCHES, wanted, with_fetches
from compiler.frontend import Imported, import_model
from compiler.frontend import Port as ModelPort
from compiler.kept_in_l1 import kept_in_l1, others_read
from compiler.kernels import Kernel, Road
from compiler.model_kernels import ModelKernels, Step
from compiler.operators import load_operators
from compiler.runtime.model import CompiledModel, HostSegment, Port, ProgramSegment, Segment
from compiler.schedule.chains import named
from compiler.schedule.files import load_schedule
from compiler.schedule.manual import Manual
from compiler.schedule.noted import is_unsure_of_room, runs_in_bands
from compiler.sim.collector import uncollected
from compiler.target import Chip
from compiler.timing import TIMING, cycles_of
from compiler.tir.scopes import ISA_DTYPE

CLEARLY = 0.97  # of the predicted cycles: where a rival takes no less, it is not known whether it is faster


@dataclass(frozen=True)
class Options:
    """What is asked of a compilation."""

    precision: str | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    host_kernels: bool = True
    cache: bool = True  # these two change nothing but the time it takes
    jobs: int | None = None
    ops: Sequence[str | os.PathLike[str]] = ()  # files of operators: Python, and run
    schedule: str | os.PathLike[str] | Manual | None = None  # how the graph runs, where somebody says that
    tune: int = 0  # tiles that are tried for each kernel beside the first; as many as usual where none are asked for


@dataclass(frozen=True)
class Compilation:
    """A compiled model with all that a report says of how it came to be."""

    model: CompiledModel
    steps: tuple[Step, ...]
    imported: Imported
    module: Any  # the Relax module after the graph passes
    seconds: Mapping[str, float]
    roads: tuple[Road, ...]
    linked: tuple[Linked, ...]  # the programs
    decisions: Decisions
    kernels: ModelKernels

    @property
    def far_results(self) -> tuple[FarResult, ...]:
        """What goes through DDR between kernels."""
        return tuple(each for one in self.linked for each in one.far_results)

    @property
    def clusters(self) -> int:
        """How many clusters run it, each on its part of the batch; none where all work together on every kernel."""
        return clusters_of(self.module)

    @cached_property
    def predicted_cycles(self) -> float:
        """Of all programs of the model, one after another; infinite where data decides what they do."""
        programs = [each.program for each in self.model.segments if isinstance(each, ProgramSegment)]
        runs = [run for run, host in _runs(self.steps) if host is None]
        cycles = 0.0
        for program, run in zip(programs, runs, strict=True):
            turns = {name: kernel.code.turns for name, kernel, _ in _labelled(run)}
            try:
                cycles += predict_program(program, self.model.chip, turns).cycles
            except Unpredictable:
                return inf
        return cycles

    @cached_property
    def simulated_cycles(self) -> int | None:
        """The same to the cycle; None where data decides, or where it takes long to know."""
        cycles = 0
        for segment in self.model.segments:
            found = cycles_of(segment.program, self.model.chip) if isinstance(segment, ProgramSegment) else 0
            if found is None:
                return None
            cycles += found
        return cycles


def compile_model(
    source: str | os.PathLike[str] | bytes,
    chip: Chip,
    options: Options | None = None,
    observer: pipeline.Observer | None = None,
) -> Compilation:
    with uncollected():
        return _compile_model(source, chip, options or Options(), observer or pipeline.Observer())


def _compile_model(
    source: str | os.PathLike[str] | bytes, chip: Chip, options: Options, observer: pipeline.Observer
) -> Compilation:
    imported = _imported(source, options)
    memory = Memory.of(imported, chip, options, observer)
    decided = None if memory is None else memory.recalled()
    found = None if decided is None else _as_decided(decided, imported, chip, options, observer)
    if found is None:
        found = _searched(imported, chip, options, observer)
        if memory is not None:
            memory.keep(found.decisions)
    return found


def _as_decided(
    decided: Decisions, imported: Imported, chip: Chip, options: Options, observer: pipeline.Observer
) -> Compilation | None:
    """What a search found before; None where it was for another model after all."""
    if not decided.bands:
        observer = replace(observer, without=observer.without | {pipeline.BANDS})
    told = pipeline.Told(decided.clusters, way=decided.way)
    kernels = _planned(imported, chip, options, observer, told, decided)
    if not decided.copies:
        kernels = kernels.without_copies()
    together = named(kernels.module, decided.together)
    if together is None:
        return None
    kernels = kernels.with_together(together) if together else kernels
    if decided.fetched:
        if not all(name in kernels.buffers.declared and kernels.is_given(name) for name in decided.fetched):
            return None
        kernels = kernels.with_fetched(decided.fetched)
    return _compiled(kernels, chip, options, observer)


def _searched(imported: Imported, chip: Chip, options: Options, observer: pipeline.Observer) -> Compilation:
    found = _tight_or_not(_planned(imported, chip, options, observer), chip, options, observer)
    for clusters in rivals_of(found.module) if manual_of(options) is None else ():
        told = pipeline.Told(clusters)
        other = _tight_or_not(_planned(imported, chip, options, observer, told), chip, options, observer)
        if _is_faster(other, found, observer, CLEARLY):
            found = other
    return found


def _tight_or_not(kernels: ModelKernels, chip: Chip, options: Options, observer: pipeline.Observer) -> Compilation:
    found = _in_bands_or_not(kernels, chip, options, observer)
    if is_unsure_of_room(kernels.module):
        told = pipeline.Told(kernels.clusters, not kernels.told.is_tight)
        planned = _planned(kernels.imported, chip, options, observer, told)
        other = _in_bands_or_not(planned, chip, options, observer)
        found = other if _is_faster(other, found, observer, CLEARLY) else found
    return _fetched_or_not(found, chip, options, observer)


def _fetched_or_not(found: Compilation, chip: Chip, options: Options, observer: pipeline.Observer) -> Compilation:
    """The program where kernels bring to LLB what others behind them read from DDR, if that is faster."""
    kernels = found.kernels
    if {FETCHES, OVERLAP, LLB_PLACEMENT} & observer.without or any(step.host for step in found.steps):
        return found
    placed = [PlacedKernel(name, kernel.code, arguments) for name, kernel, arguments in _labelled(found.steps)]
    sizes = {name: kernels.buffers.declared[name].size_bytes for step in found.steps for name in step.arguments}
    told, best = (placed, sizes, kernels.is_given, kernels.common, kernels.chip), found
    for names in filter(None, dict.fromkeys(tuple(wanted(*told, shared=shared)) for shared in (False, True))):
        other = _fetched(names, kernels, chip, options, observer)
        best = other if _is_faster(other, best, observer) else best
    return best


def _fetched(
    names: Sequence[str], kernels: ModelKernels, chip: Chip, options: Options, observer: pipeline.Observer
) -> Compilation:
    """The program where kernels bring these to LLB, but for those whose readers cannot have them from there."""
    other = _compiled(kernels.with_fetched(names), chip, options, observer)
    vain = {name for one in other.linked for name in one.unfetched}
    if vain:  # their readers were made for LLB
        names = [name for name in names if name not in vain]
        other = _compiled(kernels.with_fetched(names) if names else kernels, chip, options, observer)
    return other


def _in_bands_or_not(kernels: ModelKernels, chip: Chip, options: Options, observer: pipeline.Observer) -> Compilation:
    found = _fastest(kernels, chip, options, observer)
    if manual_of(options) is not None or not runs_in_bands(found.module):
        return found
    # Cascades are weighed call by call: in the program, kernels of few rows overlap less, and take other tiles.
    whole = replace(observer, without=observer.without | {pipeline.BANDS})
    other = _fastest(_planned(kernels.imported, chip, options, whole, kernels.told), chip, options, whole)
    return other if _is_faster(other, found, observer) else found


def _fastest(apart: ModelKernels, chip: Chip, options: Options, observer: pipeline.Observer) -> Compilation:
    """The program with or without copies of constants, and tensors that stay in L1."""
    manual = manual_of(options)
    alone, without = None, apart.without_copies() if apart.has_copies else None
    if without is not None:
        # They take room, and time, and where constants are read again that may run under the kernel before.
        alone, other = (_compiled(each, chip, options, observer) for each in (apart, without))
        if _is_faster(other, alone, observer):
            apart, alone, without = without, other, None
    if manual is not None:
        together = kept_in_l1(apart, manual)
        return alone if alone and together is apart else _compiled(together, chip, options, observer)
    alone, tried = alone or _compiled(apart, chip, options, observer), {apart.together}
    # Kernels are compared one by one; in the program, others have less of LLB beside larger ones, and overlap less.
    for kept in (True, False) if others_read(apart) else (True,):
        together = kept_in_l1(apart, None, kept=kept)
        if together.together not in tried:
            tried.add(together.together)
            found = _compiled(together, chip, options, observer)
            if _is_faster(found, alone, observer):
                return found if without is None else _without_copies_or(without, found, chip, options, observer)
    return alone


def _without_copies_or(
    without: ModelKernels, found: Compilation, chip: Chip, options: Options, observer: pipeline.Observer
) -> Compilation:
    """The program without copies, if it is faster now that some of their readers are one kernel."""
    chosen = named(without.module, found.kernels.together)
    if chosen is None:
        return found
    other = _compiled(without.with_together(chosen), chip, options, observer)
    return other if _is_faster(other, found, observer) else found


def _is_faster(one: Compilation, than: Compilation, observer: pipeline.Observer, share: float = 1.0) -> bool:
    """Whether it takes fewer cycles, or clearly fewer, where these are predicted only: less than a ``share``."""
    if TIMING not in observer.without and one.simulated_cycles is not None and than.simulated_cycles is not None:
        return one.simulated_cycles < than.simulated_cycles
    return one.predicted_cycles < than.predicted_cycles * share


def _compiled(kernels: ModelKernels, chip: Chip, options: Options, observer: pipeline.Observer) -> Compilation:
    decisions = kernels.decisions
    steps, roads = kernels.compile_all()
    if any(step.host for step in steps) and kernels.clusters > 1:
        # The host takes whole tensors.
        kernels = _planned(together(kernels.imported), chip, options, observer)
        steps, roads = kernels.compile_all()
    if any(step.host for step in steps) and kernels.buffers.parts.within:
        kernels = kernels.apart_from_each_other()
        steps, roads = kernels.compile_all()
    model, linked = _linked(steps, kernels, chip, options, observer)
    return Compilation(
        model,
        tuple(steps),
        kernels.imported,
        kernels.module,
        observer.seconds,
        tuple(roads),
        linked,
        decisions,
        kernels,
    )


def plan(
    source: str | os.PathLike[str] | bytes, chip: Chip, options: Options, observer: pipeline.Observer
) -> ModelKernels:
    """The kernels of a model, as the graph passes decide them; none is compiled yet."""
    return _planned(_imported(source, options), chip, options, observer)


def _imported(source: str | os.PathLike[str] | bytes, options: Options) -> Imported:
    load_operators(options.ops)
    return import_model(source, precision=options.precision, shapes=options.shapes, dims=options.dims)


def _planned(
    imported: Imported,
    chip: Chip,
    options: Options,
    observer: pipeline.Observer,
    told: pipeline.Told = pipeline.NOTHING,
    decided: Decisions | None = None,
) -> ModelKernels:
    passes, manual = pipeline.graph_passes(told), manual_of(options)
    if manual is not None:
        passes = tuple(replace(one, manual=manual) if hasattr(one, "manual") else one for one in passes)
    module = pipeline.run(passes, imported.module, chip, observer)
    return ModelKernels(imported, module, chip, options, observer, decided=decided)


def manual_of(options: Options) -> Manual | None:
    """The schedule that somebody gave."""
    given = options.schedule
    return given if given is None or isinstance(given, Manual) else load_schedule(Path(given))


# ---- linking -----------------------------------------------------------------------------------------------------


def _linked(
    steps: Sequence[Step], kernels: ModelKernels, chip: Chip, options: Options, observer: pipeline.Observer
) -> tuple[CompiledModel, tuple[Linked, ...]]:
    buffers, imported = kernels.buffers, kernels.imported
    segments, found = list[Segment](), list[Linked]()
    for run, host in _runs(steps):
        if host is not None:
            segments.append(host)
            continue
        own = set(map(id, run))
        rest = [other for other in steps if id(other) not in own]
        linked = _program(run, rest, kernels, observer)
        segments.append(ProgramSegment(linked.program, linked.listing))
        found.append(linked)
    model = CompiledModel(
        name="model",
        chip=chip,
        segments=tuple(segments),
        inputs=_ports(imported.inputs, [f"in{index}" for index in range(len(imported.inputs))], {}),
        outputs=_ports(imported.outputs, buffers.outputs, buffers.counts),
        constants=_constants(imported, buffers),
        source_sha256=imported.source_sha256,
        options={"precision": options.precision or "", "host_kernels": options.host_kernels},
        kernels=tuple((step.name, step.nodes) for step in steps),
    )
    return model, tuple(found)


def _runs(steps: Sequence[Step]) -> list[tuple[list[Step], HostSegment | None]]:
    """The steps as runs on the chip, and single steps on the host between them."""
    runs: list[tuple[list[Step], HostSegment | None]] = []
    for step in steps:
        if step.host is not None:
            runs.append(([step], step.host))
        elif runs and runs[-1][1] is None:
            runs[-1][0].append(step)
        else:
            runs.append(([step], None))
    return runs


def _labelled(run: Sequence[Step]) -> Iterator[tuple[str, Kernel, tuple[str, ...]]]:
    """The kernels of a run by their names in the program, with the buffers that they are called with."""
    for index, step in enumerate(run):
        if step.kernel is not None:
            yield f"k{index}.{step.name}", step.kernel, step.arguments


def _program(run: list[Step], rest: list[Step], planned: ModelKernels, observer: pipeline.Observer) -> Linked:
    buffers = planned.buffers
    used = dict.fromkeys([*(name for step in run for name in step.arguments), *planned.fetched])
    elsewhere = {name for step in rest for name in step.arguments}
    written = {buffers.parts.place(name)[0] for step in run for name in _written_by(step)}
    first_touch = dict[str, bool]()
    for step in run:
        for name in step.arguments:
            first_touch.setdefault(name, name in _written_by(step))
    declared = []
    for buffer in buffers.placed(used):
        name = buffer.name
        if buffer.role == "intermediate" and name in elsewhere:
            role = "output" if first_touch[name] else "input"
            buffer = GraphBuffer(buffer.name, buffer.dtype, buffer.shape, buffer.size_bytes, role)
        elif buffer.role == "output" and name not in written:
            buffer = GraphBuffer(buffer.name, buffer.dtype, buffer.shape, buffer.size_bytes, "input")
        declared.append(buffer if planned.clusters <= 1 else of_all(buffer, planned.shapes, planned.clusters))
    kernels = [PlacedKernel(name, kernel.code, arguments) for name, kernel, arguments in _labelled(run)]
    if planned.fetched:
        sizes = {source: buffers.declared[source].size_bytes for source in planned.fetched}
        kernels = with_fetches(kernels, planned.fetched, sizes, planned.common, planned.chip)
    return link(
        kernels,
        planned.chip,
        declared,
        name="model",
        overlap=OVERLAP not in observer.without,
        llb=LLB_PLACEMENT not in observer.without,
        clusters=planned.clusters,
    )


def _written_by(step: Step) -> set[str]:
    if step.kernel is None:
        return set(step.host.written) if step.host else set()
    parameters = [p for p in step.kernel.code.parameters if not p.scratch]
    return {name for name, p in zip(step.arguments, parameters, strict=True) if p.written}


def _ports(ports: Sequence[ModelPort], names: Sequence[str], counts: Mapping[int, str]) -> tuple[Port, ...]:
    return tuple(
        Port(p.name, name, p.onnx_dtype, ISA_DTYPE[p.dtype], p.shape, counts.get(index, ""))
        for index, (p, name) in enumerate(zip(ports, names, strict=True))
    )


def _constants(imported: Imported, buffers: Buffers) -> dict[str, np.ndarray]:
    params = {str(p.name): buffers.names[p] for p in buffers.body.params[len(imported.inputs) :]}
    return {params[name]: array for name, array in imported.constants.items()}
