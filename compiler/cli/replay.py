"""``tilewright replay``: repeat the command that ended in an internal error, from what it left behind."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compiler.cli.answer import print_json
from compiler.errors import Problem, TilewrightError, UsageError
from compiler.report.tables import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "It exits with what the command exits with: 70 where the error is still there."
    parser.add_argument("bundle", metavar="BUNDLE", help="the .zip that the message of an internal error named")
    parser.add_argument("--show", action="store_true", help="show what is in it, and run nothing")
    parser.add_argument("--keep", metavar="DIR", help="unpack it into this new folder, which stays")
    parser.add_argument("--trust", action="store_true", help="also run Python code that the bundle brings along")


def run(args: argparse.Namespace) -> int:
    from compiler.reproducer.replay import refuse_code, unpack, working_in

    with tempfile.TemporaryDirectory(prefix="tilewright-replay-") as scratch:
        folder = _new_folder(args.keep) if args.keep is not None else Path(scratch)
        recorded = unpack(args.bundle, folder)
        if args.show:
            return _answer(args, {**asdict(recorded), "now": None, "exit_code": None})
        if not args.trust:
            refuse_code(args.bundle, recorded)
        with working_in(folder.resolve()), redirect_stdout(sys.stderr):
            status, now = _repeated(list(recorded.arguments))
    return _answer(args, {**asdict(recorded), "now": now, "exit_code": status})


def _new_folder(path: str) -> Path:
    folder = Path(path)
    if folder.exists():
        raise UsageError(Problem("TW0002", f"--keep {path}: it exists already", hint="name a new folder"))
    folder.mkdir(parents=True)
    return folder


def _repeated(arguments: list[str]) -> tuple[int, str]:
    """What the command exits with, and the error it ends with, if with one."""
    from compiler.cli.internal_error import INTERNAL_ERROR
    from compiler.cli.main import run_verb
    from compiler.reproducer.bundle import summary, where

    if arguments[:1] == ["replay"]:
        raise UsageError(Problem("TW0050", "the bundle is of a replay itself"))
    try:
        return run_verb(arguments), ""
    except TilewrightError as error:
        print(printable_lines(str(error)), file=sys.stderr)
        return error.exit_code, "; ".join([summary(error), *where(error)])
    except Exception as error:  # noqa: BLE001  the failure that the bundle is about, or another
        print(printable_lines("".join(traceback.format_exception(error))), file=sys.stderr)
        return INTERNAL_ERROR, "; ".join([summary(error), *where(error)])


def printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.splitlines())


def _answer(args: argparse.Namespace, content: dict[str, Any]) -> int:
    before = "; ".join([content["error"], *content["where"]])
    status = int(content["exit_code"] or 0)
    if args.json:
        print_json("replay", {**content, "is_same": content["now"] == before})
        return status
    lines = [f"command   tilewright {' '.join(content['arguments'])}", f"recorded  {before}"]
    lines += [f"note      {note}" for note in content["notes"]]
    if args.show:
        lines += [f"{name}: {version}" for name, version in content["versions"].items()]
    elif content["now"] == before:
        lines.append("now       the same")
    else:
        lines.append(f"now       {content['now'] or f'it ends with {status}, and no error'}")
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    return status
