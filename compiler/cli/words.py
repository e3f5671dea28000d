"""Words of the command line that several verbs take: numbers, and assignments."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from compiler.artifact.files import refuse_unwritable
from compiler.errors import Problem, UsageError


def natural(word: str) -> int:
    if not word.isascii() or not word.isdigit() or len(word) > 18:
        raise argparse.ArgumentTypeError(f"{word[:40]!r} is not a number from 0 to 10**18 - 1")
    return int(word)


def positive(word: str) -> int:
    if natural(word) < 1:
        raise argparse.ArgumentTypeError("0 is too few")
    return int(word)


def extent(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError
    return int(text)


def numbers(text: str) -> Any:
    """A number, or several with commas between them; true and false are numbers, too."""
    each = [_number(word) for word in text.split(",")]
    return each if "," in text else each[0]


def _number(word: str) -> bool | int | float:
    if word in ("true", "false"):
        return word == "true"
    return int(word) if word.lstrip("+-").isdigit() else float(word)


def files_read(args: argparse.Namespace) -> list[str]:
    """All files and folders that the options of a verb name to be read."""
    found = [getattr(args, name, None) for name in ("model", "file", "onnx", "schedule")]
    chip = getattr(args, "chip", None) or ""
    found += [chip if chip.endswith(".toml") or os.sep in chip else None, *getattr(args, "ops", ())]
    found += [word.partition("=")[2] for word in getattr(args, "inputs", ())]
    return [path for path in found if path]


def refuse_same_files(written: Mapping[str, Any], read: Iterable[str]) -> None:
    """Raise where a file that is ``read`` would be written over, two options name one, or one cannot be written, before
    anything is worked out for it; those not given are empty.

    What is no file takes all that is written to it.
    """
    files: dict[str, str] = {}
    kept = {os.path.realpath(path) for path in read}
    for option, path in written.items():
        if not path or (Path(path).exists() and not Path(path).is_file()):
            continue
        file = os.path.realpath(path)
        if file in kept or (Path(file).exists() and not kept.isdisjoint(map(str, Path(file).parents))):
            text = f"{path}, which is read, would be overwritten"
            raise UsageError(Problem("TW0002", text, hint=f"name another file with {option}"))
        if file in files:
            text = f"{files[file]} and {option} both name {path}"
            raise UsageError(Problem("TW0002", text, hint="the second would be written over the first"))
        files[file] = option
        refuse_unwritable(file, f"what {option} names")


def assignments(
    words: Iterable[str], option: str, value: str = "FILE", parse: Callable[[str], Any] = str
) -> dict[str, Any]:
    """``NAME=VALUE`` options as a mapping; a name may hold everything but an equals sign."""
    found: dict[str, Any] = {}
    for word in words:
        name, separator, text = word.rpartition("=") if parse is not str else word.partition("=")
        if not separator or not name or not text:
            raise UsageError(Problem("TW0002", f"{option} {word}: expected NAME={value}"))
        if name in found:
            raise UsageError(Problem("TW0002", f"{option} {name} is given twice"))
        try:
            found[name] = parse(text)
        except ValueError as error:
            raise UsageError(Problem("TW0002", f"{option} {word}: expected NAME={value}")) from error
    return found
