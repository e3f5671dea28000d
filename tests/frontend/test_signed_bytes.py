"""Unsigned bytes that the cube multiplies are quantised to signed ones at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler import api
from compiler.frontend import import_model
from models import checks
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import operators

RNG = np.random.default_rng(12)
SIGNED = "tilewright::Signed"
WEIGHTS = {
    "w": RNG.integers(-127, 128, (24, 7)).astype(np.int8), "t": np.float32(0.01), "v": np.int8(0),
    "s": np.float32(0.03), "z": np.uint8(120),
}  # fmt: skip
QUANTISED = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d")]
PRODUCT = [node("DequantizeLinear", "w t v", "e"), node("MatMul", "d e", "y")]


def given() -> dict[str, np.ndarray]:
    return {"x": RNG.standard_normal((5, 24)).astype(np.float32)}


def test_they_are_quantised_to_signed_bytes() -> None:
    source = model([*QUANTISED, *PRODUCT], {"x": (5, 24)}, ["y"], WEIGHTS, opset=17)
    imported = import_model(source.SerializeToString())
    assert SIGNED not in operators(imported)
    check(source, imported, given(), rtol=1e-5, atol=1e-5)


def test_who_dequantises_them_has_their_zero_point_too() -> None:
    """Two products and a residual read them."""
    nodes = [*QUANTISED, *PRODUCT, node("MatMul", "d e", "o"), node("Tanh", "d", "h")]
    source = model(nodes, {"x": (5, 24)}, ["y", "o", "h"], WEIGHTS, opset=17)
    imported = import_model(source.SerializeToString())
    assert SIGNED not in operators(imported)
    check(source, imported, given(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "behind, outputs",
    [
        ([], ["y", "q"]),  # the caller
        ([node("Cast", "q", "i", to=6), node("Cast", "i", "k", to=1)], ["y", "k"]),  # who counts from zero
        ([node("DequantizeLinear", "q s many", "k", axis=1)], ["y", "k"]),  # who has zero points of its own
    ],
)
def test_others_see_unsigned_bytes(behind: list[Any], outputs: list[str]) -> None:
    known = {**WEIGHTS, "many": np.arange(24).astype(np.uint8)} if "DequantizeLinear" in str(behind) else WEIGHTS
    known = {**known, "s": np.full(24, 0.03, np.float32)} if "many" in known else known
    quantised = node("QuantizeLinear", "x u z", "q"), node("DequantizeLinear", "q u z", "d")
    nodes = [*quantised, *PRODUCT, *behind]
    source = model(nodes, {"x": (5, 24)}, outputs, {**known, "u": np.float32(0.03)}, opset=17)
    if "q" in outputs:
        source.graph.output[1].type.tensor_type.elem_type = 2
    imported = import_model(source.SerializeToString())
    assert SIGNED in operators(imported)
    check(source, imported, given(), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_instructions_quantise_to_signed_bytes(precision: str) -> None:
    source = model([*QUANTISED, *PRODUCT], {"x": (64, 24)}, ["y"], WEIGHTS, opset=17)
    compiled = api.compile(source, "tw2", precision=precision, cache=False)
    inputs = {"x": RNG.standard_normal((64, 24)).astype(np.float16).astype(np.float32)}
    (expected,) = checks.run(source, inputs).values()
    np.testing.assert_allclose(compiled.run(inputs)["y"], expected, rtol=2e-3, atol=2e-3)
    (segment,) = compiled.model.segments
    vector = {str(instr.row.mnemonic) for instr in segment.program.instrs if instr.row.mnemonic.startswith("v")}
    assert vector == {"vquant"}
