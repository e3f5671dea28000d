"""The demo shows right predictions and what they cost, the same every time, and fails where they are wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ci import demo


@pytest.fixture(autouse=True)
def one_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "CHIPS", ("tw1",))


def test_shows_the_same_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for _ in range(2):
        assert demo.main() == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert re.search(r"\d of 360 digits that it was not trained on are right", shown[0])
    assert "hazards: none" in shown[0]
    assert re.search(r"[\d,]+ cycles for 30 images", shown[0])


def test_fails_where_digits_are_wrong(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "predictions", lambda model, images: np.full(len(images), 3))
    monkeypatch.setattr(demo, "cost", lambda model: [])
    assert demo.main() == 1
    assert "too many digits are wrong" in capsys.readouterr().err


def test_a_picture_has_its_caption_below() -> None:
    lines = demo.pictures(np.array([[[[0.0, 1.0]]], [[[0.5, 0.0]]]], np.float32), ["7", "1"])
    assert lines == ["  @@   ++", "7      1"]
