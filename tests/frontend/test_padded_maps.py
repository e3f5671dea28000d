"""Zeros around a map become the padding of what reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from compiler.frontend import import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import operators

RNG = np.random.default_rng(5)
W = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
CONVOLVED, POOLED = ["tilewright::Convolution"], ["MaxPool", "Relu"]


def pads(*counts: int) -> np.ndarray:
    return np.array(counts, np.int64)


def convolved(known: dict[str, np.ndarray], inputs: str = "x p", **attributes: Any) -> Any:
    mode = {"mode": attributes.pop("mode")} if "mode" in attributes else {}
    nodes = [node("Pad", inputs, "padded", **mode), node("Conv", "padded w", "y", **attributes)]
    return model(nodes, {"x": [2, 3, 6, 7]}, ["y"], {"w": W, **known})


@pytest.mark.parametrize(
    "known, inputs, attributes",
    [
        ({"p": pads(0, 0, 1, 1, 0, 0, 1, 1)}, "x p", {}),
        ({"p": pads(0, 0, 0, 0, 0, 0, 1, 1)}, "x p", {"strides": [2, 2]}),
        ({"p": pads(0, 0, 2, 0, 0, 0, 0, 1)}, "x p", {"pads": [1, 0, 0, 2]}),
        ({"p": pads(0, 0, 1, 1, 0, 0, 1, 1)}, "x p", {"auto_pad": "VALID"}),
        ({"p": pads(1, 2, 3, 0), "zero": np.float32(0), "axes": pads(3, -2)}, "x p zero axes", {}),
    ],
)
def test_a_convolution_pads_by_itself(known: dict[str, np.ndarray], inputs: str, attributes: dict[str, Any]) -> None:
    given = convolved(known, inputs, **attributes)
    imported = import_model(given.SerializeToString())
    assert operators(imported) == CONVOLVED
    check(given, imported, {"x": RNG.standard_normal((2, 3, 6, 7)).astype(np.float32)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "known, inputs, attributes",
    [
        ({"p": pads(0, 0, 1, 1, 0, 0, 1, 1), "v": np.float32(1)}, "x p v", {}),
        ({"p": pads(0, 0, 1, 1, 0, 0, 1, 1)}, "x p", {"mode": "edge"}),
        ({"p": pads(0, 0, 1, -1, 0, 0, 1, 1)}, "x p", {}),
        ({"p": pads(1, 0, 1, 1, 0, 0, 1, 1)}, "x p", {}),
        ({"p": pads(0, 0, 1, 1, 0, 0, 1, 1)}, "x p", {"auto_pad": "SAME_UPPER"}),
    ],
)
def test_other_paddings_stay(known: dict[str, np.ndarray], inputs: str, attributes: dict[str, Any]) -> None:
    given = convolved(known, inputs, **attributes)
    imported = import_model(given.SerializeToString())
    assert operators(imported) == ["Pad", *CONVOLVED]
    check(given, imported, {"x": RNG.standard_normal((2, 3, 6, 7)).astype(np.float32)}, rtol=1e-4, atol=1e-4)


def test_what_others_read_is_padded_for_them() -> None:
    nodes = [node("Pad", "x p", "padded"), node("Conv", "padded w", "y"), node("Relu", "padded", "z")]
    given = model(nodes, {"x": [1, 3, 4, 4]}, ["y", "z"], {"w": W, "p": pads(0, 0, 1, 1, 0, 0, 1, 1)})
    imported = import_model(given.SerializeToString())
    assert operators(imported) == ["Pad", "Relu", *CONVOLVED]
    check(given, imported, {"x": RNG.standard_normal((1, 3, 4, 4)).astype(np.float32)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "before, around, attributes, expected",
    [
        ("Relu", (1, 1, 1, 1), {}, POOLED),
        ("Relu", (0, 0, 1, 1), {"pads": [1, 1, 0, 0]}, POOLED),
        ("Neg", (1, 1, 1, 1), {}, ["MaxPool", "Neg", "Pad"]),
        ("Relu", (3, 1, 1, 1), {}, ["MaxPool", "Pad", "Relu"]),  # windows of zeros alone
        ("Relu", (1, 1, 1, 1), {"ceil_mode": 1}, ["MaxPool", "Pad", "Relu"]),
        ("Relu", (1, 1, 1, 1), {"dilations": [2, 1]}, ["MaxPool", "Pad", "Relu"]),
    ],
)
def test_maxima_of_what_is_no_less_than_zero_need_no_zeros(
    before: str, around: tuple[int, ...], attributes: dict[str, Any], expected: list[str]
) -> None:
    nodes = [
        node(before, "x", "r"),
        node("Pad", "r p", "padded"),
        node("MaxPool", "padded", "y", kernel_shape=[3, 3], strides=[2, 2], **attributes),
    ]
    known = {"p": pads(0, 0, *around[:2], 0, 0, *around[2:])}
    given = model(nodes, {"x": [2, 3, 6, 7]}, ["y"], known)
    imported = import_model(given.SerializeToString())
    assert operators(imported) == expected
    check(given, imported, {"x": RNG.standard_normal((2, 3, 6, 7)).astype(np.float32)}, rtol=1e-4, atol=1e-4)


def test_places_of_maxima_count_the_zeros() -> None:
    nodes = [
        node("Relu", "x", "r"),
        node("Pad", "r p", "padded"),
        node("MaxPool", "padded", "y places", kernel_shape=[3, 3]),
        node("Cast", "places", "z", to=onnx.TensorProto.FLOAT),
    ]
    given = model(nodes, {"x": [1, 1, 4, 4]}, ["y", "z"], {"p": pads(0, 0, 1, 1, 0, 0, 1, 1)})
    imported = import_model(given.SerializeToString())
    assert "Pad" in operators(imported)
    check(given, imported, {"x": RNG.uniform(1, 2, (1, 1, 4, 4)).astype(np.float32)}, rtol=1e-4, atol=1e-4)
