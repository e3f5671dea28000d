"""Convolutions of single elements beside a transposition of channels are products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from compiler import graph
from compiler.frontend import Imported, import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node

RNG = np.random.default_rng(7)
CHANNELS, OUTPUTS = 32, 48
TO_SECOND, TO_LAST = {3: [0, 2, 1], 4: [0, 3, 1, 2]}, {3: [0, 2, 1], 4: [0, 2, 3, 1]}


def imported(nodes: list[Any], x: np.ndarray, outputs: list[str], **constants: Any) -> tuple[onnx.ModelProto, Imported]:
    rank = x.ndim
    channels, made = constants.pop("channels", CHANNELS), constants.pop("made", OUTPUTS)
    kernel = constants.pop("kernel", 1)
    weights = {
        "w": RNG.standard_normal((made, channels, *(kernel,) * (rank - 2))).astype(np.float32),
        "b": RNG.standard_normal(made).astype(np.float32),
    }
    proto = model(nodes, {"x": x.shape}, outputs, weights, opset=17)
    return proto, import_model(proto.SerializeToString())


def operators(found: Imported) -> list[str]:
    calls = graph.read(found.module["main"]).calls
    return [str(graph.attribute(found.module[call.callee], "tw.operator")) for call in calls]


def last(rank: int) -> np.ndarray:
    return (RNG.random((2, *(5, 7)[: rank - 2], CHANNELS)) - 0.5).astype(np.float32)


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("bias", ["", " b"])
def test_channels_that_were_last_are_multiplied_where_they_are(rank: int, bias: str) -> None:
    x = last(rank)
    nodes = [node("Transpose", "x", "t", perm=TO_SECOND[rank]), node("Conv", f"t w{bias}", "c"), node("Relu", "c", "y")]
    proto, found = imported(nodes, x, ["y"])
    made = operators(found)
    assert "tilewright::Convolution" not in made
    assert made.index("MatMul") < made.index("Transpose")
    check(proto, found, {"x": x})


@pytest.mark.parametrize("rank", [3, 4])
def test_channels_that_become_last_do_so_before(rank: int) -> None:
    x = np.ascontiguousarray(np.moveaxis(last(rank), -1, 1))
    nodes = [node("Conv", "x w b", "c"), node("Transpose", "c", "y", perm=TO_LAST[rank])]
    proto, found = imported(nodes, x, ["y"])
    made = operators(found)
    assert "tilewright::Convolution" not in made
    assert made.index("Transpose") < made.index("MatMul")
    check(proto, found, {"x": x})


@pytest.mark.parametrize("rank", [3, 4])
def test_between_two_transpositions_nothing_is_turned(rank: int) -> None:
    x = last(rank)
    nodes = [
        node("Transpose", "x", "t", perm=TO_SECOND[rank]),
        node("Conv", "t w b", "c"),
        node("Transpose", "c", "y", perm=TO_LAST[rank]),
    ]
    proto, found = imported(nodes, x, ["y"])
    assert [name for name in operators(found) if name != "Reshape"] == ["MatMul", "Add"]
    check(proto, found, {"x": x})


def test_a_transposition_between_two_belongs_to_one() -> None:
    x = (RNG.random((2, CHANNELS, CHANNELS)) - 0.5).astype(np.float32)
    nodes = [node("Conv", "x w b", "c"), node("Transpose", "c", "t", perm=[0, 2, 1]), node("Conv", "t w b", "y")]
    proto, found = imported(nodes, x, ["y"])
    assert sorted(operators(found)).count("MatMul") == 1
    check(proto, found, {"x": x})


BEFORE = node("Transpose", "x", "t", perm=[0, 2, 1])


@pytest.mark.parametrize(
    ("nodes", "outputs", "sizes"),
    [
        ([BEFORE, node("Conv", "t w b", "y"), node("Relu", "t", "z")], ["y", "z"], {}),  # somebody else reads it
        ([BEFORE, node("Conv", "t w b", "y")], ["y", "t"], {}),
        ([BEFORE, node("Conv", "t w b", "y", pads=[1, 1])], ["y"], {}),
        ([BEFORE, node("Conv", "t w b", "y", strides=[2])], ["y"], {}),
        ([BEFORE, node("Conv", "t w b", "y")], ["y"], {"kernel": 3}),
        ([BEFORE, node("Conv", "t w b", "y", group=2)], ["y"], {"channels": CHANNELS // 2}),
        ([BEFORE, node("Conv", "t w b", "y")], ["y"], {"made": 9}),  # rows of a part of a block
        ([node("Conv", "x w b", "c"), node("Transpose", "c", "y", perm=[2, 0, 1])], ["y"], {"channels": 5}),
    ],
)
def test_others_stay_convolutions(nodes: list[Any], outputs: list[str], sizes: dict[str, int]) -> None:
    x = last(3)
    proto, found = imported(nodes, x, outputs, **sizes)
    assert "tilewright::Convolution" in operators(found)
    check(proto, found, {"x": x})
