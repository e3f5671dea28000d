"""The job over ONNX's cases: it passes what is right, and fails on whatever is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

from ci import onnx_cases as job
from ci.onnx_cases import Case, DataSet, Outcome
from tests.frontend.models import model, node

X = np.array([[-1.5, 2], [3, -4]], np.float32)


def relu(expected: np.ndarray) -> Case:
    return Case(
        "test_relu", model([node("Relu", "x", "y")], {"x": [2, 2]}, ["y"]), (DataSet((X,), (expected,)),), 1e-3, 0
    )


def test_a_right_result_passes_all_stages() -> None:
    outcome = job.observe(relu(np.maximum(X, 0)), "tiny")
    assert (outcome.failed, outcome.on_host) == ("", ())


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (X, "2 of 4 elements differ, the first at [0, 0]"),
        (np.maximum(X, 0)[0], "has shape [2, 2], expected is [2]"),
        (np.maximum(X, 0).astype(np.float64), "is float32, expected is float64"),
    ],
)
def test_another_result_is_a_mismatch(expected: np.ndarray, message: str) -> None:
    outcome = job.observe(relu(expected), "tiny")
    assert outcome.failed == "match"
    assert message in outcome.message


def test_what_nobody_declared_fails_at_import() -> None:
    unknown = replace(relu(X), model=model([node("Det", "x", "y")], {"x": [2, 2]}, ["y"]))
    outcome = job.observe(unknown, "tiny")
    assert (outcome.failed, outcome.code) == ("import", "TW2030")


def test_inputs_that_decide_shapes_are_compiled_in() -> None:
    nodes = [node("Reshape", "x s", "r"), node("Tile", "r n", "y")]
    network = model(nodes, {"x": [None, 2], "s": (TensorProto.INT64, [1]), "n": (TensorProto.INT64, [1])}, ["y"])
    static, fed = job.specialised(network, (X, np.array([4]), np.array([2])))
    assert [info.name for info in static.graph.input] == list(fed) == ["x"]
    assert {tensor.name for tensor in static.graph.initializer} == {"s", "n"}


def test_an_unexpected_pass_fails_the_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    case = relu(X)
    monkeypatch.setattr(job, "outcome", lambda case, chip, timeout: Outcome(case.name))
    assert job.run([case], "tiny", 1, 1.0) == 0
    monkeypatch.setattr(job, "expected_failures", lambda: {"test_re*": "it is known to"})
    assert job.run([case], "tiny", 1, 1.0) == 1
    assert "PASSED test_relu, which was expected to fail: it is known to" in capsys.readouterr().out


def test_every_expected_failure_has_a_reason() -> None:
    assert all(reason for reason in job.expected_failures().values())
