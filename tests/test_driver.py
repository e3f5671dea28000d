"""From models to programs: buffers, views, groups that are taken apart, host kernels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from compiler import api, driver
from compiler.kernels import NoRoadLeft, Road
from compiler.options import Options
from compiler.runtime.model import HostSegment
from compiler.target import load_chip
from tests.refused_kernels import refuse, refuse_node


def model(
    nodes: list[Any],
    inputs: dict[str, tuple[int, ...]],
    outputs: list[str],
    integers: dict[str, np.ndarray] | None = None,
    **weights: np.ndarray,
) -> bytes:
    whole = [helper.make_tensor(name, TensorProto.INT64, n.shape, n.ravel()) for name, n in (integers or {}).items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [helper.make_tensor(name, TensorProto.FLOAT, w.shape, w.reshape(-1).tolist()) for name, w in weights.items()]
        + whole,
    )
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], name=output, **attributes)


def run(source: bytes, chip: str = "tiny", **inputs: np.ndarray) -> dict[str, np.ndarray]:
    return api.compile(source, chip).run(inputs, hazards=True)


def refuse_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels of several operators have no road."""
    refuse(monkeypatch, lambda job: "+" in job.name, Road("a tile", "too large"))


X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)


def test_a_view_shares_the_buffer_of_what_it_looks_at() -> None:
    nodes = [node("Relu", "x", "a"), node("Flatten", "a", "b", axis=0), node("Neg", "b", "y")]
    compilation = driver.compile_model(model(nodes, {"x": (4, 6)}, ["y"]), load_chip("tiny"))
    assert len(compilation.steps) == 2
    assert compilation.steps[0].arguments[-1] == compilation.steps[1].arguments[0]
    assert np.array_equal(run(model(nodes, {"x": (4, 6)}, ["y"]), x=X)["y"], -np.maximum(X, 0).reshape(1, 24))


def test_a_view_at_the_end_is_written_in_place() -> None:
    source = model([node("Relu", "x", "a"), node("Flatten", "a", "y", axis=0)], {"x": (4, 6)}, ["y"])
    assert len(driver.compile_model(source, load_chip("tiny")).steps) == 1
    assert np.array_equal(run(source, x=X)["y"], np.maximum(X, 0).reshape(1, 24))


@pytest.mark.parametrize("outputs", [["y"], ["y", "z"]])
def test_a_view_of_an_input_is_copied(outputs: list[str]) -> None:
    nodes = [node("Flatten", "x", "y", axis=0), node("Flatten", "x", "z", axis=2)]
    results = run(model(nodes[: len(outputs)], {"x": (4, 6)}, outputs), x=X)
    assert {name: result.shape for name, result in results.items()} == dict(
        zip(outputs, [(1, 24), (24, 1)], strict=False)
    )
    assert all(np.array_equal(result.reshape(-1), X.reshape(-1)) for result in results.values())


def test_a_result_and_a_view_of_it_are_both_given_back() -> None:
    nodes = [node("Relu", "x", "a"), node("Flatten", "a", "y", axis=0)]
    results = run(model(nodes, {"x": (4, 6)}, ["a", "y"]), x=X)
    assert np.array_equal(results["a"], np.maximum(X, 0))
    assert np.array_equal(results["y"], np.maximum(X, 0).reshape(1, 24))


def test_one_value_as_two_outputs() -> None:
    nodes = [node("Relu", "x", "y"), node("Identity", "y", "z")]
    results = run(model(nodes, {"x": (4, 6)}, ["y", "z"]), x=X)
    assert np.array_equal(results["y"], np.maximum(X, 0))
    assert np.array_equal(results["z"], results["y"])


def test_one_array_as_both_operands() -> None:
    assert np.array_equal(run(model([node("Mul", "x x", "y")], {"x": (4, 6)}, ["y"]), x=X)["y"], X * X)


SCALED = node("Mul", "x k", "s")
TURNED = node("Transpose", "x", "t", perm=[1, 0])


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("nodes", [
    [SCALED, node("MatMul", "s s", "y")],
    [SCALED, node("MatMul", "x s", "y")],
    [SCALED, node("Gemm", "s x", "y", transB=1)],
    [TURNED, node("MatMul", "t t", "y")],
    [SCALED, TURNED, node("MatMul", "s t", "y")],
    [SCALED, node("Transpose", "s", "u", perm=[1, 0]), node("MatMul", "u u", "y")],
    [SCALED, node("Transpose", "s", "u", perm=[1, 0]), node("MatMul", "x u", "y")],
    [TURNED, node("Mul", "t k", "u"), node("MatMul", "u x", "y")],
])  # fmt: skip
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_products_of_what_is_one_array_scaled_or_turned(nodes: list[Any], precision: str) -> None:
    source = model(nodes, {"x": (17, 17)}, ["y"], k=np.array([0.25], np.float32))
    x = np.random.default_rng(5).standard_normal((17, 17)).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})[0]
    found = api.compile(source, "tiny", precision=precision).run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=2e-2 if precision == "fp16" else 1e-4)


@pytest.mark.parametrize("exponent", [-2.0, 0.0, 1.7])
def test_powers_in_bf16(exponent: float) -> None:
    source = model([node("Pow", "x e", "y")], {"x": (5, 7)}, ["y"], e=np.array([exponent], np.float32))
    x = np.linspace(0.5, 3, 35, dtype=np.float32).reshape(5, 7)
    found = api.compile(source, "tiny", precision="bf16").run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, x**exponent, rtol=2e-2)


def test_two_arrays_of_one_shape() -> None:
    nodes = [node("Relu", "x", "a"), node("Sub", "a b", "y")]
    b = np.flip(X).copy()
    source = model(nodes, {"x": (4, 6), "b": (4, 6)}, ["y"])
    assert np.array_equal(run(source, x=X, b=b)["y"], np.maximum(X, 0) - b)


def test_kernels_that_are_alike_are_compiled_once() -> None:
    nodes = [node("Relu", "x", "a"), node("Sigmoid", "w", "b"), node("Relu", "v", "c")]
    source = model(nodes, {"x": (4, 6), "w": (4, 6), "v": (4, 6)}, ["a", "b", "c"])
    steps = driver.compile_model(source, load_chip("tiny")).steps
    assert steps[0].kernel is steps[2].kernel
    assert steps[0].kernel is not steps[1].kernel


def test_threads_take_turns_at_compiling() -> None:
    sources = [model([node("Relu", "x", "a"), node("Neg", "a", "y")], {"x": (4, n)}, ["y"]) for n in range(6, 10)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda source: api.compile(source, "tiny", cache=False), sources))
    for artifact, extent in zip(found, range(6, 10), strict=True):
        x = np.linspace(-1, 1, 4 * extent, dtype=np.float32).reshape(4, extent)
        assert np.array_equal(artifact.run({"x": x})["y"], -np.maximum(x, 0))


def test_a_group_for_which_no_road_is_left_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_groups(monkeypatch)
    source = model([node("Relu", "x", "a"), node("Neg", "a", "y")], {"x": (4, 6)}, ["y"])
    compilation = driver.compile_model(source, load_chip("tiny"))
    assert [step.nodes for step in compilation.steps] == [("a",), ("y",)]
    assert any("as one kernel" in road.what for road in compilation.roads)
    assert np.array_equal(run(source, x=X)["y"], -np.maximum(X, 0))


def test_an_operator_that_became_several_calls_is_taken_apart_with_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of all heads, cut into queries, keys and values, are moved by one call each."""
    refuse_groups(monkeypatch)
    nodes = [
        node("MatMul", "x w", "qkv"), node("Reshape", "qkv parts", "split"),
        node("Transpose", "split", "turned", perm=[2, 0, 3, 1, 4]),
        *(node("Gather", f"turned {index}", name, axis=0) for index, name in enumerate("qkv")),
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "scores"),
        node("Softmax", "scores", "p"),
        node("MatMul", "p v", "o"), node("Transpose", "o", "ot", perm=[0, 2, 1, 3]), node("Reshape", "ot all", "y"),
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 8, 32), np.float32), rng.standard_normal((32, 96), np.float32) / 6
    numbers = {str(index): np.array(index) for index in range(3)}
    integers = {"parts": np.array([1, 8, 3, 2, 16]), "all": np.array([1, 8, 32]), **numbers}
    source = model(nodes, {"x": x.shape}, ["y"], integers, w=w)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})
    np.testing.assert_allclose(run(source, x=x)["y"], expected[0], rtol=1e-3, atol=1e-4)


def test_what_the_chip_cannot_do_runs_on_the_host_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_node(monkeypatch, "b", Road("emission", "no instruction negates"))
    nodes = [node("MatMul", "x w", "a"), node("Softmax", "a", "b"), node("MatMul", "b x", "y")]
    w = np.eye(6, 4, dtype=np.float32)
    source = model(nodes, {"x": (4, 6)}, ["y"], w=w)
    compilation = driver.compile_model(source, load_chip("tiny"))
    hosts = [segment for segment in compilation.model.segments if isinstance(segment, HostSegment)]
    assert [host.reason for host in hosts] == ["no instruction negates"]
    assert len(compilation.model.segments) == 3
    powers = np.exp(X.astype(np.float64) @ w)
    np.testing.assert_allclose(run(source, x=X)["y"], powers / powers.sum(1, keepdims=True) @ X, rtol=1e-5, atol=1e-5)


def test_without_host_kernels_such_a_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, lambda job: True)
    source = model([node("Relu", "x", "y")], {"x": (4, 6)}, ["y"])
    with pytest.raises(NoRoadLeft, match="TW2402"):
        driver.compile_model(source, load_chip("tiny"), Options(host_kernels=False))
