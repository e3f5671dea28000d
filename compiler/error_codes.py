"""What each error code means and what to do about it: the reader of `error_codes.toml`, the one list of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FORM = re.compile(r"TW\d{4}")


@dataclass(frozen=True)
class ErrorCode:
    code: str
    means: str
    do: str


@cache
def error_codes() -> Mapping[str, ErrorCode]:
    """All codes, in their order."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {code: ErrorCode(code, **table) for code, table in tables.items()}
