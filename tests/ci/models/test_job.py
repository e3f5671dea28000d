"""The job as a whole: what it selects, what it reports, how it goes on, and that a planted slow-down fails it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ci.models import __main__ as job
from ci.models import history, journal, junit, page, record
from ci.models.cases import Case, Task, cases, tasks
from ci.models.observe import Options
from ci.models.outcome import STAGES, Outcome, Passed, funnel, judged
from models import zoo
from models.manifest import ExpectedFailure

ROOT = Path(__file__).parents[3]
FACTS = {"cycles": 10, "instructions": 2, "program_bytes": 64, "constant_bytes": 8, "ddr_bytes": 16, "seconds": 1.0}


def passed(case: Case, stages: int = len(STAGES), error: str = "") -> Outcome:
    found = tuple(Passed(stage, 1.0, {"cycles": 10} if stage == "run" else {}) for stage in STAGES[:stages])
    return Outcome(case, found, error, {**FACTS, "trail": "import=1"} if stages > 2 else {})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """Takes the place of processes: fp32 is right, fp16 does not import. Notes which cases it was asked for."""
    asked: list[Case] = []

    def outcomes(waiting: Sequence[Task], options: Options, jobs: int, timeout: float) -> Iterator[Outcome]:
        for case in (case for task in waiting for case in task.cases):
            asked.append(case)
            right = case.precision == "fp32"
            yield passed(case) if right else passed(case, 0, "error[TW1]: no")

    monkeypatch.setattr(job.processes, "outcomes", outcomes)
    return asked


def test_cases_are_selected_by_pattern_chip_and_precision() -> None:
    assert cases("full", ["digits*"], ["tiny", "tw2"], ["fp16"]) == [
        Case("digits-cnn", "tiny", "fp16"),
        Case("digits-cnn", "tw2", "fp16"),
    ]
    assert {case.model for case in cases("full", [], ["tiny"], [])} >= {"mlp-256", "lstm-16", "resnet-block-16"}
    assert Case("resnet50-224", "tiny", "fp32") not in cases("full", [], [], [])


def test_the_tiers_are_as_large_as_they_should_be() -> None:
    assert len(zoo.MODELS) >= 80
    assert 4 <= len(cases("smoke", [], [], [])) <= 16
    every = set(cases("full", [], [], []))
    assert set(cases("smoke", [], [], [])) < every
    gate = cases("gate", [], [], [])
    assert [case.model for case in gate] == list(zoo.names())
    assert set(gate) < every
    for part in (1, 2):  # all chips, all precisions
        assert {case[part] for case in gate} == {case[part] for case in every}


def test_tasks_that_took_long_come_first() -> None:
    chosen = [Case("a", "tiny", "fp16"), Case("b", "tiny", "fp16"), Case("b", "tw1", "fp16")]
    seconds = {chosen[0]: 3.0, chosen[1]: 2.0, chosen[2]: 2.0}
    assert [task.cases[0].model for task in tasks(chosen)] == ["a", "b"]
    assert [task.cases[0].model for task in tasks(chosen, seconds)] == ["b", "a"]


def test_the_job_fails_and_reports_when_a_case_does(
    engine: list[Case], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, past = tmp_path / "out", tmp_path / "history.jsonl"
    command = ["--only", "mlp-256", "--chip", "tw1", "--jobs", "2", "--out", str(out), "--history", str(past)]
    assert job.main(command) == 1
    shown = capsys.readouterr().out
    assert "FAILED: mlp-256/tw1/fp16 at import\n    error[TW1]: no" in shown
    assert "2 cases: import 1 (50.0 %), compile 1 (100.0 %), run 1 (100.0 %), match 1 (100.0 %), perf 1" in shown
    results = json.loads((out / "results.json").read_text())
    assert [case["failed"] for case in results["cases"]] == ["", "import"]
    assert results["funnel"] == {"import": 1, "compile": 1, "run": 1, "match": 1, "perf": 1}
    assert (out / "index.html").read_text().startswith("<!doctype html>")
    assert [run["failures"] for run in history.read(past)] == [["mlp-256/tw1/fp16"]]
    assert job.main(["--only", "mlp-256", "--chip", "tw1", "--precision", "fp32"]) == 0
    assert job.main(["--only", "no such model"]) == 1


def test_a_case_that_is_reported_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(waiting: Sequence[Task], options: Options, jobs: int, timeout: float) -> Iterator[Outcome]:
        yield from (passed(waiting[0].cases[0]), passed(waiting[0].cases[0]))

    monkeypatch.setattr(job.processes, "outcomes", twice)
    with pytest.raises(RuntimeError, match="reported twice"):
        job.main(["--only", "mlp-256", "--chip", "tw1"])


def test_a_run_that_was_interrupted_goes_on_where_it_was(engine: list[Case], tmp_path: Path) -> None:
    command = ["--only", "mlp-256", "--chip", "tw1", "--journal", str(tmp_path / "journal.jsonl")]
    job.main(command)
    assert len(engine) == 2
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"of": "half a li')
    job.main(command)
    assert [case.precision for case in engine[2:]] == ["fp16"]  # what failed is tried again
    other = Options(traces="elsewhere")
    assert journal.read(tmp_path / "journal.jsonl", other, [Case("mlp-256", "tw1", "fp32")]) == {}


def test_recording_writes_what_passed_and_keeps_the_seconds_that_hardly_changed(
    engine: list[Case], tmp_path: Path
) -> None:
    command = ["--only", "mlp-256", "--chip", "tw1", "--record", "--expected", str(tmp_path / "expected")]
    job.main([*command, "--journal", str(tmp_path / "journal.jsonl")])
    held = record.load("mlp-256", tmp_path / "expected")
    assert list(held) == ["tw1/fp32"]
    record.store(Case("mlp-256", "tw1", "fp32"), {**FACTS, "trail": "", "seconds": 1.9}, tmp_path / "expected")
    assert record.load("mlp-256", tmp_path / "expected")["tw1/fp32"]["seconds"] == 1
    record.keep_only("mlp-256", ["tw2/fp32"], tmp_path / "expected")
    assert record.load("mlp-256", tmp_path / "expected") == {}


def expecting(monkeypatch: pytest.MonkeyPatch, stage: str, message: str) -> Case:
    known = ExpectedFailure(stage, message, "a bug that is known", chips=("tw1",))
    model = replace(zoo.manifest("mlp-256"), expected_failures=(known,))
    monkeypatch.setattr(zoo, "manifest", lambda name: model)
    return Case("mlp-256", "tw1", "fp32")


def test_an_expected_failure_is_right_and_nothing_else_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    case = expecting(monkeypatch, "compile", "no instruction")
    known = judged(passed(case, 1, "error: no instruction does it"))
    assert known.right and known.expected == "a bug that is known"
    assert not judged(passed(case, 1, "error: something else")).right
    assert not judged(passed(case, 2, "error: no instruction does it")).right
    surprise = judged(passed(case))
    assert not surprise.right and "take that out of the zoo" in surprise.error
    assert judged(passed(Case("mlp-256", "tw2", "fp32"))).right


def test_junit_xml_says_what_failed_and_holds_whatever_a_message_does(monkeypatch: pytest.MonkeyPatch) -> None:
    case = expecting(monkeypatch, "import", "known")
    outcomes = [
        passed(case._replace(chip="tw2")),
        passed(case, 3, "bad \x00<&>\nmore"),
        judged(passed(case, 0, "known")),
    ]
    root = ElementTree.fromstring(junit.xml(outcomes))  # noqa: S314  our own
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [child.tag for each in suite for child in each] == ["failure", "skipped"]
    failure = suite[1][0]
    assert (failure.get("type"), failure.get("message")) == ("match", "bad ?<&>")


def test_the_page_needs_nothing_else_and_escapes_what_models_are_called(tmp_path: Path) -> None:
    case = Case("mlp-256", "tw1", "fp32")
    bad = replace(passed(case, 3, "<script>alert(1)</script>"), facts={**FACTS, "traces": ["a b.trace.json"]})
    past: list[dict[str, Any]] = [{"cycles": {str(case): cycles}, "funnel": {"run": 1}} for cycles in (12, 11, 10)]
    text = page.html([bad], past, tmp_path)
    assert "<script>alert(1)" not in text and "&lt;script&gt;" in text
    assert "http" not in text and "src=" not in text and "<link" not in text
    assert "href='traces/a%20b.trace.json'" in text
    assert "12 to 10 cycles in 3 runs" in text


def test_the_funnel_counts_what_came_through() -> None:
    case = Case("mlp-256", "tw1", "fp32")
    assert funnel([passed(case, 2, "x"), passed(case)]) == {"import": 2, "compile": 2, "run": 1, "match": 1, "perf": 1}


@pytest.mark.slow
def test_a_planted_slow_down_fails_the_job_which_names_the_pass(tmp_path: Path) -> None:
    """The compiler is recorded, one of its passes is made to do nothing, and the same command is run again."""
    tree = tmp_path / "tree"
    for folder in ("compiler", "passes", "patches", "ci", "models"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(command, cwd=tree, env={"PATH": "", "TILEWRIGHT_CACHE": str(tmp_path / "cache")},
                              capture_output=True, text=True, check=False)  # fmt: skip

    chosen = ("--only", "mlp-256", "--chip", "tiny", "--precision", "fp16")
    done = run("ci.models", *chosen, "--record")
    assert done.returncode == 0, done.stdout + done.stderr
    assert run("ci.models", *chosen).returncode == 0

    source = tree / "passes" / "tir" / "double_buffer.py"
    signature = "    def run(self, subject: Any, chip: Chip) -> Any:\n"
    text = source.read_text()
    assert signature in text
    source.write_text(text.replace(signature, f"{signature}        return subject\n"))
    done = run("ci.models", *chosen, "--out", "out")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: mlp-256/tiny/fp16 at perf" in done.stdout
    assert "first to differ: pass double-buffer" in done.stdout
    (traced,) = (tree / "out" / "traces").iterdir()
    assert traced.name in (tree / "out" / "index.html").read_text()

    done = run("ci.models.difference", "mlp-256/tiny/fp16", "--against", str(ROOT))
    assert "first to differ: pass double-buffer" in done.stdout, done.stdout + done.stderr
    assert "there (-) and here (+):" in done.stdout
