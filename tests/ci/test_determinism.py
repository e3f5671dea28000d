"""The determinism job sees a difference wherever there is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ci import determinism
from tests.handwritten import cases

CASE = next(case for case in cases() if case.name.startswith("sinh-tw1-8x64"))
SAME = {"artifact": "a", "cycles": 7, "outputs, 1 workers": "o", "outputs, 2 workers": "o"}


def test_what_is_observed_does_not_depend_on_the_directory(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two" / "three"]
    for folder in folders:
        folder.mkdir(parents=True)
    first, second = (determinism.observe(CASE, folder) for folder in folders)
    assert first == second
    assert set(first) == {"artifact", "cycles", "schedule", *(f"outputs, {n} workers" for n in determinism.WORKERS)}
    assert list(determinism.differences(first, second)) == []


@pytest.mark.parametrize("what", SAME)
def test_a_difference_between_processes_is_reported(what: str) -> None:
    other = SAME | {what: "another"}
    assert any(text.startswith(what) for text in determinism.differences(SAME, other))


def test_a_missing_case_is_a_difference() -> None:
    assert len(list(determinism.differences(SAME, {}))) == len(SAME)


def test_outputs_that_depend_on_the_workers_are_reported() -> None:
    mixed = SAME | {"outputs, 2 workers": "another"}
    assert [text for text in determinism.differences(mixed, mixed) if "number of workers" in text]


@pytest.mark.parametrize(
    "other",
    [np.array([0.0, -0.0], np.float32), np.zeros(2, np.int32), np.zeros((2, 1), np.float32)],
    ids=["sign of zero", "type", "shape"],
)
def test_the_digest_sees_every_bit_and_the_type_and_shape(other: np.ndarray) -> None:
    assert determinism.digest({"y": np.zeros(2, np.float32)}) != determinism.digest({"y": other})


def test_no_case_of_that_name_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert determinism.main(["--case", "nothing"]) == 1
    assert "no case starts with" in capsys.readouterr().err
