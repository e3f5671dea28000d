"""The one list of error codes, held against the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler.error_codes import FORM, error_codes

ROOT = Path(__file__).parents[1]
SOURCES = [path for folder in ("compiler", "passes", "patches", "models") for path in (ROOT / folder).rglob("*.py")]


def used_codes() -> Iterator[str]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and FORM.fullmatch(node.value):
                yield node.value


def test_every_code_that_an_error_can_have_is_explained_and_no_other() -> None:
    assert set(used_codes()) == set(error_codes())


def test_codes_stand_in_order() -> None:
    assert list(error_codes()) == sorted(error_codes())


@pytest.mark.parametrize("code", error_codes())
def test_an_entry_says_what_it_means_and_what_to_do(code: str) -> None:
    entry = error_codes()[code]
    assert entry.means.endswith(".") and entry.do.endswith(".")
    assert "\n" not in entry.means + entry.do
