"""From a model file to a compiled model: load, import, group, compile every kernel, link."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isinf, prod
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from compiler import graph, pipeline
from compiler.buffers import Buffers, NotInPlace
from compiler.clusters import by_rows, clusters_of, of_all, rivals_of, thought_of, together
from compiler.codegen.link import LLB_PLACEMENT, OVERLAP, Linked, link
from compiler.codegen.residence import FarResult, GraphBuffer, PlacedKernel
from compiler.cost import Unpredictable, predict_program
from compiler.decisions import Decisions, Memory
from compiler.ends import Ends, cut, ends_as_told, ends_of, joined, tails_of
from compiler.errors import InvalidError, Problem
from compiler.fetching import FETCHES, Traffic, brought, is_whole, wanted, with_fetches
from compiler.frontend import Imported, import_model
from compiler.frontend import Port as ModelPort
from compiler.isa.dtypes import DTYPES
from compiler.kept_in_l1 import kept_in_l1, others_read
from compiler.kernels import Kernel, Road
from compiler.model_kernels import ModelKernels, Step
from compiler.operators import load_operators
from compiler.runtime.model import CompiledModel, HostSegment, Port, ProgramSegment, Segment
from compiler.schedule.chains import named
from compiler.schedule.files import load_schedule, written
from compiler.schedule.manual import Manual
from compiler.schedule.noted import runs_in_bands
from compiler.schedule.spreading import Sections, best_sections
from compiler.schedule.spreads import Section, Spreads
from compiler.sim.collector import uncollected
from compiler.spread import in_sections
from compiler.target import Chip
from compiler.timing import TIMING, cycles_of
from compiler.tir.scopes import ISA_DTYPE

# Threads take turns: TVM has one stack of builders for all of them, and a process that another one forks while it holds
# a lock waits for that for ever.
_ONE_AT_A_TIME = RLock()
SECTIONS = "sections"  # what may be left out: clusters that run parts of a model each on some rows
# Of the cycles that a model is thought to take otherwise, those in sections that leave no doubt; and of those that it
# does take, those that are worth to be tried.
FAR_LESS, LESS = 0.6, 0.8
APART = "what reads it is a program of its own, which clusters run in another way"
CLEARLY = 0.97  # of the predicted cycles: where a rival takes no less, it is not known whether it is faster
# Of the cycles of a program whose calls all have kernels of their own, the fewest that one may take that is faster once
# some share theirs: that saves a few percent of each.
NEARLY = 0.95


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
    ends: tuple[Compilation, ...] = ()  # head and tail, where these were compiled as models of their own
    passed_on: tuple[FarResult, ...] = ()  # by the head to the tail

    @property
    def pieces(self) -> tuple[Compilation, ...]:
        """What was compiled as a model of its own, in order: itself, or its ends."""
        return tuple(piece for end in self.ends for piece in end.pieces) or (self,)

    @property
    def far_results(self) -> tuple[FarResult, ...]:
        """What goes through DDR between kernels."""
        return (*(each for one in self.linked for each in one.far_results), *self.passed_on)

    @property
    def clusters(self) -> int:
        """How many clusters run it, each on its part of the batch; none where all work together on every kernel."""
        return clusters_of(self.module)

    @cached_property
    def predicted_cycles(self) -> float:
        """Of all programs of the model, one after another; infinite where data decides what they do."""
        if self.ends:
            return sum(end.predicted_cycles for end in self.ends)
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
    with _ONE_AT_A_TIME, uncollected():
        return _compile_model(source, chip, options or Options(), observer or pipeline.Observer())


def _compile_model(
    source: str | os.PathLike[str] | bytes, chip: Chip, options: Options, observer: pipeline.Observer
) -> Compilation:
    return _found(_imported(source, options), chip, options, observer)


def _found(
    imported: Imported, chip: Chip, options: Options, observer: pipeline.Observer, *, is_section: bool = False
) -> Compilation:
    memory = Memory.of(imported, chip, options, observer)
    decided = None if memory is None else memory.recalled()
    found = None if decided is None else _as_decided(decided, imported, chip, options, observer)
    if found is None:
        found = _searched(imported, chip, options, observer, is_section=is_section)
        if memory is not None:
            memory.keep(found.decisions)
    return found


def _as_decided(
    decided: Decisions, imported: Imported, chip: Chip, options: Options, observer: pipeline.Observer
) -> Compilation | None:
    """What a search found before; None where it was for another model after all."""
    if decided.tail:
        ends = cut(imported, decided.tail)
        return None if ends is None else _in_two(ends, chip, options, observer)
    if decided.sections:
        return in_rows(imported, _sections(decided), chip, options, observer)
    kernels = _kernels_as_decided(decided, imported, chip, options, observer)
    return None if kernels is None else _compiled(kernels)


def _sections(decided: Decisions) -> list[Section]:
    return [Section(frozenset(names), clusters) for clusters, names in decided.sections]


def _kernels_as_decided(
    decided: Decisions, imported: Imported, chip: Chip, options: Options, observer: pipeline.Observer
) -> ModelKernels | None:
    if not decided.bands:
        observer = replace(observer, without=observer.without | {pipeline.BANDS})
    told = pipeline.Told(decided.clusters, way=decided.way)
    kernels = _planned(imported, chip, options, observer, told, decided)
    if decided.copied:
        kernels = kernels.with_copies(decided.copied)
    together = named(kernels.module, decided.together)
    if together is None:
        return None
    kernels = kernels.with_together(together) if together else kernels
    if decided.fetched:
        names = tuple(dict.fromkeys(part.source for part in decided.fetched))
        if not all(name in kernels.buffers.declared and kernels.is_given(name) for name in names):
            return None
        kernels = kernels.with_fetched(names, decided.fetched)
    return kernels


# ---- the search for the fastest program --------------------------------------------------------------------------


def _searched(
    imported: Imported, chip: Chip, options: Options, observer: pipeline.Observer, *, is_section: bool = False
) -> Compilation:
    """The fastest of all ways to run a model, in one piece or in several, or as somebody says."""
    manual = manual_of(options)
    if manual is not None and manual.tails:
        return _in_two(ends_as_told(imported, manual), chip, options, observer)
    if manual is not None and manual.rows and not by_rows(imported.module):
        told = replace(options, schedule=replace(manual, rows=False))
        found = _searched(_in_rows_as_told(imported, manual, chip), chip, told, observer)
        return _one_of(imported, [found], found.decisions)
    planned = _planned(imported, chip, options, observer)
    if manual is not None:
        return _fetched_or_not(_copied_or_not(planned, _compiled(kept_in_l1(planned, manual))))
    sections = None if is_section else _worth_sections(planned)
    if sections is not None and sections.share < FAR_LESS:
        spread = in_rows(imported, sections.sections, chip, options, observer)
        if spread is not None:
            return spread
        sections = None
    ends = None if planned.clusters > 1 else ends_of(imported, chip)
    in_two = None if ends is None else _if_it_pays(ends, planned)
    if in_two is not None and isinf(in_two.predicted_cycles):
        return in_two
    found = _in_one(planned)
    hosted = {step.name for step in found.steps if step.host is not None}
    if hosted and in_two is None:
        ends = ends_of(imported, chip, hosted)
        in_two = None if ends is None else _if_it_pays(ends, found.kernels)
    found = found if in_two is None or not _is_faster(in_two, found) else in_two
    if sections is None or sections.cycles > LESS * (found.simulated_cycles or found.predicted_cycles):
        return found
    spread = in_rows(imported, sections.sections, chip, options, observer)
    return found if spread is None or not _is_faster(spread, found) else spread


def _in_rows_as_told(imported: Imported, manual: Manual, chip: Chip) -> Imported:
    names, clusters = [call.name for call in graph.read(imported.module["main"]).calls], manual.clusters or 1
    ways = {n: in_sections(imported, [Section(frozenset(names), n)]) for n in range(2, chip.clusters + 1)}
    found = ways.get(clusters)
    if found is None:
        able = [str(n) for n, models in ways.items() if models is not None]
        text = f"{clusters} clusters cannot run {names[0]} to {names[-1]} on {chip.name}, each on some rows"
        hint = f"possible: {', '.join(able)}" if able else "leave rows out, or cut the model elsewhere"
        raise InvalidError(Problem("TW2632", text, manual.place("rows"), hint))
    return found[0]


def _worth_sections(planned: ModelKernels) -> Sections | None:
    """Where clusters do not divide the batch: what of the model they had better run each on some rows."""
    chip, observer = planned.whole_chip, planned.observer
    if chip.clusters == 1 or planned.clusters > 1 or observer.stop_after is not None:
        return None
    if {SECTIONS, LLB_PLACEMENT} & observer.without:
        return None
    grouping = pipeline.graph_passes()[:1]
    grouped = pipeline.run(grouping, planned.imported.module, chip, replace(observer, watchers=()))
    return best_sections(Spreads(planned.imported.module, planned.imported.recipes), grouped, chip)


def in_rows(
    imported: Imported, sections: Sequence[Section], chip: Chip, options: Options, observer: pipeline.Observer
) -> Compilation | None:
    """A model in sections, each a model of its own, one behind the other; None where clusters can run none of them each
    on some rows, or a kernel has to run elsewhere.
    """
    models = in_sections(imported, sections)
    if models is None:
        return None
    try:
        compiled = [_found(model, chip, options, observer, is_section=True) for model in models]
    except NotInPlace:
        return None
    told = tuple((section.clusters, tuple(sorted(section.names))) for section in sections)
    return _one_of(imported, compiled, replace(compiled[0].decisions, sections=told))


def _one_of(whole: Imported, ends: Sequence[Compilation], decisions: Decisions) -> Compilation:
    """A model that was compiled as several, one behind the other."""
    pieces = [piece for end in ends for piece in end.pieces]
    behind = [each for at, end in enumerate(ends) for each in _passed_on(whole, ends[:at], end.imported)]
    return replace(
        ends[0],
        model=joined(whole, [piece.model for piece in pieces]),
        steps=tuple(step for end in ends for step in end.steps),
        imported=whole,
        roads=tuple(road for end in ends for road in end.roads),
        linked=tuple(one for end in ends for one in end.linked),
        decisions=decisions,
        ends=tuple(ends),
        passed_on=(*(each for end in ends for each in end.passed_on), *behind),
    )


def _in_one(planned: ModelKernels) -> Compilation:
    """The fastest of all ways to run it in one piece. Programs in which each call has a kernel of its own tell which
    ways are worth to be gone to the end.
    """
    ways = [planned, *_rivals(planned)]
    begun = [_compiled(each) for each in ways]
    if len(ways) > 1:
        ways, begun = _nearly_the_fastest(ways, begun)
    apart, found = ways[0], _kept_or_not(ways[0], begun[0])
    for way, start in zip(ways[1:], begun[1:], strict=True):
        other = _kept_or_not(way, start)
        # Bands are weighed call by call: in the program, kernels of few rows overlap less, and take other tiles.
        share = 1.0 if way.told == apart.told else CLEARLY
        if _is_faster(other, found, share):
            apart, found = way, other
    return _fetched_or_not(_copied_or_not(apart, found))


def _if_it_pays(ends: Ends, whole: ModelKernels) -> Compilation | None:
    """Head and tail as models of their own, if clusters divide one of them and both are thought to take less than the
    whole."""
    chip, options, observer = whole.whole_chip, whole.options, whole.observer
    unwatched = replace(observer, watchers=())
    both = [_planned(end, chip, options, unwatched).module for end in (ends.head, ends.tail)]
    if all(clusters_of(each) <= 1 for each in both):
        return None
    pays = sum(map(thought_of, both)) < CLEARLY * thought_of(whole.module)
    return _in_two(ends, chip, options, observer) if pays else None


def _in_two(ends: Ends, chip: Chip, options: Options, observer: pipeline.Observer) -> Compilation:
    """Head and tail as models of their own."""
    manual = manual_of(options)
    told = (None, None) if manual is None else manual.of_ends(ends.head.module)
    head, tail = (
        _found(end, chip, replace(options, schedule=own), observer)
        for end, own in zip((ends.head, ends.tail), told, strict=True)
    )
    return _one_of(ends.whole, [head, tail], replace(head.decisions, tail=ends.first))


def _passed_on(whole: Imported, before: Sequence[Compilation], behind: Imported) -> Iterator[FarResult]:
    """What a model is given of those before it, by the kernels that make it."""
    for end in before:
        made = {port.name: port for port in end.model.outputs}
        for port in behind.inputs:
            if port.name in made:
                nodes = set(whole.nodes.get(port.name, ()))
                maker = next((step.name for step in end.steps if nodes.intersection(step.nodes)), port.name)
                size = prod(port.shape) * DTYPES[made[port.name].dtype].itemsize
                yield FarResult(maker, made[port.name].buffer, size, APART)


def _rivals(planned: ModelKernels) -> Iterator[ModelKernels]:
    """Other ways to run the model that may be as fast: by other numbers of clusters, and whole in place of bands."""
    given, observer = (planned.imported, planned.whole_chip, planned.options), planned.observer
    whole = replace(observer, without=observer.without | {pipeline.BANDS})
    others = [_planned(*given, observer, pipeline.Told(clusters)) for clusters in rivals_of(planned.module)]
    for kernels in (planned, *others):
        if kernels is not planned:
            yield kernels
        if runs_in_bands(kernels.module):
            yield _planned(*given, whole, kernels.told)


def _nearly_the_fastest(
    ways: Sequence[ModelKernels], begun: Sequence[Compilation]
) -> tuple[list[ModelKernels], list[Compilation]]:
    """Those that calls which share kernels may still make the fastest."""
    best = begun[0]
    for other in begun[1:]:
        best = other if _is_faster(other, best) else best
    near = []
    for at, one in enumerate(begun):
        least, cycles, _ = _cycles(best, one)
        if cycles * NEARLY <= least:
            near.append(at)
    return [ways[at] for at in near], [begun[at] for at in near]


def _kept_or_not(apart: ModelKernels, alone: Compilation) -> Compilation:
    """The program with tensors that stay in L1, if it is faster than that with a kernel for each call."""
    tried = {apart.together}
    # Kernels are compared one by one; in the program, others have less of LLB beside larger ones, and overlap less.
    for kept in (True, False) if others_read(apart) else (True,):
        together = kept_in_l1(apart, None, kept=kept)
        if together.together not in tried:
            tried.add(together.together)
            found = _compiled(together)
            if _is_faster(found, alone):
                return found
    return alone


def _copied_or_not(apart: ModelKernels, found: Compilation) -> Compilation:
    """The program with copies of constants in LLB that kernels read again and again and wait for, if it is faster:
    copies take room and time.
    """
    traffic, role = Traffic(apart.chip), found.kernels.buffers.role
    waiting = [step for step in found.steps if step.kernel is not None and traffic.is_bound(step.kernel.code)]
    names = {name for step in waiting for name in step.arguments if role(name) == "constant"}
    copying = apart.with_copies(names) if names else apart
    together = named(copying.module, found.kernels.together) if copying.copied else None
    if together is None:
        return found
    other = _compiled(copying.with_together(together) if together else copying)
    return other if _is_faster(other, found) else found


def _fetched_or_not(found: Compilation) -> Compilation:
    """The program where kernels bring to LLB what others behind them read from DDR, if that is faster."""
    kernels = found.kernels
    if {FETCHES, OVERLAP, LLB_PLACEMENT} & kernels.observer.without or any(step.host for step in found.steps):
        return found
    placed = [PlacedKernel(name, kernel.code, arguments) for name, kernel, arguments in _labelled(found.steps)]
    sizes = {name: kernels.buffers.declared[name].size_bytes for step in found.steps for name in step.arguments}
    told, best = (placed, sizes, kernels.is_given, kernels.common, kernels.chip), found
    tried: set[tuple[str, ...]] = {()}
    for shared in (False, True):
        names = tuple(wanted(*told, shared=shared))
        while names not in tried:
            tried.add(names)
            other = _compiled(kernels.with_fetched(names))
            vain = {name for one in other.linked for name in one.unfetched}
            if not vain:
                best = other if _is_faster(other, best) else best
            names = tuple(name for name in names if name not in vain)  # their readers cannot have them from LLB
    return best


def _is_faster(one: Compilation, than: Compilation, share: float = 1.0) -> bool:
    """Whether it takes fewer cycles; where these are predicted only, less than a ``share``."""
    own, others, is_exact = _cycles(one, than)
    return own < others * (1.0 if is_exact else share)


def _cycles(one: Compilation, other: Compilation) -> tuple[float, float, bool]:
    """Of both, and whether they are the simulator's, which are asked for where it soon tells them."""
    if TIMING not in one.kernels.observer.without:
        exact = one.simulated_cycles
        exact_other = None if exact is None else other.simulated_cycles
        if exact is not None and exact_other is not None:
            return exact, exact_other, True
    return one.predicted_cycles, other.predicted_cycles, False


# ---- one program -------------------------------------------------------------------------------------------------


def _compiled(kernels: ModelKernels) -> Compilation:
    decisions = kernels.decisions
    steps, roads = kernels.compile_all()
    if any(step.host for step in steps) and by_rows(kernels.module):
        raise NotInPlace("the host takes whole tensors")
    if any(step.host for step in steps) and kernels.clusters > 1:
        # The host takes whole tensors.
        kernels = _planned(together(kernels.imported), kernels.whole_chip, kernels.options, kernels.observer)
        steps, roads = kernels.compile_all()
    if any(step.host for step in steps) and kernels.buffers.parts.within:
        kernels = kernels.apart_from_each_other()
        steps, roads = kernels.compile_all()
    model, linked = _linked(steps, kernels)
    return Compilation(
        model,
        tuple(steps),
        kernels.imported,
        kernels.module,
        kernels.observer.seconds,
        tuple(roads),
        linked,
        replace(decisions, fetched=kernels.brought),
        kernels,
    )


def plan(
    source: str | os.PathLike[str] | bytes, chip: Chip, options: Options, observer: pipeline.Observer
) -> ModelKernels:
    """The kernels of a model, as the graph passes decide them; none is compiled yet."""
    with _ONE_AT_A_TIME:
        return _planned(_imported(source, options), chip, options, observer)


def last_plans(source: str | os.PathLike[str] | bytes, chip: Chip, options: Options) -> list[ModelKernels]:
    """The kernels that a model had when it was compiled last, where that is known, and else as the graph passes decide
    them: of all models that it is compiled as, one behind the other.
    """
    with _ONE_AT_A_TIME:
        return list(_last_plans(_imported(source, options), chip, options, pipeline.Observer()))


def _last_plans(
    imported: Imported, chip: Chip, options: Options, observer: pipeline.Observer
) -> Iterator[ModelKernels]:
    memory = Memory.of(imported, chip, options, observer)
    decided = None if memory is None else memory.recalled()
    ends = None if decided is None or not decided.tail else cut(imported, decided.tail)
    models = [] if ends is None else [ends.head, ends.tail]
    if decided is not None and decided.sections:
        models = in_sections(imported, _sections(decided)) or []
    if models:
        for model in models:
            yield from _last_plans(model, chip, options, observer)
        return
    kernels = None if decided is None else _kernels_as_decided(decided, imported, chip, options, observer)
    yield _planned(imported, chip, options, observer) if kernels is None else kernels


def schedule_of(compilation: Compilation) -> str:
    """How a model runs, as a file."""
    models = [piece.imported for piece in compilation.pieces]
    tails = tails_of(compilation.imported, models)
    return written([piece.module for piece in compilation.pieces], compilation.imported.nodes, tails)


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


def _linked(steps: Sequence[Step], kernels: ModelKernels) -> tuple[CompiledModel, tuple[Linked, ...]]:
    buffers, imported, options = kernels.buffers, kernels.imported, kernels.options
    segments, found = list[Segment](), list[Linked]()
    for run, host in _runs(steps):
        if host is not None:
            segments.append(host)
            continue
        own = set(map(id, run))
        rest = [other for other in steps if id(other) not in own]
        linked = _program(run, rest, kernels)
        segments.append(ProgramSegment(linked.program, linked.listing))
        found.append(linked)
    model = CompiledModel(
        name="model",
        chip=kernels.whole_chip,
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


def _program(run: list[Step], rest: list[Step], planned: ModelKernels) -> Linked:
    buffers, without = planned.buffers, planned.observer.without
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
        if planned.clusters > 1:
            buffer = of_all(buffer, planned.shapes, planned.clusters, rows=by_rows(planned.module))
        declared.append(buffer)
    kernels = [PlacedKernel(name, kernel.code, arguments) for name, kernel, arguments in _labelled(run)]
    if planned.fetched:
        sizes = {source: buffers.declared[source].size_bytes for source in planned.fetched}
        if not is_whole(planned.brought, kernels, planned.fetched, sizes):
            planned.brought = brought(kernels, planned.fetched, sizes, planned.common, planned.chip)
        kernels = with_fetches(kernels, planned.fetched, planned.brought, planned.common)
    return link(
        kernels,
        planned.chip,
        declared,
        name="model",
        overlap=OVERLAP not in without,
        llb=LLB_PLACEMENT not in without,
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
