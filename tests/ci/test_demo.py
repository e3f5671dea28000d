"""The demo shows a right result and what it cost, the same every time, and fails where a result is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ci import demo


def test_shows_the_same_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for _ in range(2):
        assert demo.main() == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert all(name in shown[0] for name in demo.SHOWN)
    assert shown[0].count("hazards: none") == len(demo.SHOWN)


def test_fails_on_a_wrong_result(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    case = next(case for case in demo.CASES if case.name == demo.SHOWN[0])
    monkeypatch.setattr(demo, "CASES", [replace(case, expected=lambda inputs: {"c": case.expected(inputs)["c"] + 1})])
    assert demo.main() == 1
    assert f"{case.name} failed" in capsys.readouterr().err
