"""Words of the command line that several verbs take: numbers, and assignments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

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
