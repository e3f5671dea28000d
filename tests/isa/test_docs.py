"""docs/isa.md follows from the table."""

import json
import re
from pathlib import Path

import pytest

from compiler.isa.docs import describe, markdown, row_text
from compiler.isa.table import CLASSES, by_mnemonic, rows

PAGE = Path(__file__).parents[2] / "docs" / "isa.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), "write it again: make isa-docs"


def test_the_page_holds_every_row_once_and_every_class() -> None:
    headings = re.findall(r"^### (.+)$", markdown(), re.MULTILINE)
    assert sorted(headings) == sorted(row.mnemonic for row in rows())
    assert [name for name in re.findall(r"^## (.+)$", markdown(), re.MULTILINE) if name in CLASSES] == list(CLASSES)


def test_the_page_shows_every_rule() -> None:
    page = markdown()
    for row in rows():
        for rule in row.rules:
            assert rule.__doc__ and " ".join(rule.__doc__.split()) in page, (row.mnemonic, rule)


def test_no_table_has_a_torn_row() -> None:
    columns = 0
    for line in markdown().splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not cells or not columns or cells == columns, line
        columns = cells


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.mnemonic)
def test_every_row_is_described(row: object) -> None:
    about = describe(row)  # type: ignore[arg-type]
    assert about["doc"] and about["syntax"].startswith(about["mnemonic"])
    assert json.loads(json.dumps(about)) == about


def test_a_row_as_text() -> None:
    assert list(row_text(by_mnemonic()["vabs"]))[:9] == [
        "vabs.dtype.rank [dst; s2, s1, s0], [a; s2, s1, s0], <n2, n1, n0>",
        f"  {by_mnemonic()['vabs'].doc}",
        "",
        "  class vector_unary, queue V, opcode 384",
        f"  .dtype        {' '.join(by_mnemonic()['vabs'].modifiers[0].choices)}",
        "  .rank         1d 2d 3d",
        "  dst           written, the dtype in ub; strides in elements",
        "  a             read, the dtype in ub; strides in elements",
        "  <n2, n1, n0>  1 to 65535 each, as many as the rank",
    ]
