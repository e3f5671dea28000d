"""The model regression job: it passes where a compiler is right, and fails on whatever is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from ci import models as job
from ci.models import STAGES, Case, Compiled, Mismatch, Ran
from compiler.errors import HazardError, Problem
from models.checks import run as run_onnxruntime

MLP = Case("mlp-256", "tw1", "fp32")
DIGITS = Case("digits-cnn", "tw1", "fp16")


def genuine(model: onnx.ModelProto, case: Case) -> Compiled:
    """A compiler that is right."""
    return Compiled(lambda inputs, hazards: Ran(run_onnxruntime(model, inputs), 1000), ())


def test_a_right_compiler_passes_all_stages() -> None:
    passed = list(job.observe(MLP, genuine))
    assert [each.stage for each in passed] == list(STAGES)
    assert passed[2].found == {"cycles": 1000}
    assert passed[3].found == {"logits": "error 0"}


def test_the_trained_network_is_compared_over_its_whole_hold_out_set() -> None:
    *_, last = job.observe(DIGITS, genuine)
    assert last.found["right answers"] == "354, by onnxruntime 354"


def test_another_accuracy_is_a_mismatch() -> None:
    def forgetful(model: onnx.ModelProto, case: Case) -> Compiled:
        def run(inputs: Mapping[str, np.ndarray], hazards: bool) -> Ran:
            return Ran({key: value * hazards for key, value in run_onnxruntime(model, inputs).items()}, 1)

        return Compiled(run, ())

    with pytest.raises(Mismatch, match="right answers on the hold-out set, 354 by onnxruntime"):
        list(job.observe(DIGITS, forgetful))


def test_wrong_values_are_a_mismatch() -> None:
    def wrong(model: onnx.ModelProto, case: Case) -> Compiled:
        return Compiled(lambda inputs, hazards: Ran({"logits": np.zeros((16, 10), np.float32)}, 1), ())

    with pytest.raises(Mismatch, match=r"logits: error is .* times the tolerance"):
        list(job.observe(MLP, wrong))


def test_a_host_kernel_that_is_not_expected_is_a_mismatch() -> None:
    def lazy(model: onnx.ModelProto, case: Case) -> Compiled:
        return Compiled(genuine(model, case).run, ("Gemm",))

    with pytest.raises(Mismatch, match=r"on the host run \['Gemm'\], expected are \[\]"):
        list(job.observe(MLP, lazy))


def test_a_hazard_fails_the_run_and_only_there() -> None:
    def hazardous(model: onnx.ModelProto, case: Case) -> Compiled:
        def run(inputs: Mapping[str, np.ndarray], hazards: bool) -> Ran:
            assert hazards
            raise HazardError(Problem("TW9999", "a race"))

        return Compiled(run, ())

    stages = job.observe(MLP, hazardous)
    assert [next(stages).stage, next(stages).stage] == ["import", "compile"]
    with pytest.raises(HazardError):
        next(stages)


def test_a_process_that_ends_early_failed_at_the_stage_it_did_not_print() -> None:
    printed = (
        '{"stage": "import", "seconds": 0.0, "found": {}}\n{"stage": "compile", "seconds": 2.0, "found": {}}\n{"st'
    )
    found = job.concluded(MLP, printed, "", -11)
    assert (found.failed, found.error) == ("run", "the process ended with status -11 and no message")
    assert found.seconds("compile") == 2.0
    assert job.funnel([found]) == {"import": 1, "compile": 1, "run": 0, "match": 0}


def test_cases_are_selected_by_pattern_chip_and_precision() -> None:
    assert job.cases(["digits*"], ["tiny", "tw2"], ["fp16"]) == [
        Case("digits-cnn", "tiny", "fp16"),
        Case("digits-cnn", "tw2", "fp16"),
    ]
    assert {case.model for case in job.cases([], ["tiny"], [])} >= {"mlp-256", "lstm-16", "resnet-block-16"}
    assert Case("resnet50-224", "tiny", "fp32") not in job.cases([], [], [])


def test_the_job_fails_and_reports_when_a_case_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stages = "".join(json.dumps({"stage": stage, "seconds": 1.0, "found": {}}) + "\n" for stage in STAGES)

    def outcome(case: Case, timeout: float) -> job.Outcome:
        right = case.precision == "fp32"
        return job.concluded(case, stages, "", 0) if right else job.concluded(case, "", "error[TW1]: no", 1)

    monkeypatch.setattr(job, "outcome", outcome)
    report = tmp_path / "report.json"
    assert job.main(["--only", "mlp-256", "--chip", "tw1", "--jobs", "2", "--json", str(report)]) == 1
    shown = capsys.readouterr().out
    assert "FAILED: mlp-256/tw1/fp16 at import\n    error[TW1]: no" in shown
    assert "2 cases: import 1, compile 1, run 1, match 1" in shown
    assert [case["failed"] for case in json.loads(report.read_text())["cases"]] == ["", "import"]
    assert job.main(["--only", "mlp-256", "--chip", "tw1", "--precision", "fp32"]) == 0
    assert job.main(["--only", "no such model"]) == 1
