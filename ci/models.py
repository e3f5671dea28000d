"""Compile, run and compare every model of the zoo on every chip and precision: `python -m ci.models`.

A case is a model, a chip and a precision. It passes the stages import, compile, run (free of hazards) and match (the
outputs within the manifest's tolerance of onnxruntime's, and on the host no other operators than the manifest's; for
a trained model also the same accuracy over its whole hold-out set). Every case is a process of its own, which prints
a line of JSON per stage that it passed: a crash or an endless loop ends one case, at a stage that is known.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from compiler.errors import TilewrightError
from models import zoo
from models.checks import run as run_onnxruntime
from models.comparison import compare
from models.manifest import Model

ROOT = Path(__file__).parents[1]
STAGES = ("import", "compile", "run", "match")
SEED = 0
ERROR_LINES = 6  # of a failed case's messages, in the table


class Case(NamedTuple):
    model: str
    chip: str
    precision: str

    def __str__(self) -> str:
        return "/".join(self)


# ---- the compiler, as this job sees it ----------------------------------------------------------------------------


class Ran(NamedTuple):
    outputs: dict[str, np.ndarray]
    cycles: int


@dataclass(frozen=True)
class Compiled:
    """A compiled model; ``run`` takes inputs by name, and whether to look for hazards, which are errors then."""

    run: Callable[[Mapping[str, np.ndarray], bool], Ran]
    host_kernels: tuple[str, ...]


def compiled(model: onnx.ModelProto, case: Case) -> Compiled:
    """Compile and load: the one place that knows the compiler's interface."""
    compiler: Any = import_module("compiler")
    open_inputs = [each for each in zoo.manifest(case.model).inputs if each.symbols]
    shapes = {"shapes": {each.name: each.shape for each in open_inputs}} if open_inputs else {}
    artifact = compiler.compile(model, chip=case.chip, precision=case.precision, **shapes)
    program = compiler.load(artifact)

    def run(inputs: Mapping[str, np.ndarray], hazards: bool) -> Ran:
        outputs = program.run(inputs, hazards=hazards)
        return Ran(dict(outputs), int(program.cycles))

    return Compiled(run, tuple(kernel.operator for kernel in artifact.report.host_kernels))


# ---- one case, in its own process ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passed:
    """A stage that was passed, how long it took, and what was found."""

    stage: str
    seconds: float
    found: dict[str, Any] = field(default_factory=dict)


class Mismatch(Exception):
    """The compiled model runs, but does not do what the manifest expects."""


def observe(case: Case, build: Callable[[onnx.ModelProto, Case], Compiled] = compiled) -> Iterator[Passed]:
    """The stages as they are passed; the error of the first that is not."""
    manifest, model, inputs = zoo.manifest(case.model), zoo.build(case.model, SEED), zoo.inputs(case.model, SEED)
    expected = run_onnxruntime(model, inputs)

    started = time.monotonic()
    try:
        program = build(model, case)
    except Exception as error:
        if not _raised_in(error, "compiler.frontend"):
            yield Passed("import", 0.0)
        raise
    yield Passed("import", 0.0)  # its time is part of compiling: the compiler does both in one call
    yield Passed("compile", time.monotonic() - started, {"host_kernels": list(program.host_kernels)})

    started = time.monotonic()
    outputs, cycles = program.run(inputs, True)
    yield Passed("run", time.monotonic() - started, {"cycles": cycles})

    started = time.monotonic()
    matches = list(compare(expected, outputs, manifest.tolerance, case.precision))
    faults = [f"{match.output}: {match.fault}" for match in matches if match.fault]
    wanted = sorted(kernel.operator for kernel in manifest.host_kernels)
    if sorted(program.host_kernels) != wanted:
        faults.append(f"on the host run {sorted(program.host_kernels)}, expected are {wanted}")
    found: dict[str, Any] = {match.output: f"{match.measure} {match.value:.4g}" for match in matches}
    if manifest.held_out:
        right, reference = _right_answers(manifest, model, program)
        found["right answers"] = f"{right}, by onnxruntime {reference}"
        if right != reference:
            faults.append(f"{right} right answers on the hold-out set, {reference} by onnxruntime")
    if faults:
        raise Mismatch("\n".join(faults))
    yield Passed("match", time.monotonic() - started, found)


def _raised_in(error: BaseException, package: str) -> bool:
    """Is the error from ``package``, or from something that ``package`` called?"""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(f"{module}.".startswith(f"{package}.") for module in modules)


def _right_answers(manifest: Model, model: onnx.ModelProto, program: Compiled) -> tuple[int, int]:
    """How many hold-out labels the compiled model gets right, and how many onnxruntime does."""
    assert manifest.held_out
    data, labels = manifest.held_out()
    (fed,) = manifest.inputs
    batch = fed.shape[0]
    if len(labels) % batch:
        raise ValueError(f"{len(labels)} hold-out samples are no multiple of the batch, {batch}")
    right = np.zeros(2, int)
    for start in range(0, len(labels), batch):
        inputs = {fed.name: data[start : start + batch]}
        for index, outputs in enumerate((program.run(inputs, False).outputs, run_onnxruntime(model, inputs))):
            (scores,) = outputs.values()
            right[index] += int((scores.argmax(1) == labels[start : start + batch]).sum())
    return int(right[0]), int(right[1])


def print_observation(case: Case) -> int:
    """What the process of one case does; an error that is nobody's to fix ends it with a traceback."""
    try:
        for passed in observe(case):
            print(json.dumps(asdict(passed)), flush=True)
    except (TilewrightError, Mismatch) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


# ---- all cases ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How far a case came; ``error`` is empty if through all stages."""

    case: Case
    passed: tuple[Passed, ...]
    error: str = ""

    @property
    def failed(self) -> str:
        """The stage that failed, if one did."""
        return STAGES[len(self.passed)] if len(self.passed) < len(STAGES) else ""

    @property
    def found(self) -> dict[str, Any]:
        return {name: value for passed in self.passed for name, value in passed.found.items()}

    def seconds(self, stage: str) -> float | None:
        return next((passed.seconds for passed in self.passed if passed.stage == stage), None)


def outcome(case: Case, timeout: float) -> Outcome:
    """Observe a case in a process of its own, for at most ``timeout`` seconds."""
    command = [sys.executable, "-m", "ci.models", "--observe", str(case)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as expired:
        printed = expired.stdout or b""  # bytes, whatever `text` says
        lines = printed.decode() if isinstance(printed, bytes) else printed
        return concluded(case, lines, f"not done within {timeout:g} s", 1)
    return concluded(case, done.stdout, done.stderr, done.returncode)


def concluded(case: Case, printed: str, errors: str, status: int) -> Outcome:
    """The outcome that a case's process tells by what it printed and how it ended."""
    passed = tuple(Passed(**json.loads(line)) for line in printed.splitlines() if line.endswith("}"))
    if status == 0 and len(passed) == len(STAGES):
        return Outcome(case, passed)
    return Outcome(case, passed, errors.strip() or f"the process ended with status {status} and no message")


def cases(models: Sequence[str], chips: Sequence[str], precisions: Sequence[str]) -> list[Case]:
    """The zoo's cases; an empty selection is all, a model may be selected by a pattern."""
    return [
        Case(name, chip, precision)
        for name in zoo.names()
        if not models or any(fnmatchcase(name, pattern) for pattern in models)
        for chip in zoo.manifest(name).chips
        if not chips or chip in chips
        for precision in zoo.manifest(name).precisions
        if not precisions or precision in precisions
    ]


def run(chosen: Sequence[Case], jobs: int, timeout: float, report: Path | None) -> int:
    """Observe all cases, print the table as they end in their order, and return the exit code."""
    started = time.monotonic()
    outcomes = []
    print(f"{'model':20} {'chip':5} {'type':5} {'passed':8} {'compile':>9} {'run':>9} {'cycles':>12}  outputs")
    with ThreadPoolExecutor(jobs) as pool:
        for each in pool.map(lambda case: outcome(case, timeout), chosen):
            outcomes.append(each)
            print_row(each)
    failures = [each for each in outcomes if each.error]
    for each in failures:
        shown = "\n".join(f"    {line}" for line in each.error.splitlines()[-ERROR_LINES:])
        print(f"FAILED: {each.case} at {each.failed or 'exit'}\n{shown}")
    print(f"{len(outcomes)} cases: " + ", ".join(f"{stage} {count}" for stage, count in funnel(outcomes).items()))
    print(f"failures: {len(failures)}, {time.monotonic() - started:.0f} s")
    if report:
        report.write_text(as_json(outcomes))
    return 1 if failures else 0


def funnel(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many cases passed each stage."""
    return {stage: sum(each.seconds(stage) is not None for each in outcomes) for stage in STAGES}


def print_row(each: Outcome) -> None:
    times = [each.seconds(stage) for stage in ("compile", "run")]
    shown = " ".join(f"{'-' if seconds is None else f'{seconds:.2f} s':>9}" for seconds in times)
    reached = each.passed[-1].stage if each.passed else "-"
    found = dict(each.passed[-1].found) if each.passed and each.passed[-1].stage == "match" else {}
    outputs = ", ".join(f"{name}: {value}" for name, value in found.items())
    cycles = each.found.get("cycles", "-")
    chip, precision = each.case.chip, each.case.precision
    print(f"{each.case.model:20} {chip:5} {precision:5} {reached:8} {shown} {cycles:>12}  {outputs}", flush=True)


def as_json(outcomes: Sequence[Outcome]) -> str:
    entries = [
        {
            **each.case._asdict(),
            "failed": each.failed,
            "error": each.error,
            "seconds": {passed.stage: passed.seconds for passed in each.passed},
            **{passed.stage: passed.found for passed in each.passed if passed.found},
        }
        for each in outcomes
    ]
    return json.dumps({"funnel": funnel(outcomes), "cases": entries}, indent=1) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.models", description="the model regression")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="models; may be a pattern: resnet*")
    parser.add_argument("--chip", action="append", default=[])
    parser.add_argument("--precision", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=900, help="seconds per case (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    parser.add_argument("--observe", metavar="MODEL/CHIP/PRECISION", help="one case, in this process")
    args = parser.parse_args(argv)
    if args.observe:
        return print_observation(Case(*args.observe.split("/")))
    chosen = cases(args.only, args.chip, args.precision)
    if not chosen:
        print("no case is selected; `python -m models list` shows the models", file=sys.stderr)
        return 1
    return run(chosen, args.jobs, args.timeout, args.json)


if __name__ == "__main__":
    raise SystemExit(main())
