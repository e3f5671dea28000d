"""``tilewright compile``: from an ONNX model to an artifact that `tilewright run` runs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.cli.model_options import add_model_options, compile_options
from compiler.cli.pass_options import add_pass_options, pass_options, print_stopped, print_times
from compiler.errors import Problem, UsageError
from compiler.report.tables import printable

if TYPE_CHECKING:
    from compiler.api import Artifact


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the model, an .onnx file")
    parser.add_argument("-o", "--output", metavar="PATH", help="the artifact (default: MODEL with the suffix .twm)")
    add_model_options(parser)
    add_pass_options(parser)
    parser.add_argument("--kernels", action="store_true", help="list every kernel with its tile")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    if args.stop_after is not None:
        return print_stopped(args)
    options = compile_options(args) | pass_options(args)
    output = Path(args.output) if args.output is not None else Path(args.model).with_suffix(".twm")
    if output.exists() and Path(args.model).exists() and output.samefile(args.model):
        raise UsageError(
            Problem("TW0002", f"{output} would be overwritten by its own artifact", hint="name one with -o")
        )
    from compiler.api import compile

    started = time.perf_counter()
    artifact = compile(args.model, **options)
    artifact.save(output)
    seconds = time.perf_counter() - started
    print_times(args, options["observer"])
    if args.json:
        content = {"artifact": str(output), "bytes": output.stat().st_size, **artifact.report.to_dict()}
        print(json.dumps(content | {"total_seconds": seconds}, indent=2))
        return 0
    for line in _lines(args, artifact, output, seconds):
        sys.stdout.write(f"{printable(line)}\n")
    return 0


def _lines(args: argparse.Namespace, artifact: Artifact, output: Path, seconds: float) -> Iterator[str]:
    from compiler.report.text import kernel_lines, summary

    yield from summary(artifact.report, seconds)
    if args.kernels:
        yield ""
        yield from kernel_lines(artifact.report)
    yield f"wrote {output}, {output.stat().st_size:,} bytes"
    yield f"next: tilewright run {output} --random-inputs 1"
