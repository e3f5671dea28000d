"""Compiles a model and times it on the emulated chip; what the tables are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import compiler
from compiler.isa.dtypes import Queue
from compiler.pipeline import Observer
from compiler.runtime.loaded import LoadedModel
from compiler.runtime.model import CompiledModel, ProgramSegment
from compiler.sim.pipeline import REASONS
from compiler.sim.simulator import Run
from compiler.sim.statistics import summed_by_core


@dataclass(frozen=True)
class Measured:
    """What a compiled model does on a chip; of several programs, all together."""

    cycles: int
    vector_cycles: int  # of all cores
    conflict_cycles: int
    syncs: int  # flags and barriers that all cores execute
    ddr_bytes: int
    busiest: str  # queue of the busiest core
    busy_share: float
    waiting: str  # why that queue stood still most
    cube_share: float  # of the cycles, for which the cubes are busy, in the mean
    hazards: int = 0

    @property
    def reason(self) -> str:
        return f"{self.busiest} is busy {self.busy_share:.0%}, then waits: {self.waiting}"


def measure(
    model: onnx.ModelProto,
    chip: str,
    precision: str = "fp16",
    without: frozenset[str] = frozenset(),
    inputs: Mapping[str, np.ndarray] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    hazards: bool = False,
    tune: int | None = None,
) -> Measured:
    """Compile without a cache, in this process, and simulate; inputs count only where data decides the time.

    Those that are not given are drawn at random.
    """
    observer = Observer(without=without) if without else None
    options: dict[str, Any] = {"precision": precision, "shapes": shapes, "tune": tune}
    artifact = compiler.compile(model, chip, cache=False, jobs=1, observer=observer, **options)
    return measured_run(artifact.model, inputs or {}, hazards=hazards)


def measured_run(model: CompiledModel, inputs: Mapping[str, np.ndarray], *, hazards: bool = False) -> Measured:
    """What a compiled model does on its chip."""
    from compiler.runtime.random_inputs import random_array

    if not all(isinstance(segment, ProgramSegment) for segment in model.segments):
        raise ValueError("a part of the model runs on the host")
    loaded = LoadedModel(model)
    runs = loaded.timed(hazards=hazards)
    if runs is None:
        drawn = {port.name: random_array(port, seed=0) for port in loaded.inputs if port.name not in inputs}
        runs = loaded.timed({**inputs, **drawn}, hazards=hazards)
        if runs is None:
            loaded.run({**inputs, **drawn}, hazards=hazards)
            runs = loaded.runs
    return _measured(runs)


def _measured(runs: Sequence[Run]) -> Measured:
    busy: Any = summed_by_core([run.schedule.busy for run in runs])
    stalled: Any = summed_by_core([run.schedule.stalled for run in runs])
    cycles = sum(run.cycles for run in runs)
    engines = busy[:, Queue.S + 1 :]
    core, engine = np.unravel_index(int(engines.argmax()), engines.shape)
    queue = Queue(int(engine) + Queue.S + 1)
    waits = stalled[core, queue]
    return Measured(
        cycles,
        int(busy[:, Queue.V].sum()),
        sum(_of_class(run, run.classes.conflict) for run in runs),
        sum(_of_class(run, _is_sync(run)) for run in runs),
        sum(map(_ddr_bytes, runs)),
        queue.name,
        float(engines.max()) / max(1, cycles),
        REASONS[int(waits.argmax())],
        float(busy[:, Queue.M].mean()) / max(1, cycles),
        sum(len(run.hazards) for run in runs),
    )


def _of_class(run: Run, per_class: np.ndarray) -> int:
    """The sum over all dynamic instructions of a number that each class of them has."""
    return int(per_class[run.stream.klass].sum())


def _ddr_bytes(run: Run) -> int:
    """What DDR moved: a broadcast's bytes once."""
    moved = run.classes.line_bytes[run.stream.klass]
    return int(moved[run.classes.takes_ddr(run.stream)].sum())


def _is_sync(run: Run) -> np.ndarray:
    return np.array([args.row.category == "sync" for args in run.classes.args])
