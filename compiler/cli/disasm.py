"""``tilewright disasm``: the programs in an artifact as assembly text, which assembles to the same code again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from compiler.cli.answer import print_json
from compiler.cli.words import files_read, refuse_same_files
from compiler.errors import Problem, UsageError

if TYPE_CHECKING:
    from compiler.artifact import Stored
    from compiler.runtime.model import ProgramSegment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the artifact, a .twm file")
    parser.add_argument("-o", "--output", metavar="PATH", help="where the text goes (default: standard output)")
    parser.add_argument("--segment", type=int, metavar="N", help="of a model of several segments, the one to print")
    parser.add_argument(
        "--source", action="store_true", help="say of each instruction from which statement, kernel and node it is"
    )


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from compiler.artifact import read_artifact
    from compiler.artifact.files import write_text
    from compiler.isa.disassembler import disassemble

    refuse_same_files({"-o": args.output}, files_read(args))
    stored = read_artifact(Path(args.file), allow_host=True)
    segment = _segment(stored, args.segment)
    text = disassemble(segment.program)
    if args.source:
        text = "".join(f"{line}\n" for line in _with_sources(text, stored, segment))
    if args.output is not None:
        write_text(args.output, text, "the text")
    if args.json:
        written = {"output": args.output, "text": text if args.output is None else None}
        print_json("disasm", {"file": args.file, "lines": text.count("\n"), **written})
    elif args.output is None:
        sys.stdout.write(text)
    return 0


def _segment(stored: Stored, wanted: int | None) -> ProgramSegment:
    from compiler.runtime.model import ProgramSegment

    programs = {n: s for n, s in enumerate(stored.model.segments) if isinstance(s, ProgramSegment)}
    if wanted is None and len(programs) == 1:
        (segment,) = programs.values()
        return segment
    if wanted in programs:
        return programs[wanted]
    text = f"the artifact has {len(programs)} programs" if wanted is None else f"segment {wanted} is no program"
    hint = f"--segment N, where N is one of {', '.join(map(str, programs))}" if programs else ""
    raise UsageError(Problem("TW0002", text, hint=hint))


def _with_sources(text: str, stored: Stored, segment: ProgramSegment) -> Iterator[str]:
    """A comment wherever another statement, or another kernel, begins."""
    from compiler.report.tables import printable, some
    from compiler.runtime.kernel_cycles import kernel_of
    from compiler.runtime.sources import nodes_of, statement_of

    index, before = 0, ("", "")
    for line in text.splitlines():
        if line.startswith("    ") and not line.lstrip().startswith("."):
            kernel = kernel_of(segment.program, index)
            statement = statement_of(segment, index)
            if kernel != before[0]:
                yield printable(f"; kernel {kernel}: {some(nodes_of(stored.model, segment, index), 8)}")
            if statement and statement != before[1]:
                yield printable(f"    ; {statement}")
            before = (kernel, statement)
            index += 1
        yield line
