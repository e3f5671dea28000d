"""What callers of the compiler in Python give, held against what is wanted before any work is done."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from compiler.errors import Problem, UsageError

PATH = (str, os.PathLike)


def expect(name: str, value: Any, kinds: tuple[type, ...], wanted: str) -> None:
    if not isinstance(value, kinds):
        raise UsageError(Problem("TW0002", f"{name} must be {wanted}; this is a {type(value).__name__}"))


def expect_count(name: str, value: Any, of: str, least: int = 1) -> None:
    expect(name, value, (Integral,), f"a number of {of}")
    if value < least:
        raise UsageError(Problem("TW0002", f"{name} is {value}, but must be a number of {of}, at least {least}"))


def expect_sizes(name: str, given: Any) -> None:
    """Numbers by name."""
    expect(name, given, (Mapping,), "numbers by name")
    for key, value in given.items():
        expect(f"{name}[{key!r}]", value, (Integral,), "a number")


def expect_shapes(name: str, given: Any) -> None:
    """Shapes by name."""
    expect(name, given, (Mapping,), "shapes by name")
    for key, value in given.items():
        wanted = "a shape, as (1, 3, 224, 224)"
        expect(f"{name}[{key!r}]", value, (Sequence,), wanted)
        for size in value:
            expect(f"{name}[{key!r}]", size, (Integral,), f"{wanted}, of numbers")


def sources(ops: Any) -> tuple[str | os.PathLike[str], ...]:
    """Files, packages and modules of operators, of which one may stand alone."""
    found = (ops,) if isinstance(ops, PATH) or not isinstance(ops, Iterable) else tuple(ops)
    for one in found:
        expect("ops", one, PATH, "a path or the name of a module, or several")
    return found
