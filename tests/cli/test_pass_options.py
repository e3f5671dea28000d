"""What `tilewright compile` shows of the passes, through the command's own entry point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compiler import kernel_pool, pipeline
from compiler.cli.main import main
from tests.cli.onnx_models import saved

Capture = pytest.CaptureFixture[str]


def compile_for_tiny(path: Path, *words: str) -> int:
    return main(["compile", str(path), "--chip", "tiny", *words])


def test_the_ir_of_every_pass_is_written(tmp_path: Path) -> None:
    assert compile_for_tiny(saved(tmp_path), "--dump-ir", str(tmp_path / "ir")) == 0
    folders = [json.loads(line) for line in (tmp_path / "ir" / "index.jsonl").read_text().splitlines()]
    assert folders[0] == {"folder": "000-graph", "kernel": "graph"}
    assert "product_node" in folders[1]["kernel"]
    names = [path.stem.partition("-")[2] for path in sorted((tmp_path / "ir" / folders[1]["folder"]).iterdir())]
    assert names == ["input", *(one.name for one in pipeline.kernel_passes())]


def test_the_times_of_passes_go_to_standard_error_and_are_of_all_kernels(tmp_path: Path, capsys: Capture) -> None:
    path = saved(tmp_path)
    for _ in range(2):  # the second time the cache has all kernels
        assert compile_for_tiny(path, "--time-passes", "--json") == 0
        captured = capsys.readouterr()
        json.loads(captured.out)
        assert {line.split()[0] for line in captured.err.splitlines()[1:-1]} == set(pipeline.pass_names())


@pytest.mark.parametrize("name", ["group-operators", "lower-blocks", "loop-collapse", "insert-sync"])
def test_a_stop_prints_the_ir_and_writes_nothing(tmp_path: Path, capsys: Capture, name: str) -> None:
    path = saved(tmp_path)
    assert compile_for_tiny(path, "--stop-after", name) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith(f" after {name}")
    assert "def main(" in out
    assert ("tw.emission" in out) == (name == "insert-sync")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("node", ["product_node", "sum_node", "positive", "Relu"])
def test_the_kernel_to_stop_in_is_chosen_by_a_node(tmp_path: Path, capsys: Capture, node: str) -> None:
    assert compile_for_tiny(saved(tmp_path), "--stop-after", "lower-blocks", "--kernel", node) == 0
    assert node == "Relu" or node in capsys.readouterr().out.splitlines()[0]


def test_a_dump_ends_where_the_stop_is(tmp_path: Path) -> None:
    words = ("--stop-after", "merge-core-axes", "--dump-ir", str(tmp_path / "ir"))
    assert compile_for_tiny(saved(tmp_path), *words) == 0
    files = [path.name for path in sorted((tmp_path / "ir").glob("001-*/*"))]
    assert files == ["00-input.py", "01-lower-blocks.py", "02-shrink-buffers.py", "03-merge-core-axes.py"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stop-after", "loop-splitt"], "error[TW0020]: no pass is called loop-splitt\n  help: passes: group-op"),
        (["--stop-after", "loop-split", "--kernel", "sum"], ""),
        (["--stop-after", "loop-split", "--kernel", "sum_mode"], "error[TW0024]: the model has no node or operator"),
        (["--kernel", "sum_node"], "error[TW0002]: --kernel says where --stop-after stops"),
        (["--jobs", "0"], "error[TW0002]: argument --jobs"),
        (["--seed", "-1"], "error[TW0002]: argument --seed"),
    ],
)
def test_wrong_options(tmp_path: Path, capsys: Capture, words: list[str], said: str) -> None:
    path = saved(tmp_path)
    assert compile_for_tiny(path, *words) == (2 if said else 0)
    assert capsys.readouterr().err.startswith(said)
    assert list(tmp_path.iterdir()) == [path]


def test_a_dump_does_not_mix_with_other_files(tmp_path: Path, capsys: Capture) -> None:
    path = saved(tmp_path)
    assert compile_for_tiny(path, "--dump-ir", str(tmp_path)) == 2
    assert "TW0023" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


def test_passes_are_checked_with_inputs_of_a_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    seeds: list[int] = []

    def differs(before: Any, after: Any, *, seed: int, ranges: Any) -> str:
        seeds.append(seed)
        return "y[0] was 1 and becomes 2"

    monkeypatch.setattr("compiler.tir_check.differs", differs)
    assert compile_for_tiny(saved(tmp_path), "--check-passes", "--seed", "7") == 70
    assert seeds == [7]
    assert "error[TW7002]: pass " in capsys.readouterr().err
    assert not (tmp_path / "perceptron.twm").exists()


def test_passes_that_are_right_are_found_right(tmp_path: Path) -> None:
    assert compile_for_tiny(saved(tmp_path), "--check-passes") == 0


def test_cache_and_processes_are_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[bool, int | None]] = []
    compile_jobs = kernel_pool.compile_jobs

    def watched(jobs: Any, chip: Any, observer: Any, cache: Any, processes: int | None) -> Any:
        chosen.append((cache is not None, processes))
        return compile_jobs(jobs, chip, observer, cache, 1)

    monkeypatch.setattr("compiler.model_kernels.compile_jobs", watched)
    path = saved(tmp_path)
    for words in ([], ["--no-cache"], ["--jobs", "3"], ["--time-passes"]):
        assert compile_for_tiny(path, *words) == 0
    assert list(dict.fromkeys(chosen)) == [(True, None), (False, None), (True, 3)]
