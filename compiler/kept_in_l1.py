"""Which tensors stay in the cores' L1: those of calls that are faster as one kernel, or those that somebody names."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from compiler.codegen.alone import alone
from compiler.cost import Unpredictable, predict
from compiler.errors import Diagnostics, InvalidError, TilewrightError
from compiler.kernels import Kernel, NoRoadLeft
from compiler.model_kernels import ModelKernels, Use
from compiler.schedule.chains import Chain, chains, linked, with_functions
from compiler.schedule.manual import Manual
from compiler.schedule.noted import members_of
from compiler.sim.simulator import simulate
from compiler.tiling import chain as template
from compiler.tiling.search import analytical_cycles
from compiler.tiling.template import NoFeasibleTile

SWITCH = "keep-in-l1"  # what ablations call it
HINT = "without in_l1 it goes through LLB or DDR"
LONGEST = 3  # calls of one kernel
ROUNDS = 3  # of compiling what is thought best, as far as it is known
# The analytical cost thinks kernels of several convolutions faster than they are: by about so much.
SLOWER = 1.08
PAYS = 0.85  # of what kernels of single calls take: what is thought to take more is not worth to be compiled


def kept_in_l1(kernels: ModelKernels, manual: Manual | None) -> ModelKernels:
    """The kernels of the model, with one for several calls wherever the cycle model thinks it faster than theirs.

    With a ``manual`` schedule, wherever that says that what lies between them stays in L1.
    """
    if manual is not None:
        return _as_said(kernels, manual)
    if SWITCH in kernels.observer.without or kernels.observer.stop_after is not None:
        return kernels
    found = chains(kernels.module)
    chosen = _Choice(kernels).best(found) if found else []
    return kernels.of(linked(kernels.module, chosen)) if chosen else kernels


@dataclass
class _Choice:
    """How to cut long chains into kernels. Chains of the same functions are one to it."""

    kernels: ModelKernels
    cycles: dict[tuple[str, ...], float] = field(default_factory=dict)  # of kernels that were compiled, or cannot be
    thought: dict[tuple[str, ...], float] = field(default_factory=dict)  # of others
    jobs: dict[tuple[str, ...], Use] = field(default_factory=dict)

    def best(self, found: list[Chain]) -> list[Chain]:
        """The parts of long chains that are faster as one kernel than in parts."""
        alone = {use.members: use for use in self.kernels.uses()}
        parts = {part.callees: part for one in found for part in _parts(one.calls)}
        able = {callees: part for callees, part in parts.items() if len(callees) > 1 and self._is_possible(part)}
        calls = {call.callee for part in able.values() for call in part.calls}
        if not able:
            return []
        for callees, part in parts.items():
            if len(callees) == 1 and callees[0] in calls:
                use = alone.get(tuple(members_of(self.kernels.module, part.calls[0])))
                if use is not None:
                    self.jobs[callees] = use
        self._compile(key for key in parts if len(key) == 1)
        self._think(list(able.values()))
        for _ in range(ROUNDS):
            chosen = [part for one in found for part in self._cut(one)]
            unknown = {part.callees for part in chosen} - self.cycles.keys()
            if not unknown:
                break
            self._compile(unknown)
        return [part for one in found for part in self._cut(one, known=True) if len(part.calls) > 1]

    def _is_possible(self, part: Chain) -> bool:
        functions = [self.kernels.function(call) for call in part.calls]
        return template.is_possible(functions, self.kernels.chip)

    def _think(self, able: list[Chain]) -> None:
        """Note the analytical cost of kernels of several calls; of those that are alike once."""
        module, functions = with_functions(self.kernels.module, able)
        costs = dict[tuple[str, Any], float]()
        for part, (callee, given) in zip(able, functions, strict=True):
            use = self.kernels.use_of(module, callee, part.calls, given)
            self.jobs[part.callees] = use
            key = self.kernels.key(use)
            if key not in costs:
                costs[key] = SLOWER * _least_cycles(use, self.kernels)
            apart = sum(self.cycles.get((callee,), 0.0) for callee in part.callees)
            if costs[key] < PAYS * apart:
                self.thought[part.callees] = costs[key]

    def _compile(self, keys: Iterable[tuple[str, ...]]) -> None:
        wanted = {key: self.jobs[key] for key in keys if key in self.jobs}
        self.kernels.compile(list(wanted.values()))
        for key, use in wanted.items():
            cycles = _cycles(self.kernels, use)
            if len(key) > 1 and cycles is not None and _hazards(self.kernels, use):
                cycles = None
            self.cycles[key] = float("inf") if cycles is None else cycles

    def _cut(self, chain: Chain, *, known: bool = False) -> list[Chain]:
        """The chain in the parts that take the fewest cycles together; of several calls only such as are ``known``."""
        best: list[tuple[float, list[Chain]]] = [(0.0, [])]
        for end in range(1, len(chain.calls) + 1):
            options = []
            for start in range(max(0, end - LONGEST), end):
                part = Chain(chain.calls[start:end])
                cycles = self.cycles.get(part.callees, float("inf") if known else self.thought.get(part.callees))
                if len(part.calls) == 1:
                    cycles = self.cycles.get(part.callees, 0.0)
                if cycles is not None and cycles < float("inf"):
                    options.append((best[start][0] + cycles, [*best[start][1], part]))
            best.append(min(options, key=lambda option: option[0], default=(float("inf"), [])))
        return best[-1][1]


def _parts(calls: tuple[Any, ...]) -> Iterable[Chain]:
    for start in range(len(calls)):
        for end in range(start + 1, min(start + LONGEST, len(calls)) + 1):
            yield Chain(calls[start:end])


def _least_cycles(use: Use, kernels: ModelKernels) -> float:
    with suppress(NoFeasibleTile):
        space = template.space(use.job.func, kernels.chip)
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


def _hazards(kernels: ModelKernels, use: Use) -> list[str]:
    """What is wrong with a kernel of several calls: its products share flags, and its windows stand over what others of
    them make. That these do not get into each other's way is not proven when it is compiled.
    """
    result = kernels.result(use)
    if not isinstance(result, Kernel):
        return []
    try:
        found = simulate(alone(result.code, kernels.chip), kernels.chip, hazards=True).hazards
    except TilewrightError as error:
        return [problem.message for problem in error.problems]
    return [problem.message for problem in found]


# ---- what somebody says ------------------------------------------------------------------------------------------


def _as_said(kernels: ModelKernels, manual: Manual) -> ModelKernels:
    problems = Diagnostics()
    named = set[str]()
    wanted = list[Chain]()
    for one in chains(kernels.module):
        run = [one.calls[0]]
        for before, call in zip(one.calls, one.calls[1:], strict=False):
            name = members_of(kernels.module, before)[-1]
            named.add(name)
            if name in manual.in_l1:
                run.append(call)
                continue
            wanted.append(Chain(tuple(run)))
            run = [call]
        wanted.append(Chain(tuple(run)))
    for name in sorted(manual.in_l1 - named):
        why = "it is no convolution whose result one other convolution reads, and nothing else"
        problems.add("TW2633", f"{name} cannot stay in L1: {why}", manual.place(name), HINT)
    problems.raise_if_any(InvalidError)
    wanted = [run for run in wanted if len(run.calls) > 1]
    if not wanted:
        return kernels
    together = kernels.of(linked(kernels.module, wanted))
    uses = {use.members: use for use in together.uses()}
    members = [tuple(name for call in run.calls for name in members_of(kernels.module, call)) for run in wanted]
    together.compile([uses[each] for each in members])
    for chain, each in zip(wanted, members, strict=True):
        result = together.result(uses[each])
        if isinstance(result, NoRoadLeft):
            whys = [road.why for road in result.roads[-2:]]
        else:
            whys = _hazards(together, uses[each])[:2]
        if whys:
            name = members_of(kernels.module, chain.calls[-2])[-1]
            why = "; ".join(dict.fromkeys(whys))
            problems.add("TW2633", f"{name} cannot stay in L1: {why}", manual.place(name), HINT)
    problems.raise_if_any(InvalidError)
    return together
