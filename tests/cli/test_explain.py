"""``tilewright explain``, through the command's own entry point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler import kernel_pool
from compiler.cli.main import main
from compiler.error_codes import error_codes
from compiler.kernels import NoRoadLeft, Road, compile_kernel
from tests.cli.onnx_models import saved
from tests.test_driver import model, node

Capture = pytest.CaptureFixture[str]


def chain(folder: Path, *kinds: str) -> Path:
    """Unary operators one after the other, named by kind and number."""
    nodes = [helper.make_node(k, [f"v{n}"], [f"v{n + 1}"], f"{k.lower()}{n}") for n, k in enumerate(kinds)]
    ports = [helper.make_tensor_value_info(f"v{n}", TensorProto.FLOAT, (6, 40)) for n in (0, len(kinds))]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "chain.onnx"
    onnx.save(model, path)
    return path


def explained(path: Path, node: str, *words: str) -> list[str]:
    return ["explain", str(path), node, "--chip", "tiny", *words]


def content(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_says_why_the_kernel_is_what_it_is(tmp_path: Path, capsys: Capture) -> None:
    assert main(explained(saved(tmp_path), "sum_node")) == 0
    out = capsys.readouterr().out
    assert "MatMul product_node, fp32 3x5: leads" in out
    assert "Add sum_node, fp32 3x5: follows" in out
    assert "it ends there: its result is an output of the model" in out
    assert "\ntile: 3x5x8 in tiles of " in out
    assert "\nstatement 1: for " in out
    assert " > " in out and " cycles  madacc.fp32: 1 x (" in out
    assert "halt" not in out


def test_says_that_others_read_what_a_kernel_keeps_for_itself(tmp_path: Path, capsys: Capture) -> None:
    w = np.ones((64, 32, 1, 1), np.float32) / 32
    nodes = [node("Conv", "x w", "c"), node("MaxPool", "c", "p", kernel_shape=[2, 2], strides=[2, 2])]
    (tmp_path / "m.onnx").write_bytes(model([*nodes, node("Neg", "c", "q")], {"x": (1, 32, 32, 32)}, ["p", "q"], w=w))
    words = [str(tmp_path / "m.onnx"), "--chip", "tw2", "--precision", "fp16"]
    assert main(["compile", *words, "-o", str(tmp_path / "m.twm"), "--no-timing"]) == 0
    assert main(["explain", words[0], "p", *words[1:]]) == 0
    assert "fp16 1x64x16x16: follows: what it reads of the kernel is stored for others, too" in capsys.readouterr().out


def test_every_statement_has_its_ways_by_cost_and_its_refusals(tmp_path: Path, capsys: Capture) -> None:
    found = content(capsys, *explained(chain(tmp_path, "Relu", "Exp"), "relu0"))
    (kernel,) = found["kernels"]
    assert [(m["operator"], m["nodes"], m["result"]) for m in kernel["members"]] == [
        ("Relu", ["relu0"], "fp32 6x40"),
        ("Exp", ["exp1"], "fp32 6x40"),
    ]
    instructions = [statement["ways"][0]["instruction"] for statement in kernel["statements"]]
    assert [name.partition(".")[0] for name in instructions] == ["ld", "vrelu", "vexp", "st"]
    for statement in kernel["statements"]:
        totals = [way["total_cycles"] for way in statement["ways"]]
        assert totals == sorted(totals)
        for way in statement["ways"]:
            assert way["total_cycles"] == way["executions"] * (way["cycles"] + way["overhead_cycles"])
    refusals = [refusal for statement in kernel["statements"] for refusal in statement["refusals"]]
    assert refusals and all(refusal["reason"] for refusal in refusals)
    assert "instructions" not in kernel


def test_instructions_are_shown_with_their_statements(tmp_path: Path, capsys: Capture) -> None:
    path = chain(tmp_path, "Relu")
    (kernel,) = content(capsys, *explained(path, "relu0", "--instructions"))["kernels"]
    assert any(line.startswith("; ") for line in kernel["instructions"])
    assert any(line.startswith("vrelu") for line in kernel["instructions"])
    assert main(explained(path, "relu0", "--instructions")) == 0
    out = capsys.readouterr().out
    assert all(f"  {line}\n" in out for line in kernel["instructions"])


@pytest.mark.parametrize("word", ["relu0", "v1", "Relu"])
def test_a_node_is_found_by_name_output_or_operator(tmp_path: Path, capsys: Capture, word: str) -> None:
    assert main(explained(chain(tmp_path, "Relu", "Exp"), word)) == 0
    assert capsys.readouterr().out.startswith("kernel of relu0, exp1, class elementwise\n")


def test_kernels_that_are_alike_are_explained_once(tmp_path: Path, capsys: Capture) -> None:
    """But the first, whose loads need not wait for other kernels, and the last, whose stores go to DDR."""
    path = chain(tmp_path, *["Softmax"] * 5)
    found = content(capsys, *explained(path, "Softmax"))
    assert [kernel["same_kernel"] for kernel in found["kernels"]] == [[], [["softmax2"], ["softmax3"]], []]
    assert main(explained(path, "Softmax")) == 0
    assert "the same kernel computes softmax2, softmax3\n" in capsys.readouterr().out


def test_of_many_kernels_the_first_are_explained(tmp_path: Path, capsys: Capture) -> None:
    nodes, shapes = [], [(2, n) for n in (4, 5, 6, 7)]
    for index, _ in enumerate(shapes):
        nodes.append(helper.make_node("Relu", [f"x{index}"], [f"y{index}"], f"relu{index}"))
    ports = [
        [helper.make_tensor_value_info(f"{name}{n}", TensorProto.FLOAT, shape) for n, shape in enumerate(shapes)]
        for name in "xy"
    ]
    path = tmp_path / "many.onnx"
    model = helper.make_model(helper.make_graph(nodes, "many", *ports), opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    assert main(explained(path, "Relu")) == 0
    assert capsys.readouterr().out.endswith("\n1 more kernels are not shown (relu3): see --all\n")
    found = content(capsys, *explained(path, "Relu", "--all"))
    assert (len(found["kernels"]), found["not_shown"]) == (4, 0)


def test_a_node_without_a_kernel_is_explained_too(tmp_path: Path, capsys: Capture) -> None:
    assert main(explained(chain(tmp_path, "Relu", "Flatten", "Neg"), "flatten1")) == 0
    assert capsys.readouterr().out.startswith("'flatten1' needs no kernel: its result lies in memory already")
    assert main(explained(chain(tmp_path, "Relu", "Shape", "ConstantOfShape", "Neg"), "shape1")) == 0
    assert "needs no kernel: it is computed when the model is compiled" in capsys.readouterr().out


def test_what_does_not_fit_is_explained_with_its_parts(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_groups(func: Any, schedule: str, chip: Any, observer: Any, name: str, *searched: int) -> Any:
        if "+" in name:
            raise NoRoadLeft(name, [Road("tiles of 4", "local memory is too small")])
        return compile_kernel(func, schedule, chip, observer, name, *searched)

    monkeypatch.setattr(kernel_pool, "compile_kernel", no_groups)
    assert main(explained(chain(tmp_path, "Relu", "Exp"), "exp1")) == 0
    out = capsys.readouterr().out
    assert "tile: none, it does not fit as one kernel\n  tried before: tiles of 4: local memory is too small\n" in out
    assert "\n  kernel of relu0, class elementwise\n" in out
    assert "\n    it ends there: it is a part of a group that does not fit as one kernel\n" in out


@pytest.mark.parametrize("word", ["relu", "rleu0", "\x1b[2J", "x" * 10_000])
def test_an_unknown_node_is_refused_with_names_that_are_near(tmp_path: Path, capsys: Capture, word: str) -> None:
    assert main(explained(chain(tmp_path, "Relu"), word)) == 2
    err = capsys.readouterr().err
    assert err.startswith("error[TW0024]: the model has no node or operator ")
    assert "\x1b" not in err and len(err) < 400
    assert ("did you mean 'relu0'" in err) == (word in ("relu", "rleu0"))


def test_an_error_code_is_explained(capsys: Capture) -> None:
    assert main(["explain", "TW2402"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("TW2402: All roads were tried for a kernel, and none fits the chip.\n")
    assert "--require-npu" in said
    assert content(capsys, "explain", "TW2402")["codes"][0]["code"] == "TW2402"


def test_all_error_codes_are_listed(capsys: Capture) -> None:
    assert main(["explain", "--codes"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line[:6] for line in listed] == list(error_codes())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "neither a model nor an error code is given"),
        (["model.onnx"], "a model is explained node by node: name one"),
        (["TW9999"], "no error has the code TW9999"),
        (["--codes", "TW0002"], "--codes lists all: TW0002 has no meaning with it"),
    ],
)
def test_what_cannot_be_explained(words: list[str], said: str, capsys: Capture) -> None:
    assert main(["explain", *words]) == 2
    assert said in capsys.readouterr().err
