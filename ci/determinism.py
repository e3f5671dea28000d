"""Show that the same input gives the same bytes and the same cycles: `python -m ci.determinism`.

Every hand-written program is assembled, timed and computed in two processes whose hash seeds differ, each working in
a directory of its own, and computed by 1, 2 and 4 workers. The artifact, the cycles, the time of every dynamic
instruction and every bit of the outputs must be the same each time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from compiler.artifact import write_program
from compiler.isa.assembler import assemble_file
from compiler.sim.simulator import Run, prepare, simulate
from tests.handwritten import FOLDER, Case, cases

ROOT = Path(__file__).parents[1]
HASH_SEEDS = (0, 20261120)
WORKERS = (1, 2, 4)


def observe(case: Case, folder: Path) -> dict[str, Any]:
    """Everything about a case that must not change, by name."""
    source = shutil.copy(FOLDER / case.source, folder)
    program = assemble_file(source, chip=case.chip, defines=case.defines)
    artifact = folder / f"{case.name}.twm"
    write_program(artifact, program, case.chip)
    found: dict[str, Any] = {"artifact": sha256(artifact.read_bytes()).hexdigest()}
    run = _prepared(case)
    timed = run.schedule
    found["cycles"] = run.cycles
    found["schedule"] = digest({"start": timed.start, "end": timed.end, "complete": timed.complete})
    if case.baseline:
        inputs = case.inputs()
        for workers in WORKERS:
            run.execute(inputs, workers=workers)
            found[f"outputs, {workers} workers"] = digest(run.outputs)
    return found


def _prepared(case: Case) -> Run:
    """The run before its data, if its control does not depend on them."""
    if any(instr.row.kind == "sld" for instr in case.program.instrs):
        return simulate(case.program, case.chip, case.inputs(), workers=1)
    return prepare(case.program, case.chip)


def digest(arrays: dict[str, np.ndarray]) -> str:
    """A hash of names, types, shapes and bits."""
    total = sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


# ---- two processes --------------------------------------------------------------------------------------------


def observed_elsewhere(wanted: str, hash_seed: int, folder: Path) -> subprocess.Popen[str]:
    """This module in another process, printing one line of JSON per case."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ci.determinism", "--observe", "--case", wanted]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def print_observations(wanted: str) -> int:
    for case in chosen(wanted):
        print(json.dumps([case.name, observe(case, Path.cwd())]), flush=True)
    return 0


def chosen(wanted: str) -> list[Case]:
    return [case for case in cases() if case.name.startswith(wanted)]


def differences(first: dict[str, Any], second: dict[str, Any]) -> Iterator[str]:
    """What is not the same between two processes, or between numbers of workers in one of them."""
    for what in sorted({*first, *second}):
        if first.get(what) != second.get(what):
            yield f"{what}: {first.get(what)} and {second.get(what)} in two processes"
    for found in (first, second):
        outputs = {what: value for what, value in found.items() if what.startswith("outputs")}
        if len(set(outputs.values())) > 1:
            yield f"outputs depend on the number of workers: {outputs}"


def run(wanted: str) -> int:
    """Compare all cases whose names start with ``wanted``; prints a table and returns the exit code."""
    started = time.monotonic()
    if not chosen(wanted):
        print(f"no case starts with {wanted!r}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="tilewright-determinism-") as name:
        folders = [Path(name) / word for word in ("one", "another, and longer")]
        for folder in folders:
            folder.mkdir()
        processes = [observed_elsewhere(wanted, *each) for each in zip(HASH_SEEDS, folders, strict=True)]
        texts = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        print("FAILED: a process ended with an error, which it has shown above", file=sys.stderr)
        return 1
    found = [dict(json.loads(line) for line in text.splitlines()) for text in texts]
    faults = [f"{name}: {text}" for name in found[0] for text in differences(found[0][name], found[1].get(name, {}))]
    print_table(found[0])
    for fault in faults:
        print(f"FAILED: {fault}")
    seconds = time.monotonic() - started
    print(
        f"\n{len(found[0])} cases in {len(processes)} processes (PYTHONHASHSEED {HASH_SEEDS[0]} and {HASH_SEEDS[1]}), "
        f"outputs by {', '.join(map(str, WORKERS))} workers, {len(faults)} differences, {seconds:.0f} s"
    )
    return 1 if faults else 0


def print_table(found: dict[str, dict[str, Any]]) -> None:
    width = max(map(len, found)) + 2
    print(f"{'case':{width}}{'cycles':>12}  {'artifact':18}{'schedule':18}{'outputs':18}")
    for name, of in found.items():
        outputs = of.get(f"outputs, {WORKERS[0]} workers", "timed only")
        print(f"{name:{width}}{of['cycles']:>12,}  {of['artifact'][:16]:18}{of['schedule'][:16]:18}{outputs[:16]:18}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.determinism", description=__doc__)
    parser.add_argument("--case", default="", metavar="NAME", help="only the cases whose names start so")
    parser.add_argument("--observe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    return print_observations(options.case) if options.observe else run(options.case)


if __name__ == "__main__":
    sys.exit(main())
