"""The operators in `examples/`: short, right on every chip, and never on the host."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ci.examples import CHIPS, ENOUGH, EXAMPLES, measured
from compiler.cli.main import main

pytestmark = pytest.mark.usefixtures("forget_operators")
FILES = sorted(EXAMPLES.glob("*.py"))
PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_is_short_and_right_on_the_smallest_chip(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) < 40
    assert main(["op-test", str(file), "--quick", "--chip", "tiny", "--json"]) == 0
    assert {one["verdict"] for one in json.loads(capsys.readouterr().out)["cases"]} == {"ok"}


def test_the_page_has_all_of_them_on_all_chips() -> None:
    assert len(FILES) == 5
    shown = re.findall(r"^\| (\w+\.py) \| (\w+) \|", PAGE, re.MULTILINE)
    assert {(file.name, chip) for file in FILES for chip in CHIPS} == set(shown)


@pytest.mark.slow
@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_is_right_for_all_shapes_on_all_chips(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["op-test", str(file), "--json"]) == 0
    assert {one["verdict"] for one in json.loads(capsys.readouterr().out)["cases"]} <= {"ok", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_each_is_as_near_to_its_bound_as_the_page_says_or_says_why(chip: str) -> None:
    for row in measured(chip):
        line = next(text for text in PAGE.splitlines() if text.startswith(f"| {row.example.file} | {chip} |"))
        *_, share, _, why, _ = (cell.strip() for cell in line.split("|"))
        assert row.share >= float(share.rstrip("%")) / 100 - 0.05, row
        assert why or row.share >= ENOUGH
