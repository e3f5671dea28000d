"""``tilewright isa``: the table for people and for programs."""

import json
from pathlib import Path

import pytest

from compiler.cli.main import main
from compiler.isa.table import CLASSES, rows


def test_the_list_has_every_class_and_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == list(CLASSES)
    assert [line.split()[0] for line in lines if line.startswith(" ")] == [row.mnemonic for row in rows()]


def test_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa", "cube"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["cube", "  mad      C = A B"]


def test_an_instruction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa", "set_flag"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("set_flag.src.dst id\n")
    assert "legal where:\n    a flag joins two different queues" in said


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [item["opcode"] for item in content["instructions"]] == [row.opcode for row in rows()]
    assert main(["isa", "jmp", "--json"]) == 0
    (jmp,) = [item for item in content["instructions"] if item["mnemonic"] == "jmp"]
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "verb": "isa", **jmp}


def test_markdown_is_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa", "--markdown"]) == 0
    page = Path(__file__).parents[2] / "docs" / "isa.md"
    assert capsys.readouterr().out == page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vabss"], "there is no instruction `vabss`\n  help: did you mean `vabs`?"),
        (["vabs", "--markdown"], "--markdown prints all instructions"),
        (["--json", "--markdown"], "not allowed with argument --json"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert main(["isa", *arguments]) == 2
    assert said in capsys.readouterr().err
