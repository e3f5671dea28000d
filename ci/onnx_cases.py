"""ONNX's own test cases of its operators, compiled and run on the emulated chip: `python -m ci.onnx_cases`.

A case is a model of a few nodes with inputs and the outputs that ONNX expects. It passes the stages import, compile,
run (free of hazards) and match (within the case's tolerance, or that of the output's type where that is wider). Inputs
that decide shapes are compiled in. Every case is a process of its own: a crash or an endless loop ends one case.
Cases that cannot pass stand in `tests/onnx_backend/expected_failures.toml`; one of them that passes fails this job.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import random
import sys
import time
import tomllib
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from compiler.errors import TilewrightError
from compiler.frontend import setup_inputs

ROOT = Path(__file__).parents[1]
EXPECTED_FAILURES = ROOT / "tests" / "onnx_backend" / "expected_failures.toml"
STAGES = ("import", "compile", "run", "match")
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
# What a type can be expected to hold of a result that ONNX's reference computes more precisely.
TOLERANCES = {"float16": 5e-3, "bfloat16": 2e-2, "float32": 1e-4, "float64": 1e-4}
SETUP_ROUNDS = 8  # inputs whose values others decide whether they are asked for

Array = np.ndarray[Any, Any]


class DataSet(NamedTuple):
    """Inputs by position, and the outputs to expect; what is no array (a sequence, an optional) is None."""

    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]


@dataclass(frozen=True)
class Case:
    """One test case of ONNX's."""

    name: str
    model: onnx.ModelProto
    data: tuple[DataSet, ...]
    rtol: float
    atol: float

    @property
    def operators(self) -> str:
        return ", ".join(sorted({node.op_type for node in self.model.graph.node}))


@dataclass(frozen=True)
class Outcome:
    """How far a case came: ``failed`` is the stage that it did not pass, empty if it passed all."""

    name: str
    failed: str = ""
    code: str = ""
    message: str = ""
    on_host: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()  # kernels for which no tiles were found
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}: {self.failed} {self.code} {self.message}"


class Mismatch(Exception):
    """The compiled model runs, but computes something else."""


# ---- the cases ----------------------------------------------------------------------------------------------------


@cache
def all_cases() -> dict[str, Case]:
    from onnx.backend.test.loader import load_model_tests

    found = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for kind in KINDS:
            for case in load_model_tests(kind=kind):
                if case.model is not None:
                    data = tuple(_data_set(*values) for values in case.data_sets or ())
                    found[case.name] = Case(case.name, case.model, data, case.rtol, case.atol)
                elif case.model_dir is not None:
                    found[case.name] = _from_files(case)
    return found


def _data_set(inputs: Sequence[Any], outputs: Sequence[Any]) -> DataSet:
    return DataSet(tuple(map(_array, inputs)), tuple(map(_array, outputs)))


def _array(value: Any) -> Array | None:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic | int | float) else None


def _from_files(case: Any) -> Case:
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    data = []
    for data_set in sorted(folder.glob("test_data_set_*")):
        inputs, outputs = (
            tuple(_read(data_set / f"{which}_{at}.pb") for at in range(len(list(data_set.glob(f"{which}_*.pb")))))
            for which in ("input", "output")
        )
        data.append(DataSet(inputs, outputs))
    return Case(case.name, model, tuple(data), case.rtol, case.atol)


def _read(path: Path) -> Array:
    return onnx.numpy_helper.to_array(onnx.load_tensor(path))


# ---- one case -----------------------------------------------------------------------------------------------------


def observe(case: Case, chip: str) -> Outcome:
    """Take a case through the stages, until one fails."""
    started = time.monotonic()
    reports, stage = [], "compile"
    code = text = ""
    try:
        for passed in stages(case, chip):
            stage = passed[0]
            reports.append(passed[1])
        stage = ""
    except TilewrightError as error:
        code, text = error.problems[0].code, error.problems[0].message
        stage = _stage_of(error, stage)
    except Mismatch as error:
        text = str(error)
    except Exception as error:  # noqa: BLE001 - a bug; finding these is what the job is for
        last = traceback.extract_tb(error.__traceback__)[-1]
        code, text = type(error).__name__, f"{error} ({Path(last.filename).name}:{last.lineno})"
        stage = _stage_of(error, stage)
    on_host = tuple(kernel.operator for report in reports[-1:] for kernel in report.host_kernels)
    plain = tuple(k.name for report in reports[-1:] for k in report.kernels if k.tile.startswith("as it is"))
    return Outcome(
        case.name, stage, code, " ".join(text.split())[:300], on_host, plain, round(time.monotonic() - started, 2)
    )


def stages(case: Case, chip: str) -> Iterator[tuple[str, Any]]:
    """The stage that comes next, each time one is passed, and the compiler's report."""
    compiler: Any = import_module("compiler")
    for number, data in enumerate(case.data):
        model, inputs = specialised(case.model, data.inputs)
        artifact = compiler.compile(model, chip=chip)
        yield "run", artifact.report
        results = artifact.run(inputs, hazards=True)
        yield "match", artifact.report
        for output, expected in zip(case.model.graph.output, data.outputs, strict=True):
            _compare(output.name, results[output.name], expected, case)
        if number + 1 < len(case.data):
            yield "compile", artifact.report


def _stage_of(error: Exception, stage: str) -> str:
    return "import" if stage == "compile" and _raised_in(error, "compiler.frontend") else stage


def specialised(model: onnx.ModelProto, given: Sequence[Array | None]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with inputs that decide shapes compiled in and with the shapes of all others; and these inputs."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    names = [info.name for info in model.graph.input if info.name not in initializers]
    arrays = {name: array for name, array in zip(names, given, strict=False) if array is not None}
    static = onnx.ModelProto()
    static.CopyFrom(model)
    for info in static.graph.input:
        if info.name in arrays and info.type.HasField("tensor_type"):
            shape = arrays[info.name].shape
            element_type = info.type.tensor_type.elem_type
            info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, element_type, shape))
    known = _deciding(static, arrays)
    kept = [info for info in static.graph.input if info.name not in known]
    del static.graph.input[:]
    static.graph.input.extend(kept)
    static.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in known.items())
    return static, {name: array for name, array in arrays.items() if name not in known}


def _deciding(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs whose values the import asks for."""
    source, known = model.SerializeToString(), dict[str, Array]()
    for _ in range(SETUP_ROUNDS):
        try:
            wanted = [name for name in setup_inputs(source, values=known) if name in arrays and name not in known]
        except TilewrightError:  # importing it will say so, too
            break
        if not wanted:
            break
        known |= {name: arrays[name] for name in wanted}
    return known


def _compare(name: str, result: Array, expected: Array | None, case: Case) -> None:
    if expected is None:
        raise Mismatch(f"{name}: no tensor is expected")
    if result.shape != expected.shape:
        raise Mismatch(f"{name} has shape {list(result.shape)}, expected is {list(expected.shape)}")
    if result.dtype != expected.dtype:
        raise Mismatch(f"{name} is {result.dtype}, expected is {expected.dtype}")
    tolerance = TOLERANCES.get(expected.dtype.name)
    if tolerance is None:
        wrong = result != expected
    else:
        rtol = max(case.rtol, tolerance)
        ours, theirs = result.astype(np.float64), expected.astype(np.float64)
        wrong = ~np.isclose(ours, theirs, rtol, max(case.atol, rtol / 100), equal_nan=True)
    if np.any(wrong):
        first = tuple(int(n[0]) for n in np.nonzero(np.atleast_1d(wrong)))
        pair = np.atleast_1d(result)[first], np.atleast_1d(expected)[first]
        text = f"{name}: {int(np.sum(wrong))} of {wrong.size} elements differ"
        raise Mismatch(f"{text}, the first at {list(first)}: {pair[0]}, expected is {pair[1]}")


def _raised_in(error: BaseException, package: str) -> bool:
    """Is the error from ``package``, or from something that ``package`` called?"""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(f"{module}.".startswith(f"{package}.") for module in modules)


# ---- all cases ----------------------------------------------------------------------------------------------------


def outcome(case: Case, chip: str, timeout: float) -> Outcome:
    """Observe a case in a process of its own, for at most ``timeout`` seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, case, chip))
    process.start()
    sender.close()
    try:
        told = receiver.recv() if receiver.poll(timeout) else None
        why = f"not done within {timeout:g} s"
    except EOFError:
        told, why = None, "its process ended without an answer"
    if told is None:
        process.kill()
    process.join()
    return told or Outcome(case.name, "compile", "lost", why)


def _send(sender: Any, case: Case, chip: str) -> None:
    with redirect_stderr(io.StringIO()):  # TVM's words on errors that are told anyway
        sender.send(observe(case, chip))


@cache
def expected_failures() -> dict[str, str]:
    """Patterns of names of cases that fail, and why."""
    table = tomllib.loads(EXPECTED_FAILURES.read_text(encoding="utf-8"))
    return {pattern: entry["reason"] for entry in table["expected"] for pattern in entry["cases"]}


def reason_to_fail(name: str) -> str | None:
    return next((why for pattern, why in expected_failures().items() if fnmatchcase(name, pattern)), None)


def selected(patterns: Sequence[str], sample: int | None, seed: int) -> list[Case]:
    """The cases of these names; of a sample, every operator gets its turn before any gets a second one."""
    cases = sorted(all_cases().values(), key=lambda case: case.name)
    cases = [case for case in cases if not patterns or any(fnmatchcase(case.name, p) for p in patterns)]
    if sample is None or sample >= len(cases):
        return cases
    random.Random(seed).shuffle(cases)
    turns = Counter[str]()
    ranked = []
    for case in cases:
        turns[case.operators] += 1
        ranked.append((turns[case.operators], case.name, case))
    return [case for _, _, case in sorted(ranked, key=lambda entry: entry[:2])[:sample]]


def run(
    chosen: Sequence[Case], chip: str, jobs: int, timeout: float, report: Path | None = None, verbose: bool = False
) -> int:
    """Observe all cases, print what failed unexpectedly and the funnel, and return the exit code."""
    started = time.monotonic()
    outcomes, wrong = [], 0
    with ThreadPoolExecutor(jobs) as pool:
        for each in pool.map(lambda case: outcome(case, chip, timeout), chosen):
            outcomes.append(each)
            reason = reason_to_fail(each.name)
            if each.failed and reason is None:
                print(f"FAILED {each}", flush=True)
                wrong += 1
            elif not each.failed and reason is not None:
                print(f"PASSED {each.name}, which was expected to fail: {reason}", flush=True)
                wrong += 1
            elif verbose:
                slow = "on the host" if each.on_host else "untiled" if each.plain else ""
                print(f"{'failed' if each.failed else 'passed'} {each.name} {each.seconds} s {slow}", flush=True)
    print(f"{chip}: " + ", ".join(f"{what} {count}" for what, count in funnel(outcomes).items()))
    print(f"unexpected: {wrong}, {time.monotonic() - started:.0f} s")
    if report:
        report.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")
    return 1 if wrong else 0


def funnel(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many cases came how far."""
    passed = [STAGES.index(each.failed) if each.failed else len(STAGES) for each in outcomes]
    counts = {f"passed {stage}": sum(n > at for n in passed) for at, stage in enumerate(STAGES)}
    matched = [each for each in outcomes if not each.failed]
    return {
        "cases": len(outcomes),
        "expected to fail": sum(reason_to_fail(each.name) is not None for each in outcomes),
        **counts,
        "without host kernels": sum(not each.on_host for each in matched),
        "without untiled kernels": sum(not each.on_host and not each.plain for each in matched),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.onnx_cases", description="ONNX's cases on the emulated chip")
    parser.add_argument("--chip", default="tiny", help="(default: %(default)s)")
    parser.add_argument("--match", action="append", default=[], metavar="PATTERN", help="cases; may be a pattern")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many, over all operators")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds per case (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    parser.add_argument("--verbose", action="store_true", help="show the cases that end as expected, too")
    parser.add_argument("--trace", action="store_true", help="in this process, and let errors out")
    args = parser.parse_args(argv)
    chosen = selected(args.match, args.sample, args.seed)
    if not chosen:
        print("no case is selected", file=sys.stderr)
        return 1
    import_module("compiler.driver")  # before the first fork
    if args.trace:
        for case in chosen:
            list(stages(case, args.chip))
        return 0
    return run(chosen, args.chip, args.jobs, args.timeout, args.json, args.verbose)


if __name__ == "__main__":
    raise SystemExit(main())
