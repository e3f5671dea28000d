"""``tilewright compile``, through the command's own entry point."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest

from ci.performance.operators import OPERATORS
from compiler import kernels
from compiler.artifact import read_artifact
from compiler.cli.main import main
from tests.cli.onnx_models import saved

Capture = pytest.CaptureFixture[str]


def test_writes_an_artifact_and_says_what_became_of_the_model(tmp_path: Path, capsys: Capture) -> None:
    path = saved(tmp_path)
    assert main(["compile", str(path), "--chip", "tiny", "--kernels"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("perceptron for tiny, precision as the model says\n")
    assert "nodes on the chip  4 of 4 (100.0 %)" in out
    assert "product_node" in out
    assert re.search(r"time +[\d,]+ cycles = .* at 1,000 MHz; busy: ", out)
    assert re.search(r"bound by +\S.*; [\d.]+ times the lower bound of [\d,]+", out)
    assert re.search(r"try +\S", out)
    assert re.search(r"on the chip +LLB|on the chip +L1", out)
    assert len(out.splitlines()) <= 25
    assert f"next: tilewright run {tmp_path / 'perceptron.twm'} --random-inputs 1" in out
    model = read_artifact(tmp_path / "perceptron.twm").model
    assert (model.name, model.source, model.chip.name) == ("perceptron", "perceptron.onnx", "tiny")
    assert [port.name for port in (*model.inputs, *model.outputs)] == ["x", "y"]


def test_the_time_is_that_of_a_run(tmp_path: Path, capsys: Capture) -> None:
    artifact = tmp_path / "x.twm"
    assert main(["compile", str(saved(tmp_path)), "--chip", "tiny", "-o", str(artifact), "--json"]) == 0
    timing = json.loads(capsys.readouterr().out)["timing"]
    assert main(["run", str(artifact), "--random-inputs", "1", "--json"]) == 0
    assert timing["cycles"] == json.loads(capsys.readouterr().out)["cycles"]
    assert timing["ratio"] == timing["cycles"] / timing["bound_cycles"]
    assert max(timing["busy"].values()) <= 1


def test_no_time_where_none_is_asked_for(tmp_path: Path, capsys: Capture) -> None:
    assert main(["compile", str(saved(tmp_path)), "--chip", "tiny", "--no-timing"]) == 0
    assert "bound by" not in capsys.readouterr().out


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for name in ("a.twm", "b.twm"):
        assert main(["compile", str(path), "-o", str(tmp_path / name), "--chip", "tiny"]) == 0
    assert (tmp_path / "a.twm").read_bytes() == (tmp_path / "b.twm").read_bytes()


def test_json_has_all_of_the_report(tmp_path: Path, capsys: Capture) -> None:
    assert main(["compile", str(saved(tmp_path)), "--chip", "tiny", "--precision", "fp16", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["schema_version"] == 1
    assert (content["precision"], content["offload_share"], content["npu_nodes"]) == ("fp16", 1.0, 4)
    assert content["bytes"] == (tmp_path / "perceptron.twm").stat().st_size
    assert {node for kernel in content["kernels"] for node in kernel["nodes"]} >= {"product_node", "sum_node"}


def test_more_tiles_are_tried_and_known_when_they_are_asked_for_again(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tried, lowered = str(tmp_path / "product.onnx"), list[str](), kernels._Lowering.kernel
    onnx.save(next(each for each in OPERATORS if each.name == "gemm-256").model(), path)

    def counted(lowering: Any, tiled: Any, *others: Any, **named: Any) -> Any:
        tried.append(tiled.description)
        return lowered(lowering, tiled, *others, **named)

    monkeypatch.setattr(kernels._Lowering, "kernel", counted)
    found = []
    for words in (["--tune", "0"], [], ["--tune", "6"], ["--tune", "6"], ["--tune", "6", "--no-cache"]):
        tried.clear()
        assert main(["compile", path, "--chip", "tw1", "--precision", "fp16", "--json", *words]) == 0
        found.append((json.loads(capsys.readouterr().out)["timing"]["cycles"], len(tried)))
    (first, one), (usual, few), (tuned, many), (known, none), (again, _) = found
    assert one < few < many and none == 0
    assert tuned <= usual <= first
    assert tuned == known == again


@pytest.mark.parametrize("option", [["--dim", "batch=4"], ["--shape", "x=4x8"], ["--shape", "x=4,8"]])
def test_open_dimensions_are_given(option: list[str], tmp_path: Path) -> None:
    path = saved(tmp_path, batch="batch")
    assert main(["compile", str(path), "--chip", "tiny", *option]) == 0
    assert read_artifact(tmp_path / "perceptron.twm").model.inputs[0].shape == (4, 8)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "dimension 0 ('batch') is not known"),
        (["--dim", "batch"], 2, "--dim batch: expected NAME=N"),
        (["--dim", "batch=-1"], 2, "--dim batch=-1: expected NAME=N"),
        (["--dim", "batch=1", "--dim", "batch=2"], 2, "--dim batch is given twice"),
        (["--shape", "x=4xtwo"], 2, "--shape x=4xtwo: expected NAME=NxN"),
        (["--precision", "fp8"], 2, "invalid choice: 'fp8'"),
        (["--chip", "tw9"], 2, "tw9"),
        (["--dim", "batch=4", "-o", "{model}"], 2, "which is read, would be overwritten"),
        (["--dim", "batch=4", "-o", "{model}/none/x.twm"], 3, "cannot write what -o names"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    words: list[str], code: int, said: str, tmp_path: Path, capsys: Capture
) -> None:
    path = saved(tmp_path, batch="batch")
    before = path.read_bytes()
    assert main(["compile", str(path), *(word.replace("{model}", str(path)) for word in words)]) == code
    captured = capsys.readouterr()
    assert said in captured.err and "Traceback" not in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == before


def test_what_is_no_model(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.onnx").write_bytes(b"no model" * 100)
    assert main(["compile", str(tmp_path / "x.onnx")]) in (3, 4)
    assert main(["compile", str(tmp_path / "none.onnx")]) == 3
    for folder in (".", "/", str(tmp_path)):
        assert main(["compile", folder]) == 3
    assert "Traceback" not in capsys.readouterr().err
