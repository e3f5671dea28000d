"""The kernels of a model: what its calls need, compiled once each, on the chip or left to the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from tvm import te, tirx
from tvm_ffi import StructuralKey

from compiler import graph, pipeline
from compiler.buffers import Buffers
from compiler.clusters import chip_of, clusters_of, common_parameters
from compiler.codegen.link import LLB_PLACEMENT
from compiler.codegen.residence import Foreseen, foresee, llb_pays
from compiler.cost import Unpredictable, predict
from compiler.decisions import Decisions
from compiler.fetching import Brought
from compiler.frontend import Imported
from compiler.kernel_cache import KernelCache, default_folder
from compiler.kernel_pool import Job, Result, compile_jobs
from compiler.kernels import Kernel, NoRoadLeft, Road
from compiler.pipeline import IN_PARTS
from compiler.runtime.model import HostSegment
from compiler.schedule.automatic import Way
from compiler.schedule.chains import Chain, linked
from compiler.schedule.noted import WAY
from compiler.schedule.work import size_bytes
from compiler.target import Chip
from compiler.tiling import split_k, split_rows, split_scatter, split_stages
from compiler.tiling.fusion import fuse, replaced_by
from compiler.tiling.in_parts import InParts
from compiler.timing import kernel_cycles
from compiler.tir.near import CONSTANTS, held_in_common, placed_near, strided
from compiler.tir.replaced import with_replaced
from compiler.tir.scopes import TIR_DTYPE
from compiler.tir.structure import answered_once, structural_walk

if TYPE_CHECKING:
    from compiler.options import Options


SPLITS = (split_k, split_rows, split_scatter, split_stages)  # ways to make several kernels of one

# Different operators of a model whose kernels are worth as many tries as if they were alone. DenseNet-121 has four
# times as many: where only kernels of four times the cycles are tried more than once, its program takes 0.2 % less at
# 224 pixels, 0.4 % more at 64, and a seventh less time to compile.
OPERATORS = 64


@dataclass(frozen=True)
class Step:
    """One kernel of the model, on the chip or on the host, and the buffers that it is called with."""

    name: str
    arguments: tuple[str, ...]
    nodes: tuple[str, ...]
    kernel: Kernel | None = None
    host: HostSegment | None = None


@dataclass(frozen=True)
class Use:
    """A call that needs a kernel of its own: the job, its buffers, and the calls of the imported graph it does."""

    job: Job
    arguments: tuple[str, ...]
    members: tuple[str, ...]
    group: Any = None  # the Relax function, where it can be taken apart
    share: str = ""  # what it does of its calls, where another kernel does the rest

    @property
    def name(self) -> str:
        """What reports call its kernel: pieces of a layer have the same one."""
        return f"{self.members[-1]}_{self.share}" if self.share else self.members[-1]


class ModelKernels:
    """Compiles the calls of main; kernels that are alike are compiled once."""

    def __init__(
        self,
        imported: Imported,
        module: Any,
        chip: Chip,
        options: Options,
        observer: pipeline.Observer,
        *,
        parts: bool = True,
        copies: Collection[str] = (),
        decided: Decisions | None = None,
    ) -> None:
        self.clusters, self._may_copy = clusters_of(module), frozenset(copies)
        self.imported, self.module, self.whole_chip = imported, module, chip
        self.chip = chip_of(module, chip)  # what kernels are compiled for
        self.options, self.observer = options, observer
        self.buffers = Buffers(module, imported, parts=parts)
        self.together: tuple[tuple[str, ...], ...] = ()  # calls of which several share a kernel
        self._decided = decided
        self._compiled: dict[tuple[str, Any], Result] = {}
        # Which of the ways to do a kernel's work in several is the fastest, and these; zero where one kernel is.
        self._split: dict[tuple[str, Any], tuple[int, InParts | None]] = {}
        self._in_order: tuple[int, ...] = ()  # the former, of all kernels of the model
        # Functions, which stay alive, and what they are once they know where their parameters lie: calls that are alike
        # have the same one.
        self._told: dict[Any, tuple[Any, Any]] = {}
        self._times = _times(len(imported.module.functions) - 1)
        self._near_pays = LLB_PLACEMENT not in observer.without and llb_pays(self.chip)
        foreseen = self._foreseen()
        self._copies = {name: self.buffers.copy_of(name) for name in foreseen.copied}
        self.fetched = dict[str, str]()  # what kernels bring to LLB for others, and where to
        self.brought: tuple[Brought, ...] = ()  # which kernels, once all are known
        self._near = {*foreseen.near, *self._copies.values()}
        self._room_bytes = min(foreseen.room_bytes, default=self.chip.memory_bytes("llb"))
        self._rooms = dict[str, int]()  # by what is called: pieces of a layer are alike
        for call, room in zip(self._calls, foreseen.room_bytes, strict=True):
            self._rooms[call.callee] = min(room, self._rooms.get(call.callee, room))

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the model's inputs, outputs and constants, by their buffers."""
        made = zip(self.buffers.outputs, self.imported.outputs, strict=True)
        given = ((f"in{index}", port) for index, port in enumerate(self.imported.inputs))
        held = {str(param.name): graph.shape_of(param) for param in self.imported.module["main"].params}
        constants = self.buffers.body.params[len(self.imported.inputs) :]
        kept = {self.buffers.names[param]: held[str(param.name)] for param in constants}
        return {name: port.shape for name, port in (*made, *given)} | kept

    def apart_from_each_other(self) -> ModelKernels:
        """The same with a buffer for every tensor, which kernels on the host need: then pieces would be copied."""
        passes = [one for one in pipeline.graph_passes() if one.name not in IN_PARTS]
        module = pipeline.run(passes, self.imported.module, self.whole_chip, self.observer)
        other = ModelKernels(self.imported, module, self.whole_chip, self.options, self.observer, parts=False)
        other._compiled = self._compiled
        return other

    def compile_all(self) -> tuple[list[Step], list[Road]]:
        """All groups first; those for which no road is left are taken apart, operator by operator.

        The steps of the model, and the roads that were tried for them.
        """
        uses = self.uses()
        self.compile(uses)
        whole = [use.group is None or not self._fails(use) for use in uses]
        rounds = [[use] if is_whole else self.apart(use) for use, is_whole in zip(uses, whole, strict=True)]
        self.compile([use for round_ in rounds for use in round_])
        taken_apart = [use for use, is_whole in zip(uses, whole, strict=True) if not is_whole]
        steps = [use for round_ in rounds for use in round_]
        return [self._step(use) for use in steps], self._roads(taken_apart, steps)

    def _roads(self, taken_apart: Sequence[Use], steps: Sequence[Use]) -> list[Road]:
        roads = [Road(f"{use.job.name} as one kernel", str(self.result(use))) for use in taken_apart]
        for use in {self.key(use): use for use in steps}.values():
            result = self.result(use)
            roads += result.roads if isinstance(result, Kernel) else []
        return roads + [Road(f"{use.job.name} on the chip", str(self.result(use))) for use in steps if self._fails(use)]

    def uses(self) -> list[Use]:
        """What needs a kernel, in order; every group is whole."""
        return list(self._found)

    @cached_property
    def _found(self) -> list[Use]:
        found, copied = list[Use](), set[str]()
        for call in self._calls:
            first = [n for n in dict.fromkeys(self.buffers.arguments(call)) if n in self._copies and n not in copied]
            copied.update(first)
            use = self._use(call)
            found += [*(self._copying(name, use) for name in first), use]
        return self._with_kernels_in_parts(found)

    def _copying(self, constant: str, use: Use) -> Use:
        """What brings a constant to LLB, for the first kernel that reads it."""
        declared, arguments = self.buffers.declared[constant], (constant, self._copies[constant])
        given = te.placeholder((prod(declared.shape),), TIR_DTYPE[declared.dtype], "given")
        func = te.create_prim_func([given, te.compute(given.shape, lambda i: given[i], "copy")])
        return Use(self._job(func, "movement", arguments, use.members), arguments, use.members, share="copy")

    @cached_property
    def _calls(self) -> list[graph.Call]:
        """The calls that need a kernel."""
        return [call for call in self.buffers.body.calls if not self.buffers.is_in_place(self.module, call)]

    def _foreseen(self) -> Foreseen:
        steps = [self.buffers.arguments(call) for call in self._calls]
        if not self._near_pays:
            return Foreseen(frozenset(), (self.chip.memory_bytes("llb"),) * len(steps))
        in_place = {callee: replaced_by(self.module, callee) for callee in {call.callee for call in self._calls}}
        declared = self.buffers.placed(name for step in steps for name in step)
        replaced = [in_place[call.callee] for call in self._calls]
        return foresee(steps, declared, self.chip, replaced, copies=self._may_copy, gathered=self._gathered())

    def _gathered(self) -> Counter[str]:
        """How many bytes are read of tables by indices."""
        found: Counter[str] = Counter()
        for call in self._calls:
            if graph.attribute(self.module[call.callee], "tw.group") != "gather":
                continue
            body = graph.read(self.module[call.callee])
            names = dict(zip(body.params, self.buffers.arguments(call), strict=False))
            for inner in body.calls:
                operator = graph.attribute(self.module[inner.callee], "tw.operator")
                if operator == "Gather" and inner.arguments[0] in names:
                    found[names[inner.arguments[0]]] += size_bytes(inner.types[0])
        return found

    def apart(self, use: Use) -> list[Use]:
        """A group as one kernel per operator, with buffers in DDR between them."""
        body = graph.read(use.group)
        names = dict(zip((*body.params, *body.results), use.arguments, strict=True))
        uses = []
        # An operator that became several calls is a member once; these all have its name.
        members = use.members if len(use.members) == len(body.calls) else [call.name for call in body.calls]
        for call, member in zip(body.calls, members, strict=True):
            if call.var not in names:
                names[call.var] = self.buffers.temporary(call.types[0])
            callee = self.module[call.callee]
            inputs = tuple(names[argument] for argument in call.arguments)
            uses.append(self._single(callee, str(callee.attrs["tw.schedule"]), (*inputs, names[call.var]), member))
        return uses

    def key(self, use: Use) -> tuple[str, Any]:
        """Equal for uses of the same kernel."""
        return use.job.schedule, structural_key(use.job.func)

    def nodes(self, use: Use) -> tuple[str, ...]:
        """The ONNX nodes that a use computes."""
        return self._nodes(use.members)

    def _use(self, call: graph.Call) -> Use:
        callee = self.module[call.callee]
        arguments = self._read(self.buffers.arguments(call))
        schedule = graph.attribute(callee, "tw.group")
        if schedule is None:  # a view that has to be copied
            return self._single(callee, "movement", arguments, call.name)
        members = tuple(str(name) for name in callee.attrs["tw.calls"])
        job = self._job(fuse(self.module, callee), str(schedule), arguments, members, self._rooms[call.callee])
        return Use(job, arguments, members, callee if len(members) > 1 else None)

    def _read(self, names: Iterable[str]) -> tuple[str, ...]:
        """The buffers that kernels work on for these: copies, where there are any."""
        return tuple(self.fetched.get(name, self._copies.get(name, name)) for name in names)

    def _with_kernels_in_parts(self, uses: list[Use]) -> list[Use]:
        """The same with several kernels in place of one, where these are faster: parts of sums, and what needs them."""
        different = {self.key(use): use for use in uses}
        unknown = {key: use for key, use in different.items() if key not in self._split}
        decided = self._decided_parts(different) if self._decided is not None else None
        if decided is None:
            proposed = {key: self._proposed(use) for key, use in unknown.items()}
            decided = self._best_in_parts(proposed, different)
        self._split |= decided
        self._in_order = tuple(self._split[key][0] for key in different)
        found = list[Use]()
        for use in uses:
            _, kernels = self._split[self.key(use)]
            found += [use] if kernels is None else self._in_parts(use, kernels)
        return found

    def _decided_parts(
        self, uses: Mapping[tuple[str, Any], Use]
    ) -> dict[tuple[str, Any], tuple[int, InParts | None]] | None:
        """What was decided for each kernel before; None where that was for other kernels."""
        numbers = self._decided.split if self._decided is not None else ()
        if len(numbers) != len(uses):
            return None
        found = dict[tuple[str, Any], tuple[int, InParts | None]]()
        for (key, use), number in zip(uses.items(), numbers, strict=True):
            ways = (None, *self._proposed(use)) if number else (None,)
            if not 0 <= number < len(ways):
                return None
            found[key] = number, ways[number]
        return found

    def _best_in_parts(
        self, proposed: dict[tuple[str, Any], tuple[InParts, ...]], uses: dict[tuple[str, Any], Use]
    ) -> dict[tuple[str, Any], tuple[int, InParts | None]]:
        """What is fastest of all that is proposed for each kernel, by the cycle model; zero is the kernel as it is.

        If anything is, all of ``uses`` are compiled beside it: one after another, processes would wait for the last.
        """
        ways = {key: (None, *several) for key, several in proposed.items()}
        if self.observer.stop_after is not None:
            return {key: (len(several[:2]) - 1, several[:2][-1]) for key, several in ways.items()}
        near = set(self._near)
        with self.buffers.on_trial():
            kernels = {
                key: [[uses[key]] if way is None else self._in_parts(uses[key], way) for way in several]
                for key, several in ways.items()
                if len(several) > 1
            }
            if kernels:
                self.compile([*uses.values(), *(use for several in kernels.values() for way in several for use in way)])
        self._near = near
        best = dict.fromkeys(ways, 0)
        for key, several in kernels.items():
            cycles = [self._cycles(way) for way in several]
            best[key] = cycles.index(min(cycles))
        return {key: (number, ways[key][number]) for key, number in best.items()}

    def _proposed(self, use: Use) -> tuple[InParts, ...]:
        if self.buffers.parts.bands.keys() & set(use.arguments):
            return ()
        splits = [one for one in SPLITS if one.SWITCH not in self.observer.without]
        return tuple(found for one in splits for found in one.split(use.job.func, use.job.schedule, self.chip))

    def _cycles(self, uses: Sequence[Use]) -> float:
        """What kernels that were compiled take one after another, where none begins before the last ended."""
        return sum(map(self.cycles, uses)) + self.chip.sync.cross_flag_cycles * (len(uses) - 1)

    def _in_parts(self, use: Use, kernels: InParts) -> list[Use]:
        between = tuple(self.buffers.temporary(each) for each in kernels.between)
        sizes = (self.buffers.declared[name].size_bytes for name in between)
        if self._near_pays and sum(sizes) <= self._room_bytes:
            self._near.update(between)
        names, found = (*use.arguments, *between), list[Use]()
        for part in kernels.parts:
            arguments = tuple(names[index] for index in part.arguments)
            job = self._job(part.func, part.schedule, arguments, use.members)
            job = replace(job, name=f"{job.name}, {part.what}")
            found.append(Use(job, arguments, use.members, share=part.share))
        return found

    def _single(self, callee: Any, schedule: str, arguments: tuple[str, ...], member: str) -> Use:
        return Use(self._job(callee, schedule, arguments, (member,)), arguments, (member,))

    def _job(
        self, func: Any, schedule: str, arguments: Sequence[str], members: Sequence[str], room_bytes: int | None = None
    ) -> Job:
        read, copies = len(arguments) - written_parameters(func), set(self._copies.values())
        lasting = [
            index
            for index, name in enumerate(arguments)
            if self.buffers.role(name) in ("constant", "input") or (name in copies and index < read)
        ]
        near = [index for index, name in enumerate(arguments) if name in self._near]
        room = self._room_bytes if room_bytes is None else room_bytes
        strides = {
            index: found
            for index, (name, param) in enumerate(zip(arguments, func.params, strict=False))
            if (found := self.buffers.parts.strides_of(name, [int(n) for n in param.shape])) is not None
        }
        common = [index for index in lasting if arguments[index] in self.common]
        told = hash(func), tuple(lasting), tuple(near), tuple(common), room, tuple(strides.items())
        if told not in self._told:
            placed = held_in_common(placed_near(func.with_attr(CONSTANTS, lasting), near, room), common)
            placed = strided(placed, strides)
            self._told[told] = func, with_replaced(placed)
        return Job(self._told[told][1], schedule, self._name(members), self.options.tune, self._times)

    @cached_property
    def common(self) -> frozenset[str]:
        """Inputs and constants of which every cluster reads all, where each has a part of the batch and DDR can send
        the same to all of them.
        """
        if not self.chip.broadcasts:
            return frozenset()
        return frozenset(self.buffers.names[param] for param in common_parameters(self.module))

    @property
    def told(self) -> pipeline.Told:
        """What makes graph passes decide as they did."""
        return pipeline.Told(self.clusters, self._way)

    @property
    def _way(self) -> Way | None:
        """How calls run, where that was searched for."""
        numbers = graph.attribute(self.module["main"], WAY)
        return None if numbers is None else Way.of(numbers)

    @property
    def decisions(self) -> Decisions:
        """What was decided for these kernels."""
        self.uses()
        bands = pipeline.BANDS not in self.observer.without
        copied = tuple(sorted(self._may_copy))
        return Decisions(self.clusters, self._way, bands, self.together, self._in_order, copied, self.brought)

    def is_given(self, name: str) -> bool:
        """Whether a buffer holds what the model is given: no kernel writes it."""
        return name not in self.buffers.parts.bands and self.buffers.role(name) in ("input", "constant")

    @property
    def copied(self) -> frozenset[str]:
        """The constants that are copied to LLB, for kernels that read them again and again."""
        return frozenset(self._copies)

    def with_copies(self, names: Collection[str]) -> ModelKernels:
        """The same, with those of the constants that are read again and again read from LLB."""
        return self._other(self.module, copies=names)

    def with_fetched(self, names: Sequence[str], brought: tuple[Brought, ...] = ()) -> ModelKernels:
        """The same where these are brought to LLB by kernels that run before their readers, if it is known by which."""
        other = self._other(self.module, copies=self._may_copy)
        other.together, other._rooms = self.together, self._rooms
        other.fetched, other.brought = {name: other.buffers.copy_of(name) for name in names}, brought
        other._near |= set(other.fetched.values())
        return other

    def _other(self, module: Any, *, copies: Collection[str]) -> ModelKernels:
        given = self.imported, module, self.whole_chip, self.options, self.observer
        other = ModelKernels(*given, copies=copies, decided=self._decided)
        other._compiled, other._split, other._told = self._compiled, self._split, self._told
        return other

    def with_together(self, chosen: Sequence[Chain]) -> ModelKernels:
        """The same with one kernel for the calls of each chain; kernels that both need are compiled once."""
        other = self._other(linked(self.module, chosen), copies=self._may_copy)
        other.together = tuple(one.names for one in chosen)
        # Where a kernel knew of less room, it stays the same kernel.
        known = self._rooms | {one.function_name: self._room_of(one) for one in chosen}
        other._rooms = {callee: min(room, known.get(callee, room)) for callee, room in other._rooms.items()}
        return other

    def function(self, call: graph.Call) -> Any:
        """The PrimFunc of a call of main."""
        return fuse(self.module, self.module[call.callee])

    def use_of(self, module: Any, callee: str, chain: Chain, given: Sequence[Any]) -> Use:
        """What one function of ``module`` for several calls of main would need, with what it is given."""
        arguments = self._read(self.buffers.names[value] for value in (*given, *chain.results))
        function = module[callee]
        members = tuple(str(name) for name in function.attrs["tw.calls"])
        schedule = str(function.attrs["tw.group"])
        self._rooms[callee] = self._room_of(chain)
        job = self._job(fuse(module, function), schedule, arguments, members, self._rooms[callee])
        return Use(job, arguments, members, function)

    def _room_of(self, chain: Chain) -> int:
        """The bytes of LLB that one kernel for several calls may take while it runs."""
        return min(self._rooms[call.callee] for call in chain.calls)

    def result(self, use: Use) -> Result:
        """The kernel of a use that was compiled, or why there is none."""
        return self._compiled[self.key(use)]

    def cycles(self, use: Use, *, simulated: bool = False) -> float:
        """What the cycle model says of a kernel that was compiled, or the simulator where it soon can; infinity where
        there is none, or data decides.
        """
        result = self.result(use)
        if isinstance(result, Kernel):
            with suppress(Unpredictable):
                exact = kernel_cycles(result.code, self.chip) if simulated else None
                return exact or predict(result.code, self.chip).cycles
        return float("inf")

    def compile(self, uses: Sequence[Use]) -> None:
        wanted = {key: use.job for use in uses if (key := self.key(use)) not in self._compiled}
        cache = KernelCache(default_folder()) if self.options.cache else None
        results = compile_jobs(list(wanted.values()), self.chip, self.observer, cache, self.options.jobs)
        for key, result in zip(wanted, results, strict=True):
            self._compiled[key] = result

    def _fails(self, use: Use) -> bool:
        return isinstance(self._compiled[self.key(use)], NoRoadLeft)

    def _step(self, use: Use) -> Step:
        result, nodes = self._compiled[self.key(use)], self._nodes(use.members)
        if isinstance(result, Kernel):
            return Step(use.name, use.arguments, nodes, result)
        if not self.options.host_kernels:
            raise result
        return Step(use.name, use.arguments, nodes, host=self._host(use, result))

    def _host(self, use: Use, failure: NoRoadLeft) -> HostSegment:
        from compiler.runtime.host import to_json

        written = use.arguments[-written_parameters(use.job.func) :]
        reason = failure.roads[-1].why if failure.roads else str(failure)
        operator = str(graph.attribute(use.job.func, "tw.operator", ""))
        return HostSegment(use.job.name, reason, to_json(use.job.func), use.arguments, written, operator)

    def _nodes(self, members: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node for member in members for node in self.imported.nodes.get(member, (member,))))

    def _name(self, members: Sequence[str]) -> str:
        return "+".join(self._nodes(members))


def _times(operators: int) -> int:
    """Of a model of so many different operators each kernel is a small part: how many times the cycles it has to take
    to be worth as many tries. Powers of two: a kernel that is kept may be one of another model, too.
    """
    return 1 << max(0, (operators // OPERATORS).bit_length() - 1)


@answered_once
def written_parameters(func: Any) -> int:
    """How many of a PrimFunc's last parameters it writes."""
    stored = set[str]()
    structural_walk(func.body, (tirx.BufferStore, lambda store: stored.add(store.buffer.name)))
    return sum(param.name in stored for param in func.params)


@answered_once
def structural_key(func: Any) -> StructuralKey:
    """Equal for kernels that are the same but for names."""
    attributes = [
        name for name in (func.attrs.keys() if func.attrs else ()) if name == "global_symbol" or name.startswith("tw.")
    ]
    for name in attributes:
        func = func.without_attr(name)
    return StructuralKey(func)
