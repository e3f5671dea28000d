"""What the process of a task does: `python -m ci.models.observe`, asked by a line of JSON, answering in such lines."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ci.models import record, trail
from ci.models.cases import Case, parsed
from ci.models.outcome import Outcome, Passed
from compiler.errors import TilewrightError
from models import zoo
from models.checks import run as run_onnxruntime
from models.comparison import compare
from models.manifest import Model

SEED = 0


@dataclass(frozen=True)
class Options:
    """What to do beside looking whether all is well."""

    expected: str = ""  # the folder of the record; empty for the zoo's own
    record: bool = False  # find out what the record holds, whatever it holds now
    traces: str = ""  # a folder for timelines; of cases that are not as recorded, or with `all_traces` of all
    all_traces: bool = False


def folder_of(options: Options) -> Path:
    return Path(options.expected) if options.expected else record.FOLDER


# ---- the compiler, as this job sees it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    outputs: dict[str, np.ndarray]
    cycles: int


@dataclass(frozen=True)
class Compiled:
    """A compiled model; ``run`` takes inputs by name, and whether to look for hazards, which are errors then."""

    run: Callable[[Mapping[str, np.ndarray], bool], Ran]
    host_kernels: tuple[str, ...]
    sizes: Mapping[str, int]
    steps: Callable[[], list[trail.Step]]
    save_trace: Callable[[Path], list[str]] = lambda path: []


def compiled(model: onnx.ModelProto, case: Case) -> Compiled:
    """Compile and load: the one place that knows the compiler's interface."""
    compiler: Any = import_module("compiler")
    open_inputs = [each for each in zoo.manifest(case.model).inputs if each.symbols]
    shapes = {"shapes": {each.name: each.shape for each in open_inputs}} if open_inputs else {}
    asked = {"chip": case.chip, "precision": case.precision, "jobs": 1, **shapes}
    artifact = compiler.compile(model, **asked)
    program = compiler.load(artifact)

    def run(inputs: Mapping[str, np.ndarray], hazards: bool) -> Ran:
        outputs = program.run(inputs, hazards=hazards)
        return Ran(dict(outputs), int(program.cycles))

    def steps() -> list[trail.Step]:
        """Compiled again, since a kernel from the cache passes no passes."""
        from compiler.pipeline import Observer

        watch = trail.Trail()
        again = compiler.compile(model, **asked, cache=False, observer=Observer([watch]))
        return watch.steps(again.model, [kernel.tile for kernel in again.report.kernels])

    def save_trace(path: Path) -> list[str]:
        from compiler.sim.trace import save_trace

        files = []
        for index, ran in enumerate(program.runs):
            files.append(f"{path.name}{f'.{index}' if index else ''}.trace.json")
            save_trace(ran, path.parent / files[-1])
        return files

    report = artifact.report
    sizes = {
        "instructions": report.instructions,
        "program_bytes": report.program_bytes,
        "constant_bytes": report.constant_bytes,
        "ddr_bytes": report.ddr.total,
    }
    return Compiled(run, tuple(kernel.operator for kernel in report.host_kernels), sizes, steps, save_trace)


# ---- one case -----------------------------------------------------------------------------------------------------


class Mismatch(Exception):
    """The compiled model runs, but does not do what the manifest expects."""


class Changed(Exception):
    """It does what it should, but not as it is recorded."""


class Observation:
    """One case: its stages as they are passed, and what was found out on the way."""

    def __init__(self, case: Case, options: Options | None = None) -> None:
        self.case, self.options = case, options or Options()
        self.facts: dict[str, Any] = {}
        self.culprit = ""
        self._started = time.monotonic()

    def stages(
        self,
        model: onnx.ModelProto,
        expected: Mapping[str, np.ndarray],
        build: Callable[[onnx.ModelProto, Case], Compiled] = compiled,
    ) -> Iterator[Passed]:
        """Raises the error of the first that is not passed."""
        manifest, inputs = zoo.manifest(self.case.model), zoo.inputs(self.case.model, SEED)
        started = time.monotonic()
        try:
            program = build(model, self.case)
        except Exception as error:
            if not _raised_in(error, "compiler.frontend"):
                yield Passed("import", 0.0)
            raise
        yield Passed("import", 0.0)  # its time is part of compiling: the compiler does both in one call
        yield Passed("compile", time.monotonic() - started, {"host_kernels": list(program.host_kernels)})

        started = time.monotonic()
        ran = program.run(inputs, True)
        yield Passed("run", time.monotonic() - started, {"cycles": ran.cycles})

        started = time.monotonic()
        self.facts = {"cycles": ran.cycles, **program.sizes}
        if self.options.all_traces and self.options.traces:
            self._save_trace(program)
        yield Passed("match", *_timed(started, _matches(manifest, self.case, model, expected, ran, program)))

        started = time.monotonic()
        self.facts["seconds"] = started - self._started
        self._compare(program)
        yield Passed("perf", time.monotonic() - started)

    def _compare(self, program: Compiled) -> None:
        if self.options.record:
            self.facts["trail"] = trail.as_text(program.steps())
            return
        before = record.recorded(self.case, folder_of(self.options))
        if before is None:
            raise Changed("nothing is recorded of it; `python -m ci.models --record --only NAME` does that")
        found = list(record.differences(before, self.facts))
        if not found:
            return
        steps = program.steps()
        self.culprit = trail.first_difference(trail.from_text(before["trail"]), steps)
        self._save_trace(program)
        raise Changed(f"{', '.join(found)}\nfirst to differ: {trail.explained(self.culprit)}")

    def _save_trace(self, program: Compiled) -> None:
        if self.options.traces and "traces" not in self.facts:
            name = str(self.case).replace("/", "-")
            self.facts["traces"] = program.save_trace(Path(self.options.traces) / name)


def _timed(started: float, found: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    return time.monotonic() - started, found


def _matches(
    manifest: Model,
    case: Case,
    model: onnx.ModelProto,
    expected: Mapping[str, np.ndarray],
    ran: Ran,
    program: Compiled,
) -> dict[str, Any]:
    matches = list(compare(expected, ran.outputs, manifest.tolerance, case.precision))
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
    return found


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


# ---- the process --------------------------------------------------------------------------------------------------


def answers(chosen: list[Case], options: Options) -> Iterator[dict[str, Any]]:
    """A line when a case begins, for every stage that it passes, and its outcome when it ends."""
    built = ""
    for case in chosen:
        if case.model != built:
            built = case.model
            model = zoo.build(built, SEED)
            expected = run_onnxruntime(model, zoo.inputs(built, SEED))
        yield {"begun": str(case)}
        observation, passed, error = Observation(case, options), list[Passed](), ""
        try:
            for each in observation.stages(model, expected):
                passed.append(each)
                yield {"stage": asdict(each)}
        except (TilewrightError, Mismatch, Changed) as failure:
            error = str(failure) or type(failure).__name__
        except Exception:  # noqa: BLE001  an error that is nobody's to fix: the case failed, the others go on
            error = traceback.format_exc()
        found = Outcome(
            case, tuple(passed), error, observation.facts, observation.culprit, worker=f"process {os.getpid()}"
        )
        yield {"outcome": found.to_dict()}


def _end_with_parent() -> None:
    """Whoever asked keeps its end of our input open: when that closes there is nobody to answer."""

    def watch() -> None:
        sys.stdin.read()
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    asked = json.loads(sys.stdin.readline())
    _end_with_parent()
    for answer in answers([parsed(text) for text in asked["cases"]], Options(**asked["options"])):
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
