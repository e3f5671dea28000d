"""Normalisation of what a convolution makes disappears into its weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from compiler.frontend import Imported, import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node

RNG = np.random.default_rng(3)
NORM = ("gamma", "beta", "mean", "variance")


def constants(outputs: int, channels: int, kernel: int = 3) -> dict[str, np.ndarray]:
    found = {name: RNG.standard_normal(outputs).astype(np.float32) for name in ("bias", *NORM)}
    found["variance"] = np.abs(found["variance"]) + np.float32(0.5)
    found["w"] = RNG.standard_normal((outputs, channels, kernel, kernel)).astype(np.float32)
    return found


def operators(imported: Imported) -> list[str]:
    functions = imported.module.functions.items()
    return sorted(str(f.attrs["tw.operator"]) for name, f in functions if name.name_hint != "main")


def normalised(group: int = 1, conv: str = "x w bias") -> list[onnx.NodeProto]:
    return [
        node("Conv", conv, "c", name="conv", pads=[1, 1, 1, 1], group=group),
        node("BatchNormalization", f"c {' '.join(NORM)}", "y", name="norm", epsilon=1e-3),
    ]


@pytest.mark.parametrize("bias", ["x w bias", "x w"])
@pytest.mark.parametrize(("groups", "channels", "outputs"), [(1, 5, 7), (3, 9, 6), (20, 20, 20), (5, 5, 10)])
def test_a_convolution_takes_the_factor_and_the_shift_of_its_channels(
    bias: str, groups: int, channels: int, outputs: int
) -> None:
    given = model(normalised(groups, bias), {"x": [2, channels, 5, 6]}, ["y"], constants(outputs, channels // groups))
    imported = import_model(given.SerializeToString())
    assert operators(imported) == ["tilewright::Convolution"]
    assert list(imported.nodes.values()) == [("conv", "norm")]
    check(given, imported, {"x": RNG.standard_normal((2, channels, 5, 6)).astype(np.float32)}, rtol=1e-4, atol=1e-4)


def test_it_stays_where_something_else_reads_the_convolution() -> None:
    nodes = [*normalised(), node("Relu", "c", "z")]
    given = model(nodes, {"x": [1, 4, 5, 5]}, ["y", "z"], constants(4, 4))
    imported = import_model(given.SerializeToString())
    assert operators(imported) == ["Relu", "tilewright::ChannelAffine", "tilewright::Convolution"]
    both = model(normalised(), {"x": [1, 4, 5, 5]}, ["c", "y"], constants(4, 4))
    assert "tilewright::ChannelAffine" in operators(import_model(both.SerializeToString()))


def test_it_stays_where_the_weights_are_an_input() -> None:
    known = constants(4, 4)
    del known["w"]
    given = model(normalised(), {"x": [1, 4, 5, 5], "w": [4, 4, 3, 3]}, ["y"], known)
    assert "tilewright::ChannelAffine" in operators(import_model(given.SerializeToString()))


def test_in_half_precision_weights_are_rounded_behind_the_factor() -> None:
    """A factor that fp16 does not hold, of weights that are as much too small, makes ordinary weights."""
    known = constants(4, 4)
    known["w"] *= np.float32(1e-7)
    known["variance"][:] = 1e-14
    known["mean"][:] = known["bias"][:] = 0
    norm = node("BatchNormalization", f"c {' '.join(NORM)}", "y", epsilon=0.0)
    given = model([*normalised()[:1], norm], {"x": [1, 4, 5, 5]}, ["y"], known)
    imported = import_model(given.SerializeToString(), precision="fp16")
    check(given, imported, {"x": RNG.standard_normal((1, 4, 5, 5)).astype(np.float32)}, rtol=1e-2, atol=5e-2)


@pytest.mark.parametrize(
    ("operator", "inputs", "shape"),
    [
        ("Mul", "c k", (1, 4, 1, 1)),
        ("Mul", "k c", (4, 1, 1)),
        ("Div", "c k", (4, 1, 1)),
        ("Add", "k c", (1, 1, 1)),
        ("Sub", "c k", ()),
        ("Sub", "k c", (1, 4, 1, 1)),
        ("Sub", "k c", ()),
    ],
)
def test_known_numbers_of_channels_are_of_the_convolution(operator: str, inputs: str, shape: tuple[int, ...]) -> None:
    known = {**constants(4, 3), "k": RNG.uniform(0.5, 2, shape).astype(np.float32)}
    nodes = [node("Conv", "x w bias", "c", pads=[1, 1, 1, 1]), node(operator, inputs, "d"), node("Relu", "d", "y")]
    given = model(nodes, {"x": [2, 3, 5, 6]}, ["y"], known)
    imported = import_model(given.SerializeToString())
    assert operators(imported) == ["Relu", "tilewright::Convolution"]
    check(given, imported, {"x": RNG.standard_normal((2, 3, 5, 6)).astype(np.float32)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("operator", "inputs", "k"),
    [
        ("Mul", "c k", np.ones((2, 1, 1, 1))),  # of each image
        ("Mul", "c k", np.ones((1, 1, 5, 1))),
        ("Add", "c k", np.ones((1, 1, 4, 1, 1))),  # of more axes than the map
        ("Div", "k c", np.ones((4, 1, 1))),
        ("Div", "c k", np.array([1.0, 0.0, 1.0, 1.0]).reshape(4, 1, 1)),
        ("Mul", "c k", np.full((4, 1, 1), np.inf)),
    ],
)
def test_what_is_no_finite_number_of_a_channel_stays(operator: str, inputs: str, k: np.ndarray) -> None:
    nodes = [node("Conv", "x w bias", "c", pads=[1, 1, 1, 1]), node(operator, inputs, "y")]
    given = model(nodes, {"x": [2, 3, 5, 6]}, ["y"], {**constants(4, 3), "k": k.astype(np.float32)})
    assert operators(import_model(given.SerializeToString())) == [operator, "tilewright::Convolution"]
