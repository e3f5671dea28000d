"""Resize against onnx.reference (the standard's own) and, where rounding decides between neighbours, onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from compiler.errors import TilewrightError
from compiler.frontend import import_model
from compiler.operators.runs import pick, runs_of
from tests.frontend.models import model, node
from tests.frontend.test_gathered_rows import operators
from tests.operators.evaluate import evaluate
from tests.operators.oracle import onnxruntime_node

RNG = np.random.default_rng(3)
COORDINATES = ["half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners"]


def reference(x: np.ndarray, scales: Any = None, sizes: Any = None, roi: Any = None, **attributes: Any) -> np.ndarray:
    given = {"x": x, "roi": roi, "scales": scales, "sizes": sizes}
    node = helper.make_node("Resize", [n if v is not None else "" for n, v in given.items()], ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in given.items()
        if v is not None
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    return ReferenceEvaluator(model).run(None, {n: v for n, v in given.items() if v is not None})[0]


def resized(x: np.ndarray, scales: Any = None, sizes: Any = None, roi: Any = None, **attributes: Any) -> np.ndarray:
    return evaluate("Resize", x, roi, scales, sizes, constants=[1, 2, 3], **attributes)


def check(x: np.ndarray, *, atol: float = 2e-5, **given: Any) -> None:
    expected = reference(x, **given)
    got = resized(x, **given)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, expected, atol=atol, rtol=1e-5)


@pytest.mark.parametrize("sizes", [(6, 10), (7, 3), (1, 4), (3, 5), (2, 11)])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes(mode: str, coordinates: str, sizes: tuple[int, int]) -> None:
    x = RNG.standard_normal((1, 2, 3, 5)).astype(np.float32)
    given: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if coordinates == "pytorch_half_pixel" and 1 in sizes:  # the reference begins half a pixel before it
        expected = onnxruntime_node("Resize", [x, None, None, np.array([1, 2, *sizes])], **given)[0]
        np.testing.assert_allclose(resized(x, sizes=np.array([1, 2, *sizes]), **given), expected, atol=2e-5)
        return
    check(x, sizes=np.array([1, 2, *sizes]), **given)


@pytest.mark.parametrize("sizes", [(25, 19), (13, 19), (25, 10), (26, 19), (7, 20), (97, 71)])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_columns_of_many_elements(sizes: tuple[int, int], dtype: str) -> None:
    x = RNG.integers(-100, 100, (2, 16, 13, 10)).astype(dtype)
    check(x, sizes=np.array([2, 16, *sizes]), coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@pytest.mark.parametrize("nearest_mode", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scale", [0.5, 0.6, 2.0, 3.0, 2.5])
def test_nearest_modes(nearest_mode: str, scale: float) -> None:
    x = RNG.standard_normal((1, 1, 4, 5)).astype(np.float32)
    scales = np.array([1, 1, scale, scale], np.float32)
    for coordinates in ("half_pixel", "asymmetric"):
        attributes = {"nearest_mode": nearest_mode, "coordinate_transformation_mode": coordinates}
        expected = onnxruntime_node("Resize", [x, None, scales], **attributes)[0]
        np.testing.assert_array_equal(resized(x, scales=scales, **attributes), expected)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_and_outside(mode: str) -> None:
    x = RNG.standard_normal((1, 1, 9, 7)).astype(np.float32)
    scales = np.array([1, 1, 0.4, 0.6], np.float32)
    check(x, scales=scales, mode=mode, antialias=1)
    check(x, scales=np.array([1, 1, 0.4, 1.7], np.float32), mode=mode, antialias=1)
    check(x, scales=scales, mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize(mode: str) -> None:
    x = RNG.standard_normal((1, 1, 4, 6)).astype(np.float32)
    for roi in ([0, 0, 0.4, 0.6, 1, 1, 0.6, 0.8], [0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7]):
        given = (np.array(roi, np.float32), None, np.array([1, 1, 3, 5]))
        attributes = {
            "mode": mode,
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": 10.0,
        }
        expected = onnxruntime_node("Resize", [x, *given], **attributes)[0]
        got = evaluate("Resize", x, *given, constants=[1, 2, 3], **attributes)
        np.testing.assert_allclose(got, expected, atol=2e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
def test_axes_and_aspect(policy: str) -> None:
    x = RNG.standard_normal((3, 5, 2)).astype(np.float32)
    for mode in ("nearest", "linear"):
        check(x, sizes=np.array([7, 8]), axes=[1, 0], keep_aspect_ratio_policy=policy, mode=mode)


@pytest.mark.parametrize("dtype", ["float16", "int32", "int8", "uint8"])
def test_element_types(dtype: str) -> None:
    x = RNG.integers(0, 100, (1, 3, 4, 4)).astype(dtype)
    for mode in ("nearest", "linear"):
        scales = np.array([1, 1, 2, 1.5], np.float32)
        got = resized(x, scales=scales, mode=mode)
        assert got.dtype == x.dtype
        ties = 0.1 if dtype == "float16" else 1  # a sum that lies between two integers in float64
        np.testing.assert_allclose(got, reference(x, scales=scales, mode=mode), atol=ties)


def test_a_ratio_without_a_pattern_is_read_from_a_table() -> None:
    x = RNG.standard_normal((1, 2, 97, 3)).astype(np.float32)
    for mode in ("nearest", "linear"):
        check(x, sizes=np.array([1, 2, 101, 89]), mode=mode, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "sizes", "given"),
    [
        ((1, 300, 3), (1, 450, 3), {}),
        ((2, 3, 700), (2, 3, 500), {"mode": "cubic"}),
        ((1, 600, 2), (1, 299, 2), {"antialias": 1}),
        ((1, 600, 300), (1, 200, 100), {}),  # every third
        ((1, 600, 2), (1, 1, 2), {"antialias": 1}),  # out of all of them
    ],
)
def test_long_axes(shape: tuple[int, ...], sizes: tuple[int, ...], given: dict[str, Any]) -> None:
    check(RNG.standard_normal(shape).astype(np.float32), sizes=np.array(sizes), **{"mode": "linear", **given})


@pytest.mark.parametrize(
    ("shape", "sizes", "matmuls"),
    [((1, 64, 2, 3), (1, 64, 5, 4), 1), ((2, 40, 2, 2, 2), (2, 40, 3, 4, 5), 1), ((1, 16, 2, 3), (1, 16, 5, 4), 2)],
)
def test_many_small_maps_are_one_product(shape: tuple[int, ...], sizes: tuple[int, ...], matmuls: int) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    check(x, sizes=np.array(sizes), mode="cubic")
    resize = node("Resize", "x  size", "y", mode="linear")
    resize.input[:] = ["x", "", "", "size"]
    network = model([resize], {"x": [*shape]}, ["y"], {"size": np.array(sizes)})
    functions = import_model(network.SerializeToString()).module.functions.values()
    assert [each.attrs.get("tw.operator") for each in functions if each.attrs].count("MatMul") == matmuls


def test_integers_of_many_neighbours() -> None:
    x = RNG.integers(-90, 90, (1, 600, 2)).astype(np.int32)
    expected = onnxruntime_node("Resize", [x, None, None, np.array([1, 1, 2])], opset=18, mode="linear", antialias=1)[0]
    assert abs(resized(x, sizes=np.array([1, 1, 2]), mode="linear", antialias=1) - expected).max() <= 1


@pytest.mark.parametrize(
    ("extent", "wanted", "expected"),
    [(300, 600, {"Slice", "MatMul", "Concat"}), (200, 333, {"MatMul"}), (600, 200, {"tilewright::Interpolate"})],
)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_floats_are_resized_by_products_but_where_every_so_many_are_read(
    extent: int, wanted: int, expected: set[str], precision: str
) -> None:
    resize = node("Resize", "x  size", "y", mode="linear")
    resize.input[:] = ["x", "", "", "size"]
    network = model([resize], {"x": [1, extent, 8]}, ["y"], {"size": np.array([1, wanted, 8])})
    imported = import_model(network.SerializeToString(), precision=precision)
    assert operators(imported) - {"Reshape"} == expected


def test_upsample_and_the_first_resize() -> None:
    x = RNG.standard_normal((1, 2, 3, 4)).astype(np.float32)
    scales = np.array([1, 1, 2, 3], np.float32)
    for mode in ("nearest", "linear"):
        expected = onnxruntime_node("Upsample", [x, scales], opset=9, mode=mode)[0]
        np.testing.assert_allclose(evaluate("Upsample", x, scales, constants=[1], mode=mode), expected, atol=1e-6)
        got = evaluate("Upsample", x, mode=mode, scales=[1.0, 1.0, 2.0, 3.0])
        np.testing.assert_allclose(got, expected, atol=1e-6)
        got = evaluate("Resize", x, scales, constants=[1], mode=mode, opset=10)
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_the_same_size_is_the_same_tensor() -> None:
    x = RNG.standard_normal((1, 2, 3, 4)).astype(np.float32)
    for mode in ("nearest", "linear", "cubic"):
        np.testing.assert_array_equal(resized(x, sizes=np.array([1, 2, 3, 4]), mode=mode), x)


def test_bad_requests_are_refused() -> None:
    x = np.zeros((1, 1, 2, 2), np.float32)
    scales = np.ones(4, np.float32)
    with pytest.raises(TilewrightError, match=r"TW2111.*nearest, linear or cubic"):
        resized(x, scales=scales, mode="lanczos")
    with pytest.raises(TilewrightError, match=r"TW2111.*4 elements"):
        resized(x, scales=scales[:3])


@pytest.mark.parametrize(
    ("positions", "most"),
    [
        ([0, 1, 2, 3], 1),
        ([0, 0, 1, 1, 2, 2], 1),
        ([0, 1, 2, 0, 1, 2], 1),
        ([6, 4, 2, 0], 1),
        ([3, 3, 3], 1),
        ([2, 1, 0, 1, 2, 3, 2], 3),
        ([0, 0, 1, 2, 2, 3], 3),
        ([5], 1),
        ([4, 0, 3, 3, 9], 4),
    ],
)
def test_runs_cover_every_position_once(positions: list[int], most: int) -> None:
    runs = runs_of(np.array(positions))
    assert len(runs) <= most
    found: dict[int, int] = {}
    for run in runs:
        for index in np.ndindex(*(loop.count for loop in run.loops)):
            found[int(run.output_at(index))] = int(run.source_at(index))
    assert sum(int(np.prod([loop.count for loop in run.loops])) for run in runs) == len(positions)
    assert [found[i] for i in range(len(positions))] == positions


def test_affine_picks_stay_in_te() -> None:
    from tvm import te

    x = te.placeholder((8, 6), "float32", "x")
    assert isinstance(pick(x, [np.arange(7, -1, -2), np.arange(1, 4)]), te.Tensor)


@pytest.mark.parametrize("scale", [3e8, 1e30, float("inf"), float("nan"), 0.0, -1.0])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_scales_that_ask_for_too_much_or_nothing_are_refused(mode: str, scale: float) -> None:
    with pytest.raises(TilewrightError, match=r"TW2111|TW2113"):
        resized(np.zeros((1, 3), np.float32), scales=np.array([1, scale], np.float32), mode=mode)


def test_a_kernel_that_antialiasing_widens_too_much_is_refused() -> None:
    x = np.zeros((1, 3), np.float32)
    with pytest.raises(TilewrightError, match="TW2113"):
        resized(x, scales=np.array([1, 1e-9], np.float32), mode="linear", antialias=True)


def test_sizes_that_ask_for_too_much_are_refused() -> None:
    with pytest.raises(TilewrightError, match="TW2113"):
        resized(np.zeros((1, 3), np.float32), sizes=np.array([1, 1 << 62]), mode="linear")
