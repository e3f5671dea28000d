"""Operators of onnxruntime's own domain on products of integers, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from models import checks
from tests.operators.test_contributed import MASKS, RNG, Array, check, floats, model, quantised, result


def scalars(given: Any) -> list[str]:
    return [name for name, array in filter(None, given) if not array.shape]


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("columns", [True, False])
def test_convolutions_of_maps_with_channels_last(group: int, columns: bool) -> None:
    w = ("w", RNG.integers(-128, 128, (8, 4 // group, 3, 2)).astype(np.int8))
    scale = ("w_scale", np.abs(floats(8, scale=0.01)) if columns else np.array(0.01, np.float32))
    zero = ("w_zero", np.zeros(8 if columns else (), np.int8))
    bias = ("b", RNG.integers(-1000, 1000, 8).astype(np.int32))
    given = [*quantised("x", 2, 7, 6, 4), w, scale, zero, *result(scale=0.1), bias]
    constants = [*scalars(given), "w", "w_scale", "w_zero", "b"]
    options = {"group": group, "strides": [2, 1], "pads": [1, 0, 1, 1], "kernel_shape": [3, 2]}
    check("QLinearConv", given, constants=list(dict.fromkeys(constants)), channels_last=1, off=1, **options)


def test_means_of_windows_with_channels_last() -> None:
    given = [*quantised("x", 1, 4, 6, 3), *result()]
    options = {"kernel_shape": [2, 3], "strides": [2, 3]}
    check("QLinearAveragePool", given, constants=scalars(given), channels_last=1, off=1, **options)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("columns", [True, False])
def test_attention_of_one_product_of_integers(mask: str, columns: bool) -> None:
    x, w = quantised("x", 2, 5, 8), ("w", RNG.integers(-128, 128, (8, 24)).astype(np.int8))
    scale = ("w_scale", np.abs(floats(24, scale=0.003)) if columns else np.array(0.003, np.float32))
    zero = ("w_zero", np.zeros(24 if columns else (), np.int8))
    given = [x[0], w, ("bias", floats(24)), x[1], scale, MASKS[mask], x[2], zero]
    constants = list(dict.fromkeys([*scalars(given), "w", "bias", "w_scale", "w_zero"]))
    check("QAttention", given, constants=constants, num_heads=2, unidirectional=1)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("columns", [True, False])
def test_recurrent_networks_with_weights_of_bytes(direction: str, columns: bool) -> None:
    """Their inputs and states are numbers that bytes hold, as onnxruntime rounds them: the first step is exact."""
    directions, hidden, inputs = 2 if direction == "bidirectional" else 1, 4, 6
    x = np.round(RNG.uniform(-1, 1, (1, 2, inputs)) * 127.5 - 0.5).astype(np.float32) / 127.5
    x[0, :, :2] = -128 / 127.5, 127 / 127.5
    given: list[tuple[str, Array] | None] = [("x", x)]
    for name, rows in (("w", inputs), ("r", hidden)):
        given.append((name, RNG.integers(-128, 128, (directions, rows, 4 * hidden)).astype(np.int8)))
    given += [("b", floats(directions, 8 * hidden)), None, None, None, None]
    for name in ("w", "r"):
        shape = (directions, 4 * hidden) if columns else (directions,)
        given.append((f"{name}_scale", RNG.uniform(0.002, 0.01, shape).astype(np.float32)))
        given.append((f"{name}_zero", np.zeros(shape, np.int8)))
    constants = [one[0] for one in given[1:] if one is not None]
    options = {"hidden_size": hidden, "direction": direction, "constants": constants, "off": 2e-3}
    check("DynamicQuantizeLSTM", given, ["y", "y_h", "y_c"], **options)


def test_small_scales_are_multiplied_in_full_precision() -> None:
    """Their product is one that 16 bits do not tell from zero."""
    scales = {"a_scale": 1e-3, "b_scale": 3e-7, "y_scale": 2e-7}
    a, b = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((4, 16), (16, 8)))
    parameters = [(name, np.array(scale, np.float32)) for name, scale in scales.items()]
    zero = ("zero", np.array(3, np.int8))
    given = [("a", a), parameters[0], zero, ("b", b), parameters[1], zero, None, parameters[2], zero]
    proto, feeds = model("QGemm", given, constants=["b", "zero", *scales])
    found = compiler.compile(proto.SerializeToString(), chip="tw2", precision="fp16").run(feeds)["y"]
    np.testing.assert_allclose(found.astype(int), checks.run(proto, feeds)["y"].astype(int), atol=1)


def test_floats_of_a_product_are_the_models_in_half_precision() -> None:
    """So that they go with the floats that it has beside them."""
    b = ("b", RNG.integers(-128, 128, (6, 5)).astype(np.int8))
    given = [("a", floats(4, 6)), b, ("b_scale", np.array(0.01, np.float32)), ("zero", np.array(0, np.int8))]
    proto, feeds = model("DynamicQuantizeMatMul", given, outputs=["product"], constants=["b", "b_scale", "zero"])
    proto.graph.node.append(helper.make_node("Mul", ["product", "factor"], ["y"]))
    proto.graph.initializer.append(numpy_helper.from_array(floats(5), "factor"))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    found = compiler.compile(proto.SerializeToString(), chip="tw2", precision="fp16").run(feeds)["y"]
    np.testing.assert_allclose(found, checks.run(proto, feeds)["y"], atol=0.02)
