"""From the kernels of a model to its programs: compile each of them, and link runs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler import pipeline
from compiler.buffers import Buffers, NotInPlace
from compiler.clusters import by_rows, of_all, together
from compiler.codegen.link import LLB_PLACEMENT, OVERLAP, Linked, link
from compiler.codegen.residence import GraphBuffer, PlacedKernel
from compiler.compilation import Compilation, labelled, runs_of
from compiler.decisions import Decisions
from compiler.fetching import brought, is_whole, with_fetches
from compiler.frontend import Imported
from compiler.frontend import Port as ModelPort
from compiler.kernel_uses import Step
from compiler.model_kernels import ModelKernels
from compiler.options import Options
from compiler.runtime.model import CompiledModel, Port, ProgramSegment, Segment
from compiler.target import Chip
from compiler.tir.scopes import ISA_DTYPE


def kernels_of(
    imported: Imported,
    chip: Chip,
    options: Options,
    observer: pipeline.Observer,
    told: pipeline.Told = pipeline.NOTHING,
    decided: Decisions | None = None,
) -> ModelKernels:
    passes, manual = pipeline.graph_passes(told), options.manual
    if manual is not None:
        passes = tuple(replace(one, manual=manual) if hasattr(one, "manual") else one for one in passes)
    module = pipeline.run(passes, imported.module, chip, observer)
    return ModelKernels(imported, module, chip, options, observer, decided=decided)


def compilation_of(kernels: ModelKernels) -> Compilation:
    decisions = kernels.decisions
    steps, roads = kernels.compile_all()
    if any(step.host for step in steps) and by_rows(kernels.module):
        raise NotInPlace("the host takes whole tensors")
    if any(step.host for step in steps) and kernels.clusters > 1:
        # The host takes whole tensors.
        kernels = kernels_of(together(kernels.imported), kernels.whole_chip, kernels.options, kernels.observer)
        steps, roads = kernels.compile_all()
    if any(step.host for step in steps) and kernels.buffers.parts.within:
        kernels = kernels.apart_from_each_other()
        steps, roads = kernels.compile_all()
    model, linked = _linked(steps, kernels)
    return Compilation(
        model,
        tuple(steps),
        kernels.imported,
        kernels.module,
        kernels.observer.seconds,
        tuple(roads),
        linked,
        replace(decisions, fetched=kernels.brought),
        kernels,
    )


def _linked(steps: Sequence[Step], kernels: ModelKernels) -> tuple[CompiledModel, tuple[Linked, ...]]:
    buffers, imported, options = kernels.buffers, kernels.imported, kernels.options
    segments, found = list[Segment](), list[Linked]()
    for run, host in runs_of(steps):
        if host is not None:
            segments.append(host)
            continue
        own = set(map(id, run))
        rest = [other for other in steps if id(other) not in own]
        linked = _program(run, rest, kernels)
        segments.append(ProgramSegment(linked.program, linked.listing))
        found.append(linked)
    model = CompiledModel(
        name="model",
        chip=kernels.whole_chip,
        segments=tuple(segments),
        inputs=_ports(imported.inputs, [f"in{index}" for index in range(len(imported.inputs))], {}),
        outputs=_ports(imported.outputs, buffers.outputs, buffers.counts),
        constants=_constants(imported, buffers),
        source_sha256=imported.source_sha256,
        options={"precision": options.precision or "", "host_kernels": options.host_kernels},
        kernels=tuple((step.name, step.nodes) for step in steps),
    )
    return model, tuple(found)


def _program(run: list[Step], rest: list[Step], planned: ModelKernels) -> Linked:
    buffers, without = planned.buffers, planned.observer.without
    used = dict.fromkeys([*(name for step in run for name in step.arguments), *planned.fetched])
    elsewhere = {name for step in rest for name in step.arguments}
    written = {buffers.parts.place(name)[0] for step in run for name in _written_by(step)}
    first_touch = dict[str, bool]()
    for step in run:
        for name in step.arguments:
            first_touch.setdefault(name, name in _written_by(step))
    declared = []
    for buffer in buffers.placed(used):
        name = buffer.name
        if buffer.role == "intermediate" and name in elsewhere:
            role = "output" if first_touch[name] else "input"
            buffer = GraphBuffer(buffer.name, buffer.dtype, buffer.shape, buffer.size_bytes, role)
        elif buffer.role == "output" and name not in written:
            buffer = GraphBuffer(buffer.name, buffer.dtype, buffer.shape, buffer.size_bytes, "input")
        if planned.clusters > 1:
            buffer = of_all(buffer, planned.shapes, planned.clusters, rows=by_rows(planned.module))
        declared.append(buffer)
    kernels = [PlacedKernel(name, kernel.code, arguments) for name, kernel, arguments in labelled(run)]
    if planned.fetched:
        sizes = {source: buffers.declared[source].size_bytes for source in planned.fetched}
        if not is_whole(planned.brought, kernels, planned.fetched, sizes):
            planned.brought = brought(kernels, planned.fetched, sizes, planned.common, planned.traffic)
        kernels = with_fetches(kernels, planned.fetched, planned.brought, planned.common)
    return link(
        kernels,
        planned.chip,
        declared,
        name="model",
        overlap=OVERLAP not in without,
        llb=LLB_PLACEMENT not in without,
        clusters=planned.clusters,
    )


def _written_by(step: Step) -> set[str]:
    if step.kernel is None:
        return set(step.host.written) if step.host else set()
    parameters = [p for p in step.kernel.code.parameters if not p.scratch]
    return {name for name, p in zip(step.arguments, parameters, strict=True) if p.written}


def _ports(ports: Sequence[ModelPort], names: Sequence[str], counts: Mapping[int, str]) -> tuple[Port, ...]:
    return tuple(
        Port(p.name, name, p.onnx_dtype, ISA_DTYPE[p.dtype], p.shape, counts.get(index, ""))
        for index, (p, name) in enumerate(zip(ports, names, strict=True))
    )


def _constants(imported: Imported, buffers: Buffers) -> dict[str, np.ndarray]:
    params = {str(p.name): buffers.names[p] for p in buffers.body.params[len(imported.inputs) :]}
    return {params[name]: array for name, array in imported.constants.items()}
