"""From a model file to a compiled model: load, import, and find how it runs fastest, in one piece or in several."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf, isinf, prod
from threading import RLock

import patches
from compiler import graph, pipeline
from compiler.buffers import NotInPlace
from compiler.clusters import by_rows, clusters_of, thought_of
from compiler.codegen.link import LLB_PLACEMENT
from compiler.codegen.residence import FarResult
from compiler.compilation import CLEARLY, Compilation, is_faster
from compiler.decisions import Decisions, Memory
from compiler.ends import Ends, cut, ends_as_told, ends_of, joined, tails_of
from compiler.errors import InvalidError, Problem
from compiler.frontend import Imported, import_model
from compiler.isa.dtypes import DTYPES
from compiler.kept_in_l1 import kept_in_l1
from compiler.model_kernels import ModelKernels
from compiler.one_piece import as_decided, as_told, in_one_piece
from compiler.operators import load_operators
from compiler.options import Options
from compiler.programs import compilation_of, kernels_of
from compiler.schedule.files import written
from compiler.schedule.manual import Manual
from compiler.schedule.spreading import Sections, best_sections
from compiler.schedule.spreads import Section, Spreads
from compiler.sim.collector import uncollected
from compiler.spread import in_sections
from compiler.target import Chip

# Threads take turns: TVM has one stack of builders for all of them, and a process that another one forks while it holds
# a lock waits for that for ever.
_ONE_AT_A_TIME = RLock()
SECTIONS = "sections"  # what may be left out: clusters that run parts of a model each on some rows
# Of the cycles that a model is thought to take in one piece, those in sections that leave no doubt. (Where every kernel
# has its first tile, eleven models took shares of which those with the best tiles were at most 7 % off.)
FAR_LESS = 0.7
QUICK = 0  # other tiles that are tried
APART = "what reads it is a program of its own, which clusters run in another way"


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
    return _found(_imported(source, chip, options), chip, options, observer)


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
    kernels = as_decided(decided, imported, chip, options, observer)
    return None if kernels is None else compilation_of(kernels)


def _sections(decided: Decisions) -> list[Section]:
    return [Section(frozenset(names), clusters) for clusters, names in decided.sections]


def _searched(
    imported: Imported, chip: Chip, options: Options, observer: pipeline.Observer, *, is_section: bool = False
) -> Compilation:
    """The fastest of all ways to run a model, in one piece or in several, or as somebody says."""
    manual = options.manual
    if manual is not None and manual.tails:
        return _in_two(ends_as_told(imported, manual), chip, options, observer)
    if manual is not None and manual.rows and not by_rows(imported.module):
        told = replace(options, schedule=replace(manual, rows=False))
        found = _searched(_in_rows_as_told(imported, manual, chip), chip, told, observer)
        return _one_of(imported, [found], found.decisions)
    planned = kernels_of(imported, chip, options, observer)
    if manual is not None:
        return as_told(planned, manual)
    sections = None if is_section else _worth_sections(planned)
    models = None if sections is None else in_sections(imported, sections.sections)
    if sections is not None and models is not None and _share(sections, models, planned) < CLEARLY:
        spread = _one_behind_another(imported, sections.sections, models, chip, options, observer)
        if spread is not None:
            return spread
    ends = None if planned.clusters > 1 else ends_of(imported, chip)
    in_two = None if ends is None else _if_it_pays(ends, planned)
    if in_two is not None and isinf(in_two.predicted_cycles):
        return in_two
    found = in_one_piece(planned)
    hosted = {step.name for step in found.steps if step.host is not None}
    if hosted and in_two is None:
        ends = ends_of(imported, chip, hosted)
        in_two = None if ends is None else _if_it_pays(ends, found.kernels)
    return found if in_two is None or not is_faster(in_two, found) else in_two


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


def _share(sections: Sections, models: Sequence[Imported], planned: ModelKernels) -> float:
    """Of the cycles that a model takes in one piece, those of its sections: as both are thought of, or, where that
    leaves a doubt, with the first tile of every kernel.
    """
    if sections.share < FAR_LESS:
        return sections.share
    given = planned.whole_chip, replace(planned.options, tune=QUICK), replace(planned.observer, watchers=())
    try:
        kernels = (kernels_of(each, *given) for each in (planned.imported, *models))
        whole, *pieces = (compilation_of(kept_in_l1(each, None)) for each in kernels)
    except NotInPlace:
        return inf
    return sum(piece.predicted_cycles for piece in pieces) / whole.predicted_cycles


def in_rows(
    imported: Imported, sections: Sequence[Section], chip: Chip, options: Options, observer: pipeline.Observer
) -> Compilation | None:
    """A model in sections, each a model of its own, one behind the other; None where clusters can run none of them each
    on some rows, or a kernel has to run elsewhere.
    """
    models = in_sections(imported, sections)
    return None if models is None else _one_behind_another(imported, sections, models, chip, options, observer)


def _one_behind_another(
    imported: Imported,
    sections: Sequence[Section],
    models: Sequence[Imported],
    chip: Chip,
    options: Options,
    observer: pipeline.Observer,
) -> Compilation | None:
    """A model whose sections are these models; None where a kernel has to run elsewhere."""
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


def _if_it_pays(ends: Ends, whole: ModelKernels) -> Compilation | None:
    """Head and tail as models of their own, if clusters divide one of them and both are thought to take less than the
    whole."""
    chip, options, observer = whole.whole_chip, whole.options, whole.observer
    unwatched = replace(observer, watchers=())
    both = [kernels_of(end, chip, options, unwatched).module for end in (ends.head, ends.tail)]
    if all(clusters_of(each) <= 1 for each in both):
        return None
    pays = sum(map(thought_of, both)) < CLEARLY * thought_of(whole.module)
    return _in_two(ends, chip, options, observer) if pays else None


def _in_two(ends: Ends, chip: Chip, options: Options, observer: pipeline.Observer) -> Compilation:
    """Head and tail as models of their own."""
    manual = options.manual
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


def plan(
    source: str | os.PathLike[str] | bytes, chip: Chip, options: Options, observer: pipeline.Observer
) -> ModelKernels:
    """The kernels of a model, as the graph passes decide them; none is compiled yet."""
    with _ONE_AT_A_TIME:
        return kernels_of(_imported(source, chip, options), chip, options, observer)


def last_plans(source: str | os.PathLike[str] | bytes, chip: Chip, options: Options) -> list[ModelKernels]:
    """The kernels that a model had when it was compiled last, where that is known, and else as the graph passes decide
    them: of all models that it is compiled as, one behind the other.
    """
    with _ONE_AT_A_TIME:
        return list(_last_plans(_imported(source, chip, options), chip, options, pipeline.Observer()))


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
    kernels = None if decided is None else as_decided(decided, imported, chip, options, observer)
    yield kernels_of(imported, chip, options, observer) if kernels is None else kernels


def schedule_of(compilation: Compilation) -> str:
    """How a model runs, as a file."""
    models = [piece.imported for piece in compilation.pieces]
    tails = tails_of(compilation.imported, models)
    return written([piece.module for piece in compilation.pieces], compilation.imported.nodes, tails)


def _imported(source: str | os.PathLike[str] | bytes, chip: Chip, options: Options) -> Imported:
    patches.apply()
    load_operators(options.ops)
    return import_model(
        source,
        precision=options.precision,
        shapes=options.shapes,
        dims=options.dims,
        values=options.values,
        scales_columns=chip.scales_columns,
    )
