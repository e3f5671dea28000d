"""``tilewright asm``: assemble a program, check it for its chip, and write it as an artifact."""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli.answer import print_json
from compiler.cli.words import files_read, refuse_same_files
from compiler.errors import Problem, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the program, a .twasm file")
    parser.add_argument("-o", "--output", metavar="PATH", help="the artifact (default: FILE with the suffix .twm)")
    parser.add_argument("--chip", help="the chip: a name, or the path of a .toml file (default: the program's own)")
    parser.add_argument(
        "-D", dest="defines", metavar="NAME=VALUE", action="append", default=[], help="give a constant another value"
    )
    parser.add_argument("--check", action="store_true", help="assemble and check only, and write nothing")


def run(args: argparse.Namespace) -> int:
    defines = parse_defines(args.defines)

    from compiler.isa.assembler import assemble_file
    from compiler.isa.verifier import verify
    from compiler.target import load_chip

    chip = load_chip(args.chip) if args.chip is not None else None
    program = assemble_file(args.file, chip=chip, defines=defines)
    if chip is None and program.chip is None:
        hint = "name one with --chip, or in the program: `.chip tw2`"
        raise UsageError(Problem("TW0002", f"{args.file} does not say for which chip it is", hint=hint))
    chip = chip or load_chip(program.chip or "")
    verify(program, chip)
    content = {"file": _shown(args.file), "chip": chip.name, "instructions": len(program.instrs)}
    summary = f"{len(program.instrs)} instructions for {chip.name}"
    if args.check:
        if args.json:
            print_json("asm", content | {"artifact": None, "bytes": None})
        else:
            print(f"{_shown(args.file)}: no errors, {summary}")
        return 0

    from compiler.artifact import write_program

    output = Path(args.output) if args.output is not None else Path(args.file).with_suffix(".twm")
    refuse_same_files({"-o": output}, files_read(args))
    write_program(output, program, chip, source_text=Path(args.file).read_bytes())
    size = output.stat().st_size
    if args.json:
        print_json("asm", content | {"artifact": _shown(output), "bytes": size})
    else:
        print(f"{_shown(output)}: {summary}, {size} bytes")
    return 0


def _shown(path: object) -> str:
    """A path for standard output, which may refuse bytes that are no text."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def parse_defines(words: list[str]) -> dict[str, int]:
    """``NAME=VALUE`` options as a mapping; a value is an integer as the assembler writes them."""
    defines: dict[str, int] = {}
    for word in words:
        name, separator, text = word.partition("=")
        if not separator or not name.isidentifier() or not name.isascii():
            raise UsageError(Problem("TW0002", f"-D {word}: expected NAME=VALUE"))
        if name in defines:
            raise UsageError(Problem("TW0002", f"-D {name} is given twice"))
        try:
            defines[name] = int(text, 0) if len(text) <= 80 else int("")
        except ValueError as error:
            raise UsageError(Problem("TW0002", f"-D {name}: {text[:80]!r} is not an integer")) from error
    return defines
