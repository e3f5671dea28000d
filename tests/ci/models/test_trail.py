"""A changed program names the step that changed it first."""

from __future__ import annotations

from typing import Any

import pytest

import compiler
from ci.models.trail import Step, Trail, as_text, explained, first_difference, from_text
from compiler.pipeline import Observer
from models import zoo
from passes.tir.double_buffer import DoubleBuffer


def steps(text: str) -> list[Step]:
    return from_text(text)


def test_a_trail_survives_its_text() -> None:
    held = [Step("import", "1a"), Step("loop-shift 2", "2b"), Step("then shift-addresses", "3c")]
    assert from_text(as_text(held)) == held


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ("import=1 a=2 b=3", "import=1 a=2 b=3", ""),
        ("import=1 a=2 b=3", "import=1 a=9 b=8", "a"),
        ("import=1 a=2 b=3", "import=1 a=2 new=5 b=8", "new"),
        ("import=1 a=2 gone=4 b=3", "import=1 a=2 b=8", "gone"),
        ("import=1 a=2", "import=1 a=2 last=3", "last"),
        ("import=1 old=2 b=3", "import=1 new=4 b=5", "new"),
    ],
)
def test_the_first_difference_is_named(before: str, now: str, named: str) -> None:
    assert first_difference(steps(before), steps(now)) == named


def test_steps_are_explained() -> None:
    assert explained("double-buffer") == "pass double-buffer"
    assert explained("then double-buffer").startswith("pass double-buffer (on a tile other than the first")
    assert explained("choice").startswith("choice: ")
    assert "simulator" in explained("")


def trail_of(name: str, chip: str) -> list[Step]:
    watch = Trail()
    artifact = compiler.compile(zoo.build(name), chip=chip, precision="fp16", cache=False, observer=Observer([watch]))
    return watch.steps(artifact.model, [kernel.tile for kernel in artifact.report.kernels])


def test_a_planted_slow_down_of_a_pass_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = trail_of("resnet-block-16", "tiny")
    assert trail_of("resnet-block-16", "tiny") == before  # the same compiler leaves the same trail

    def idle(self: DoubleBuffer, subject: Any, chip: Any) -> Any:
        return subject

    monkeypatch.setattr(DoubleBuffer, "run", idle)
    assert first_difference(before, trail_of("resnet-block-16", "tiny")) == "double-buffer"


def test_passes_stand_in_the_order_of_the_pipeline_and_choices_between_tiles_behind_them() -> None:
    names = [step.name for step in trail_of("digits-cnn", "tiny")]
    assert names[0] == "import"
    assert names.index("group-operators") < names.index("tiling") < names.index("lower-blocks")
    assert names.index("lower-blocks") < names.index("double-buffer") < names.index("choice")
    assert names.index("choice") < names.index("then lower-blocks") < names.index("then insert-sync")
    assert names[-1] == "program"
