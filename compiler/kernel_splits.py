"""Kernels that become several, one after another, where these are faster: parts of sums, and what needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from compiler.decisions import Decisions
from compiler.kernel_jobs import KernelJobs
from compiler.kernel_uses import KernelKey, Use
from compiler.pipeline import Observer
from compiler.tiling import split_k, split_rows, split_scatter, split_stages
from compiler.tiling.in_parts import InParts

SPLITS = (split_k, split_rows, split_scatter, split_stages)  # ways to make several kernels of one

# Which of the ways to do a kernel's work in several is the fastest, and these; zero where one kernel is.
Chosen = tuple[int, InParts | None]


class KernelSplits:
    """Which kernels of a model become several: as was ``decided`` before, or what is faster by the cycle model."""

    def __init__(self, jobs: KernelJobs, observer: Observer, decided: Decisions | None) -> None:
        self.jobs, self.observer, self._decided = jobs, observer, decided
        self.chosen: dict[KernelKey, Chosen] = {}
        self.in_order: tuple[int, ...] = ()  # which ways, of all kernels of the model

    def split(
        self, uses: Sequence[Use], compile_all: Callable[[list[Use]], None], cycles: Callable[[Use], float]
    ) -> list[Use]:
        """The same with several kernels in place of one, where these are faster.

        ``cycles`` are those of a use that ``compile_all`` has compiled.
        """
        different = {use.key: use for use in uses}
        unknown = {key: use for key, use in different.items() if key not in self.chosen}
        chosen = self._as_decided(different)
        if chosen is None:
            proposed = {key: self._proposed(use) for key, use in unknown.items()}
            chosen = self._fastest(proposed, different, compile_all, cycles)
        self.chosen |= chosen
        self.in_order = tuple(self.chosen[key][0] for key in different)
        found = list[Use]()
        for use in uses:
            _, kernels = self.chosen[use.key]
            found += [use] if kernels is None else self._in_parts(use, kernels)
        return found

    def _as_decided(self, uses: Mapping[KernelKey, Use]) -> dict[KernelKey, Chosen] | None:
        """What was decided for each kernel before; None where nothing was, or that was for other kernels."""
        if self._decided is None or len(self._decided.split) != len(uses):
            return None
        found = dict[KernelKey, Chosen]()
        for (key, use), number in zip(uses.items(), self._decided.split, strict=True):
            ways = (None, *self._proposed(use)) if number else (None,)
            if not 0 <= number < len(ways):
                return None
            found[key] = number, ways[number]
        return found

    def _fastest(
        self,
        proposed: dict[KernelKey, tuple[InParts, ...]],
        uses: dict[KernelKey, Use],
        compile_all: Callable[[list[Use]], None],
        cycles: Callable[[Use], float],
    ) -> dict[KernelKey, Chosen]:
        """What is fastest of all that is proposed for each kernel; zero is the kernel as it is.

        If anything is, all of ``uses`` are compiled beside it: one after another, processes would wait for the last.
        """
        ways = {key: (None, *several) for key, several in proposed.items()}
        if self.observer.stop_after is not None:
            return {key: (len(several[:2]) - 1, several[:2][-1]) for key, several in ways.items()}
        with self.jobs.on_trial():
            kernels = {
                key: [[uses[key]] if way is None else self._in_parts(uses[key], way) for way in several]
                for key, several in ways.items()
                if len(several) > 1
            }
            if kernels:
                compile_all([*uses.values(), *(use for several in kernels.values() for way in several for use in way)])
        best = dict.fromkeys(ways, 0)
        between = self.jobs.chip.sync.cross_flag_cycles  # none begins before the last ended
        for key, several in kernels.items():
            taken = [sum(map(cycles, way)) + between * (len(way) - 1) for way in several]
            best[key] = taken.index(min(taken))
        return {key: (number, ways[key][number]) for key, number in best.items()}

    def _proposed(self, use: Use) -> tuple[InParts, ...]:
        if self.jobs.buffers.parts.bands.keys() & set(use.arguments):
            return ()
        splits = [one for one in SPLITS if one.SWITCH not in self.observer.without]
        return tuple(found for one in splits for found in one.split(use.job.func, use.job.schedule, self.jobs.chip))

    def _in_parts(self, use: Use, kernels: InParts) -> list[Use]:
        names, found = (*use.arguments, *self.jobs.between(kernels.between)), list[Use]()
        for part in kernels.parts:
            arguments = tuple(names[index] for index in part.arguments)
            job = self.jobs.job(part.func, part.schedule, arguments, use.members)
            job = replace(job, name=f"{job.name}, {part.what}")
            found.append(Use(job, arguments, use.members, share=part.share))
        return found
