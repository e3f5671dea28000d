"""``tilewright chips``, through the command's own entry point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compiler.cli.chips import peaks
from compiler.cli.main import main
from compiler.target import chip_names, load_chip
from compiler.target.chip_file import SHIPPED
from compiler.target.schema import KEYS, PATH_KEYS, PATHS, RULES


def test_the_list_has_a_line_per_chip(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["chip", "cores"]
    assert tuple(line.split()[0] for line in lines) == chip_names()


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [item["chip"]["name"] for item in content["chips"]] == list(chip_names())


@pytest.mark.parametrize("name", ["tiny", "tw1", "tw2"])
def test_a_chip_shows_every_value(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", name]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    chip = load_chip(name)
    tables = chip.to_dict()
    for key in KEYS:
        value: Any = tables
        for part in key.name.split("."):
            value = value[part]
        if isinstance(value, int):
            assert any(row[:2] == [key.name.rpartition(".")[2], str(value)] for row in rows)
    for path, values in tables["path"].items():
        assert any(row[:4] == [path, *(str(values[key.name]) for key in PATH_KEYS)] for row in rows)
    absent = {word.strip(",") for row in rows if row[:1] == ["absent:"] for word in row[1:]}
    assert absent == set(PATHS) - set(chip.path)


def test_peaks_are_those_of_the_parts_the_chips_are_modelled_on() -> None:
    tw1, tw2 = peaks(load_chip("tw1")), peaks(load_chip("tw2"))
    assert tw1["fp16_tflops"] == pytest.approx(131.072) and tw1["int8_tops"] == pytest.approx(262.144)
    assert tw1["ddr_gb_per_second"] == pytest.approx(119.4)
    # 910B3: 20 cores x 8192 flops x 1.8 GHz, 1.6 TB/s of HBM and 5.2 TB/s of L2.
    assert tw2["fp16_tflops"] == pytest.approx(20 * 8192 * 1.8e9 / 1e12)
    assert tw2["ddr_gb_per_second"] == pytest.approx(1600, rel=1e-6)
    assert tw2["llb_gb_per_second"] == pytest.approx(5200, rel=1e-6)


def test_a_chip_as_json_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "tw2", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    chip = load_chip("tw2")
    assert content["chip"] == chip.to_dict()
    assert content["derived"]["content_hash"] == chip.content_hash
    assert content["derived"]["peaks"] == peaks(chip)


def test_the_schema_shows_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "--schema"]) == 0
    text = capsys.readouterr().out
    for key in KEYS:
        (line,) = (line for line in text.splitlines() if line.startswith(f"{key.name} "))
        assert key.allowed in line and key.doc in line
    assert all(item.text in text for item in RULES)
    assert all(name in text for name in PATHS)
    assert main(["chips", "--schema", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [row["key"] for row in content["keys"]] == [key.name for key in KEYS]
    assert len(content["rules"]) == len(RULES) and len(content["paths"]) == len(PATHS)


def test_check_accepts_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (SHIPPED / "tiny.toml").read_text(encoding="utf-8")
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(text, encoding="utf-8")
    bad.write_text(text.replace("depth = 4", "depth = 0").replace("banks = 2 ", "banks = 3 "), encoding="utf-8")
    assert main(["chips", "--check", str(good)]) == 0
    assert load_chip("tiny").content_hash in capsys.readouterr().out
    assert main(["chips", "--check", str(good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "tiny"
    assert main(["chips", "--check", str(bad)]) == 4
    output = capsys.readouterr()
    assert output.out == "" and f"{bad}:" in output.err and "queues.depth must be 1 to 1024, not 0" in output.err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["tw9"], 2, "chips: tiny, tw1, tw2"),
        (["tw1", "--schema"], 2, "not allowed with"),
        (["--check", "tw1"], 3, "shipped chips, by name"),
        (["no/such.toml"], 3, "No such file"),
        (["."], 2, "no chip is called"),
        (["./"], 3, "regular file"),
    ],
)
def test_mistakes(arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", *arguments]) == status
    output = capsys.readouterr()
    assert output.out == "" and words in output.err
