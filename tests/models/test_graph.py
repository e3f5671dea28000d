"""The graph builder: names, constants, and weights that depend on their own name and the seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from models import initial
from models.checks import run
from models.graph import Graph
from models.half import rounded
from models.layers import layer_norm, linear

FLOAT = np.dtype(np.float32)


def built(opset: int = 17, **scopes: Any) -> onnx.ModelProto:
    """x [n, 4] through one dense layer per scope."""
    graph = Graph("test", seed=0, opset=opset)
    x = graph.input("x", FLOAT, ["n", 4])
    for name, gemm in scopes.items():
        with graph.scope(name):
            x = linear(graph, "fc", x, (4, 4), gemm=gemm)
    return graph.finish({"y": x})


def weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def test_nodes_and_weights_are_named_after_their_scopes() -> None:
    model = built(first=True, second=False)
    assert [node.name for node in model.graph.node] == ["/first/fc/Gemm", "/second/fc/MatMul", "/second/fc/Add"]
    assert list(weights(model)) == ["first.fc.bias", "first.fc.weight", "second.fc.bias", "second.fc.weight"]
    assert model.graph.node[-1].output == ["y"]
    assert [size.dim_param or size.dim_value for size in model.graph.output[0].type.tensor_type.shape.dim] == ["n", 4]


def test_a_weight_does_not_depend_on_other_layers() -> None:
    alone, beside = weights(built(second=True)), weights(built(first=True, second=True))
    np.testing.assert_array_equal(alone["second.fc.weight"], beside["second.fc.weight"])
    assert (beside["first.fc.weight"] != beside["second.fc.weight"]).any()


def test_two_weights_of_one_name_are_an_error() -> None:
    graph = Graph("test", seed=0, opset=17)
    graph.weight("w", np.zeros(1))
    with pytest.raises(ValueError, match="two weights are named w"):
        graph.weight("w", np.zeros(1))


@pytest.mark.parametrize("opset", [14, 17])
def test_both_forms_of_layer_normalisation_normalise(opset: int) -> None:
    graph = Graph("test", seed=0, opset=opset)
    x = graph.input("x", FLOAT, [3, 8])
    model = graph.finish({"y": layer_norm(graph, "norm", x, 8)})
    values = np.random.default_rng(0).normal(2, 3, (3, 8)).astype(np.float32)
    normal = (values - values.mean(-1, keepdims=True)) / np.sqrt(values.var(-1, keepdims=True) + 1e-5)
    expected = normal * weights(model)["norm.weight"] + weights(model)["norm.bias"]
    np.testing.assert_allclose(run(model, {"x": values})["y"], expected, rtol=1e-4, atol=1e-5)


def test_filters_are_standardised_unless_they_are_depthwise() -> None:
    drawn = initial.filters(np.random.default_rng(0), (8, 4, 3, 3), 1.5)
    np.testing.assert_allclose(drawn.mean((1, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(drawn.std((1, 2, 3)), 1.5 / 6, rtol=1e-4)
    depthwise = initial.filters(np.random.default_rng(0), (8, 1, 3, 3), 1.0)
    assert np.abs(depthwise.mean((1, 2, 3))).max() > 0.05


def test_rounding_to_fp16_rounds_every_value_and_shows_overflow() -> None:
    graph = Graph("test", seed=0, opset=17)
    x = graph.input("x", FLOAT, [2])
    model = rounded(graph.finish({"y": graph.op("Div", graph.op("Mul", x, 3.0), 3.0)}))
    found = run(model, {"x": np.array([0.1, 30000], np.float32)})["y"]
    assert found[0] == np.float32(np.float16(np.float16(np.float16(0.1) * 3.0) / 3.0))
    assert np.isinf(found[1])
