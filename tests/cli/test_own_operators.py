"""Models with operators of one's own, through the command: ``--ops``, and what it says of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.cli.main import main

OPS = '''\
from tvm import te, tirx

from compiler import operator


@operator("com.example::Gelu2", schedule="elementwise")
def gelu2(x: te.Tensor, *, alpha: float = 1.702) -> te.Tensor:
    """x * sigmoid(alpha * x)"""
    return te.compute(x.shape, lambda *i: x(*i) * tirx.sigmoid(x(*i) * tirx.const(alpha, x.dtype)), "gelu2")


@operator("com.example::SumAndMax", schedule="reduction")
def sum_and_max(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    rows, columns = x.shape
    k, l = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "l")
    sums = te.compute((rows,), lambda i: te.sum(x[i, k], axis=[k]), "sums")
    return sums, te.compute((rows,), lambda i: te.max(x[i, l], axis=[l]), "greatest")


@operator("com.example::Branches", schedule="elementwise")
def branches(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) if x(*i) > 0 else -x(*i), "branches")


@operator("com.example::Halves", schedule="elementwise")
def halves(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) // tirx.const(2, x.dtype), "halves")
'''

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget_operators: None, as_planned: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "my_ops.py").write_text(OPS, encoding="utf-8")


def save(
    *nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",), domains: tuple[str, ...] = ("com.example",)
) -> None:
    """``m.onnx``: x[37, 16] times w[16, 53] is a; then the nodes."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"], name="product"), *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [37, 16])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.random.default_rng(0).standard_normal((16, 53)).astype(np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "m.onnx")


def own(operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, outputs, name=f"my_{operator}", domain="com.example", **attributes)


def mixed() -> None:
    """An operator of one's own between two of ONNX's, and one with two outputs."""
    save(
        own("Gelu2", ["a"], ["b"], alpha=1.5),
        helper.make_node("Add", ["b", "a"], ["c"], name="sum"),
        own("SumAndMax", ["c"], ["s", "m"]),
        outputs=("s", "m"),
    )


def test_it_is_fused_with_its_neighbours_and_verified_against_its_own_te(capsys: Capture) -> None:
    mixed()
    assert main(["verify", "m.onnx", "--ops", "my_ops.py", "--chip", "tiny", "--layers", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["right"] and [one["name"] for one in content["tensors"]] == ["a", "b", "c", "s", "m"]
    assert main(["compile", "m.onnx", "--ops", "my_ops.py", "--chip", "tiny", "--require-npu", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kernels"][0]["nodes"] == ["product", "my_Gelu2", "sum"]
    assert main(["run", "m.twm", "--random-inputs", "1", "--hazards"]) == 0  # without the file


def test_other_verbs_take_it_too(capsys: Capture) -> None:
    mixed()
    assert main(["ops", "--ops", "my_ops.py", "com.example::Gelu2"]) == 0
    assert "com.example::Gelu2 (elementwise): x * sigmoid(alpha * x)" in capsys.readouterr().out
    assert main(["explain", "m.onnx", "my_Gelu2", "--ops", "my_ops.py", "--chip", "tiny"]) == 0
    assert "com.example::Gelu2 my_Gelu2, fp32 37x53: follows" in capsys.readouterr().out
    assert main(["profile", "m.onnx", "--ops", "my_ops.py", "--chip", "tiny"]) == 0
    assert main(["cache", "why", "m.onnx", "--ops", "my_ops.py", "--chip", "tiny"]) == 0


def refusal(capsys: Capture, code: int, *options: str) -> str:
    assert main(["compile", "m.onnx", "--chip", "tiny", *options]) == code
    text = capsys.readouterr().err
    assert "Traceback" not in text and "internal" not in text
    return text


def test_a_model_whose_operators_are_not_loaded(capsys: Capture) -> None:
    mixed()
    text = refusal(capsys, 5)
    assert "TW2030" in text and "'com.example::Gelu2' is not supported" in text and "--ops FILE" in text


def test_a_domain_that_the_model_does_not_import(capsys: Capture) -> None:
    save(own("Gelu2", ["a"], ["y"]), domains=())
    text = refusal(capsys, 4, "--ops", "my_ops.py")
    assert "TW2026" in text and "make_opsetid('com.example', 1)" in text and "--ops" in text


def test_an_attribute_of_the_wrong_type_names_the_node(capsys: Capture) -> None:
    save(own("Gelu2", ["a"], ["y"], alpha="much"))
    text = refusal(capsys, 4, "--ops", "my_ops.py")
    assert "TW2102" in text and "com.example::Gelu2 node 'my_Gelu2'" in text and "must be a number" in text
    save(own("Gelu2", ["a"], ["y"], beta=1.0))
    assert "TW2101" in refusal(capsys, 4, "--ops", "my_ops.py")


def test_more_outputs_than_there_are(capsys: Capture) -> None:
    save(own("SumAndMax", ["a"], ["y", "z", "u"]), outputs=("y", "z", "u"))
    text = refusal(capsys, 4, "--ops", "my_ops.py")
    assert "TW2114" in text and "3 outputs are asked for, but it has 2 results" in text


def test_a_mistake_in_the_function_has_its_line_and_says_what_to_write(capsys: Capture) -> None:
    save(own("Branches", ["a"], ["y"]))
    text = refusal(capsys, 5, "--ops", "my_ops.py")
    line = 1 + OPS.splitlines().index(next(text for text in OPS.splitlines() if "if x(*i) > 0" in text))
    assert f"my_ops.py:{line}: error[TW2034]" in text and "tirx.Select" in text


def test_floats_where_integers_belong(capsys: Capture) -> None:
    save(own("Halves", ["a"], ["y"]))
    text = refusal(capsys, 5, "--ops", "my_ops.py")
    line = 1 + OPS.splitlines().index(next(text for text in OPS.splitlines() if "//" in text))
    assert f"my_ops.py:{line}: error[TW2034]" in text and "tirx.floor(a / b)" in text
    assert "an operation on integers is given something else" in text and "Metadata" not in text


def test_only_the_outputs_that_are_used_are_computed(capsys: Capture) -> None:
    save(own("SumAndMax", ["a"], ["y"]))
    assert main(["compile", "m.onnx", "--ops", "my_ops.py", "--chip", "tiny", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["kernels"]) == 2
