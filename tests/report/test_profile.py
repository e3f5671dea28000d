"""Profiles of models that are several programs, and of models that are none."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.cli.main import main
from compiler.report import profile_text
from compiler.report.model_bounds import ModelWork
from compiler.report.page.page import page
from compiler.report.profile import Profile, profile
from tests.refused_kernels import refuse, refuse_node


def softmax_between_products() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="a"),
        helper.make_node("Softmax", ["a"], ["b"], name="b"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="y"),
    ]
    weights = np.ones((16, 16), np.float32)
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32, 16])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(2 * weights, "v")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def profiled() -> Profile:
    model = softmax_between_products()
    return profile(compiler.load(compiler.compile(model, chip="tiny")), work=ModelWork(model))


def test_programs_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_node(monkeypatch, "b")
    found = profiled()
    first, second = found.layers
    assert [layer.program for layer in found.layers] == [0, 1]
    assert (first.cycles, second.cycles) == tuple(run.cycles for run in found.runs)
    assert second.start >= found.runs[0].cycles
    assert sum(each.bytes for each in found.traffic) == found.ddr_bytes
    assert [segment.reason for segment in found.host_kernels] == ["for a test"]
    text = "\n".join(profile_text.lines(found, 0, "order"))
    assert "on the host" in text
    assert "On the host" in page(found)
    assert found.bound is None  # of all the model's work, and the host did some of it
    assert all(layer.bound is not None for layer in found.layers)


def test_every_program_has_a_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refuse_node(monkeypatch, "b")
    file = tmp_path / "model.onnx"
    onnx.save(softmax_between_products(), file)
    assert main(["profile", str(file), "--chip", "tiny", "--trace", str(tmp_path / "trace.json")]) == 0
    assert {path.name for path in tmp_path.glob("*.json")} == {"trace.json", "trace.1.json"}


def test_a_model_of_which_nothing_runs_on_the_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, lambda job: True)
    found = profiled()
    assert (found.cycles, found.layers, found.ratio) == (0, (), None)
    assert "Nothing went over DDR" in page(found)
    assert list(profile_text.lines(found, 0, "order"))
    assert found.to_dict()["layers"] == []
