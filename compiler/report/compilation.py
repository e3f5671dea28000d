"""What a compilation did: which kernels, which of them not on the chip and why, how large, how long, what was tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from compiler.clusters import by_rows
from compiler.isa.dtypes import DTYPES
from compiler.isa.encoding import encode
from compiler.isa.program import Program
from compiler.runtime.kernel_cycles import KernelCycles, plain_name
from compiler.runtime.model import CompiledModel, ProgramSegment

if TYPE_CHECKING:
    from compiler.compilation import Compilation
    from compiler.kernel_uses import Step
    from compiler.kernels import Kernel
    from compiler.schedule.noted import Searched

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class KernelReport:
    """One use of a kernel on the chip."""

    name: str
    nodes: tuple[str, ...]
    instructions: int
    tile: str
    memory: Mapping[str, int]  # bytes used of each on-chip memory
    cores: int


@dataclass(frozen=True)
class HostKernelReport:
    """Work that is left to the host, and why."""

    name: str
    operator: str
    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class TriedRoad:
    """A way to compile a kernel that did not lead to its end."""

    what: str
    why: str


@dataclass(frozen=True)
class TailReport:
    """Kernels that are a program of their own, behind what other numbers of clusters run."""

    kernels: int
    clusters: int
    rows: bool  # whether clusters work each on some rows of images


@dataclass(frozen=True)
class DdrPlan:
    """Bytes of the chip's DDR, of the program that needs most."""

    inputs: int
    outputs: int
    constants: int
    intermediates: int
    total: int
    capacity: int


@dataclass(frozen=True)
class FarResultReport:
    """What a kernel makes for others that goes through DDR, and why it could not stay on the chip."""

    kernel: str
    nodes: tuple[str, ...]
    bytes: int
    reason: str


@dataclass(frozen=True)
class MemoryPeak:
    """Of a memory on the chip, the bytes that the kernel which needs most needs."""

    memory: str
    bytes: int
    capacity: int
    kernel: str


@dataclass(frozen=True)
class Report:
    """Nodes are those of the ONNX model; what was folded away is no node any more."""

    model: str
    chip: str
    precision: str
    segments: int
    kernels: tuple[KernelReport, ...]
    host_kernels: tuple[HostKernelReport, ...]
    distinct_kernels: int
    instructions: int
    program_bytes: int
    constant_bytes: int
    ddr: DdrPlan
    memory: tuple[MemoryPeak, ...]
    clusters: int  # that run it, each on its part of the batch; none where all work together on every kernel
    rows: bool  # whether they work each on some rows of images instead
    pieces: int  # in which the layer with most of them runs
    search: Searched | None  # None where nothing was searched for: all fits on the chip, or the schedule was given
    far_results: tuple[FarResultReport, ...]
    tails: tuple[TailReport, ...]  # what is compiled as models of their own behind the rest, in order
    fetched_bytes: int  # of inputs and constants that kernels bring to LLB for others behind them
    notes: tuple[str, ...]
    roads: tuple[TriedRoad, ...]
    seconds: Mapping[str, float]
    cycles: int | None = None  # once it has run
    kernel_cycles: tuple[KernelCycles, ...] = field(default=())

    @property
    def npu_nodes(self) -> tuple[str, ...]:
        return _distinct(node for kernel in self.kernels for node in kernel.nodes)

    @property
    def host_nodes(self) -> tuple[str, ...]:
        return _distinct(node for kernel in self.host_kernels for node in kernel.nodes)

    @property
    def offload_share(self) -> float:
        """The share of the computing nodes that the chip computes."""
        total = len(self.npu_nodes) + len(self.host_nodes)
        return len(self.npu_nodes) / total if total else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain tables, as ``--json`` prints them."""
        return {
            "schema_version": SCHEMA_VERSION,
            **asdict(self),
            "npu_nodes": len(self.npu_nodes),
            "host_nodes": len(self.host_nodes),
            "offload_share": self.offload_share,
        }


def report_of(compilation: Compilation) -> Report:
    from compiler.schedule.noted import searched_of

    model = compilation.model
    programs = [segment.program for segment in model.segments if isinstance(segment, ProgramSegment)]
    steps = compilation.steps
    return Report(
        model=model.name,
        chip=model.chip.name,
        precision=str(model.options.get("precision") or "as the model says"),
        segments=len(model.segments),
        kernels=tuple(
            _kernel(step, step.kernel, piece.clusters)
            for piece in compilation.pieces
            for step in piece.steps
            if step.kernel is not None
        ),
        host_kernels=tuple(
            HostKernelReport(step.name, step.host.operator or step.host.name, step.nodes, step.host.reason)
            for step in steps
            if step.host is not None
        ),
        distinct_kernels=len({id(step.kernel) for step in steps if step.kernel is not None}),
        instructions=sum(len(program.instrs) for program in programs),
        program_bytes=sum(len(encode(program.instrs)) for program in programs),
        constant_bytes=sum(array.nbytes for array in model.constants.values()),
        ddr=_ddr(model, programs),
        memory=tuple(_peaks(model, steps)),
        clusters=compilation.clusters,
        rows=by_rows(compilation.module),
        pieces=max(Counter(step.name for step in steps).values(), default=1),
        search=searched_of(compilation.module),
        far_results=_far_results(compilation),
        tails=tuple(
            TailReport(sum(step.kernel is not None for step in piece.steps), piece.clusters, by_rows(piece.module))
            for piece in compilation.pieces[1:]
        ),
        fetched_bytes=sum(one.fetched_bytes for one in compilation.linked),
        notes=tuple(compilation.imported.notes),
        roads=tuple(TriedRoad(road.what, road.why) for road in compilation.roads),
        seconds=dict(compilation.seconds),
    )


def _kernel(step: Step, kernel: Kernel, clusters: int) -> KernelReport:
    code = kernel.code
    cores = code.cores * max(1, clusters)
    return KernelReport(step.name, step.nodes, len(code.instrs), kernel.tile, dict(code.memory), cores)


def _peaks(model: CompiledModel, steps: Iterable[Step]) -> Iterator[MemoryPeak]:
    """Of every memory that some kernel uses, the largest first."""
    used = [
        (memory, size, step.name) for step in steps if step.kernel for memory, size in step.kernel.code.memory.items()
    ]
    capacity = {memory: model.chip.memory_bytes(memory) for memory, _, _ in used}
    for memory in sorted(capacity, key=lambda name: (-capacity[name], name)):
        size, kernel = max(((size, name) for one, size, name in used if one == memory), key=lambda found: found[0])
        if size:
            yield MemoryPeak(memory, size, capacity[memory], kernel)


def _far_results(compilation: Compilation) -> tuple[FarResultReport, ...]:
    nodes = {step.name: step.nodes for step in compilation.steps}
    found = [(plain_name(each.kernel), each) for each in compilation.far_results]
    return tuple(FarResultReport(name, nodes.get(name, ()), each.size_bytes, each.reason) for name, each in found)


def _ddr(model: CompiledModel, programs: Iterable[Program]) -> DdrPlan:
    plans = [_ddr_of(program, model) for program in programs]
    capacity = model.chip.memory_bytes("ddr")
    return max(plans, key=lambda plan: plan.total, default=DdrPlan(0, 0, 0, 0, 0, capacity))


def _ddr_of(program: Program, model: CompiledModel) -> DdrPlan:
    sizes = dict.fromkeys(("inputs", "outputs", "constants"), 0)
    end = 0
    for buffer in program.buffers:
        if buffer.memory != "ddr":
            continue
        end = max(end, buffer.end)
        kind = "constants" if buffer.name in model.constants else f"{buffer.role}s"
        if kind in sizes:
            sizes[kind] += prod(buffer.shape) * DTYPES[buffer.dtype].itemsize
    return DdrPlan(**sizes, intermediates=end - sum(sizes.values()), total=end, capacity=model.chip.memory_bytes("ddr"))


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
