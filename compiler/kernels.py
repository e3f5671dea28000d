"""From one group of operators to the code of one kernel, with every road tried before giving up.

A step that cannot do what it was asked raises a typed error; the step before it tries again with less: a smaller tile,
then a simpler schedule, and where none of them fits the group is taken apart (the driver does that).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import inf
from typing import Any

from tvm.s_tir import ScheduleError
from tvm_ffi import StructuralKey

from compiler import pipeline
from compiler.codegen.kernel import KernelCode, generate
from compiler.codegen.memory import MemoryOverflow
from compiler.cost import Unpredictable, predict
from compiler.emission.errors import NotEmittable
from compiler.errors import CapacityError, Problem
from compiler.graph import attribute, is_one_operator
from compiler.isa.encoding import instr_faults
from compiler.operators.own_schedules import own_template
from compiler.target import Chip
from compiler.tiling.masters import has_master
from compiler.tiling.ranking import Ranked, ranked
from compiler.tiling.rivals import rivals_of
from compiler.tiling.search import Space
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.timing import TIMING, kernel_cycles
from compiler.tir.loads_ahead import FAR_AHEAD, IN_TURN, KEEP, SPREAD

# The modules of `compiler.tiling` that cut the kernels of a class, the best first.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "matmul": ("matmul", "vector", "plain"),  # integers that the cube does not multiply
    "convolution": ("convolution",),
    "chain": ("chain",),
    "pair": ("paired",),
    "prepared": ("prepared",),
    "pooled": ("pooled",),
    "products": ("products",),
    "attention": ("attention", "attention_in_parts"),
    "recurrence": ("recurrence", "plain"),
    "suppression": ("suppression", "plain"),
    "sorting": ("sorting", "plain"),
    "running": ("running", "plain"),
    "putting": ("putting", "plain"),
    "library": ("plain",),
    "scatter": ("plain",),  # where data decides what is written, tiles would not know their part
}
VECTOR_TEMPLATES = ("vector", "plain")
# What else does kernels of a template, where it can, and the pass that it needs, if any: it is taken where it pays.
OTHERS = {"vector": ("cube_sums", "sum-rows-on-cube"), "attention": ("attention_in_parts", "")}
# Of the cycles that it takes otherwise: what saves less costs the program more, since L1 is no longer free for what the
# next kernel loads ahead (BERT at batch 1 takes 0.7 % more on tw1 with norms that save 6 and 11 %).
PAYS = 0.88
RANKING = "learned-ranking"  # what ablations call the correction of the analytical cost
ATTEMPTS = 16
REFUSALS = 2  # of tiles that no instruction does, after which no other tile is tried
SHRINK = 0.7  # of the memory that did not suffice, what the next tile may take
# Those that take no more than this by the cycle model are simulated, for it is off by more now and then (with programs
# compared so, too, single operators take 1.3 % less in the mean on tw1, and one 14 %; on tw2 0.2 %).
UNSURE = 1.15
TIE = 1.02  # of the cycles of the best draft: what takes no more is finished, too, for drafts lack what is yet to come
# Passes that take long and change little of what rivals are compared by: only the winner goes through them.
FINISHING = frozenset({"shift-addresses", "minimise-sync"})


@dataclass(frozen=True)
class Road:
    """A way that was tried, and why it ended."""

    what: str
    why: str


class NoRoadLeft(CapacityError):
    """Everything was tried for this kernel; carries the roads."""

    def __init__(self, name: str, roads: list[Road]) -> None:
        self.name, self.roads = name, tuple(roads)
        listed = "; ".join(f"{road.what}: {road.why}" for road in roads[-6:])
        super().__init__(Problem("TW2402", f"{name} cannot be made to fit the chip", hint=f"tried {listed}"))


@dataclass(frozen=True)
class Choice:
    """A tile that was lowered: as what the passes saw it, what ranking thought of it, and what the cycle model says,
    and the simulator of those that are near the best by that."""

    lowered_as: str
    tile: str
    ranked_cycles: float
    modelled_cycles: int | None = None  # None where only one was lowered, or data decides
    simulated_cycles: int | None = None


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel and how it came to be."""

    name: str
    code: KernelCode
    tile: str
    roads: tuple[Road, ...] = ()
    statistics: dict[str, int] = field(default_factory=dict)
    choices: tuple[Choice, ...] = field(default=(), compare=False)  # the one taken first; not kept in the cache


def compile_kernel(
    func: Any,
    schedule: str,
    chip: Chip,
    observer: pipeline.Observer,
    name: str = "kernel",
    tries: int | None = None,
    times: int = 1,
) -> Kernel:
    """The code of a PrimFunc whose master operator is of class ``schedule``.

    ``tries`` is with how many other tiles the first one is compared, where somebody says that. As usual, those are more
    than one only from ``times`` the usual cycles on, where it is one of many.
    """
    roads: list[Road] = []
    for template in _templates(func, schedule):
        lowering = _Lowering(chip, observer, name, roads, tries, times)
        if hasattr(template, "space"):
            found = _by_space(func, template, lowering)
        else:
            found = _by_template(func, template, lowering)
        if found is not None:
            return _faster(found, func, template, lowering)
    raise NoRoadLeft(name, roads)


def _faster(found: Kernel, func: Any, template: Any, lowering: _Lowering) -> Kernel:
    """The kernel that a template made, or that of another one, where that takes clearly fewer cycles."""
    other, needed = OTHERS.get(_name_of(template), ("", ""))
    if not other or lowering.observer.stop_after is not None or needed in lowering.observer.without:
        return found
    rival = _by_space(func, import_module(f"compiler.tiling.{other}"), lowering)
    if rival is None or _cycles(rival.code, lowering.chip) > PAYS * _cycles(found.code, lowering.chip):
        return found
    return rival


def _name_of(template: Any) -> str:
    return str(getattr(template, "__name__", "")).rpartition(".")[2]


def spaces(func: Any, schedule: str, chip: Chip) -> Iterator[tuple[str, Space]]:
    """The spaces of all templates for a class of kernels, the best template first, with its name."""
    for template in _templates(func, schedule):
        with suppress(NoFeasibleTile, ScheduleError):
            if hasattr(template, "space"):
                yield _name_of(template), template.space(func, chip)


def _templates(func: Any, schedule: str) -> Iterator[Any]:
    own = own_template(schedule)
    if own is not None:
        yield own
    if schedule == "convolution" and not has_master(func, schedule):
        schedule = "matmul"  # somebody's own one, which may be a product: of single elements, channels last
    without = _reads_nothing(func) or (schedule in ("matmul", "convolution") and not has_master(func, schedule))
    modules = VECTOR_TEMPLATES if without else TEMPLATES.get(schedule, VECTOR_TEMPLATES)
    if schedule == "attention" and is_one_operator(func):  # which cannot be taken apart
        modules += VECTOR_TEMPLATES
    for module in modules:
        yield import_module(f"compiler.tiling.{module}")


def _reads_nothing(func: Any) -> bool:
    """Is an input without elements? Sums over it are empty, and there are no tiles for the cube."""
    return any(int(extent) == 0 for param in func.params for extent in param.shape)


# ---- one tile ----------------------------------------------------------------------------------------------------


@dataclass
class _Lowering:
    """Makes kernels of tiles of one template; what did not become one is a road."""

    chip: Chip
    observer: pipeline.Observer
    name: str
    roads: list[Road]
    tries: int | None = None
    times: int = 1
    attempts: int = 0
    _drafts: dict[str, Any] = field(default_factory=dict)  # what is left to be finished, by name
    _other_loads: dict[str, Tiled] = field(default_factory=dict)  # of drafts, whose loads may come as a whole instead
    _lowered: set[StructuralKey] = field(default_factory=set)

    def kernel(self, tiled: Tiled, ranked_cycles: float = 0.0, *, draft: bool = False) -> Kernel:
        """Raises what the passes raise."""
        first, finishing = _halves(pipeline.kernel_passes())
        self.attempts += 1
        lowered_as = self.name if self.attempts == 1 else f"{self.name}.attempt{self.attempts}"
        self.observer.kernel = lowered_as
        self._lowered.add(StructuralKey(tiled.func))
        choice = Choice(lowered_as, tiled.description, ranked_cycles)
        with self._road(tiled.description):
            subject = pipeline.run(first, tiled.func, self.chip, self.observer)
            kept = [one for one in finishing if not (draft and one.name in FINISHING)]
            kernel = self._generated(subject, kept, choice, draft=draft)
        if draft:
            self._drafts[lowered_as] = subject
            if attribute(subject, SPREAD):
                whole = tiled.func.with_attr(KEEP, 1)
                self._other_loads[lowered_as] = Tiled(whole, f"{tiled.description}, loads a turn ahead")
        return kernel

    def has_lowered(self, tiled: Tiled) -> bool:
        """Whether another tile became the same kernel: ranking tells apart what no schedule shows."""
        return StructuralKey(tiled.func) in self._lowered

    def other_loads(self, draft: Kernel) -> Kernel | None:
        """The same with whole loads a turn ahead in place of pieces, if it has any that may be."""
        (choice,) = draft.choices
        tiled = self._other_loads.get(choice.lowered_as)
        if tiled is None:
            return None
        with suppress(MemoryOverflow, NotEmittable):
            return self.kernel(tiled, choice.ranked_cycles, draft=True)
        return None

    def finished(self, draft: Kernel) -> Kernel:
        """A draft that went through all passes."""
        (choice,) = draft.choices
        self.observer.kernel = choice.lowered_as
        with self._road(choice.tile):
            return self._generated(self._drafts[choice.lowered_as], _halves(pipeline.kernel_passes())[1], choice)

    def _generated(self, subject: Any, passes: Sequence[Any], choice: Choice, *, draft: bool = False) -> Kernel:
        lowered = pipeline.run(passes, subject, self.chip, self.observer)
        code = generate(lowered, self.chip, self.name, draft=draft)
        _check_encodable(code)
        if not draft and attribute(lowered, FAR_AHEAD):
            in_turn = pipeline.run(passes, subject.with_attr(IN_TURN, 1), self.chip, self.observer)
            other = generate(in_turn, self.chip, self.name)
            if _cycles(other, self.chip) < _cycles(code, self.chip):
                lowered, code = in_turn, other
        statistics = {str(k): int(n) for k, n in attribute(lowered, "tw.emission", {}).items()}
        return Kernel(self.name, code, choice.tile, tuple(self.roads), statistics, (choice,))

    @contextmanager
    def _road(self, tile: str) -> Iterator[None]:
        """What ends within becomes a road that was tried."""
        try:
            yield
        except (MemoryOverflow, NotEmittable) as error:
            self.roads.append(Road(tile, error.problems[0].message))
            raise

    def unscheduled(self, where: str, error: ScheduleError) -> None:
        self.roads.append(Road(where, f"TVM cannot schedule it: {str(error).strip().splitlines()[-1]}"))


def _check_encodable(code: KernelCode) -> None:
    """Raises NotEmittable where an instruction cannot hold a number: some are known at the end only."""
    count = len(code.instrs)
    for index, instr in enumerate(code.instrs):
        for fault in instr_faults(instr, index, count):
            raise NotEmittable(Problem("TW5601", f"instruction {instr.row.mnemonic} cannot be encoded: {fault}"))


def _cycles(code: KernelCode, chip: Chip) -> float:
    """As well as they can be known: without end where data decides."""
    with suppress(Unpredictable):
        return kernel_cycles(code, chip) or predict(code, chip).cycles
    return inf


def _halves(passes: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The passes before the first that drafts leave out, and those from there on."""
    at = next((index for index, one in enumerate(passes) if one.name in FINISHING), len(passes))
    return passes[:at], passes[at:]


# ---- the tiles of a space ----------------------------------------------------------------------------------------


def _by_space(func: Any, template: Any, lowering: _Lowering) -> Kernel | None:
    where = _name_of(template)
    learned = RANKING not in lowering.observer.without
    try:
        space = template.space(func, lowering.chip)
        left = ranked(space, lowering.chip, learned=learned)
    except NoFeasibleTile as error:
        lowering.roads.append(Road(where, error.problems[0].message))
        return None
    except ScheduleError as error:
        lowering.unscheduled(where, error)
        return None
    compares = learned and lowering.observer.stop_after is None
    taken = _first(space, left, where, lowering, compares=compares)
    if taken is None or not taken[1]:
        return taken and taken[0]
    return _best([taken[0], *_drafts(space, taken[1], lowering)], lowering)


def _first(
    space: Space, left: list[Ranked], where: str, lowering: _Lowering, *, compares: bool
) -> tuple[Kernel, list[Ranked]] | None:
    """The first tile that becomes a kernel, a draft if it has rivals, and these; after one that does not, one that
    takes less."""
    refused = 0
    while left and lowering.attempts < ATTEMPTS and refused < REFUSALS:
        tried, left = left[0], left[1:]
        taken = space.taken(tried.tile)
        tries = getattr(space, "tries", None) if lowering.tries is None else lowering.tries
        rivals = rivals_of(tried, left, lowering.chip, tries, lowering.times) if compares else []
        try:
            return lowering.kernel(space.apply(tried.tile), tried.cycles, draft=bool(rivals)), rivals
        except MemoryOverflow as error:
            scarce = [error.memory] if taken.get(error.memory) else list(taken)
        except NotEmittable:
            refused += 1
            scarce = list(taken)
        except NoFeasibleTile as error:
            lowering.roads.append(Road(where, error.problems[0].message))
            return None
        except ScheduleError as error:
            lowering.unscheduled(where, error)
            return None
        left = [one for one in left if _takes_less(space.taken(one.tile), taken, scarce)]
    return None


def _takes_less(taken: dict[str, int], than: dict[str, int], memories: list[str]) -> bool:
    return any(taken.get(memory, 0) <= than.get(memory, 0) * SHRINK for memory in memories)


def _drafts(space: Space, rivals: list[Ranked], lowering: _Lowering) -> Iterator[Kernel]:
    for one in rivals:
        with suppress(MemoryOverflow, NoFeasibleTile, NotEmittable, ScheduleError):
            tiled = space.apply(one.tile)
            if not lowering.has_lowered(tiled):
                yield lowering.kernel(tiled, one.cycles, draft=True)


def _best(drafts: list[Kernel], lowering: _Lowering) -> Kernel:
    """The fastest one, finished; all that were lowered are its choices, the best first."""
    try:
        cycles = [predict(draft.code, lowering.chip).cycles for draft in drafts] if len(drafts) > 1 else [0]
        other = lowering.other_loads(drafts[cycles.index(min(cycles))])
        if other is not None:
            drafts, cycles = [*drafts, other], [*cycles, predict(other.code, lowering.chip).cycles]
    except Unpredictable:
        return lowering.finished(drafts[0])
    if len(drafts) == 1:
        return lowering.finished(drafts[0])
    timed = {} if TIMING in lowering.observer.without else _timed(drafts, cycles, lowering.chip)
    order = sorted(range(len(drafts)), key=lambda index: (timed.get(index, inf), cycles[index]))
    best = lowering.finished(drafts[order[0]])
    if timed.get(order[1], inf) <= timed.get(order[0], 0) * TIE:
        with suppress(MemoryOverflow, NotEmittable):
            second = lowering.finished(drafts[order[1]])
            if _cycles(second.code, lowering.chip) < _cycles(best.code, lowering.chip):
                best, order = second, [order[1], order[0], *order[2:]]
    choices = [replace(drafts[i].choices[0], modelled_cycles=cycles[i], simulated_cycles=timed.get(i)) for i in order]
    return replace(best, choices=tuple(choices))


def _timed(drafts: list[Kernel], cycles: list[int], chip: Chip) -> dict[int, int]:
    """Cycles of those that the cycle model may be wrong about, by number; none where it takes long to know them."""
    unsure = [index for index, each in enumerate(cycles) if each <= min(cycles) * UNSURE]
    found = dict[int, int]()
    for index in unsure if len(unsure) > 1 else ():
        simulated = kernel_cycles(drafts[index].code, chip)
        if simulated is None:
            return {}
        found[index] = simulated
    return found


# ---- templates that rank their tiles themselves ------------------------------------------------------------------


def _by_template(func: Any, template: Any, lowering: _Lowering) -> Kernel | None:
    where = _name_of(template)
    for attempt in range(ATTEMPTS):
        try:
            tiled = template.schedule(func, lowering.chip, attempt)
        except NoFeasibleTile as error:
            lowering.roads.append(Road(f"{where}, attempt {attempt + 1}", error.problems[0].message))
            return None
        except ScheduleError as error:
            lowering.unscheduled(where, error)
            return None
        try:
            return lowering.kernel(tiled)
        except MemoryOverflow:
            continue
        except NotEmittable:
            return None
    return None
