"""Typed checks of what a JSON parser delivers. Each returns the value with its type known, or says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

Item = TypeVar("Item")
MAX_TEXT_CHARS = 4096
_SHOWN_CHARS = 68  # a sha256 in quotes fits
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class SchemaFault(ValueError):
    """A value is not what the schema says; the message names the place, the value and what is allowed."""


def record(value: object, where: str, keys: Collection[str]) -> dict[str, Any]:
    """An object with exactly these keys."""
    if not isinstance(value, dict):
        raise SchemaFault(f"{where} is {shown(value)}; allowed: an object")
    unknown, missing = sorted(set(value) - set(keys)), sorted(set(keys) - set(value))
    if unknown:
        raise SchemaFault(f"{where} has the unknown key {shown(unknown[0])}; allowed: {', '.join(sorted(keys))}")
    if missing:
        raise SchemaFault(f"{where} lacks {', '.join(missing)}")
    return value


def array(value: object, where: str, limit: int, item: Callable[[object, str], Item]) -> tuple[Item, ...]:
    """An array of at most ``limit`` items, each checked by ``item(value, where)``."""
    if not isinstance(value, list):
        raise SchemaFault(f"{where} is {shown(value)}; allowed: an array")
    if len(value) > limit:
        raise SchemaFault(f"{where} has {len(value)} items; allowed: at most {limit}")
    return tuple(item(each, f"{where}[{index}]") for index, each in enumerate(value))


def integer(value: object, where: str, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
    if type(value) is not int:  # not isinstance: true is no number
        raise SchemaFault(f"{where} is {shown(value)}; allowed: an integer")
    if not low <= value <= high:
        raise SchemaFault(f"{where} is {value}; allowed: {low} to {high}")
    return value


def text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise SchemaFault(f"{where} is {shown(value)}; allowed: a string")
    if len(value) > MAX_TEXT_CHARS:
        raise SchemaFault(f"{where} has {len(value)} characters; allowed: at most {MAX_TEXT_CHARS}")
    return value


def choice(value: object, where: str, choices: Collection[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise SchemaFault(f"{where} is {shown(value)}; allowed: {', '.join(choices)}")
    return value


def digest(value: object, where: str) -> str:
    """A sha256 in hexadecimal."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{64}", value):
        raise SchemaFault(f"{where} is {shown(value)}; allowed: 64 hexadecimal digits")
    return value


def optional(value: object, where: str, check: Callable[[object, str], Item]) -> Item | None:
    return None if value is None else check(value, where)


def shown(value: object) -> str:
    """A value in a message: short, on one line, whatever it is."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    written = ascii(value) if isinstance(value, str) else str(value)
    return written if len(written) <= _SHOWN_CHARS else f"{written[: _SHOWN_CHARS - 3]}..."
