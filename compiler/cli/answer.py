"""What a verb answers under ``--json``: one JSON document on standard output, of one style for all verbs.

Every document begins with ``schema_version`` and ``verb``. A verb that fails answers with ``exit_code`` and
``problems`` in place of what it would have said.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.errors import Problem, TilewrightError

SCHEMA_VERSION = 1  # changes when a key changes its meaning or goes


def print_json(verb: str, content: Mapping[str, Any]) -> None:
    print(json.dumps({"schema_version": SCHEMA_VERSION, "verb": verb, **content}, indent=2))


def print_failure(verb: str, error: TilewrightError) -> None:
    problems = [_content(problem) for problem in error.problems]
    print_json(verb, {"exit_code": error.exit_code, "problems": problems})


def only_one(args: argparse.Namespace, form: str) -> None:
    """Refuse ``--json`` together with the option ``form``, which asks for another form of the same."""
    if args.json and getattr(args, form):
        from compiler.errors import Problem, UsageError

        raise UsageError(Problem("TW0002", f"argument --{form}: not allowed with argument --json"))


def _content(problem: Problem) -> dict[str, Any]:
    place = problem.place
    where = None if place is None else {"file": place.file, "line": place.line, "column": place.column}
    return {"code": problem.code, "message": problem.message, "place": where, "help": problem.hint}
