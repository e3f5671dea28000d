"""Which tensors stay in the cores' L1: those of calls that are faster as one kernel, or those that somebody names."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from compiler.cost import Unpredictable, predict
from compiler.errors import Diagnostics, InvalidError
from compiler.kernels import Kernel, NoRoadLeft
from compiler.model_kernels import ModelKernels, Use
from compiler.schedule.chains import Link, apart_from_each_other, linked, links
from compiler.schedule.manual import Manual, members_of
from compiler.tiling import chain
from compiler.tiling.search import analytical_cycles
from compiler.tiling.template import NoFeasibleTile

SWITCH = "keep-in-l1"  # what ablations call it
HINT = "without in_l1 it goes through LLB or DDR"


def kept_in_l1(kernels: ModelKernels, manual: Manual | None) -> ModelKernels:
    """The kernels of the model, with one for two calls wherever the cycle model thinks it faster than theirs.

    With a ``manual`` schedule, wherever that says that what lies between the two stays in L1.
    """
    if manual is not None:
        return _as_said(kernels, manual)
    if SWITCH in kernels.observer.without or kernels.observer.stop_after is not None:
        return kernels
    able = [link for link in links(kernels.module) if _is_possible(kernels, link)]
    found = apart_from_each_other(able)
    if not found:
        return kernels
    together = kernels.of(linked(kernels.module, found))
    faster = _faster(_Pairs.of(kernels, together, found))
    if len(faster) == len(found):
        return together
    return kernels.of(linked(kernels.module, faster)) if faster else kernels


def _is_possible(kernels: ModelKernels, link: Link) -> bool:
    """Whether the shapes of both calls are such that one kernel may do them."""
    functions = [kernels.function(call) for call in (link.first, link.second)]
    return chain.is_possible(functions[0], functions[1], kernels.chip)


@dataclass(frozen=True)
class _Pairs:
    """The kernels of some links: of both calls alone, and of both together."""

    apart: ModelKernels
    together: ModelKernels
    found: Sequence[Link]
    alone: list[list[Use]]
    both: list[Use]

    @staticmethod
    def of(apart: ModelKernels, together: ModelKernels, found: Sequence[Link]) -> _Pairs:
        uses = [{use.members: use for use in one.uses()} for one in (apart, together)]
        members = [[tuple(members_of(apart.module, call)) for call in (link.first, link.second)] for link in found]
        alone = [[uses[0][each] for each in pair if each in uses[0]] for pair in members]
        return _Pairs(apart, together, found, alone, [uses[1][pair[0] + pair[1]] for pair in members])


def _faster(pairs: _Pairs) -> list[Link]:
    """Those of which both calls take fewer cycles in one kernel; it is compiled only where it may."""
    kernels = pairs.apart
    kernels.compile([use for alone in pairs.alone for use in alone])
    cycles = [[_cycles(kernels, use) for use in alone] for alone in pairs.alone]
    limits = [None if None in each or len(each) < 2 else sum(one or 0 for one in each) for each in cycles]
    least = {pairs.together.key(use): use for use in pairs.both}
    known = {key: _least_cycles(use, kernels) for key, use in least.items()}
    hopeful = [
        at
        for at, (use, limit) in enumerate(zip(pairs.both, limits, strict=True))
        if limit is not None and known[pairs.together.key(use)] < limit
    ]
    pairs.together.compile([pairs.both[at] for at in hopeful])
    chosen = []
    for at in hopeful:
        one, limit = _cycles(pairs.together, pairs.both[at]), limits[at]
        if one is not None and limit is not None and one < limit:
            chosen.append(pairs.found[at])
    return chosen


def _least_cycles(use: Use, kernels: ModelKernels) -> float:
    """By the analytical cost, which thinks kernels of two convolutions faster than they are rather than slower."""
    with suppress(NoFeasibleTile):
        space = chain.space(use.job.func, kernels.chip)
        return min(analytical_cycles(space.work(tile), kernels.chip) for tile in space.tiles())
    return float("inf")


def _cycles(kernels: ModelKernels, use: Use) -> int | None:
    result = kernels.result(use)
    if not isinstance(result, Kernel):
        return None
    try:
        return predict(result.code, kernels.chip).cycles
    except Unpredictable:
        return None


# ---- what somebody says ------------------------------------------------------------------------------------------


def _as_said(kernels: ModelKernels, manual: Manual) -> ModelKernels:
    problems = Diagnostics()
    by_name = dict[str, list[Link]]()
    for link in links(kernels.module):
        by_name.setdefault(members_of(kernels.module, link.first)[-1], []).append(link)
    wanted = [link for name in sorted(manual.in_l1) for link in by_name.get(name, ())]
    seconds = {members_of(kernels.module, link.second)[-1] for link in wanted}
    for name in sorted(manual.in_l1):
        if name not in by_name:
            why = "it is no convolution whose result one other convolution reads, and nothing else"
        elif name in seconds:
            why = "it shares a kernel with what it reads, and no third call joins"
        else:
            continue
        problems.add("TW2633", f"{name} cannot stay in L1: {why}", manual.place(name), HINT)
    problems.raise_if_any(InvalidError)
    if not wanted:
        return kernels
    together = kernels.of(linked(kernels.module, wanted))
    pairs = _Pairs.of(kernels, together, wanted)
    together.compile(pairs.both)
    for link, use in zip(wanted, pairs.both, strict=True):
        result, name = together.result(use), members_of(kernels.module, link.first)[-1]
        if isinstance(result, NoRoadLeft):
            why = "; ".join(dict.fromkeys(road.why for road in result.roads[-2:]))
            problems.add("TW2633", f"{name} cannot stay in L1: {why}", manual.place(name), HINT)
    problems.raise_if_any(InvalidError)
    return together
