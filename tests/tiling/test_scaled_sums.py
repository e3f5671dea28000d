"""Sums of integers are scaled by the fixpipe as they leave the cube, where it can do that."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from compiler import api
from compiler.target import Chip, load_chip
from models import checks
from tests.frontend.models import model, node

STEP = 0.11
RNG = np.random.default_rng(38)
QUANTISED = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d")]
REQUANTISED = [node("QuantizeLinear", "c u p", "r"), node("DequantizeLinear", "r u p", "y")]


def known(outputs: int, *rest: int, by_column: bool, zero: int = -128) -> dict[str, np.ndarray]:
    """Weights around zero, a bias of whole steps, scales and zero points of what is read and made."""
    count = (outputs,) if by_column else ()
    scales = RNG.uniform(0.002, 0.01, count).astype(np.float32)
    return {
        "w": RNG.integers(-127, 128, (outputs, *rest)).astype(np.int8), "t": scales, "v": np.zeros(count, np.int8),
        "b": RNG.integers(-3000, 3000, outputs).astype(np.int32), "bt": scales * np.float32(0.03),
        "bv": np.zeros(count, np.int32), "s": np.float32(0.03), "z": np.int8(zero), "u": np.float32(STEP),
        "p": np.int8(-7),
    }  # fmt: skip


def layer(
    shape: tuple[int, ...], values: dict[str, np.ndarray], *behind: Any, result: str = "y", **attributes: Any
) -> ModelProto:
    weights = [node("DequantizeLinear", "w t v", "e", axis=0), node("DequantizeLinear", "b bt bv", "a", axis=0)]
    made = node("Conv", "d e a", "c", **attributes) if values["w"].ndim > 2 else node("Gemm", "d e a", "c", transB=1)
    return model([*QUANTISED, *weights, made, *(behind or REQUANTISED)], {"x": shape}, [result], values, opset=17)


def checked(source: ModelProto, chip: Chip | str, shape: tuple[int, ...]) -> Counter[str]:
    """How many instructions of each kind run on the vector unit and the fixpipe, once results are right."""
    inputs = {"x": RNG.uniform(-1, 6, shape).astype(np.float32)}
    compiled = api.compile(source, chip, cache=False)
    found, expected = compiled.run(inputs, hazards=True), checks.run(source, inputs)
    for name, values in expected.items():  # of floats that are quantised, one in thousands may be on the other side
        near = np.abs(found[name] - values) <= 1e-5 + 1e-5 * np.abs(values)
        assert near.mean() > 0.999 and np.abs(found[name] - values).max() <= STEP * 1.001
    counted: Counter[str] = Counter()
    for segment in compiled.model.segments:
        counted.update(
            ".".join([i.row.mnemonic, *i.mods]) for i in segment.program.instrs if i.row.mnemonic[:3] == "fix"
        )
        counted.update(i.row.mnemonic for i in segment.program.instrs if i.row.mnemonic.startswith("v"))
    return counted


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("chip", ["tiny", "tw2"])
@pytest.mark.parametrize("by_column", [True, False])
@pytest.mark.parametrize(
    "shape, weights, attributes",
    [
        ((1, 32, 9, 7), (40, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 32, 14, 14), (33, 32, 1, 1), {}),
        ((1, 32, 8, 20), (150, 32, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ((1, 32, 40), (20, 32, 3), {}),
        ((70, 40), (300, 40), {}),
    ],
)
def test_nothing_is_left_to_the_vector_unit(
    shape: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any], by_column: bool, chip: str
) -> None:
    counted = checked(layer(shape, known(*weights, by_column=by_column), **attributes), chip, shape)
    name = "fixquant" if by_column else "fixscale"
    assert {kind.split(".")[0] for kind in counted if kind.startswith("fix")} == {name}
    assert {kind.split(".")[3] for kind in counted if kind.startswith("fix")} == {"int8"}
    assert set(counted) - {kind for kind in counted if kind.startswith("fix")} <= {
        "vquant",
        "vdequant",
        "vtrans",
        "vcopy",
    }


@pytest.mark.usefixtures("as_planned")
def test_a_chip_without_a_table_scales_columns_on_the_vector_unit() -> None:
    shape = (1, 32, 9, 7)
    counted = checked(layer(shape, known(40, 32, 3, 3, by_column=True)), "tw1", shape)
    assert not any(kind.startswith("fixquant") for kind in counted) and counted["vmul"]


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("chip", ["tiny", "tw2"])
@pytest.mark.parametrize("by_column", [True, False])
def test_what_else_is_done_follows_on_the_vector_unit(by_column: bool, chip: str) -> None:
    """Floats leave the cube, and what they are added to and quantised with stays as it was."""
    shape, values = (1, 32, 9, 7), known(32, 32, 3, 3, by_column=by_column)
    behind = [node("Sigmoid", "c", "g"), node("Add", "g d", "f"), node("QuantizeLinear", "f u p", "r")]
    source = layer(shape, values, *behind, node("DequantizeLinear", "r u p", "y"), pads=[1, 1, 1, 1])
    counted = checked(source, chip, shape)
    name = "fixquant" if by_column else "fixscale"
    assert {kind.split(".")[0] for kind in counted if kind.startswith("fix")} == {name}
    assert {kind.split(".")[3] for kind in counted if kind.startswith("fix")} == {"fp32"}


@pytest.mark.usefixtures("as_planned")
def test_what_several_read_is_scaled_as_well() -> None:
    shape, values = (1, 32, 9, 7), known(32, 32, 3, 3, by_column=True)
    behind = [*REQUANTISED, node("Tanh", "c", "h")]
    source = layer(shape, values, *behind, pads=[1, 1, 1, 1])
    source.graph.output.append(source.graph.output[0])
    source.graph.output[1].name = "h"
    checked(source, "tw2", shape)


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("shape, weights", [((1, 64, 6, 6), (70, 64, 1, 1)), ((40, 64), (70, 64))])
def test_scales_have_room_in_their_table(shape: tuple[int, ...], weights: tuple[int, ...]) -> None:
    """Those of 16 columns at a time, where the table holds no more."""
    chip = load_chip("tw2")
    narrow = chip.from_dict(chip.to_dict() | {"memory": chip.to_dict()["memory"] | {"fb_bytes": 64}})
    counted = checked(layer(shape, known(*weights, by_column=True)), narrow, shape)
    assert any(kind.startswith("fixquant") for kind in counted)


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
def test_groups(chip: str) -> None:
    shape = (1, 96, 6, 6)
    nodes = [node("QLinearConv", "x s z w t v u p b", "y", group=3, pads=[1, 1, 1, 1])]
    values = {**known(60, 32, 3, 3, by_column=True), "z": np.uint8(9), "p": np.uint8(120)}
    for unused in ("bt", "bv"):
        values.pop(unused)
    source = model(
        nodes, {"x": (TensorProto.UINT8, list(shape))}, ["y"], values, opset=17, output_type=TensorProto.UINT8
    )
    x = RNG.integers(0, 256, shape).astype(np.uint8)
    found = api.compile(source, chip, cache=False).run({"x": x}, hazards=True)["y"].astype(int)
    padded = np.pad(x.astype(np.int64) - 9, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[0]
    sums = np.concatenate(
        [np.einsum("chwij,ocij->ohw", windows[g * 32 :][:32], values["w"][g * 20 :][:20].astype(int)) for g in range(3)]
    )
    factor = (np.float32(0.03) * values["t"] / np.float32(STEP)).reshape(-1, 1, 1)
    expected = np.clip(np.rint((sums + values["b"].reshape(-1, 1, 1)) * factor) + 120, 0, 255)
    assert np.abs(found - expected).max() <= 1 and (found != expected).mean() < 0.01


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("chip", ["tiny", "tw2"])
@pytest.mark.parametrize(
    "behind, kind",
    [
        (["Mul f k e", "Cast e y 3"], TensorProto.INT8),  # cut off, not rounded
        (["Mul f k e", "Relu e g", "Cast g y 2"], TensorProto.UINT8),
        (["Mul f k e", "Cast e g 6", "Relu g h", "Cast h y 1"], TensorProto.FLOAT),
        (["Mul c n e", "Cast e y 1"], TensorProto.FLOAT),  # wraps
        (["Mul f k e", "Round e g", "Add g far h", "Clip h low high i", "Cast i y 2"], TensorProto.UINT8),
    ],
)
def test_what_the_fixpipe_does_otherwise_is_left_to_the_vector_unit(behind: list[str], kind: int, chip: str) -> None:
    shape, nodes = (33, 40), [node("MatMulInteger", "x w z", "c"), node("Cast", "c", "f", to=1)]
    for operator, *names in map(str.split, behind):
        to = {"to": int(names.pop())} if operator == "Cast" else {}
        nodes.append(node(operator, " ".join(names[:-1]), names[-1], **to))
    values = {"w": RNG.integers(-127, 128, (40, 20)).astype(np.int8), "z": np.int8(3), "k": np.float32(0.0004)}
    values |= {"n": np.int32(30001), "far": np.float32(1000), "low": np.float32(0), "high": np.float32(255)}
    source = model(nodes, {"x": (TensorProto.INT8, list(shape))}, ["y"], values, opset=17, output_type=kind)
    inputs = {"x": RNG.integers(-128, 128, shape).astype(np.int8)}
    found = api.compile(source, chip, cache=False).run(inputs, hazards=True)["y"]
    np.testing.assert_array_equal(found, checks.run(source, inputs)["y"])
