"""The static cycle model beside the simulator: `python -m ci.cost_accuracy` compiles kernels, predicts and times each.

The kernels are those of models of the zoo, each distinct one once, and of single operators that no model has in that
size; then come the whole programs of these models. Prints what the prediction is off by, and how much faster it was
than the simulation. Fails where the mean over kernels, or over programs, is more than 5 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from ci.kernel_shapes import single_operators
from ci.pass_table import model_kernels
from ci.performance.measure import measured_run
from compiler.cost import Unpredictable, predict
from compiler.driver import compile_model
from compiler.errors import TilewrightError
from compiler.kernel_pool import Job, compile_jobs
from compiler.kernels import Kernel
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.runtime.model import ProgramSegment
from compiler.sim.simulator import simulate
from compiler.target import Chip, load_chip
from compiler.timing import alone
from models import zoo

MODELS = (
    "mlp-256", "digits-cnn", "resnet18-64", "resnet50-224", "mobilenet-v2-96", "densenet121-64", "unet-resize-64",
    "bert-base-128", "vit-tiny-224", "gpt2-64", "lstm-16", "yolo-128",
)  # fmt: skip
GATE = 0.05


@dataclass(frozen=True)
class Compared:
    """One kernel; seconds of both."""

    name: str
    chip: str
    tile: str
    simulated: int
    predicted: int
    simulation_seconds: float
    prediction_seconds: float

    @property
    def error(self) -> float:
        return self.predicted / self.simulated - 1


def jobs_of(names: Sequence[str], chip: Chip) -> Iterator[Job]:
    """The kernels of all models, each once, then the single operators."""
    seen = set[Any]()
    for name in names:
        model = model_kernels(name, chip)
        for use in model.uses():
            key = use.key
            if key not in seen:
                seen.add(key)
                yield Job(use.job.func, use.job.schedule, f"{name}: {use.job.name}")
    yield from single_operators()


def compared(kernel: Kernel, chip: Chip) -> Compared | None:
    """None where data decides what the kernel does."""
    begin = time.perf_counter()
    try:
        predicted = predict(kernel.code, chip).cycles
    except Unpredictable:
        return None
    middle = time.perf_counter()
    try:
        simulated = simulate(alone(kernel.code, chip), chip.all_alike()).cycles
    except TilewrightError as error:
        print(f"{kernel.name} is not timed: {error}", file=sys.stderr)
        return None
    spent = time.perf_counter() - middle
    return Compared(kernel.name, chip.name, kernel.tile, simulated, predicted, spent, middle - begin)


def compared_program(name: str, chip: Chip) -> Compared | None:
    """A whole model in fp16; None where it is not one program, or data decides what that does."""
    shapes = {each.name: each.shape for each in zoo.manifest(name).inputs if each.symbols}
    options = Options(precision="fp16", shapes=shapes, cache=False)
    compilation = compile_model(zoo.build(name).SerializeToString(), chip, options)
    if not all(isinstance(segment, ProgramSegment) for segment in compilation.model.segments):
        return None
    begin = time.perf_counter()
    predicted = compilation.predicted_cycles
    middle = time.perf_counter()
    if not isfinite(predicted):
        return None
    simulated = measured_run(compilation.model, zoo.inputs(name)).cycles
    spent = time.perf_counter() - middle
    return Compared(name, chip.name, "whole model", simulated, round(predicted), spent, middle - begin)


def report(found: Sequence[Compared], shown: int) -> Iterator[str]:
    yield "| error | simulated | predicted | ms | ms simulated | chip | kernel | tile |"
    yield "|---:|---:|---:|---:|---:|---|---|---|"
    for one in sorted(found, key=lambda each: -abs(each.error))[:shown]:
        times = f"{one.prediction_seconds * 1e3:.1f} | {one.simulation_seconds * 1e3:.1f}"
        cells = f"{one.error:+.1%} | {one.simulated:,} | {one.predicted:,} | {times} | {one.chip}"
        yield f"| {cells} | {one.name} | {one.tile} |"


def summary(found: Sequence[Compared]) -> dict[str, float]:
    errors = [abs(each.error) for each in found] or [0.0]
    large = [each for each in found if each.simulation_seconds > 0.1]
    predicting = sum(each.prediction_seconds for each in found)
    ratios = sorted(each.simulation_seconds / each.prediction_seconds for each in large)
    return {
        "kernels": len(found),
        "mean": sum(errors) / len(errors),
        "worst": max(errors),
        "within_5_percent": sum(error <= 0.05 for error in errors) / len(errors),
        "milliseconds": 1e3 * predicting / max(1, len(found)),
        "times_faster": sum(each.simulation_seconds for each in found) / predicting if found else 0.0,
        "times_faster_large": ratios[len(ratios) // 2] if ratios else 0.0,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", default="tw1,tw2")
    parser.add_argument("--models", default=",".join(MODELS), help="names of the zoo (default: %(default)s)")
    parser.add_argument("--shown", type=int, default=20, help="the worst kernels to show (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="all kernels, for programs")
    options = parser.parse_args(arguments)
    found, programs = list[Compared](), list[Compared]()
    for name in options.chips.split(","):
        chip, models = load_chip(name), [model for model in options.models.split(",") if model]
        for result in compile_jobs(list(jobs_of(models, chip)), chip, Observer(), None):
            if isinstance(result, Kernel) and (one := compared(result, chip)) is not None:
                found.append(one)
        programs += [one for model in models if (one := compared_program(model, chip)) is not None]
    totals, whole = summary(found), summary(programs)
    if options.json:
        both = {"kernels": [asdict(each) for each in found], "models": [asdict(each) for each in programs]}
        print(json.dumps({"summary": totals, "summary_models": whole, **both}, indent=1))
    else:
        print("\n".join(report(found, options.shown)))
        print(
            f"\n{totals['kernels']} kernels: off by {totals['mean']:.1%} in the mean, {totals['worst']:.1%} at worst; "
            f"{totals['within_5_percent']:.0%} within 5 %\n{totals['milliseconds']:.1f} ms a kernel, "
            f"{totals['times_faster']:.0f} times faster than simulating all of them, "
            f"{totals['times_faster_large']:.0f} times for those that take more than 0.1 s to simulate\n"
        )
        print("\n".join(report(programs, len(programs))))
        print(f"\n{len(programs)} models: off by {whole['mean']:.1%} in the mean, {whole['worst']:.1%} at worst")
    return 1 if max(totals["mean"], whole["mean"]) > GATE else 0


if __name__ == "__main__":
    sys.exit(main())
