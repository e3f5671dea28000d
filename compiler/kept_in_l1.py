"""Which tensors need not come back to the cores: those of calls that are faster as one kernel, or those that somebody
names.

They stay in L1, where a convolution takes its windows of them or a product its rows, in L0C, where sums are added to
them, or in UB, where they are pooled. They never leave the cores but where others read them, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from compiler.errors import Diagnostics, InvalidError
from compiler.kernel_pool import in_processes, processes_for
from compiler.kernel_uses import Use
from compiler.kernels import RANKING, NoRoadLeft
from compiler.model_kernels import ModelKernels
from compiler.schedule.chains import CHAIN, PAIR, POOLED, PREPARED, PRODUCTS, Chain, chains, with_functions
from compiler.schedule.manual import Manual
from compiler.schedule.noted import members_of
from compiler.tiling import chain, paired, pooled, prepared, products
from compiler.tiling.ranking import forest_of, ranked
from compiler.tiling.template import NoFeasibleTile

# Of kernels of several calls.
TEMPLATES = {CHAIN: chain, PAIR: paired, PREPARED: prepared, PRODUCTS: products, POOLED: pooled}
SWITCH = "keep-in-l1"  # what ablations call it
HINT = "without in_l1 it goes through LLB or DDR"
LONGEST = 3  # calls of one kernel
ROUNDS = 3  # of compiling what is thought best, as far as it is known
LEAST_AT_ONCE = 6  # kernels that are looked at: fewer take less time than another process
# The analytical cost thinks kernels of several convolutions faster than they are: by about so much. What is learned
# of a chip knows that.
SLOWER = 1.2
# Of kernels that add the results of two there are few, of which most are faster than is thought, and so are those that
# make a map on its way, those of products, and those of which others read what lies between: all are compiled but those
# that are thought to take more than so much of what kernels of single calls take.
TRIED = 1.25
# Of what kernels of single calls take one by one, so much is left in a program, where each loads under the end of the
# one before it; a kernel that stores what lies between for others all the same has to take less.
LEFT = 0.85
PAYS = 0.92  # of what kernels of single calls take: what is thought to take more is not worth to be compiled


def kept_in_l1(kernels: ModelKernels, manual: Manual | None, *, kept: bool = True) -> ModelKernels:
    """The kernels of the model, with one for several calls wherever the cycle model thinks it faster than theirs.

    With a ``manual`` schedule, wherever that says that what lies between them stays in L1. Where others read that, too,
    only if it may be ``kept`` for them.
    """
    if manual is not None:
        return _as_said(kernels, manual)
    if SWITCH in kernels.observer.without or kernels.observer.stop_after is not None:
        return kernels
    found, choice = chains(kernels.module, kept=kept), _Choice(kernels)
    chosen = choice.best(found) if found else []
    for _ in range(ROUNDS):
        if not chosen:
            return kernels
        together = kernels.with_together(chosen)
        if not choice.is_corrected(together, chosen):
            return together
        chosen = choice.known(found)
    return kernels


def others_read(kernels: ModelKernels) -> bool:
    """Whether something may stay in L1 that others read, too: then the kernels without it are others."""
    return any(one.kept for one in chains(kernels.module))


# Of the calls of one kernel, one after another: the kind, and whether it adds what is before it, or is kept for others.
Kinds = tuple[tuple[int, str], ...]
ALONE, ADDS, KEPT = "", "adds", "kept"


@dataclass
class _Choice:
    """How to cut long chains into kernels. Calls whose own kernels are the same are of one kind, and so are chains."""

    kernels: ModelKernels
    cycles: dict[Kinds, float] = field(default_factory=dict)  # of kernels that were compiled, or cannot be
    thought: dict[Kinds, float] = field(default_factory=dict)  # of others
    jobs: dict[Kinds, Use] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)  # of what is called
    products: set[int] = field(default_factory=set)  # the kinds of what is called that are products of matrices

    def best(self, found: list[Chain]) -> list[Chain]:
        """The parts of long chains that are faster as one kernel than in parts."""
        problems = self._problems(found)
        parts = {self._kinds_of(part): part for one in found for part in _parts(one)}
        able = {kinds: part for kinds, part in parts.items() if len(kinds) > 1}
        able = {kinds: part for kinds, part in able.items() if self._is_possible(part, problems)}
        if not able:
            return []
        self.kernels.compile(self.kernels.uses())  # all of the model's: there is work for all processes
        self._compile({self._alone(callee) for part in able.values() for callee in part.callees})
        self._think(able)
        for _ in range(ROUNDS):
            chosen = [part for one in found for part in self._cut(one)]
            unknown = {self._kinds_of(part) for part in chosen} - self.cycles.keys()
            if not unknown:
                break
            self._compile(unknown)
        return self.known(found)

    def _is_possible(self, part: Chain, problems: Sequence[Any]) -> bool:
        """Whether one kernel may do what these calls do, as far as their shapes tell."""
        own = [problems[self.kinds[callee]] for callee in part.callees]
        if part.kind is None or not TEMPLATES[part.kind].is_possible(own, self.kernels.chip):
            return False
        return not part.kept or part.pooled or chain.may_keep(own, part.kept)

    def known(self, found: list[Chain]) -> list[Chain]:
        """The best of what was compiled."""
        return [part for one in found for part in self._cut(one, known=True) if len(part.calls) > 1]

    def is_corrected(self, together: ModelKernels, chosen: list[Chain]) -> bool:
        """Whether kernels of several calls are slower in the program than when they were compared: with fewer tensors
        between kernels, others are on the chip, and kernels that know that are others. What they take is noted.
        """
        uses, module, slower = {use.members: use for use in together.uses()}, self.kernels.module, False
        for part in {part.callees: part for part in chosen}.values():
            use = uses[tuple(name for call in part.calls for name in members_of(module, call))]
            kinds = self._kinds_of(part)
            if use.key == self.jobs[kinds].key:
                continue
            before, self.jobs[kinds] = self.cycles[kinds], use
            self._compile([kinds])
            slower |= self.cycles[kinds] > before
            self.cycles[kinds] = max(self.cycles[kinds], before)
        return slower

    def _problems(self, found: list[Chain]) -> list[Any]:
        """By kind, the convolution or product, if it is one; notes kinds of all calls, and what each takes alone."""
        alone, numbers, problems = {use.members: use for use in self.kernels.uses()}, dict[Any, int](), list[Any]()
        templates = {call: products if one.products else chain for one in found for call in one.calls}
        for call, template in templates.items():
            if call.callee in self.kinds:
                continue
            use = alone.get(tuple(members_of(self.kernels.module, call)))
            kind = numbers.setdefault(call.callee if use is None else use.key, len(numbers))
            self.kinds[call.callee] = kind
            if kind == len(problems):
                problems.append(template.problem_alone(self.kernels.function(call), self.kernels.chip))
                if template is products:
                    self.products.add(kind)
                if use is not None:
                    self.jobs[((kind, ALONE),)] = use
        return problems

    def _kinds_of(self, part: Chain) -> Kinds:
        roles = dict.fromkeys(part.adds, ADDS) | dict.fromkeys(part.kept, KEPT)
        return tuple((self.kinds[callee], roles.get(at, ALONE)) for at, callee in enumerate(part.callees))

    def _alone(self, callee: str) -> Kinds:
        return ((self.kinds[callee], ALONE),)

    def _think(self, able: Mapping[Kinds, Chain]) -> None:
        """Note what kernels of several calls are thought to take."""
        module, functions = with_functions(self.kernels.module, list(able.values()))
        for (kinds, part), (callee, given) in zip(able.items(), functions, strict=True):
            self.jobs[kinds] = self.kernels.use_of(module, callee, part, given)
        all_least = self._least_of([self.jobs[kinds] for kinds in able])
        for (kinds, part), least in zip(able.items(), all_least, strict=True):
            apart = sum(self.cycles.get(self._alone(callee), 0.0) for callee in part.callees)
            apart += self._border_cycles(part.products) * (len(part.calls) - 1)
            if (part.kept or part.kind != CHAIN) and least < TRIED * apart:
                self.thought[kinds] = min(least, PAYS * apart)
            elif least < PAYS * apart:
                self.thought[kinds] = least

    def _border_cycles(self, products: bool) -> int:
        """From one kernel's results to the next one's work: that waits for flags of other cores. Products of matrices
        load more of what is known before in that time than it takes.
        """
        return 0 if products else self.kernels.chip.sync.cross_flag_cycles

    def _least_of(self, uses: Sequence[Use]) -> Iterable[float]:
        """What each one's best tile is thought to take."""
        processes = processes_for(len(uses) // LEAST_AT_ONCE, self.kernels.options.jobs)
        if processes == 1:
            return [_least_cycles(use, self.kernels) for use in uses]
        asked = in_processes(
            lambda index: _least_cycles(uses[index], self.kernels),
            len(uses),
            processes,
            "looked at kernels of several convolutions",
        )
        return [*asked]

    def _compile(self, keys: Collection[Kinds]) -> None:
        wanted = {key: self.jobs[key] for key in sorted(keys) if key in self.jobs}
        self.kernels.compile(list(wanted.values()))
        for key, use in wanted.items():
            # Of products whose matrices cores share the model is off by a quarter now and then.
            products = self.products.issuperset(kind for kind, _ in key)
            share = LEFT if any(role == KEPT for _, role in key) else 1.0
            self.cycles[key] = self.kernels.cycles(use, simulated=products) / share

    def _cut(self, whole: Chain, *, known: bool = False) -> list[Chain]:
        """The chain in the parts that take the fewest cycles together; of several calls only such as are ``known``."""
        best = [(0.0, 0)]  # up to each call: cycles, and where the last part begins
        for end in range(1, len(whole.calls) + 1):
            options = []
            for start in range(max(0, end - LONGEST), end):
                part = whole.part(start, end)
                kinds = self._kinds_of(part)
                cycles = self.cycles.get(kinds, float("inf") if known else self.thought.get(kinds))
                if len(kinds) == 1:
                    cycles = self.cycles.get(kinds, 0.0)
                elif part.kind is None:
                    continue
                if cycles is not None and cycles < float("inf"):
                    options.append((best[start][0] + cycles + self._border_cycles(whole.products), start))
            best.append(min(options, key=lambda option: option[0], default=(float("inf"), 0)))
        parts, end = list[Chain](), len(whole.calls) if best[-1][0] < float("inf") else 0
        while end:
            start = best[end][1]
            parts.append(whole.part(start, end))
            end = start
        return parts[::-1]


def _parts(whole: Chain) -> Iterable[Chain]:
    for start in range(len(whole.calls)):
        for end in range(start + 1, min(start + LONGEST, len(whole.calls)) + 1):
            yield whole.part(start, end)


def _least_cycles(use: Use, kernels: ModelKernels) -> float:
    with suppress(NoFeasibleTile):
        space = TEMPLATES[use.job.schedule].space(use.job.func, kernels.chip)
        learned = RANKING not in kernels.observer.without
        knows = use.job.schedule != CHAIN or (learned and forest_of(kernels.chip) is not None)
        tiles = ranked(space, kernels.chip, learned=learned)
        if tiles:
            return tiles[0].cycles if knows else SLOWER * tiles[0].cycles
    return float("inf")


# ---- what somebody says ------------------------------------------------------------------------------------------


def _as_said(kernels: ModelKernels, manual: Manual) -> ModelKernels:
    problems = Diagnostics()
    named = set[str]()
    wanted = list[Chain]()
    for one in chains(kernels.module):
        start = 0
        for at, call in enumerate(one.calls):
            name = members_of(kernels.module, call)[-1]
            if at < len(one.calls) - 1:
                named.add(name)
                if name in manual.in_l1:
                    continue
            wanted.append(one.part(start, at + 1))
            start = at + 1
    for name in sorted(manual.in_l1 - named):
        why = (
            "it is no convolution or product whose result one other reads, of several the first, what pools it or a "
            "convolution of as many places, nor what makes its map"
        )
        problems.add("TW2633", f"{name} cannot stay in L1: {why}", manual.place(name), HINT)
    problems.raise_if_any(InvalidError)
    wanted = [run for run in wanted if len(run.calls) > 1]
    for run in wanted:
        if run.kind is None:
            name = members_of(kernels.module, run.calls[-2])[-1]
            why = (
                "a kernel that adds results of convolutions has two of them, one that makes a map on its way or pools "
                "a result one, and one of which others read what lies between, too, does nothing else"
            )
            problems.add("TW2633", f"{name} cannot stay in L1: {why}", manual.place(name), HINT)
    problems.raise_if_any(InvalidError)
    if not wanted:
        return kernels
    together = kernels.with_together(wanted)
    uses = {use.members: use for use in together.uses()}
    members = [tuple(name for call in run.calls for name in members_of(kernels.module, call)) for run in wanted]
    together.compile([uses[each] for each in members])
    for each, run in dict(zip(members, wanted, strict=True)).items():  # pieces are alike
        result = together.result(uses[each])
        if isinstance(result, NoRoadLeft):
            name = members_of(kernels.module, run.calls[-2])[-1]
            why = "; ".join(dict.fromkeys(road.why for road in result.roads[-2:]))
            problems.add("TW2633", f"{name} cannot stay in L1: {why}", manual.place(name), HINT)
    problems.raise_if_any(InvalidError)
    return together
