"""``tilewright profile``: what it prints and writes, and how it refuses."""

import json
import re
import shutil
from pathlib import Path

import pytest

from compiler.cli import profile
from compiler.cli.main import main
from compiler.report.profile_text import SORTS

ROOT = Path(__file__).parents[2]
DIGITS = str(ROOT / "docs/examples/digits.onnx")
FAST = ["--chip", "tiny", "--precision", "fp16"]


def profiled(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["profile", *words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_the_table_names_layers_limits_and_what_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    text = profiled(capsys, DIGITS, *FAST)
    assert "lower bound" in text
    assert "/conv1/Conv +1" in text
    assert "what to try" in text


def test_top_and_sort(capsys: pytest.CaptureFixture[str]) -> None:
    text = profiled(capsys, DIGITS, *FAST, "--top", "1", "--sort", "name")
    assert "/conv1/Conv" in text
    assert "/fc2/Gemm" not in text.split("\nlayer ")[1].split("what to try")[0]
    assert "3 more layers" in text
    assert "more layers" not in profiled(capsys, DIGITS, *FAST, "--top", "0")


def test_details_show_queues_and_tile(capsys: pytest.CaptureFixture[str]) -> None:
    text = profiled(capsys, DIGITS, *FAST, "--top", "1", "--details")
    assert re.search(r"^  tile +\S", text, re.MULTILINE)
    assert re.search(r"^  MTE2 +\d", text, re.MULTILINE)
    assert re.search(r"^  (ddr|llb)_\w+ +[\d,]+ bytes in [\d,]+ copies$", text, re.MULTILINE)


def test_an_artifact_gives_the_same_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(tmp_path / "digits.twm")
    assert main(["compile", DIGITS, *FAST, "-o", file]) == 0
    capsys.readouterr()
    of_model = json.loads(profiled(capsys, DIGITS, *FAST, "--json"))
    of_artifact = json.loads(profiled(capsys, file, "--onnx", DIGITS, "--json"))
    for each in (*of_model["layers"], *of_artifact["layers"]):
        each.pop("tile")  # an artifact does not hold them
    assert of_artifact == of_model
    without = json.loads(profiled(capsys, file, "--json"))
    assert without["bound"] is None
    assert without["cycles"] == of_model["cycles"]


def test_an_artifact_of_another_model_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, other = str(tmp_path / "digits.twm"), tmp_path / "other.onnx"
    other.write_bytes(Path(DIGITS).read_bytes() + b"\x12\x01x")  # with another producer's name
    assert main(["compile", DIGITS, *FAST, "-o", file]) == 0
    assert main(["profile", file, "--onnx", str(other)]) == 2
    assert "TW0030" in capsys.readouterr().err


def test_layers_add_up_to_the_cycles_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(profiled(capsys, DIGITS, *FAST, "--json"))
    assert main(["run", DIGITS, *FAST, "--random-inputs", "0", "--json"]) == 0
    ran = json.loads(capsys.readouterr().out)
    assert sum(layer["cycles"] for layer in content["layers"]) == content["cycles"] == ran["cycles"]
    assert content["ddr_bytes"] == ran["statistics"][0]["ddr"]["bytes"]
    assert content["ddr_bytes"] == sum(each["bytes"] for each in content["ddr_traffic"])


def test_the_schema_is_the_one_that_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(profiled(capsys, DIGITS, *FAST, "--json"))
    text = (ROOT / "docs/profile.md").read_text(encoding="utf-8")
    of_model, of_layer = text.split("## `--json`")[1].split("| key of a layer |")

    def keys(table: str) -> set[str]:
        firsts = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
        return {key for first in firsts for key in re.findall(r"`(\w+)`", first)}

    assert keys(of_model) == set(content)
    assert keys(of_layer) == set(content["layers"][0])


def test_the_flame_is_in_folded_stacks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "digits.folded"
    content = json.loads(profiled(capsys, DIGITS, *FAST, "--flame", str(file), "--json"))
    stacks = [line.rsplit(" ", 1) for line in file.read_text().splitlines()]
    assert all(len(stack.split(";")) == 3 for stack, _ in stacks)
    assert sum(int(count) for _, count in stacks) == content["ddr_bytes"]


def test_the_report_and_the_trace_are_of_the_same_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    html, trace = tmp_path / "digits.html", tmp_path / "digits.json"
    text = profiled(capsys, DIGITS, *FAST, "--html", str(html), "--trace", str(trace), "--core", "1", "--json")
    cycles = json.loads(text)["cycles"]
    assert f"{cycles:,} cycles" in html.read_text(encoding="utf-8")
    assert "Timeline of core 1" in html.read_text(encoding="utf-8")
    content = json.loads(trace.read_text())
    assert content["otherData"]["cycles"] == cycles
    assert any(event.get("name") == "/conv1/Conv + /Relu" for event in content["traceEvents"])


def test_what_depends_on_data_is_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, file = tmp_path / "jump.twasm", str(tmp_path / "jump.twm")
    source.write_text("""
    .chip tiny
    .cores 1
    .input links ddr int32 [4]
    sld.ddr.int32 x1, [links]
    halt
""")
    assert main(["asm", str(source), "-o", file]) == 0
    assert main(["profile", file]) == 0
    assert "--random-inputs 0" in capsys.readouterr().err
    assert main(["profile", file, "--random-inputs", "3"]) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--onnx", DIGITS, DIGITS], 2),
        ([DIGITS, "--sort", "luck"], 2),
        (["nowhere.onnx"], 3),
        (["nowhere.twm"], 3),
        ([DIGITS, "--input", "image"], 2),
        ([DIGITS, *FAST, "--core", "2"], 2),
        ([DIGITS, *FAST, "--html", "report", "--trace", "./report"], 2),
        ([DIGITS, *FAST, "--flame", DIGITS], 2),
        ([DIGITS, *FAST, "--html", "nowhere/report.html"], 3),
    ],
)
def test_refusals(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", *words]) == code
    assert "error[" in capsys.readouterr().err


def test_the_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs/profile.md").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "docs/examples", tmp_path / "docs/examples")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^tilewright (.*)$", text, re.MULTILINE)
    assert len(commands) > 2
    for command in commands:
        assert main(command.split()) == 0, (command, capsys.readouterr().err)


def test_the_command_lists_all_orders() -> None:
    assert profile.SORTS == SORTS
