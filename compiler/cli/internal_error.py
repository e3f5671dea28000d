"""What is said and left behind when the command itself fails."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from compiler.errors import Problem, TilewrightError

KEPT = ("full", "structure", "none")
OPTION = "--reproducer"
INTERNAL_ERROR = 70


def report_internal(error: Exception, arguments: Sequence[str]) -> tuple[list[str], TilewrightError]:
    """The lines to print, once the reproducer is written, and the error as one like all others."""
    if isinstance(error, TilewrightError):
        known = error
    else:
        text = f"internal: {traceback.format_exception_only(error)[0].strip()}"
        known = TilewrightError(Problem("TW0070", text, hint="this is a bug in tilewright; please report it"))
    lines = [problem.render() for problem in known.problems]
    lines += [f"  where: {note}" for note in getattr(error, "__notes__", [])]
    words, keep = _without_own_options(arguments)
    lines += _left_behind(error, words, keep)
    if "--traceback" in arguments:
        lines.append("".join(traceback.format_exception(error)))
    return lines, known


def _left_behind(error: Exception, words: list[str], keep: str) -> list[str]:
    here = f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(['tilewright', '--traceback', *words])}"
    if keep == "none":
        return [f"  replay: {here}"]
    try:
        from compiler.reproducer.bundle import write_bundle

        path, notes = write_bundle(error, words, keep)
    except Exception as unwritten:  # noqa: BLE001  whatever is broken here, the error itself is what matters
        return [f"  reproducer: not written: {unwritten}", f"  replay: {here}"]
    what = "; ".join(notes) or f"with the files of the command; {OPTION} structure leaves weights out"
    return [f"  reproducer: {path} ({what})", f"  replay: tilewright replay {shlex.quote(str(path))}"]


def _without_own_options(arguments: Sequence[str]) -> tuple[list[str], str]:
    """The words of the command without those that only say how a failure is reported, and what of it to keep."""
    words: list[str] = []
    keep, is_value = "full", False
    for word in arguments:
        if is_value or word.startswith(f"{OPTION}="):
            keep, is_value = word.removeprefix(f"{OPTION}="), False
        elif word == OPTION:
            is_value = True
        elif word != "--traceback":
            words.append(word)
    return words, keep if keep in KEPT else "full"


def say(text: str) -> None:
    # Messages quote what files hold: nothing in them may steer the terminal.
    shown = "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
    print(shown, file=sys.stderr)
