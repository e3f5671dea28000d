"""What quantised models multiply after it was dequantised is multiplied as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from compiler import api
from compiler.errors import TilewrightError
from compiler.frontend import Imported, import_model
from models import checks
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import operators

RNG = np.random.default_rng(8)
QUANTISED = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d")]
DEQUANTISED = node("DequantizeLinear", "w t v", "e", axis=1)


def numbers(zero: Any, scale: float = 0.03) -> dict[str, np.ndarray]:
    return {"s": np.float32(scale), "z": np.asarray(zero)}


def weights(shape: tuple[int, ...], axis: int | None, zero: int = 0, dtype: Any = np.int8) -> dict[str, np.ndarray]:
    """Integers with a scale for each place on an axis, or for all."""
    limits, count = np.iinfo(dtype), () if axis is None else (shape[axis],)
    scale = RNG.uniform(0.002, 0.01, count).astype(np.float32)
    integers = RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)
    return {"w": integers, "t": scale, "v": np.full(count, zero, dtype)}


def product(shape: tuple[int, ...], known: dict[str, np.ndarray], *behind: Any) -> ModelProto:
    nodes = [*QUANTISED, DEQUANTISED, *(behind or (node("MatMul", "d e", "y"),))]
    return model(nodes, {"x": shape}, ["y"], known, opset=17)


def given(*shape: int) -> dict[str, np.ndarray]:
    return {"x": RNG.standard_normal(shape).astype(np.float32)}


def kinds(imported: Imported, operator: str) -> set[str]:
    """The types of what functions of an operator read and make."""
    functions = [f for name, f in imported.module.functions.items() if name.name_hint != "main"]
    return {str(p.dtype) for f in functions if str(f.attrs["tw.operator"]) == operator for p in f.params}


@pytest.mark.parametrize("zero", [np.int8(0), np.int8(-100), np.uint8(128), np.uint8(3)])
@pytest.mark.parametrize("axis", [None, 1])
def test_a_product_is_of_integers(zero: Any, axis: int | None) -> None:
    source = product((2, 5, 24), {**numbers(zero), **weights((24, 7), axis)})
    imported = import_model(source.SerializeToString())
    assert "tilewright::Product" in operators(imported) and "MatMul" not in operators(imported)
    check(source, imported, given(2, 5, 24), rtol=1e-5, atol=1e-5)


def test_weights_that_are_not_about_zero_are_where_they_fit() -> None:
    known = weights((24, 7), 1, 120, np.uint8)
    near = {**known, "w": np.clip(known["w"], 20, 240)}
    for own, is_exact in ((near, True), (known, False)):
        source = product((5, 24), {**numbers(np.int8(0)), **own})
        imported = import_model(source.SerializeToString())
        assert ("tilewright::Product" in operators(imported)) is is_exact
        check(source, imported, given(5, 24), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_bias_of_whole_steps_is_added_to_the_sums(is_whole: bool) -> None:
    known = {**numbers(np.int8(-128)), **weights((7, 24), 0)}
    steps = RNG.integers(-900, 900, 7) + (0 if is_whole else 0.4)
    known["b"] = (steps * (known["s"].astype(np.float64) * known["t"])).astype(np.float32)
    nodes = [*QUANTISED, node("DequantizeLinear", "w t v", "e", axis=0), node("Gemm", "d e b", "y", transB=1)]
    source = model(nodes, {"x": (5, 24)}, ["y"], known, opset=17)
    imported = import_model(source.SerializeToString())
    assert kinds(imported, "tilewright::Product") == {"int8", "int32"}
    assert ("float32" in kinds(imported, "Add")) is not is_whole
    check(source, imported, given(5, 24), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zero", [np.int8(0), np.int8(-128), np.uint8(128), np.uint8(7)])
@pytest.mark.parametrize("size", [4, 12])
def test_a_convolution_is_of_integers(zero: Any, size: int) -> None:
    known = {**numbers(zero), **weights((6, 8, 3, 3), 0), "b": RNG.standard_normal(6).astype(np.float32)}
    convolved = node("Conv", "d e b", "y", pads=[1, 1, 1, 1], strides=[1, 2])
    nodes = [*QUANTISED, node("DequantizeLinear", "w t v", "e", axis=0), convolved]
    source = model(nodes, {"x": (1, 8, size, size)}, ["y"], known, opset=17)
    imported = import_model(source.SerializeToString())
    assert "int8" in kinds(imported, "tilewright::Convolution")
    check(source, imported, given(1, 8, size, size), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [None, 0])
def test_a_convolution_may_have_no_bias(axis: int | None) -> None:
    known = {**numbers(np.int8(0)), **weights((6, 8, 3, 3), axis)}
    convolved = node("Conv", "d e _", "y", pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    nodes = [*QUANTISED, node("DequantizeLinear", "w t v", "e", axis=0), convolved]
    source = model(nodes, {"x": (1, 8, 4, 4)}, ["y"], known, opset=17)
    imported = import_model(source.SerializeToString())
    assert "int8" in kinds(imported, "tilewright::Convolution")
    check(source, imported, given(1, 8, 4, 4), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "shape, behind, said",
    [
        ((1, 8, 4, 4), node("Conv", "d e", "y", kernel_shape=[5, 5]), "kernel_shape"),
        ((1, 7, 4, 4), node("Conv", "d e", "y"), "channels"),
        ((1, 8, 4, 4), node("Conv", "d e s2", "y"), "b"),
        ((5, 9), node("MatMul", "d u", "y"), "a"),
    ],
)
def test_what_is_wrong_is_told_by_the_operator(shape: tuple[int, ...], behind: Any, said: str) -> None:
    known = {**numbers(np.int8(0)), **weights((6, 8, 3, 3), 0), "s2": np.zeros(5, np.float32)}
    known["m"] = RNG.integers(-9, 9, (8, 3)).astype(np.int8)
    made = [node("DequantizeLinear", "w t v", "e", axis=0), node("DequantizeLinear", "m s z", "u")]
    source = model([*QUANTISED, *made, behind], {"x": shape}, ["y"], known, opset=17)
    with pytest.raises(TilewrightError, match=said):
        import_model(source.SerializeToString())


def test_models_of_16_bits_keep_their_type() -> None:
    """Whose scales are of 16 bits, without a precision that anybody asked for."""
    known = {**numbers(np.int8(3)), **weights((24, 7), 1)}
    known |= {"s": known["s"].astype(np.float16), "t": known["t"].astype(np.float16)}
    nodes = [*QUANTISED, DEQUANTISED, node("MatMul", "d e", "m"), node("Add", "m m", "y")]
    inputs = {"x": (TensorProto.FLOAT16, [5, 24])}
    source = model(nodes, inputs, ["y"], known, opset=19, output_type=TensorProto.FLOAT16)
    imported = import_model(source.SerializeToString())
    assert "tilewright::Product" in operators(imported) and imported.outputs[0].dtype == "float16"
    x = given(5, 24)["x"].astype(np.float16)
    check(source, imported, {"x": x}, rtol=2e-3, atol=2e-3)


def test_what_was_turned_is_known_still() -> None:
    known = {**numbers(np.int8(5)), **weights((7, 24), 0)}
    turned = [node("DequantizeLinear", "w t v", "f", axis=0), node("Transpose", "f", "e", perm=[1, 0])]
    source = model([*QUANTISED, *turned, node("MatMul", "d e", "y")], {"x": (5, 24)}, ["y"], known, opset=17)
    imported = import_model(source.SerializeToString())
    assert "tilewright::Product" in operators(imported)
    check(source, imported, given(5, 24), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "behind",
    [
        [node("MatMul", "x e", "y")],  # not quantised
        [node("Relu", "d", "r"), node("MatMul", "r e", "y")],
        [node("Relu", "e", "r"), node("MatMul", "d r", "y")],
    ],
)
def test_other_products_are_of_floats(behind: list[Any]) -> None:
    source = product((5, 24), {**numbers(np.int8(0)), **weights((24, 7), 1)}, *behind)
    imported = import_model(source.SerializeToString())
    assert "MatMul" in operators(imported)
    check(source, imported, given(5, 24), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
def test_results_are_those_of_integers_on_chips(chip: str) -> None:
    source = product((9, 40), {**numbers(np.uint8(3)), **weights((40, 33), 1)})
    inputs = given(9, 40)
    found = api.compile(source, chip, cache=False).run(inputs, hazards=True)["y"]
    (expected,) = checks.run(source, inputs).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
@pytest.mark.parametrize("zero", [np.int8(-128), np.uint8(7)])
@pytest.mark.parametrize(
    "shape, kernel, attributes",
    [
        ((1, 40, 7, 9), (20, 40, 3, 3), {"pads": [1, 2, 1, 0]}),
        ((2, 32, 6, 5), (33, 32, 2, 3), {"pads": [1, 1, 0, 3], "strides": [2, 1], "dilations": [1, 2]}),
        ((1, 32, 3, 4, 5), (8, 32, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
        ((1, 3, 32, 32), (8, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
        ((1, 3, 33, 20), (8, 3, 5, 5), {"pads": [2, 1, 2, 3], "strides": [1, 2]}),
        ((1, 1, 48, 48), (16, 1, 9, 9), {"pads": [4, 4, 4, 4]}),
        ((1, 32, 4, 4), (8, 32, 3, 3), {"pads": [5, 5, 5, 5]}),
    ],
)
def test_maps_are_padded_with_their_zero_point(
    shape: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, Any], zero: Any, chip: str
) -> None:
    """By the cube, or where rows become channels."""
    known = {**numbers(zero), **weights(kernel, 0)}
    nodes = [*QUANTISED, node("DequantizeLinear", "w t v", "e", axis=0), node("Conv", "d e", "y", **attributes)]
    source = model(nodes, {"x": shape}, ["y"], known, opset=17)
    assert "Pad" not in operators(import_model(source.SerializeToString()))
    inputs = given(*shape)
    found = api.compile(source, chip, cache=False).run(inputs, hazards=True)["y"]
    (expected,) = checks.run(source, inputs).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("as_planned")
def test_scales_are_exact_in_16_bits() -> None:
    """A fiftieth is 0.019996 in fp16: of 127 steps a fortieth of one is lost."""
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q t z", "y")]
    known = {**numbers(np.int8(0), 0.02), "t": np.float32(1)}
    source = model(nodes, {"x": (1, 128)}, ["y"], known, opset=17)
    x = ((np.arange(128) - 0.7 + 0.0099 * np.arange(128)) * 0.02).astype(np.float16).astype(np.float32).reshape(1, -1)
    found = api.compile(source, "tiny", precision="fp16", cache=False).run({"x": x})["y"]
    (expected,) = checks.run(source, {"x": x}).values()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("zero, is_cut_off", [(-128, True), (-100, False)])
def test_saturation_cuts_off_below_zero(zero: int, is_cut_off: bool) -> None:
    nodes = [node("Relu", "x", "r"), node("QuantizeLinear", "r s z", "q"), node("DequantizeLinear", "q s z", "y")]
    source = model(nodes, {"x": (6, 9)}, ["y"], numbers(np.int8(zero)), opset=17)
    imported = import_model(source.SerializeToString())
    assert ("Relu" in operators(imported)) is not is_cut_off
    check(source, imported, given(6, 9))


def test_instructions_quantise_and_dequantise_at_once() -> None:
    nodes = [node("Relu", "x", "r"), node("QuantizeLinear", "r s z", "q"), node("DequantizeLinear", "q s z", "y")]
    source = model(nodes, {"x": (64, 128)}, ["y"], numbers(np.int8(-128)), opset=17)
    compiled = api.compile(source, "tw2", precision="fp16", cache=False)
    (segment,) = compiled.model.segments
    vector = [str(instr.row.mnemonic) for instr in segment.program.instrs if instr.row.mnemonic.startswith("v")]
    assert vector == ["vquant", "vdequant"]


@pytest.mark.parametrize("of_sums, of_results", [(1e30, 1e-10), (0.001, 0.0)])
def test_sums_that_are_no_steps_are_scaled_twice(of_sums: float, of_results: float) -> None:
    known = {"t": np.float32(of_sums), "s": np.float32(of_results), "z": np.int8(5)}
    nodes = [node("DequantizeLinear", "x t", "d"), node("QuantizeLinear", "d s z", "y")]
    source = model(nodes, {"x": (TensorProto.INT32, [3, 4])}, ["y"], known, output_type=TensorProto.INT8)
    if not of_results:
        with pytest.raises(TilewrightError, match="y_scale=0"):
            import_model(source.SerializeToString())
        return
    assert "QuantizeLinear" in operators(import_model(source.SerializeToString()))


def test_a_channel_of_no_scale_has_a_bias_still() -> None:
    known = {**numbers(np.int8(3)), **weights((6, 8, 1, 1), 0), "b": np.arange(6, dtype=np.float32)}
    known["t"][:2] = 0
    nodes = [*QUANTISED, node("DequantizeLinear", "w t v", "e", axis=0), node("Conv", "d e b", "y")]
    source = model(nodes, {"x": (1, 8, 4, 4)}, ["y"], known, opset=17)
    check(source, import_model(source.SerializeToString()), given(1, 8, 4, 4), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("of_sums, of_weights", [(0, 1), (1, 0)])
def test_of_no_scale_everything_is_zero(of_sums: int, of_weights: int) -> None:
    """One channel of sums that nobody read was taken out where it is not."""
    known = {**numbers(np.int8(3)), **weights((1, 3, 1, 1), None), "u": np.float32(of_sums)}
    known["t"] *= np.float32(of_weights)
    nodes = [node("ConvInteger", "q w", "c"), node("DequantizeLinear", "c u", "y")]
    floats = [*QUANTISED, node("DequantizeLinear", "w t v", "e"), node("Conv", "d e", "f")]
    source = model([*floats, *nodes], {"x": (1, 3, 4, 7)}, ["f", "y"], known, opset=17)
    inputs = given(1, 3, 4, 7)
    found, expected = api.compile(source, "tiny", cache=False).run(inputs, hazards=True), checks.run(source, inputs)
    for name in ("f", "y"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5)
