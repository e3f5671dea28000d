"""``tilewright isa``: list the instructions, describe one, or print the whole reference."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from compiler.cli.answer import only_one, print_json
from compiler.errors import Problem, UsageError

if TYPE_CHECKING:
    from compiler.isa.model import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="an instruction to describe, or a class to list")
    parser.add_argument("--markdown", action="store_true", help="print docs/isa.md")


def run(args: argparse.Namespace) -> int:
    only_one(args, "markdown")
    from compiler.isa.docs import describe, markdown, row_text
    from compiler.isa.table import CLASSES, by_mnemonic, rows

    if args.markdown:
        if args.name is not None:
            raise UsageError(Problem("TW0002", "--markdown prints all instructions: give no name with it"))
        sys.stdout.write(markdown())
        return 0
    row = by_mnemonic().get(args.name or "")
    members = [item for item in rows() if args.name in (None, item.category)]
    if row is None and not members:
        raise UsageError(Problem("TW0002", f"there is no instruction `{args.name}`", hint=_hint(args.name, CLASSES)))
    if args.json:
        print_json("isa", describe(row) if row else {"instructions": [describe(item) for item in members]})
        return 0
    lines = row_text(row) if row else _list(members)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _list(members: list[Row]) -> Iterable[str]:
    width = max(len(row.mnemonic) for row in members)
    category = ""
    for row in members:
        if row.category != category:
            yield from ([""] if category else [])
            category = row.category
            yield category
        yield f"  {row.mnemonic:<{width}}  {' '.join(row.doc.split())}"


def _hint(name: str, classes: Iterable[str]) -> str:
    from compiler.isa.expressions import did_you_mean
    from compiler.isa.table import by_mnemonic

    return did_you_mean(name, [*by_mnemonic(), *classes], "`tilewright isa` lists all")
