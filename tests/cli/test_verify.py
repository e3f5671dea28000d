"""``tilewright verify``: right models pass, and of wrong ones the first node that diverges is named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.cli.main import main
from compiler.report.reference import reference_of, with_every_output
from compiler.runtime.loaded import LoadedModel
from tests.cli.onnx_models import perceptron, saved

Capture = pytest.CaptureFixture[str]
pytest.importorskip("onnxruntime")


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs compute another ``sum``, and all that follows from it."""
    run = LoadedModel.run

    def changed(self: LoadedModel, inputs: Mapping[str, Any], **options: Any) -> dict[str, np.ndarray]:
        outputs = run(self, inputs, **options)
        return {name: array + (name != "product") for name, array in outputs.items()}

    monkeypatch.setattr(LoadedModel, "run", changed)


def test_a_right_model_is_equal(tmp_path: Path, capsys: Capture) -> None:
    assert main(["verify", str(saved(tmp_path)), "--chip", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "perceptron.onnx on tiny: equal to onnxruntime's on these inputs, free of hazards" in out


@pytest.mark.parametrize("layers", [[], ["--layers"]])
def test_weights_may_lie_in_a_file_beside_the_model(layers: list[str], tmp_path: Path) -> None:
    path = tmp_path / "apart.onnx"
    onnx.save_model(perceptron(), path, save_as_external_data=True, location="apart.data", size_threshold=0)
    assert main(["verify", str(path), "--chip", "tiny", *layers]) == 0


def test_layers_compare_every_node(tmp_path: Path, capsys: Capture) -> None:
    assert main(["verify", str(saved(tmp_path)), "--chip", "tiny", "--layers", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [tensor["name"] for tensor in content["tensors"]] == ["product", "sum", "positive", "y"]
    assert content["right"] and content["first_wrong"] is None


def merged_decoder(folder: Path) -> str:
    """As Optimum merges the first step of a decoder and the later ones: which it is decides shapes."""
    kinds = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, None, 4]) for name in ("later", "first")}
    later = helper.make_graph([helper.make_node("Concat", ["past", "x"], ["later"], axis=1)], "l", [], [kinds["later"]])
    first = helper.make_graph([helper.make_node("Exp", ["x"], ["first"])], "f", [], [kinds["first"]])
    graph = helper.make_graph(
        [
            helper.make_node("If", ["use_cache"], ["keys"], then_branch=later, else_branch=first),
            helper.make_node("Reshape", ["keys", "shape"], ["y"]),
        ],
        "merged",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4]),
            helper.make_tensor_value_info("past", TensorProto.FLOAT, [1, 5, 4]),
            helper.make_tensor_value_info("use_cache", TensorProto.BOOL, [1]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    path = folder / "merged.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return str(path)


@pytest.mark.parametrize("layers", [[], ["--layers"]])
@pytest.mark.parametrize(("branch", "elements"), [("true", 32), ("0", 12)])
def test_inputs_may_be_known_before(layers: list[str], branch: str, elements: int, tmp_path: Path) -> None:
    known = ["--value", f"use_cache={branch}", "--value", f"shape={elements // 2},-1"]
    assert main(["verify", merged_decoder(tmp_path), "--chip", "tiny", *known, *layers]) == 0


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (["use_cache=true"], "--value shape=..."),
        (["use_cache=2", "shape=2,-1"], "the value of input 'use_cache' is 2, but the input bool"),
        (["use_cache=1", "shape=2,0.5"], "the value of input 'shape' is [2, 0.5], but the input int64"),
        (["use_cache=1", "shape=8"], "has shape [], which the input does not allow"),
        (["use_cache=yes"], "expected NAME=N,..."),
        (["past_key=1"], "a value is given for 'past_key', which is no input"),
    ],
)
def test_values_that_an_input_cannot_have(known: list[str], said: str, tmp_path: Path, capsys: Capture) -> None:
    given = [word for value in known for word in ("--value", value)]
    assert main(["verify", merged_decoder(tmp_path), "--chip", "tiny", *given]) in (2, 5)
    assert said in capsys.readouterr().err


def test_half_precision_is_compared_by_direction(tmp_path: Path) -> None:
    path = str(saved(tmp_path))
    assert main(["verify", path, "--chip", "tiny", "--precision", "fp16"]) == 0


@pytest.mark.parametrize("given", [["--rtol", "1e-6"], ["--atol", "1e-6"]])
def test_a_tolerance_that_is_given_holds_for_half_precision_too(tmp_path: Path, given: list[str]) -> None:
    assert main(["verify", str(saved(tmp_path)), "--chip", "tiny", "--precision", "fp16", *given]) == 11
    assert main(["verify", str(saved(tmp_path)), "--chip", "tiny", "--precision", "fp16", "--rtol", "1e-2"]) == 0


@pytest.mark.parametrize("layers", [[], ["--layers"]])
def test_what_is_quantised_may_be_a_step_off_but_indices_may_not(
    layers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("ArgMax", ["x"], ["best"], axis=1),
    ]
    known = [numpy_helper.from_array(np.float32(0.01), "scale"), numpy_helper.from_array(np.uint8(128), "zero")]
    outputs = [value("q", TensorProto.UINT8, [1, 40]), value("best", TensorProto.INT64, [1, 1])]
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, [1, 40])], outputs, known)
    path = tmp_path / "quantised.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    run, off = LoadedModel.run, {"q": 1, "best": 0}

    def changed(self: LoadedModel, inputs: Mapping[str, Any], **options: Any) -> dict[str, np.ndarray]:
        outputs = run(self, inputs, **options)
        return {name: np.where(array < 200, array + off[name], array) for name, array in outputs.items()}

    monkeypatch.setattr(LoadedModel, "run", changed)
    verified = ["verify", str(path), "--chip", "tiny", *layers]
    assert main(verified) == 0
    assert main([*verified, "--atol", "0"]) == 11
    off["best"] = 1
    assert main(verified) == 11


def test_a_model_of_halves_is_compared_by_direction_too(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, [3, 7, 11])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    weights = numpy_helper.from_array(np.random.default_rng(3).standard_normal((11, 5)).astype(np.float16), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Softmax", ["product"], ["shares"]),
        helper.make_node("Cast", ["shares"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    path = tmp_path / "halves.onnx"
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    assert main(["verify", str(path), "--chip", "tiny"]) == 0


def test_the_first_node_that_diverges_is_named(wrong: None, tmp_path: Path, capsys: Capture) -> None:
    path = str(saved(tmp_path))
    assert main(["verify", path, "--chip", "tiny", "--layers"]) == 11
    out = capsys.readouterr().out
    assert "the first node that diverges: sum, the output of Add 'sum_node': 15 of 15 elements are wrong" in out
    assert main(["verify", path, "--chip", "tiny"]) == 11
    assert "next: --layers names the first node that diverges" in capsys.readouterr().out


def test_what_cannot_be_verified(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(saved(tmp_path))
    assert main(["verify", path, "--rtol", "x"]) == 2
    assert main(["verify", path, "--input", "q=q.npy", "--chip", "tiny"]) == 2
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert main(["verify", path]) == 5
    assert "onnxruntime, the reference, is not installed\n  help: pip install onnxruntime" in capsys.readouterr().err


def test_all_values_that_are_tensors_become_outputs() -> None:
    whole = with_every_output(perceptron())
    onnx.checker.check_model(whole, full_check=True)
    assert [output.name for output in whole.graph.output] == ["y", "product", "sum", "positive"]


def test_so_do_those_that_onnx_does_not_know_the_types_of() -> None:
    nodes = [
        helper.make_node("QuickGelu", ["x"], ["gelu"], domain="com.microsoft"),
        helper.make_node("Relu", ["gelu"], ["positive"]),
        helper.make_node("FusedMatMul", ["positive", "positive"], ["y"], domain="com.microsoft", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    whole = with_every_output(helper.make_model(graph, opset_imports=opsets, ir_version=9), dims={"rows": 3})
    assert [output.name for output in whole.graph.output] == ["y", "gelu", "positive"]
    results = reference_of(whole)[1].run({"x": np.ones((3, 8), np.float32)})
    assert {name: array.shape for name, array in results.items()} == {"y": (3, 3), "gelu": (3, 8), "positive": (3, 8)}
