"""``tilewright disasm``: the program in an artifact as assembly text, which assembles to the same code again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the artifact, a .twm file")
    parser.add_argument("-o", "--output", metavar="PATH", help="where the text goes (default: standard output)")


def run(args: argparse.Namespace) -> int:
    from compiler.artifact import read_program
    from compiler.isa.disassembler import disassemble

    text = disassemble(read_program(Path(args.file)).program)
    if args.output is not None:
        Path(args.output).write_text(text, encoding="utf-8", newline="\n")
    else:
        sys.stdout.write(text)
    return 0
