"""The README's promises that code can check."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import compiler
from compiler.cli.main import VERBS, main
from compiler.errors import EXIT_CODES
from compiler.isa.assembler import assemble
from compiler.isa.declarations import DIRECTIVES
from compiler.isa.lexer import without_comment
from compiler.reproducer.bundle import write_bundle
from compiler.sim.simulator import simulate
from compiler.target import load_chip

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MACHINE = (ROOT / "docs/machine.md").read_text(encoding="utf-8")
EXAMPLES = "docs/examples"
EXAMPLE = f"{EXAMPLES}/add.twasm"


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of each; (name, text) of those that are files: ``python my_ops.py``"""
    return re.findall(r"^```(?:\w+ (?=\S))?([\w.]*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def write_files(page: str, folder: Path) -> None:
    """What the commands and programs shown read."""
    shutil.copytree(ROOT / EXAMPLES, folder / EXAMPLES)
    for name, text in blocks(page):
        if "." in name:
            (folder / name).write_text(text, encoding="utf-8")


def section(title: str, page: str = README) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section {title!r}"
    return found[1]


def test_exit_codes_are_the_ones_the_command_uses() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", section("Exit codes"), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == EXIT_CODES


def test_every_verb_has_a_section_with_an_example() -> None:
    examples = re.findall(r"^### `([\w-]+)`: .+\n```\ntilewright ([\w-]+)", section("The command"), re.MULTILINE)
    assert examples == [(verb, verb) for verb in VERBS]


def test_the_cycles_shown_are_those_of_now() -> None:
    """Of the first example, of the regression, and of the timeline that is drawn in the report's own page."""
    digits = ROOT / EXAMPLES / "digits.onnx"
    shown, drawn = (
        compiler.load(compiler.compile(digits, chip=chip, precision=precision)).timed()
        for chip, precision in (("tw2", None), ("tiny", "fp16"))
    )
    recorded = json.loads((ROOT / "models/expected/mlp-256.json").read_text(encoding="utf-8"))["tiny/fp16"]["cycles"]
    assert f"{sum(run.cycles for run in shown or ()):,} cycles = " in README
    assert re.search(rf"^mlp-256/tiny/fp16 .* {recorded:,}  logits", README, re.MULTILINE)
    timeline = (ROOT / "docs/timeline.svg").read_text(encoding="utf-8")
    assert f"{sum(run.cycles for run in drawn or ()):,} cycles" in timeline


def test_every_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for text in (README, (ROOT / "ci/README.md").read_text(encoding="utf-8")):
        named = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
        assert named and named <= targets


def test_links_lead_somewhere() -> None:
    to_be_generated = {"docs/isa.md"}  # by `make isa-docs`
    for page in (
        "README.md",
        "docs/machine.md",
        "docs/compiler.md",
        "docs/profile.md",
        "docs/architecture.md",
        "docs/adding-a-pass.md",
        "docs/adding-a-chip.md",
        "docs/adding-an-instruction.md",
        "docs/decisions.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "ci/README.md",
        "examples/README.md",
    ):
        text = (ROOT / page).read_text(encoding="utf-8")
        links = set(re.findall(r"\]\((?!https?:)([^)#]+)", text)) - to_be_generated
        assert all((ROOT / page).parent.joinpath(link).exists() for link in links), (page, links)


@pytest.mark.usefixtures("forget_operators", "as_planned")
@pytest.mark.parametrize("page", [README, MACHINE], ids=["README", "machine"])
def test_every_command_shown_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    main(["asm", EXAMPLE, "--chip", "tw2", "-o", "add.twm"])  # which the README takes from the other page
    write_bundle(ValueError("example"), ["isa", "halt"], "full")[0].rename("internal-error.zip")
    for words in commands_in(page):
        assert main(words[1:]) == 0, (words, capsys.readouterr().err)
    assert "hazards: none" in capsys.readouterr().out


def commands_in(page: str, command: str = "tilewright") -> list[list[str]]:
    shown = [line for language, block in blocks(page) if not language for line in block.splitlines()]
    return [shlex.split(line) for line in shown if line.startswith(f"{command} ")]


def test_the_regression_shown_runs(tmp_path: Path) -> None:
    (words,) = commands_in(README, "python")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = next(block for _, block in blocks(README) if block.startswith("case "))
    assert done.stdout.splitlines()[0] == shown.splitlines()[0]
    assert {"index.html", "results.json", "junit.xml"} <= {each.name for each in (tmp_path / "regression").iterdir()}


def test_every_verb_is_shown() -> None:
    assert {words[1] for words in commands_in(README)} == set(VERBS)


@pytest.mark.parametrize("page", [README, MACHINE], ids=["README", "machine"])
def test_the_python_shown_runs(page: str, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for program in [text for language, text in blocks(page) if language == "python"]:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_example_is_the_zoos() -> None:
    from models import zoo

    shipped = onnx.load(ROOT / EXAMPLES / "digits.onnx")
    assert shipped.SerializeToString(deterministic=True) == zoo.build("digits-cnn").SerializeToString(
        deterministic=True
    )


def test_the_loop_shown_is_the_one_that_runs() -> None:
    def bare(text: str) -> list[str]:
        return [line for each in text.splitlines() if (line := without_comment(each).strip())]

    shown, whole = bare(blocks(MACHINE)[0][1]), bare((ROOT / EXAMPLE).read_text(encoding="utf-8"))
    assert len(shown) > 10
    assert any(whole[at : at + len(shown)] == shown for at in range(len(whole)))


def test_the_race_shown_is_what_the_checker_says() -> None:
    lines = (ROOT / EXAMPLE).read_text(encoding="utf-8").splitlines()
    wait = lines.index("    wait_flag.mte2.v slot")
    add = next(at for at, line in enumerate(lines) if line.lstrip().startswith("vadd"))
    moved = [*lines[:wait], *lines[wait + 1 : add + 1], lines[wait], *lines[add + 1 :]]
    chip = load_chip("tw2")
    found = simulate(assemble("\n".join(moved), chip=chip), chip, hazards=True).hazards
    said = re.sub(r"\(instruction.*?\)", "(...)", "\n".join(problem.render() for problem in found))
    shown = next(block for _, block in blocks(MACHINE) if block.startswith("error[TW1405]"))
    assert shown.splitlines()[0] in said
    assert shown.splitlines()[1] in said


def test_every_directive_is_in_the_summary() -> None:
    summary = section("Writing a program", MACHINE)
    missing = [word for word in DIRECTIVES if f"`{word}" not in summary]
    assert not missing
