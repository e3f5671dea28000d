"""Layer norms that a model spells out become the operator."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compiler import graph
from compiler.frontend import Imported, import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node

RNG = np.random.default_rng(3)
X = (RNG.random((2, 5, 12)) * 3 - 1).astype(np.float32)


def spelled(*, axes: tuple[int, ...] = (-1,), square: str = "Pow") -> list[Any]:
    squared = node("Pow", "c two", "q") if square == "Pow" else node("Mul", "c c", "q")
    return [
        node("ReduceMean", "x", "m", axes=list(axes)),
        node("Sub", "x m", "c"),
        squared,
        node("ReduceMean", "q", "v", axes=list(axes)),
        node("Add", "v e", "u"),
        node("Sqrt", "u", "d"),
        node("Div", "c d", "n"),
        node("Mul", "n s", "w"),
        node("Add", "b w", "y"),
    ]


def network(
    nodes: list[Any],
    outputs: tuple[str, ...] = ("y",),
    width: tuple[int, ...] = (12,),
    shape: tuple[int, ...] = X.shape,
) -> onnx.ModelProto:
    constants = {
        "two": np.float32(2),
        "e": np.float32(1e-3),
        "s": RNG.random(width).astype(np.float32) + 0.5,
        "b": RNG.random(width).astype(np.float32),
    }
    return model(nodes, {"x": shape}, list(outputs), constants, opset=17)


def operators(imported: Imported) -> list[str]:
    calls = graph.read(imported.module["main"]).calls
    return [str(graph.attribute(imported.module[call.callee], "tw.operator")) for call in calls]


@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize(("axes", "width"), [((-1,), (12,)), ((2,), (12,)), ((1, 2), (5, 12)), ((-1, -2), (12,))])
def test_a_spelled_norm_is_one_operator(square: str, axes: tuple[int, ...], width: tuple[int, ...]) -> None:
    proto = network(spelled(axes=axes, square=square), width=width)
    imported = import_model(proto.SerializeToString())
    assert operators(imported) == ["LayerNormalization"]
    assert set(next(iter(imported.nodes.values()))) == {each.name or each.output[0] for each in proto.graph.node}
    check(proto, imported, {"x": X})


@pytest.mark.parametrize("shape", [(2, 5, 40), (5, 7, 30), (1, 5, 3, 4, 5)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_spelled_norm_over_an_axis_in_the_middle(shape: tuple[int, ...], has_bias: bool) -> None:
    axis = shape.index(5)
    width = (5, *(1,) * (len(shape) - axis - 1))
    nodes = spelled(axes=(axis,))
    proto = network(nodes if has_bias else [*nodes[:-1], node("Relu", "w", "y")], width=width, shape=shape)
    imported = import_model(proto.SerializeToString())
    found = [name for name in operators(imported) if name != "Reshape"]
    assert found == ["tilewright::ChannelNormalization"] + ([] if has_bias else ["Relu"])
    check(proto, imported, {"x": RNG.standard_normal(shape).astype(np.float32)}, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "axes", "width"),
    [
        ((2, 300, 16), (1,), (300, 1)),  # channels that do not fit beside many others
        ((2, 5, 40), (0, 1), (5, 1)),
        ((2, 5, 40), (1,), (40,)),
        ((2, 5, 40), (1,), (1,)),
    ],
)
def test_other_axes_stay_spelled(shape: tuple[int, ...], axes: tuple[int, ...], width: tuple[int, ...]) -> None:
    proto = network(spelled(axes=axes), width=width, shape=shape)
    imported = import_model(proto.SerializeToString())
    assert not [name for name in operators(imported) if "Normalization" in name]
    check(proto, imported, {"x": RNG.standard_normal(shape).astype(np.float32)}, rtol=1e-3, atol=1e-4)


def test_an_epsilon_is_the_one_of_the_model_whatever_the_precision() -> None:
    """1e-12 is 0 in fp16: rows of one value would be divided by 0."""
    proto = network(spelled())
    next(tensor for tensor in proto.graph.initializer if tensor.name == "e").CopyFrom(
        numpy_helper.from_array(np.float32(1e-12), "e")
    )
    imported = import_model(proto.SerializeToString(), precision="fp16")
    (call,) = graph.read(imported.module["main"]).calls
    attributes = json.loads(str(graph.attribute(imported.module[call.callee], "tw.attributes")))
    assert attributes["epsilon"] == float(np.float32(1e-12))


def test_a_norm_without_a_bias() -> None:
    proto = network([*spelled()[:-1], node("Relu", "w", "y")])
    imported = import_model(proto.SerializeToString())
    assert operators(imported) == ["LayerNormalization", "Relu"]
    check(proto, imported, {"x": X})


@pytest.mark.parametrize("also", ["m", "c", "v", "n", "w"])
def test_what_is_wanted_on_the_way_stays(also: str) -> None:
    imported = import_model(network(spelled(), ("y", also)).SerializeToString())
    assert ("LayerNormalization" in operators(imported)) == (also == "w")
    read = import_model(network([*spelled(), node("Relu", also, "z")], ("y", "z")).SerializeToString())
    assert ("LayerNormalization" in operators(read)) == (also == "w")


@pytest.mark.parametrize(("at", "instead"), [
    (0, node("ReduceMean", "x", "m", axes=[1])),
    (1, node("Sub", "m x", "c")),
    (2, node("Pow", "c three", "q")),
    (3, node("ReduceMean", "q", "v", axes=[1])),
    (6, node("Div", "x d", "n")),
])  # fmt: skip
def test_what_is_no_norm_stays(at: int, instead: Any) -> None:
    nodes = spelled()
    nodes[at] = instead
    proto = network(nodes)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(3), "three"))
    assert "LayerNormalization" not in operators(import_model(proto.SerializeToString()))


def test_rows_along_other_axes_are_scaled_outside() -> None:
    imported = import_model(network(spelled(), width=(5, 1)).SerializeToString())
    assert "LayerNormalization" not in operators(imported)
