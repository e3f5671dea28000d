"""The kernels of a model: what its calls need, compiled once each, on the chip or left to the host."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from compiler import graph, pipeline
from compiler.buffers import Buffers
from compiler.clusters import chip_of, clusters_of
from compiler.cost import Unpredictable, predict
from compiler.decisions import Decisions
from compiler.fetching import Brought, Traffic
from compiler.frontend import Imported
from compiler.kernel_cache import KernelCache, default_folder
from compiler.kernel_jobs import KernelJobs
from compiler.kernel_pool import Result, compile_jobs
from compiler.kernel_splits import KernelSplits
from compiler.kernel_uses import KernelKey, Step, Use, written_parameters
from compiler.kernels import Kernel, NoRoadLeft, Road
from compiler.pipeline import IN_PARTS
from compiler.runtime.model import HostSegment
from compiler.schedule.automatic import Way
from compiler.schedule.chains import Chain, linked
from compiler.schedule.noted import WAY
from compiler.target import Chip
from compiler.tiling.fusion import fuse
from compiler.timing import kernel_cycles

if TYPE_CHECKING:
    from compiler.options import Options


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
        self.clusters = clusters_of(module)
        self.imported, self.module, self.whole_chip = imported, module, chip
        self.chip = chip_of(module, chip)  # what kernels are compiled for
        self.options, self.observer = options, observer
        self.buffers = Buffers(module, imported, parts=parts)
        self.together: tuple[tuple[str, ...], ...] = ()  # calls of which several share a kernel
        self.brought: tuple[Brought, ...] = ()  # which kernels bring what is fetched, once all are known
        self.traffic = Traffic(self.chip)
        self._decided = decided
        self._compiled: dict[KernelKey, Result] = {}
        given = imported, module, self.buffers, self.chip, observer
        self._jobs = KernelJobs(*given, tries=options.tune, may_copy=frozenset(copies))
        self._splits = KernelSplits(self._jobs, observer, decided)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the model's inputs, outputs and constants, by their buffers."""
        made = zip(self.buffers.outputs, self.imported.outputs, strict=True)
        given = ((f"in{index}", port) for index, port in enumerate(self.imported.inputs))
        held = {str(param.name): graph.shape_of(param) for param in self.imported.module["main"].params}
        constants = self.buffers.body.params[len(self.imported.inputs) :]
        kept = {self.buffers.names[param]: held[str(param.name)] for param in constants}
        return {name: port.shape for name, port in (*made, *given)} | kept

    # ---- the same kernels otherwise

    def apart_from_each_other(self) -> ModelKernels:
        """The same with a buffer for every tensor, which kernels on the host need: then pieces would be copied."""
        passes = [one for one in pipeline.graph_passes() if one.name not in IN_PARTS]
        module = pipeline.run(passes, self.imported.module, self.whole_chip, self.observer)
        other = ModelKernels(self.imported, module, self.whole_chip, self.options, self.observer, parts=False)
        other._compiled = self._compiled
        return other

    def with_copies(self, names: Collection[str]) -> ModelKernels:
        """The same, with those of the constants that are read again and again read from LLB."""
        return self._other(self.module, copies=names)

    def with_fetched(self, names: Sequence[str], brought: tuple[Brought, ...] = ()) -> ModelKernels:
        """The same where these are brought to LLB by kernels that run before their readers, if it is known by which."""
        other = self._other(self.module, copies=self._jobs.may_copy)
        other.together, other._jobs.rooms = self.together, self._jobs.rooms
        other._jobs.fetch(names)
        other.brought = brought
        return other

    def with_together(self, chosen: Sequence[Chain]) -> ModelKernels:
        """The same with one kernel for the calls of each chain; kernels that both need are compiled once."""
        other = self._other(linked(self.module, chosen), copies=self._jobs.may_copy)
        other.together = tuple(one.names for one in chosen)
        # Where a kernel knew of less room, it stays the same kernel.
        known = self._jobs.rooms | {one.function_name: self._jobs.room_of(one) for one in chosen}
        other._jobs.rooms = {callee: min(room, known.get(callee, room)) for callee, room in other._jobs.rooms.items()}
        return other

    def _other(self, module: Any, *, copies: Collection[str]) -> ModelKernels:
        given = self.imported, module, self.whole_chip, self.options, self.observer
        other = ModelKernels(*given, copies=copies, decided=self._decided)
        other._compiled, other.traffic, other._jobs.told = self._compiled, self.traffic, self._jobs.told
        other._splits.chosen = self._splits.chosen
        return other

    # ---- what was decided

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
        copied, split = tuple(sorted(self._jobs.may_copy)), self._splits.in_order
        return Decisions(self.clusters, self._way, bands, self.together, split, copied, self.brought)

    @property
    def common(self) -> frozenset[str]:
        """Inputs and constants that DDR can send to all clusters at once."""
        return self._jobs.common

    @property
    def copied(self) -> frozenset[str]:
        """The constants that are copied to LLB, for kernels that read them again and again."""
        return frozenset(self._jobs.copies)

    @property
    def fetched(self) -> dict[str, str]:
        """What kernels bring to LLB for others, and where to."""
        return self._jobs.fetched

    def is_given(self, name: str) -> bool:
        """Whether a buffer holds what the model is given: no kernel writes it."""
        return name not in self.buffers.parts.bands and self.buffers.role(name) in ("input", "constant")

    # ---- uses of kernels

    def uses(self) -> list[Use]:
        """What needs a kernel, in order; every group is whole."""
        return list(self._found)

    @cached_property
    def _found(self) -> list[Use]:
        return self._splits.split(self._jobs.uses(), self.compile, self.cycles)

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
            uses.append(self._jobs.single(callee, str(callee.attrs["tw.schedule"]), (*inputs, names[call.var]), member))
        return uses

    def use_of(self, module: Any, callee: str, chain: Chain, given: Sequence[Any]) -> Use:
        """What one function of ``module`` for several calls of main would need, with what it is given."""
        arguments = self._jobs.read(self.buffers.names[value] for value in (*given, *chain.results))
        room = self._jobs.rooms[callee] = self._jobs.room_of(chain)
        return self._jobs.group(module, callee, arguments, room)

    def function(self, call: graph.Call) -> Any:
        """The PrimFunc of a call of main."""
        return fuse(self.module, self.module[call.callee])

    def nodes(self, use: Use) -> tuple[str, ...]:
        """The ONNX nodes that a use computes."""
        return self._jobs.nodes(use.members)

    # ---- compiled kernels

    def compile(self, uses: Sequence[Use]) -> None:
        wanted = {key: use.job for use in uses if (key := use.key) not in self._compiled}
        cache = KernelCache(default_folder()) if self.options.cache else None
        results = compile_jobs(list(wanted.values()), self.chip, self.observer, cache, self.options.jobs)
        for key, result in zip(wanted, results, strict=True):
            self._compiled[key] = result

    def result(self, use: Use) -> Result:
        """The kernel of a use that was compiled, or why there is none."""
        return self._compiled[use.key]

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
        for use in {use.key: use for use in steps}.values():
            result = self.result(use)
            roads += result.roads if isinstance(result, Kernel) else []
        return roads + [Road(f"{use.job.name} on the chip", str(self.result(use))) for use in steps if self._fails(use)]

    def _fails(self, use: Use) -> bool:
        return isinstance(self.result(use), NoRoadLeft)

    def _step(self, use: Use) -> Step:
        result, nodes = self.result(use), self.nodes(use)
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
