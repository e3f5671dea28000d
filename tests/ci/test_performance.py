"""The tables of how fast compiled programs are: what they are made of, and that they can tell a change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ci.performance import __main__ as performance
from ci.performance import ablation, document, kernels, ladder, models
from ci.performance.operators import OPERATORS
from ci.performance.tables import geometric_mean, markdown
from tests.handwritten import cases


def test_operators_have_names_of_their_own_and_build_models():
    assert len({each.name for each in OPERATORS}) == len(OPERATORS)
    for each in OPERATORS:
        (output,) = each.model().graph.output
        assert tuple(dim.dim_value for dim in output.type.tensor_type.shape.dim) == each.output, each.name


def test_every_handwritten_baseline_is_compared():
    """But the sinh programs, which belong to the calibration: their tiles are those of the public measurement."""
    compared = {each.handwritten.format(chip=chip) for each in OPERATORS if each.handwritten for chip in kernels.CHIPS}
    wanted = {case.name for case in cases() if not case.name.startswith("sinh")}
    assert wanted <= compared


def test_a_small_operator_is_measured():
    one = kernels.row("gemm-256", "tw2")
    assert one.measured.cycles >= one.bound.cycles
    assert one.measured.ddr_bytes >= 3 * 256 * 256 * 2
    assert 0 < one.measured.busy_share <= 1
    assert len(kernels.cells(one)) == len(kernels.HEAD)
    assert "gemm-256" in kernels.section([one])


def test_ablation_counts_what_each_switch_changes():
    one = ablation.row("resnet-block-16", "tiny", ["double-buffer"])
    assert one.measured["double-buffer"].cycles >= one.measured[ablation.ALL].cycles
    assert "hazards in all of these runs: 0" in ablation.section([one], ["double-buffer"])


def test_models_are_measured_at_a_larger_batch():
    single, sixteen = (models.row("resnet-block-16", "tw2", batch) for batch in (1, 16))
    assert single.measured.cycles < sixteen.measured.cycles
    assert single.bound.of_rates < sixteen.bound.of_rates
    assert "resnet-block-16" in models.section([single, sixteen])


def test_a_change_of_cycles_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    one = kernels.row("gemm-256", "tw2")
    monkeypatch.setattr(performance, "RECORD", tmp_path / "recorded.json")
    monkeypatch.setattr(kernels, "rows", lambda *_: iter([one]))
    performance.record(kernels.as_json([one]))
    assert performance.main(["--check"]) == 0
    known = json.loads(performance.RECORD.read_text())
    known["gemm-256/tw2"]["cycles"] += 1
    performance.RECORD.write_text(json.dumps(known))
    assert performance.main(["--check"]) == 1
    assert "CHANGED" in capsys.readouterr().out


def test_part_of_a_table_is_not_written(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(document, "write", None)
    with pytest.raises(SystemExit) as ended:
        performance.main(["kernels", "--write", "--only", "gemm-256", "--tune", "3"])
    assert ended.value.code == 2
    assert "not with --only, --tune" in capsys.readouterr().err


def test_the_document_has_a_place_for_every_part():
    text = document.PATH.read_text()
    for part in performance.PARTS:
        assert "new words\n<!-- end -->" in document.with_part(text, part, "new words")
    with pytest.raises(ValueError, match="no part nonsense"):
        document.with_part(text, "nonsense", "")


def test_tables():
    assert geometric_mean([1, 4]) == pytest.approx(2)
    assert markdown(("a", "b"), [("x", "1")]) == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_the_ladder_takes_one_part_of_scheduling_more_each_time() -> None:
    small = replace(ladder.SERVED[-1], options={**ladder.SERVED[-1].options, "layers": 1, "width": 64})
    small = replace(small, inputs=tuple(replace(each, shape=(4, 16, 64)) for each in small.inputs))
    found = ladder.row(small, "tw2", 1)
    assert list(found.rungs) == list(ladder.RUNGS) and found.batch == 4
    before, after = (found.rungs[name] for name in ("kernel by kernel", ladder.ALL))
    assert before.far_results > after.far_results == 0
    assert after.measured.cycles < before.measured.cycles
    assert 0 < found.peak_share < found.rungs[ladder.ALL].measured.cube_share < 1
    assert str(found.batch) in ladder.cells(found) and "1.00x" not in ladder.summary([found])[0].split("; ")[-1]
