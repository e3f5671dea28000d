"""How fast a whole model runs on the emulated chip, beside others that run it for real: `python -m ci.bench_models`.

All in one process and in turn, after one call of each that does not count. *TVM untuned* is the same ONNX file through
`tvm.relax.frontend.onnx.from_onnx` and `tvm.compile(target="llvm")` with TVM's default pipeline: every operator's own
loops, fused, with no schedule but LLVM's, as many threads as TVM takes by itself. onnxruntime comes as it is.
What is compared is a run on inputs that are new each time, once a model is set up. Set-up is measured apart; so is a
model that was only loaded: how long its first and second run take, which do what set-up would have done.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import onnx

import compiler
from compiler.runtime.loaded import load
from compiler.runtime.model import CompiledModel, ProgramSegment
from compiler.sim.classes import check_bounds, classify
from compiler.sim.expand import expand
from compiler.sim.hazards import HazardReport
from compiler.sim.pipeline import schedule
from compiler.sim.simulator import Run, core_count
from models import zoo
from models.comparison import compare

ROUNDS = 7
Inputs = Mapping[str, np.ndarray]
Runner = Callable[[Inputs], Mapping[str, np.ndarray]]


class Timed(NamedTuple):
    """One call, or the medians of several. Other work on the machine shows in the first and hardly in the second."""

    seconds: float
    processor_seconds: float  # of all threads of this process

    def __str__(self) -> str:
        return f"{self.seconds * 1e3:>10.1f} ms {self.processor_seconds * 1e3:>10.1f} ms"


def timed(action: Callable[[], object]) -> Timed:
    started, worked = time.perf_counter(), time.process_time()
    action()
    return Timed(time.perf_counter() - started, time.process_time() - worked)


def in_turn(runners: Mapping[str, Runner], model: str, rounds: int) -> dict[str, Timed]:
    """The median of each, every round on inputs that none has seen."""
    taken: dict[str, list[Timed]] = {name: [] for name in runners}
    for number in range(rounds + 1):
        inputs = zoo.inputs(model, number)
        for name, run in runners.items():
            call = timed(lambda run=run, inputs=inputs: run(inputs))  # type: ignore[misc]
            if number:
                taken[name].append(call)
    return {name: Timed(*(median(column) for column in zip(*calls, strict=True))) for name, calls in taken.items()}


# ---- those that run it for real --------------------------------------------------------------------------------------


def tvm_untuned(model: onnx.ModelProto) -> Runner:
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    names = [output.name for output in model.graph.output]
    inputs = [each.name for each in model.graph.input]
    machine: Any = relax.VirtualMachine(tvm.compile(from_onnx(model), target="llvm"), tvm.cpu())

    def run(given: Inputs) -> Mapping[str, np.ndarray]:
        results = machine["main"](*(tvm.runtime.tensor(given[name]) for name in inputs))
        arrays = [results] if hasattr(results, "numpy") else list(results)
        return {name: array.numpy() for name, array in zip(names, arrays, strict=True)}

    return run


def onnxruntime(model: onnx.ModelProto) -> Runner:
    from onnxruntime import InferenceSession

    session = InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return lambda given: dict(zip(names, session.run(names, dict(given)), strict=True))


# ---- the emulated chip -----------------------------------------------------------------------------------------------


def set_up_parts(model: CompiledModel) -> dict[str, Timed]:
    """What has to be done once, step by step; the sum over all programs of the model."""
    total: dict[str, Timed] = {}
    for segment in model.segments:
        if isinstance(segment, ProgramSegment):
            for name, call in _parts_of(segment, model).items():
                before = total.get(name, Timed(0, 0))
                total[name] = Timed(before[0] + call[0], before[1] + call[1])
    return total


def _parts_of(segment: ProgramSegment, model: CompiledModel) -> dict[str, Timed]:
    program, chip, calls, results = segment.program, model.chip, dict[str, Timed](), dict[str, Any]()

    def part(name: str, action: Callable[[], Any]) -> Any:
        calls[name] = timed(lambda: results.__setitem__(name, action()))
        return results[name]

    stream = part("expand", lambda: expand(program, chip, core_count(program, chip)))
    classes = part("classify", lambda: classify(stream, program, chip))
    part("bounds", lambda: check_bounds(stream, classes, program, chip))
    times = part("timing", lambda: schedule(stream, classes, chip))
    report = HazardReport(stream, classes, times, program, chip)
    hazards = part("hazards", lambda: report.races() + report.leaks())
    run = Run(program, chip, stream, classes, times, hazards, checked=True)
    part("order and addresses", lambda: run.computation)
    part("record", run.record)
    return calls


# ---- the job ---------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.bench_models", description=__doc__)
    parser.add_argument("--model", default="resnet50-224", help="of the zoo, in fp32")
    parser.add_argument("--chip", default="tw1")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    name = options.model
    load_average = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{os.cpu_count()} processors ({platform.machine()}), Python {platform.python_version()}, load {load_average}"
    )

    model = zoo.build(name)
    artifact = compiler.compile(model, chip=options.chip)
    set_up_parts(artifact.model)  # from here on, the simulator's own loops are compiled
    loaded = load(artifact.model)
    print(f"{name} on {options.chip}, fp32; medians of {options.rounds} runs each\n")
    print(f"{'':44}{'time':>13}{'processors':>14}")
    for part, call in set_up_parts(artifact.model).items():
        print(f"set up once: {part:<31}{call}")
    for number, which in enumerate(("first", "second")):
        inputs = zoo.inputs(name, number)
        call = timed(lambda inputs=inputs: loaded.run(inputs))  # type: ignore[misc]
        print(f"{which + ' run of a model that was only loaded':<44}{call}")

    runners = {"a": tvm_untuned(model), "b": loaded.run, "c": onnxruntime(model)}
    taken = in_turn(runners, name, options.rounds)
    words = {"a": "(a) TVM untuned", "b": "(b) Tilewright, functional run", "c": "(c) onnxruntime"}
    for key, call in taken.items():
        print(f"{words[key]:<44}{call}")
    inputs = zoo.inputs(name, 0)
    faults = [
        f"{key}: {match.output}: {match.fault}"
        for key in ("a", "b")
        for match in compare(runners["c"](inputs), runners[key](inputs), zoo.manifest(name).tolerance, "fp32")
        if match.fault
    ]
    for fault in faults:
        print(f"wrong result of {fault}")
    ratio = taken["b"].seconds / taken["a"].seconds
    print(f"\n(b) / (a) = {ratio:.2f}; target: at most 1. {loaded.cycles:,} simulated cycles")
    return 1 if ratio > 1 or faults else 0


if __name__ == "__main__":
    sys.exit(main())
