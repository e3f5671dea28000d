"""A run of a model as its author wants to see it: which layers take the time, why, and what could be done.

A layer is a kernel and the ONNX nodes that it computes; kernels that compute parts of one node are one layer. Kernels
may overlap: ``start`` to ``end`` is when a layer was at work, ``cycles`` by how much it put off the end; these add up
to all cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import InvalidError, Problem
from compiler.isa.dtypes import DTYPES, Queue
from compiler.report.advice import Advice, advise
from compiler.report.attribution import Attribution, Path, attribute
from compiler.report.bounds import Bound, Work
from compiler.report.layers import Layer
from compiler.report.model_bounds import ModelWork
from compiler.report.stages import RoundTrip, Stage, round_trips, stages
from compiler.report.traffic import Moved, added, ddr_traffic
from compiler.runtime.loaded import LoadedModel
from compiler.runtime.model import CompiledModel, HostSegment
from compiler.sim.pipeline import REASONS
from compiler.sim.simulator import Run
from compiler.target import Chip

if TYPE_CHECKING:
    from compiler.report.compilation import Report

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Profile:
    """Layers in the order of the program; sums over cores where nothing else is said."""

    model: CompiledModel
    runs: tuple[Run, ...]
    layers: tuple[Layer, ...]
    order: tuple[tuple[int, int], ...]  # of every kernel, one after the other: which layer it is of, and its cycles
    traffic: tuple[Moved, ...]  # by layer
    work: Work | None  # what no program can leave out; None where the host does some of it
    bound: Bound | None
    round_trips: tuple[RoundTrip, ...] = ()

    @property
    def chip(self) -> Chip:
        return self.model.chip

    @property
    def cycles(self) -> int:
        """Of all programs, one after the other."""
        return sum(run.cycles for run in self.runs)

    @property
    def seconds(self) -> float:
        return self.cycles / (self.chip.clock_mhz * 1e6)

    @property
    def ratio(self) -> float | None:
        return self.cycles / self.bound.cycles if self.bound is not None and self.bound.cycles else None

    @property
    def host_kernels(self) -> tuple[HostSegment, ...]:
        return tuple(segment for segment in self.model.segments if isinstance(segment, HostSegment))

    @property
    def ddr_bytes(self) -> int:
        return sum(layer.ddr_bytes for layer in self.layers)

    @property
    def cores(self) -> int:
        return max((run.stream.cores for run in self.runs), default=0)

    @property
    def core_cycles(self) -> int:
        """Of all cores, also of those that have nothing to do in one of the programs."""
        return self.cycles * self.cores

    @cached_property
    def busy(self) -> dict[str, int]:
        """Cycles by queue, of all cores."""
        return {queue.name: sum(int(run.schedule.busy[:, queue].sum()) for run in self.runs) for queue in Queue}

    @cached_property
    def stalled(self) -> dict[str, dict[str, int]]:
        """By queue and reason; ``done``: after its last instruction."""
        found = {}
        for queue in Queue:
            waits = [run.schedule.stalled[:, queue].sum(axis=0).tolist() for run in self.runs]
            found[queue.name] = dict(zip(REASONS, map(sum, zip(*waits, strict=True)), strict=True)) if waits else {}
            spent = self.busy[queue.name] + sum(found[queue.name].values())
            found[queue.name]["done"] = max(0, self.core_cycles - spent)
        return found

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """Where most cycles are lost, first."""
        return advise(self.layers, self.is_narrow)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        return stages(self.layers, self.order, self.cores)

    @property
    def is_narrow(self) -> bool:
        """Whether floats have 16 bits: as asked, or as the model has them."""
        precision = self.model.options.get("precision") or ""
        return precision in ("fp16", "bf16") or all("fp32" not in layer.macs for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Plain tables, as ``--json`` prints them; docs/profile.md lists the keys."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model.name,
            "chip": self.chip.name,
            "clock_mhz": self.chip.clock_mhz,
            "precision": str(self.model.options.get("precision") or ""),
            "cycles": self.cycles,
            "seconds": self.seconds,
            "cores": self.cores,
            "bound": _bound_dict(self.bound),
            "ratio": self.ratio,
            "compulsory_ddr_bytes": self.work.ddr_bytes if self.work is not None else None,
            "ddr_bytes": self.ddr_bytes,
            "llb_bytes": sum(layer.llb_bytes for layer in self.layers),
            "macs": _added([layer.macs for layer in self.layers]),
            "conflict_cycles": sum(layer.conflict_cycles for layer in self.layers),
            "busy_cycles": self.busy,
            "stalled_cycles": self.stalled,
            "layers": [_layer_dict(layer) for layer in self.layers],
            "stages": [_stage_dict(stage, self.layers) for stage in self.stages],
            "round_trips": [asdict(each) for each in self.round_trips],
            "advice": [
                {
                    "layers": [layer.name for layer in one.layers],
                    "rule": one.rule,
                    "lost_cycles": one.lost_cycles,
                    "text": one.text,
                }
                for one in self.advice
            ],
            "host_kernels": [
                {"name": segment.name, "operator": segment.operator, "reason": segment.reason}
                for segment in self.host_kernels
            ],
            "ddr_traffic": [
                {"layer": one.layer, "tensor": one.tensor, "queue": one.queue, "bytes": one.bytes}
                for one in self.traffic
            ],
        }


_QUEUES = [queue.name for queue in Queue]


def _added(tables: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {key: sum(table.get(key, 0) for table in tables) for key in dict.fromkeys(k for t in tables for k in t)}


def _bound_dict(bound: Bound | None) -> dict[str, Any] | None:
    if bound is None:
        return None
    return {
        "cycles": bound.cycles,
        "by": bound.by,
        "cube_cycles": bound.cube_cycles,
        "vector_cycles": bound.vector_cycles,
        "ddr_cycles": bound.ddr_cycles,
        "latency_cycles": bound.latency_cycles,
    }


def _stage_dict(stage: Stage, layers: Sequence[Layer]) -> dict[str, Any]:
    return {
        "layers": [layer.name for layer in layers[stage.first : stage.last + 1]],
        "pieces": stage.pieces,
        "cycles": stage.cycles,
        "share": stage.share,
        "busy_share": dict(stage.busy),
        "ddr_bytes": stage.ddr_bytes,
        "llb_bytes": stage.llb_bytes,
    }


def _layer_dict(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "kernels": list(layer.kernels),
        "nodes": list(layer.nodes),
        "program": layer.program,
        "tile": layer.tile,
        "cores": layer.cores,
        "start": layer.start,
        "end": layer.end,
        "cycles": layer.cycles,
        "share": layer.share,
        "bound": _bound_dict(layer.bound),
        "ratio": layer.ratio,
        "limit": layer.limit,
        "limit_share": layer.limit_share,
        "instructions": dict(layer.instructions),
        "busy_cycles": dict(layer.busy),
        "stalled_cycles": {queue: dict(reasons) for queue, reasons in layer.stalled.items()},
        "conflict_cycles": layer.conflict_cycles,
        "ddr_bytes": layer.ddr_bytes,
        "llb_bytes": layer.llb_bytes,
        "macs": dict(layer.macs),
        "paths": {
            name: {"copies": path.copies, "moved_bytes": path.moved_bytes, "line_bytes": path.line_bytes}
            for name, path in layer.paths.items()
        },
    }


# ---- how it is made -------------------------------------------------------------------------------------------------


def profile(
    loaded: LoadedModel,
    runs: tuple[Run, ...] | None = None,
    work: ModelWork | None = None,
    report: Report | None = None,
) -> Profile:
    """Of a model that has run, of these ``runs``, or of one that is timed now since that needs no inputs.

    ``work`` is what its ONNX model says there is to do: without it there are no bounds. ``report`` is that of its
    compilation, which knows tiles and reasons.
    """
    model = loaded.model
    runs = runs or loaded.runs or loaded.timed()
    if runs is None:
        raise InvalidError(Problem("TW1303", "the model's times depend on its inputs", hint="run it before"))
    total = sum(run.cycles for run in runs)
    layers: list[Layer] = []
    order: list[tuple[int, int]] = []
    traffic: list[Moved] = []
    offset = 0
    titles, nodes = _titles(model), dict(model.kernels)
    tiles = {kernel.name: kernel.tile for kernel in report.kernels} if report is not None else {}
    reasons = {each.kernel: each.reason for each in report.far_results} if report is not None else {}
    for number, run in enumerate(runs):
        found = attribute(run)
        groups = sharing([nodes.get(name, ()) for name in found.names])
        mine = _layers(found, groups, nodes, tiles, model.chip, total)
        layer_of = {kernel: len(layers) + index for index, group in enumerate(groups) for kernel in group}
        order += [(layer_of[kernel], cycles) for kernel, cycles in enumerate(found.cycles.tolist())]
        layers += [replace(one, program=number, start=one.start + offset, end=one.end + offset) for one in mine]
        names = {found.names[kernel]: layers[layer].name for kernel, layer in layer_of.items()}
        traffic += [
            replace(each, layer=names[each.layer], maker=names.get(each.maker, "")) for each in ddr_traffic(run, titles)
        ]
        offset += run.cycles
    if work is not None:
        layers = _bounded(layers, work, model.chip)
    on_host = any(isinstance(segment, HostSegment) for segment in model.segments)
    whole = work.total if work is not None and not on_host else None
    bound = whole.bound(model.chip) if whole is not None else None
    moved = added(traffic)
    trips = tuple(round_trips(moved, layers, reasons))
    return Profile(model, runs, tuple(layers), tuple(order), moved, whole, bound, trips)


def sharing(nodes: Sequence[Sequence[str]]) -> list[list[int]]:
    """Kernels by number, those together that have a node in common, in the order of their firsts."""
    group_of: dict[int, int] = {}
    owner: dict[str, int] = {}

    def first(kernel: int) -> int:
        while group_of[kernel] != kernel:
            kernel = group_of[kernel]
        return kernel

    for kernel, mine in enumerate(nodes):
        group_of[kernel] = kernel
        for node in mine:
            before = first(owner.setdefault(node, kernel))
            here = first(kernel)
            group_of[max(before, here)] = min(before, here)
    found: dict[int, list[int]] = {}
    for kernel in range(len(nodes)):
        found.setdefault(first(kernel), []).append(kernel)
    return list(found.values())


def _layers(
    each: Attribution,
    groups: Sequence[Sequence[int]],
    nodes: Mapping[str, tuple[str, ...]],
    tiles: Mapping[str, str],
    chip: Chip,
    total: int,
) -> list[Layer]:
    found = each.together(groups)
    layers = []
    for index, group in enumerate(groups):
        kernels = tuple(dict.fromkeys(each.names[kernel] for kernel in group))
        busy, stalled = found.busy[index], found.stalled[index]
        layers.append(
            Layer(
                name=found.names[index],
                kernels=kernels,
                nodes=tuple(dict.fromkeys(node for kernel in kernels for node in nodes.get(kernel, ()))),
                program=0,
                tile="; ".join(dict.fromkeys(tiles[kernel] for kernel in kernels if kernel in tiles)),
                chip=chip,
                cores=int(np.count_nonzero(busy[:, Queue.S + 1 :].sum(axis=1))),
                start=int(found.start[index]),
                end=int(found.end[index]),
                cycles=int(found.cycles[index]),
                share=int(found.cycles[index]) / total if total else 0.0,
                instructions=_by_queue(found.instructions[index]),
                busy=_by_queue(busy.sum(axis=0)),
                busiest=_by_queue(busy.max(axis=0)),
                stalled={
                    queue.name: dict(zip(REASONS, stalled[:, queue].sum(axis=0).tolist(), strict=True))
                    for queue in Queue
                },
                conflict_cycles=int(found.conflicts[index]),
                ddr_bytes=int(found.ddr_bytes[index]),
                llb_bytes=int(found.llb_bytes[index]),
                macs=found.macs[index],
                paths=found.paths[index],
            )
        )
    return layers


def _by_queue(values: np.ndarray) -> dict[str, int]:
    return dict(zip(_QUEUES, values.tolist(), strict=True))


def _bounded(layers: Sequence[Layer], work: ModelWork, chip: Chip) -> list[Layer]:
    """With bounds where they can be given: a node that several programs share has none in any of them."""
    uses: dict[str, int] = {}
    for layer in layers:
        for node in layer.nodes:
            uses[node] = uses.get(node, 0) + 1
    found = []
    for layer in layers:
        alone = layer.nodes and all(uses[node] == 1 for node in layer.nodes)
        mine = work.of(layer.nodes) if alone else None
        found.append(replace(layer, work=mine, bound=mine.bound(chip) if mine is not None else None))
    return found


def _titles(model: CompiledModel) -> dict[str, str]:
    """What a person calls the buffers of a program."""
    titles = {port.buffer: port.name for port in (*model.inputs, *model.outputs)}
    for name, array in model.constants.items():
        dtype = next((d.name for d in DTYPES.values() if d.numpy == array.dtype), str(array.dtype))
        titles[name] = f"constant {name} {dtype} {'x'.join(map(str, array.shape)) or 'scalar'}"
    return titles


__all__ = ["Layer", "Path", "Profile", "profile"]
