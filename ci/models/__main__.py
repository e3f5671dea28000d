"""`python -m ci.models`: observe the cases of a tier, compare them with the record, report."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ci.models import history, journal, junit, page, processes, ray_engine, record, table
from ci.models.cases import TIERS, Case, cases, tasks
from ci.models.observe import Options, folder_of
from ci.models.outcome import Outcome, judged, wrong
from compiler.errors import TilewrightError
from models import zoo


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    chosen = cases(args.tier, args.only, args.chip, args.precision)
    if not chosen:
        print("no case is selected; `python -m models list` shows the models", file=sys.stderr)
        return 1
    try:
        return run(chosen, args)
    except TilewrightError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ci.models", description="the model regression")
    which = parser.add_argument_group("which cases")
    which.add_argument("--tier", choices=TIERS, default="full", help="(default: %(default)s)")
    which.add_argument("--only", action="append", default=[], metavar="NAME", help="models; may be a pattern: resnet*")
    which.add_argument("--chip", action="append", default=[])
    which.add_argument("--precision", action="append", default=[])
    how = parser.add_argument_group("how")
    how.add_argument("--jobs", type=int, default=1, help="tasks at a time on this machine (default: %(default)s)")
    how.add_argument("--timeout", type=float, default=900, help="seconds per case (default: %(default)s)")
    how.add_argument("--engine", choices=("local", "ray"), default="local", help="(default: %(default)s)")
    how.add_argument(
        "--address", default="auto", metavar="HOST:PORT", help="of the Ray cluster (default: this machine's)"
    )
    how.add_argument("--expected", type=Path, metavar="FOLDER", help="of the record (default: models/expected)")
    how.add_argument("--record", action="store_true", help="write down what is found instead of comparing it")
    how.add_argument(
        "--journal", type=Path, metavar="FILE",
        help="note every outcome there, and do not repeat those of the same sources (default with --record: "
        f"{journal.DEFAULT})",
    )  # fmt: skip
    what = parser.add_argument_group("what to write")
    what.add_argument("--out", type=Path, metavar="FOLDER", help="results.json, junit.xml, index.html and traces")
    what.add_argument("--history", type=Path, metavar="FILE", help="one line a run, added at its end")
    what.add_argument("--traces", action="store_true", help="with --out: timelines of all cases, not of changed ones")
    return parser


def run(chosen: Sequence[Case], args: argparse.Namespace) -> int:
    """Observe all cases, print each as it ends and the funnel at the end, and return the exit code."""
    started = time.monotonic()
    traces = args.out / "traces" if args.out else None
    if traces:
        traces.mkdir(parents=True, exist_ok=True)
    options = Options(
        str(args.expected.resolve()) if args.expected else "", args.record,
        str(traces.resolve()) if traces else "", args.traces,
    )  # fmt: skip
    print(table.HEAD)
    found: dict[Case, Outcome] = {}
    for outcome in _observed(chosen, options, args):
        if outcome.case in found:
            raise RuntimeError(f"{outcome.case} is reported twice")
        found[outcome.case] = outcome
        print(table.row(outcome), flush=True)
        if args.record and outcome.right and not outcome.error:
            record.store(outcome.case, outcome.facts, folder_of(options))
    outcomes = [found[case] for case in chosen]
    if args.record:
        _forget(chosen, options)
    print("\n".join(table.conclusion(outcomes, time.monotonic() - started)))
    _write(outcomes, args, folder_of(options))
    return 1 if wrong(outcomes) else 0


def _observed(chosen: Sequence[Case], options: Options, args: argparse.Namespace) -> Iterator[Outcome]:
    """What the journal has of the same sources, then the rest, longest first where several run at a time."""
    path = args.journal or (journal.DEFAULT if args.record else None)
    noted = journal.read(path, options, chosen) if path else {}
    yield from noted.values()
    left = [case for case in chosen if case not in noted]
    alone = args.engine == "local" and args.jobs == 1
    waiting = tasks(left, None if alone else record.seconds(left, folder_of(options)))
    if not waiting:
        return
    if args.engine == "ray":
        observed = ray_engine.outcomes(waiting, options, args.address, args.timeout)
    else:
        observed = processes.outcomes(waiting, options, args.jobs, args.timeout)
    for outcome in map(judged, observed):
        if path:
            journal.add(path, options, outcome)
        yield outcome


def _forget(chosen: Sequence[Case], options: Options) -> None:
    """Recorded cases of these models that there are no more."""
    for name in dict.fromkeys(case.model for case in chosen):
        every = [case.variant for case in cases("full", [name], [], [])]
        record.keep_only(name, every, folder_of(options))
    if len(chosen) == len(cases("full", [], [], [])):
        for path in folder_of(options).glob("*.json"):
            if path.stem not in zoo.names():
                path.unlink()


def _write(outcomes: Sequence[Outcome], args: argparse.Namespace, folder: Path) -> None:
    if args.history:
        history.add(args.history, args.tier, outcomes)
    if args.out:
        past = history.read(args.history) if args.history else []
        (args.out / "results.json").write_text(table.as_json(outcomes), encoding="utf-8")
        (args.out / "junit.xml").write_text(junit.xml(outcomes), encoding="utf-8")
        (args.out / "index.html").write_text(page.html(outcomes, past, folder), encoding="utf-8")
        print(f"wrote {args.out}/index.html, results.json and junit.xml")


if __name__ == "__main__":
    raise SystemExit(main())
