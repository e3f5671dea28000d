"""One layer of a run in numbers, and what bounded it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from compiler.report.attribution import Path
from compiler.report.bounds import Bound, Work
from compiler.target import Chip

LATENCY = "latency"  # the limit of a kernel in which nothing is busy for long
_BUSY = 0.4  # of its time, from which on something can be called the limit


@dataclass(frozen=True)
class Layer:
    """Cycles and bytes are sums over cores; ``busiest`` is the most that one core was busy, by queue."""

    name: str
    kernels: tuple[str, ...]
    nodes: tuple[str, ...]
    program: int
    tile: str
    chip: Chip
    cores: int  # that had something to do
    start: int
    end: int
    cycles: int
    share: float
    instructions: Mapping[str, int]
    busy: Mapping[str, int]
    busiest: Mapping[str, int]
    stalled: Mapping[str, Mapping[str, int]]
    conflict_cycles: int
    ddr_bytes: int
    llb_bytes: int
    macs: Mapping[str, int]
    paths: Mapping[str, Path] = field(default_factory=dict)
    work: Work | None = None
    bound: Bound | None = None

    @property
    def title(self) -> str:
        """What a person knows it by: its first ONNX node, and how many more there are."""
        if not self.nodes:
            return self.name
        return f"{self.nodes[0]} +{len(self.nodes) - 1}" if len(self.nodes) > 1 else self.nodes[0]

    @property
    def span(self) -> int:
        return self.end - self.start

    @property
    def ratio(self) -> float | None:
        """To the bound; where kernels overlap it may be below one."""
        return self.cycles / self.bound.cycles if self.bound is not None and self.bound.cycles else None

    @property
    def lost_cycles(self) -> int:
        return max(0, self.cycles - (self.bound.cycles if self.bound is not None else 0))

    @cached_property
    def use(self) -> dict[str, float]:
        """For how much of its cycles each queue of the busiest core was at work, and DDR and LLB.

        What was at work while layers before it were not done counts too: of something that was busy for longer than
        the layer's own cycles, all shares are taken of that.
        """
        bandwidth, llb = self.chip.bandwidth, self.chip.bandwidth.llb_bytes_per_kilocycle * self.chip.clusters
        busy: dict[str, float] = dict(self.busiest)
        busy["DDR"] = self.ddr_bytes * 1000 / bandwidth.ddr_bytes_per_kilocycle
        busy["LLB"] = self.llb_bytes * 1000 / llb if llb else 0.0
        time = max(1, self.cycles, *busy.values())
        return {name: cycles / time for name, cycles in busy.items()}

    @property
    def limit(self) -> str:
        """What was busy for most of the time: a queue, DDR or LLB; ``latency`` where nothing was."""
        name, share = self._most
        return name if share >= _BUSY else LATENCY

    @property
    def limit_share(self) -> float:
        return self._most[1]

    @cached_property
    def _most(self) -> tuple[str, float]:
        return max(self.use.items(), key=lambda one: one[1])

    def busy_share(self, queue: str) -> float:
        """Of the span on the cores in use."""
        return self.busy.get(queue, 0) / (max(1, self.span) * max(1, self.cores))

    def stalled_share(self, queue: str, *reasons: str) -> float:
        """Of the span on the cores in use."""
        waited = sum(self.stalled.get(queue, {}).get(reason, 0) for reason in reasons)
        return waited / (max(1, self.span) * max(1, self.cores))
