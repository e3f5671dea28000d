"""The compiler in Python, with the words of the command: compile, save, load, run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.arguments import PATH, expect, expect_count, expect_shapes, expect_sizes, sources
from compiler.errors import InputError, Problem, UnsupportedError, UsageError
from compiler.runtime.loaded import LoadedModel
from compiler.runtime.loaded import load as load_model
from compiler.runtime.model import CompiledModel
from compiler.target import Chip, load_chip

if TYPE_CHECKING:
    import onnx

    from compiler.pipeline import Observer
    from compiler.report.compilation import Report
    from compiler.schedule.manual import Manual


class Artifact:
    """A compiled model in memory, and the report of how it came to be."""

    def __init__(self, model: CompiledModel, report: Report, schedule: Callable[[], str] = str) -> None:
        self.model = model
        self._schedule = schedule
        self._report = report
        self._loaded: LoadedModel | None = None
        self._loading = Lock()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file that `load` and the command read; it appears whole or not at all."""
        from compiler.artifact import write_model

        expect("where it is saved", path, PATH, "a path")
        write_model(path, self.model)

    def to_bytes(self) -> bytes:
        """What `save` writes. The same model and options give the same bytes."""
        from compiler.artifact import model_to_bytes

        return model_to_bytes(self.model)

    def run(self, inputs: Mapping[str, Any], *, hazards: bool = False) -> dict[str, np.ndarray]:
        """Run it on the emulated chip; see `LoadedModel.run`. The report has the cycles afterwards."""
        with self._loading:
            if self._loaded is None:
                self._loaded = load_model(self.model)
        return self._loaded.run(inputs, hazards=hazards, profile=True)

    @property
    def schedule(self) -> str:
        """How its graph runs, as a file that `compile` takes; empty for an artifact of somebody else."""
        return self._schedule()

    @property
    def report(self) -> Report:
        if self._loaded is None or not self._loaded.runs:
            return self._report
        return replace(self._report, cycles=self._loaded.cycles, kernel_cycles=self._loaded.kernel_cycles)


def compile(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    chip: str | os.PathLike[str] | Chip = "tw1",
    *,
    precision: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    host_kernels: bool = True,
    cache: bool = True,
    jobs: int | None = None,
    observer: Observer | None = None,
    ops: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    schedule: str | os.PathLike[str] | Manual | None = None,
    tune: int | None = None,
) -> Artifact:
    """Compile an ONNX model (a file, its bytes, or the model itself) for a chip (a name, a .toml file, or a Chip).

    ``precision`` ("fp32", "fp16", "bf16") is what the model's float32 becomes; ``shapes`` by input and ``dims`` by
    name say how large open dimensions are. ``values`` are those of inputs that are known now, as the ones that decide
    shapes have to be: they are compiled in, and no inputs of the result. Without ``host_kernels`` a model of which some
    operator cannot run on the chip is refused. ``cache`` keeps kernels on disk between compilations, ``jobs`` is how
    many processes compile them (by default one per processor); ``observer`` sees every pass. ``ops`` are files of
    operators (.py), packages or modules of your own: they are run. ``schedule`` is a file as `Artifact.schedule` has
    it, changed. ``tune`` is how many other tiles each kernel's first one is compared with on the simulator (by default
    as many as pay): more take longer to compile, and fewer cycles; with 0 compilation is quick. Raises what
    `compiler.errors` lists.
    """
    from compiler.driver import compile_model, schedule_of
    from compiler.options import Options
    from compiler.report.compilation import report_of
    from compiler.schedule.manual import Manual

    if tune is not None:
        expect_count("tune", tune, "tiles", least=0)
    expect_shapes("shapes", shapes or {})
    expect_sizes("dims", dims or {})
    if jobs is not None:
        expect_count("jobs", jobs, "processes")
    if schedule is not None:
        expect("schedule", schedule, (*PATH, Manual), "a path")
    options = Options(
        precision, shapes or {}, dims or {}, host_kernels, cache, jobs, sources(ops), schedule, values or {}, tune
    )
    compilation = compile_model(_source(model), _chip(chip), options, observer)
    compiled = _named(compilation.model, model)
    report = report_of(replace(compilation, model=compiled))
    if report.host_kernels and not host_kernels:
        raise UnsupportedError([
            Problem("TW2403", f"{k.operator} ({', '.join(k.nodes)}) would run on the host: {k.reason}")
            for k in report.host_kernels
        ])  # fmt: skip
    return Artifact(compiled, report, partial(schedule_of, compilation))


def compile_operator(
    operator: str | Callable[..., Any],
    inputs: Mapping[str, Any],
    chip: str | os.PathLike[str] | Chip = "tw1",
    *,
    attributes: Mapping[str, Any] | None = None,
    outputs: int | None = None,
    host_kernels: bool = True,
    cache: bool = True,
    jobs: int | None = None,
    observer: Observer | None = None,
    ops: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    tune: int | None = None,
) -> Artifact:
    """Compile one operator, by its full name or the decorated function, as `compile` does a model that calls it.

    ``inputs`` are types by parameter ("float32[37, 53]"), or arrays that are known when compiling; the outputs are
    called ``out0`` and so on.
    """
    from compiler.operators import load_operators
    from compiler.single_operator import model_of, operator_called

    load_operators(sources(ops))
    model = model_of(operator_called(operator), inputs, attributes or {}, outputs)
    return compile(model, chip, host_kernels=host_kernels, cache=cache, jobs=jobs, observer=observer, tune=tune)


def load(
    source: str | os.PathLike[str] | bytes | Artifact | CompiledModel, *, host_kernels: bool = True
) -> LoadedModel:
    """Make a compiled model ready to be run: from the file that `save` wrote, its bytes, or an Artifact.

    Without ``host_kernels`` a model that holds code for the host is refused, before any of it is compiled.
    """
    expect("what is loaded", source, (*PATH, bytes, Artifact, CompiledModel), "a path, bytes or an Artifact")
    return load_model(source.model if isinstance(source, Artifact) else source, host_kernels=host_kernels)


def _source(model: Any) -> str | os.PathLike[str] | bytes:
    if isinstance(model, str | os.PathLike | bytes):
        return model
    serialize = getattr(model, "SerializeToString", None)
    if serialize is None:
        text = f"a model is a path, bytes or an onnx.ModelProto; this is a {type(model).__name__}"
        raise UsageError(Problem("TW0021", text))
    try:
        return bytes(serialize(deterministic=True))
    except ValueError as error:  # protobuf's limit of 2 GiB
        raise InputError(Problem("TW0022", f"the model cannot be serialised: {error}")) from error


def _chip(chip: str | os.PathLike[str] | Chip) -> Chip:
    expect("chip", chip, (*PATH, Chip), "a name, the path of a .toml file, or a Chip")
    return chip if isinstance(chip, Chip) else load_chip(os.fspath(chip))


def _named(compiled: CompiledModel, model: Any) -> CompiledModel:
    """With the name of the file, or of the graph, that it was made from."""
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        return replace(compiled, name=path.stem, source=path.name)
    graph = getattr(model, "graph", None)
    return replace(compiled, name=graph.name) if graph is not None and graph.name else compiled
