"""What a compilation says of how the graph runs, and of what goes through DDR between kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

import compiler
from compiler.driver import compile_model
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.report.compilation import report_of
from compiler.report.text import summary
from compiler.schedule.noted import Searched
from compiler.target import load_chip
from models import zoo
from tests.test_driver import model, node


def lines(name: str, chip: str, times: int = 1, without: str = "") -> tuple[list[str], dict[str, object]]:
    model = zoo.build(zoo.batched(name, times)).SerializeToString()
    observer = Observer(without=frozenset({without} - {""}))
    report = report_of(compile_model(model, load_chip(chip), Options(precision="fp16", jobs=1), observer))
    return list(summary(report, 1.0)), report.to_dict()


def test_results_that_stay_on_the_chip_are_said_to() -> None:
    text, tables = lines("resnet-block-16", "tw2")
    assert any("nothing goes through DDR" in line for line in text)
    assert tables["far_results"] == () and (tables["clusters"], tables["pieces"]) == (0, 1)
    assert not any(line.strip().startswith("schedule") for line in text)


def test_results_that_cannot_stay_say_why() -> None:
    text, tables = lines("resnet-block-16", "tw1", without="divide-batch")
    assert any("its 4 clusters have no LLB in common" in line for line in text)
    (first, *_) = tables["far_results"]  # type: ignore[misc]
    assert first["bytes"] > 0 and first["nodes"] and first["reason"].startswith("its 4 clusters")


def test_a_model_that_one_cluster_runs_is_said_to_be() -> None:
    text, tables = lines("resnet-block-16", "tw1")
    assert (tables["clusters"], tables["far_results"]) == (1, ())
    assert any("one cluster runs it" in line for line in text)


@pytest.mark.usefixtures("first_tiles")
def test_a_batch_that_clusters_divide_is_said_to_be() -> None:
    text, tables = lines("digits-cnn", "tw1", 4)
    assert tables["clusters"] == 4
    assert any("each of 4 clusters has a part of the batch" in line for line in text)


def test_how_good_a_schedule_is_known_to_be_is_said(tmp_path: Path) -> None:
    nodes = [node("Softmax", "x", "a"), node("Softmax", "a", "b", axis=2), node("Softmax", "b", "y")]
    source = model(nodes, {"x": (16, 4, 64, 16)}, ["y"])
    artifact = compiler.compile(source, "tiny")
    search = artifact.report.to_dict()["search"]
    assert search["cycles"] == search["bound_cycles"] > 0 == search["gap"]
    said = f"{search['cycles']:,} cycles by the model of the search, exact: no other takes fewer"
    assert any(line.strip() == said for line in summary(artifact.report, 1.0))
    assert artifact.schedule.startswith(f"# {said}\n")
    assert Searched(110, 100, 0.1).said == "110 cycles by the model of the search, within 10.0% of the fewest"
    given = tmp_path / "schedule.toml"
    given.write_text(artifact.schedule)
    assert compiler.compile(source, "tiny", schedule=given).report.search is None
