"""``tilewright compile``: from an ONNX model to an artifact that `tilewright run` runs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.artifact.files import open_regular
from compiler.cli.answer import print_json
from compiler.cli.model_options import add_model_options, compile_options
from compiler.cli.pass_options import add_pass_options, pass_options, print_stopped, print_times
from compiler.cli.progress import compile_shown
from compiler.cli.simulator import announce_simulator
from compiler.cli.words import files_read, refuse_same_files
from compiler.errors import LimitError, UnsupportedError
from compiler.report.tables import printable

if TYPE_CHECKING:
    from compiler.api import Artifact
    from compiler.report.profile import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the model, an .onnx file")
    parser.add_argument("-o", "--output", metavar="PATH", help="the artifact (default: MODEL with the suffix .twm)")
    add_model_options(parser)
    add_pass_options(parser)
    parser.add_argument("--no-timing", action="store_true", help="do not simulate how long a run takes")
    parser.add_argument(
        "--dump-schedule", metavar="FILE", help="write how the graph runs, to be changed and given back"
    )
    parser.add_argument("--kernels", action="store_true", help="list every kernel with its tile")


def run(args: argparse.Namespace) -> int:
    if args.stop_after is not None:
        return print_stopped(args)
    options = compile_options(args) | pass_options(args)
    output = _output(args)
    from compiler.artifact.files import write_text
    from compiler.report.text import timing

    started = time.perf_counter()
    artifact = compile_shown(args, args.model, options)
    artifact.save(output)
    seconds = time.perf_counter() - started
    if args.dump_schedule is not None:
        write_text(args.dump_schedule, artifact.schedule, "the schedule")
    print_times(args, options["observer"])
    found = None if args.no_timing else _profiled(args, artifact, options)
    if args.json:
        content = {"artifact": str(output), "bytes": output.stat().st_size, **artifact.report.to_dict()}
        print_json("compile", content | {"total_seconds": seconds, "timing": timing(found) if found else None})
        return 0
    for line in _lines(args, artifact, output, seconds, found):
        sys.stdout.write(f"{printable(line)}\n")
    return 0


def _output(args: argparse.Namespace) -> Path:
    with open_regular(args.model, "the model"):  # or nobody needs to wait for the compiler to be there
        output = Path(args.model).with_suffix(".twm") if args.output is None else Path(args.output)
    written = {"-o": output, "--dump-schedule": args.dump_schedule}
    refuse_same_files(written, [*files_read(args), *_weights_read(args.model, written.values())])
    return output


def _weights_read(model: str, written: Iterable[Any]) -> list[str]:
    """The files that the weights of a model lie in, where one of those that are to be written is there."""
    if not any(path is not None and Path(path).is_file() for path in written):
        return []
    from compiler.frontend.load import data_files

    return data_files(model)


def _profiled(args: argparse.Namespace, artifact: Artifact, options: dict[str, Any]) -> Profile | None:
    """How long a run takes, where that does not depend on data."""
    from compiler.api import load
    from compiler.frontend import load_model
    from compiler.frontend.known_inputs import with_known
    from compiler.report.model_bounds import ModelWork
    from compiler.report.profile import profile

    if not artifact.report.kernels:
        return None
    announce_simulator()
    try:
        proto = with_known(load_model(args.model), options["values"])
        work = ModelWork(proto, options["precision"], options["shapes"], options["dims"])
    except UnsupportedError:  # of operators of one's own nobody knows what they need at least
        work = None
    try:
        loaded = load(artifact)
        runs = loaded.timed()
        return profile(loaded, runs, work, artifact.report) if runs is not None else None
    except LimitError as error:
        print(f"note: the run was not timed: {error.problems[0].message}", file=sys.stderr)
        return None


def _lines(
    args: argparse.Namespace, artifact: Artifact, output: Path, seconds: float, found: Profile | None
) -> Iterator[str]:
    from compiler.report.text import kernel_lines, summary

    yield from summary(artifact.report, seconds, found)
    if args.kernels:
        yield ""
        yield from kernel_lines(artifact.report)
    yield f"wrote {output}, {output.stat().st_size:,} bytes"
    if found is not None:
        yield f"next: tilewright profile {output} --onnx {args.model} --html report.html"
    yield f"next: tilewright run {output} --random-inputs 1"
