"""`python -m ci.performance PART ...`: measure, print, and with --write put the result into `docs/performance.md`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci.performance import ablation, document, kernels, ladder, models
from ci.performance.tables import aligned

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "recorded.json"
# Parts that other commands measure: what they print stands in the document as it is.
COMMANDS: Mapping[str, Sequence[Sequence[str]]] = {
    "ranking": (("ci.ranking_quality", "--chip", "tw1"), ("ci.ranking_quality", "--chip", "tw2")),
    "accuracy": (("ci.cost_accuracy",),),
    "compile-time": (("ci.bench_compile",),),
    "sync": (("ci.sync_count",),),
}
# Options with which a table is not that of the document.
OF_OTHER_TABLES = ("only", "chip", "batch", "share", "switch", "tune")
PARTS = ("kernels", "models", "ladder", "ablation", *COMMANDS)


def shown(head: Sequence[str], found: Iterable[Any], cells: Callable[[Any], Sequence[str]]) -> list[Any]:
    """All rows, each printed as soon as it is there."""
    print(aligned(head), flush=True)
    everything = []
    for one in found:
        everything.append(one)
        print(aligned(cells(one)), flush=True)
    return everything


def measured(part: str, args: argparse.Namespace) -> str:
    """Measure one part; its text for the document."""
    chips = args.chip or kernels.CHIPS
    if part == "kernels":
        found = shown(kernels.HEAD, kernels.rows(args.only, chips, args.jobs, args.tune), kernels.cells)
        print("\n".join(kernels.summary(found)))
        if args.record:
            record(kernels.as_json(found))
        return kernels.section(found)
    if part == "models":
        batches = args.batch or models.BATCHES
        found = shown(models.HEAD, models.rows(args.only, chips, batches, args.jobs), models.cells)
        print("\n".join(models.summary(found)))
        return models.section(found)
    if part == "ladder":
        served = shown(ladder.HEAD, ladder.rows(args.only, chips, args.jobs, args.share), ladder.cells)
        print("\n".join(ladder.summary(served)))
        return ladder.section(served)
    if part == "ablation":
        switches = args.switch or list(ablation.SWITCHES)
        rows = ablation.rows(args.only, chips, switches, args.jobs)
        found = shown(ablation.head(switches), rows, ablation.cells)
        print("\n".join(ablation.summary(found, switches)))
        return ablation.section(found, switches)
    return "\n\n".join(printed(command) for command in COMMANDS[part])


def printed(command: Sequence[str]) -> str:
    """What another command prints, as it stands in the document."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    if not done.stdout.strip():
        raise SystemExit(f"python -m {' '.join(command)} printed nothing and ended with {done.returncode}")
    missed = ", and misses a target of its own" if done.returncode else ""
    return f"`python -m {' '.join(command)}` prints{missed}:\n\n```text\n{done.stdout.rstrip()}\n```"


# ---- cycles are exact: any change is on purpose -------------------------------------------------------------------


def record(found: Mapping[str, Any]) -> None:
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    RECORD.write_text(json.dumps({**known, **found}, indent=1, sort_keys=True) + "\n")


def check(args: argparse.Namespace) -> int:
    """Compare the cycles of operators with the record: the exit code says whether all are as recorded."""
    known = json.loads(RECORD.read_text())
    changed = 0
    for one in kernels.rows(args.only, args.chip or kernels.CHIPS, args.jobs):
        name, cycles = f"{one.operator}/{one.chip}", one.measured.cycles
        before = known.get(name, {}).get("cycles")
        changed += before != cycles
        verdict = "as recorded" if before == cycles else f"CHANGED from {before}"
        print(f"{name:40} {cycles:>12,} cycles, {one.ratio:.3f} of the lower bound, {verdict}", flush=True)
    print(f"changed: {changed}" + ("; `--record` writes them down" if changed else ""))
    return 1 if changed else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.performance", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="operators or models; a pattern")
    parser.add_argument("--chip", action="append", default=[])
    parser.add_argument("--batch", action="append", type=int, default=[], help="of models, in those of the zoo")
    parser.add_argument("--share", type=int, default=1, help="of the ladder: run one of so many parts of the batch")
    parser.add_argument("--switch", action="append", default=[], choices=list(ablation.SWITCHES))
    parser.add_argument("--tune", type=int, help="of operators: so many more tiles of every kernel")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="put what was measured into docs/performance.md")
    parser.add_argument("--record", action="store_true", help="write the cycles of operators down, for --check")
    parser.add_argument("--check", action="store_true", help="only compare the cycles of operators with the record")
    args = parser.parse_args(argv)
    others = [name for name in OF_OTHER_TABLES if getattr(args, name) != parser.get_default(name)]
    if args.write and others:
        parser.error(f"--write puts whole tables into {document.PATH.name}: not with --{', --'.join(others)}")
    if args.check:
        return check(args)
    for part in args.parts or PARTS:
        started = time.monotonic()
        print(f"== {part}", flush=True)
        text = measured(part, args)
        print(f"== {part}: {time.monotonic() - started:.0f} s", flush=True)
        if args.write:
            document.write(part, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
