"""What made another program of a case: `python -m ci.models.difference MODEL/CHIP/PRECISION [--against WHAT]`.

The case is compiled by two trees of the compiler: this one, and a folder or a commit (by default the one in which the
case was recorded). The first step that differs is named, the kernel, and what the step made of it on both sides. The
model and this job are this tree's on both sides.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ci.models import record, trail
from ci.models.cases import Case, parsed
from compiler.errors import Problem, TilewrightError, UsageError
from models import zoo

ROOT = Path(__file__).parents[2]
COMPILER, JOB = ("compiler", "passes", "patches"), ("ci", "models")
SHOWN_LINES = 200


# ---- one side, in a process of its own ------------------------------------------------------------------------------


class Shown:
    """Beside the hashes the IR of one step: by what the passes before it had made the kernel, and by it."""

    def __init__(self, kernel: str, step: str) -> None:
        self.trail, self._wanted, self.text = trail.Trail(), (kernel, step), ""

    def __call__(self, kernel: str, name: str, before: Any, after: Any) -> None:
        known = len(self.trail.events)
        self.trail(kernel, name, before, after)
        begun = {(of, step) for of, step, _ in self.trail.events[known:] if step in ("import", "tiling")}
        if not self.text and self._wanted in begun:
            self.text = before.script()
        elif not self.text and self._wanted == self.trail.latest:
            self.text = after.script()


def compiled_here(case: Case, kernel: str, step: str) -> dict[str, Any]:
    import compiler
    from compiler.pipeline import Observer

    watch = Shown(kernel, step)
    shapes = {each.name: each.shape for each in zoo.manifest(case.model).inputs if each.symbols}
    artifact = compiler.compile(
        zoo.build(case.model), chip=case.chip, precision=case.precision, shapes=shapes, cache=False, jobs=1,
        observer=Observer([watch]),
    )  # fmt: skip
    tiles = [kernel.tile for kernel in artifact.report.kernels]
    names = [f"{each.name}: {each.tile}" for each in artifact.report.kernels]
    return {
        "steps": watch.trail.steps(artifact.model, tiles),
        "events": watch.trail.events,
        "tiles": names,
        "text": watch.text,
    }


# ---- both sides -----------------------------------------------------------------------------------------------------


class Side:
    """A tree of the compiler, with this tree's job and models beside it."""

    def __init__(self, tree: Path, place: Path) -> None:
        self._place = place
        place.mkdir()
        for name in COMPILER:
            if (tree / name).is_dir():
                (place / name).symlink_to((tree / name).resolve())
        for name in JOB:
            (place / name).symlink_to((ROOT / name).resolve())

    def compiled(self, case: Case, kernel: str = "", step: str = "") -> dict[str, Any]:
        command = [sys.executable, "-m", "ci.models.difference", str(case), "--one-side", kernel, step]
        environment = {**os.environ, "PYTHONPATH": str(self._place), "PYTHONSAFEPATH": "1"}
        done = subprocess.run(command, cwd=self._place, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise UsageError(Problem("TW0002", f"{case} does not compile on one of the sides, as shown above"))
        return dict(json.loads(done.stdout.splitlines()[-1]))


def found(case: Case, old: Side, new: Side) -> Iterator[str]:
    """What differs first, line by line."""
    before, now = old.compiled(case), new.compiled(case)
    step = trail.first_difference(_steps(before), _steps(now))
    if not step:
        yield "both sides make the same program"
        return
    yield f"first to differ: {trail.explained(step)}"
    if step == "choice":
        yield from _changed(before["tiles"], now["tiles"])
        return
    kernels = _kernels(before, now, step)
    yield f"kernels that differ there: {', '.join(kernels) or 'none: only what was linked'}"
    if kernels:
        yield f"{kernels[0]} behind it, there (-) and here (+):"
        texts = [side.compiled(case, kernels[0], step)["text"].splitlines() for side in (old, new)]
        yield from _changed(*texts)


def _kernels(before: dict[str, Any], now: dict[str, Any], step: str) -> list[str]:
    """Those for which the step made something else, in order."""
    sides = [{kernel: digest for kernel, name, digest in side["events"] if name == step} for side in (before, now)]
    names = dict.fromkeys((*sides[0], *sides[1]))
    return [name for name in names if sides[0].get(name) != sides[1].get(name)]


def _changed(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    lines = list(difflib.unified_diff(before, now, "there", "here", lineterm="", n=2))
    yield from lines[:SHOWN_LINES]
    if len(lines) > SHOWN_LINES:
        yield f"({len(lines) - SHOWN_LINES} lines more)"


def _steps(side: dict[str, Any]) -> list[trail.Step]:
    return [trail.Step(*each) for each in side["steps"]]


# ---- the other tree -------------------------------------------------------------------------------------------------


def tree(against: str, folder: Path) -> Path:
    """A folder as it is; the compiler of a commit, written into ``folder``."""
    if (Path(against) / "compiler").is_dir():
        return Path(against)
    listed = ["git", "ls-tree", "--name-only", against]
    there = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    command = ["git", "archive", against, *(name for name in COMPILER if name in there)]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        reason = archive.stderr.decode(errors="replace").strip()
        text = f"{against} is no folder with a compiler in it, and no commit: {reason}"
        raise UsageError(Problem("TW0002", text, hint="--against FOLDER or --against COMMIT"))
    target = folder / "other"
    target.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(target, filter="data")
    return target


def recorded_at(case: Case) -> str:
    """The commit in which the case's record is as it is now."""
    path = record.FOLDER / f"{case.model}.json"
    command = ["git", "log", "-1", "--format=%H", "--", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        text = f"no commit holds a record of {case.model}"
        raise UsageError(Problem("TW0002", text, hint="--against FOLDER or --against COMMIT"))
    return done.stdout.strip()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.models.difference", description=__doc__)
    parser.add_argument("case", metavar="MODEL/CHIP/PRECISION")
    parser.add_argument("--against", metavar="WHAT", help="a folder, or a commit (default: that of the record)")
    parser.add_argument("--one-side", nargs=2, metavar=("KERNEL", "STEP"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    case = parsed(args.case)
    if args.one_side:
        print(json.dumps(compiled_here(case, *args.one_side)))
        return 0
    try:
        zoo.manifest(case.model)
        with tempfile.TemporaryDirectory(prefix="tilewright-difference-") as name:
            against = args.against or recorded_at(case)
            print(f"{case}: this tree and {against}", flush=True)
            sides = (tree(against, Path(name)), ROOT)
            old, new = (Side(each, Path(name) / f"side{index}") for index, each in enumerate(sides))
            for line in found(case, old, new):
                print(line, flush=True)
    except TilewrightError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
