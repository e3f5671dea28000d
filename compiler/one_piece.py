"""The fastest of all ways to run a model in one piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from compiler import pipeline
from compiler.clusters import rivals_of
from compiler.codegen.link import LLB_PLACEMENT, OVERLAP
from compiler.codegen.residence import PlacedKernel
from compiler.compilation import CLEARLY, Compilation, cycles_of_both, is_faster, labelled
from compiler.decisions import Decisions
from compiler.fetching import FETCHES, wanted
from compiler.frontend import Imported
from compiler.kept_in_l1 import kept_in_l1, others_read
from compiler.model_kernels import ModelKernels
from compiler.options import Options
from compiler.programs import compilation_of, kernels_of
from compiler.schedule.chains import named
from compiler.schedule.manual import Manual
from compiler.schedule.noted import runs_in_bands
from compiler.target import Chip

# Of the cycles of a program whose calls all have kernels of their own, the fewest that one may take that is faster once
# some share theirs: that saves a few percent of each.
NEARLY = 0.95


def in_one_piece(planned: ModelKernels) -> Compilation:
    """The fastest of all ways to run it in one piece. Programs in which each call has a kernel of its own tell which
    ways are worth to be gone to the end.
    """
    ways = [planned, *_rivals(planned)]
    begun = [compilation_of(each) for each in ways]
    if len(ways) > 1:
        ways, begun = _nearly_the_fastest(ways, begun)
    apart, found = ways[0], _kept_or_not(ways[0], begun[0])
    for way, start in zip(ways[1:], begun[1:], strict=True):
        other = _kept_or_not(way, start)
        # Bands are weighed call by call: in the program, kernels of few rows overlap less, and take other tiles.
        share = 1.0 if way.told == apart.told else CLEARLY
        if is_faster(other, found, share):
            apart, found = way, other
    return _fetched_or_not(_copied_or_not(apart, found))


def as_told(planned: ModelKernels, manual: Manual) -> Compilation:
    """With the calls that share kernels which somebody names."""
    return _fetched_or_not(_copied_or_not(planned, compilation_of(kept_in_l1(planned, manual))))


def _rivals(planned: ModelKernels) -> Iterator[ModelKernels]:
    """Other ways to run the model that may be as fast: by other numbers of clusters, and whole in place of bands."""
    given, observer = (planned.imported, planned.whole_chip, planned.options), planned.observer
    whole = replace(observer, without=observer.without | {pipeline.BANDS})
    others = [kernels_of(*given, observer, pipeline.Told(clusters)) for clusters in rivals_of(planned.module)]
    for kernels in (planned, *others):
        if kernels is not planned:
            yield kernels
        if runs_in_bands(kernels.module):
            yield kernels_of(*given, whole, kernels.told)


def _nearly_the_fastest(
    ways: Sequence[ModelKernels], begun: Sequence[Compilation]
) -> tuple[list[ModelKernels], list[Compilation]]:
    """Those that calls which share kernels may still make the fastest."""
    best = begun[0]
    for other in begun[1:]:
        best = other if is_faster(other, best) else best
    near = []
    for at, one in enumerate(begun):
        least, cycles, _ = cycles_of_both(best, one)
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
            found = compilation_of(together)
            if is_faster(found, alone):
                return found
    return alone


def _copied_or_not(apart: ModelKernels, found: Compilation) -> Compilation:
    """The program with copies of constants in LLB that kernels read again and again and wait for, if it is faster:
    copies take room and time.
    """
    traffic, role = apart.traffic, found.kernels.buffers.role
    waiting = [step for step in found.steps if step.kernel is not None and traffic.is_bound(step.kernel.code)]
    names = {name for step in waiting for name in step.arguments if role(name) == "constant"}
    copying = apart.with_copies(names) if names else apart
    together = named(copying.module, found.kernels.together) if copying.copied else None
    if together is None:
        return found
    other = compilation_of(copying.with_together(together) if together else copying)
    return other if is_faster(other, found) else found


def _fetched_or_not(found: Compilation) -> Compilation:
    """The program where kernels bring to LLB what others behind them read from DDR, if that is faster."""
    kernels = found.kernels
    if {FETCHES, OVERLAP, LLB_PLACEMENT} & kernels.observer.without or any(step.host for step in found.steps):
        return found
    placed = [PlacedKernel(name, kernel.code, arguments) for name, kernel, arguments in labelled(found.steps)]
    sizes = {name: kernels.buffers.declared[name].size_bytes for step in found.steps for name in step.arguments}
    told, best = (placed, sizes, kernels.is_given, kernels.common, kernels.traffic), found
    tried: set[tuple[str, ...]] = {()}
    for shared in (False, True):
        names = tuple(wanted(*told, shared=shared))
        while names not in tried:
            tried.add(names)
            other = compilation_of(kernels.with_fetched(names))
            vain = {name for one in other.linked for name in one.unfetched}
            if not vain:
                best = other if is_faster(other, best) else best
            names = tuple(name for name in names if name not in vain)  # their readers cannot have them from LLB
    return best


def as_decided(
    decided: Decisions, imported: Imported, chip: Chip, options: Options, observer: pipeline.Observer
) -> ModelKernels | None:
    if not decided.bands:
        observer = replace(observer, without=observer.without | {pipeline.BANDS})
    told = pipeline.Told(decided.clusters, way=decided.way)
    kernels = kernels_of(imported, chip, options, observer, told, decided)
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
