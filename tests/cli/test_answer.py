"""``--json``: every verb answers with one document of one style, whether it succeeds or fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compiler.cli.main import VERBS, main
from compiler.reproducer.bundle import write_bundle
from tests.cli.onnx_models import saved

Capture = pytest.CaptureFixture[str]

PROGRAM = ".chip tiny\n    halt\n"

# For each verb the words with which it succeeds, {folder} being the one that holds what `files` makes.
SUCCEEDING: dict[str, list[str]] = {
    "compile": ["{folder}/perceptron.onnx", "--chip", "tiny", "-o", "{folder}/new.twm"],
    "run": ["{folder}/model.twm", "--random-inputs", "1"],
    "verify": ["{folder}/perceptron.onnx", "--chip", "tiny"],
    "profile": ["{folder}/model.twm"],
    "explain": ["{folder}/perceptron.onnx", "sum_node", "--chip", "tiny"],
    "cache": ["status"],
    "ops": ["Relu"],
    "new-op": ["Answer", "--folder", "{folder}/new-op"],
    "compile-op": ["Relu", "--input", "x=float32[8]", "--chip", "tiny", "-o", "{folder}/new.twm"],
    "op-test": ["{folder}/answered_op.py", "--quick", "--chip", "tiny"],
    "doctor": [],
    "replay": ["{folder}/bundle.zip"],
    "asm": ["{folder}/program.twasm", "-o", "{folder}/new.twm"],
    "disasm": ["{folder}/program.twm"],
    "exec": ["{folder}/program.twm"],
    "chips": ["tiny"],
    "isa": ["halt"],
    "inspect": ["{folder}/model.twm"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    model = saved(folder)
    (folder / "program.twasm").write_text(PROGRAM)
    assert main(["compile", str(model), "--chip", "tiny", "-o", str(folder / "model.twm")]) == 0
    assert main(["asm", str(folder / "program.twasm")]) == 0
    assert main(["new-op", "test.answers::Answered", "--folder", str(folder)]) == 0
    bundle, _ = write_bundle(ValueError("gone by now"), ["isa", "halt"], "full")
    bundle.rename(folder / "bundle.zip")
    return folder


def answer(capsys: Capture) -> dict[str, Any]:
    """All of standard output, which is one document and nothing else."""
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_every_verb_is_tried() -> None:
    assert set(SUCCEEDING) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_answers(verb: str, folder: Path, capsys: Capture) -> None:
    words = [word.format(folder=folder) for word in SUCCEEDING[verb]]
    capsys.readouterr()
    assert main([verb, *words, "--json"]) == 0
    found = answer(capsys)
    assert list(found)[:2] == ["schema_version", "verb"]
    assert (found["schema_version"], found["verb"]) == (1, verb)
    assert "problems" not in found


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_answers_when_it_fails(verb: str, capsys: Capture) -> None:
    assert main([verb, "--no-such-option", "--json"]) == 2
    found = answer(capsys)
    assert list(found) == ["schema_version", "verb", "exit_code", "problems"]
    assert (found["schema_version"], found["verb"], found["exit_code"]) == (1, verb, 2)
    assert found["problems"][0]["code"] == "TW0002"
    assert set(found["problems"][0]) == {"code", "message", "place", "help"}


def test_a_failure_has_every_problem_with_its_place(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "bad.twasm"
    path.write_text(".chip tiny\n    no_such x1\n    neither x2\n    halt\n")
    assert main(["asm", str(path), "--json"]) == 4
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [problem["code"] for problem in found["problems"]] == ["TW1207", "TW1207"]
    assert [problem["place"]["line"] for problem in found["problems"]] == [2, 3]
    assert captured.err.count("error[TW1207]") == 2


@pytest.mark.parametrize("verb", ["ops", "isa"])
def test_two_forms_at_once_are_refused(verb: str, capsys: Capture) -> None:
    assert main([verb, "--json", "--markdown"]) == 2
    assert "not allowed with argument --json" in capsys.readouterr().err
