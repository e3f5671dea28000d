"""Reading an image at places that are data, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from models.checks import run
from tests.operators.evaluate import evaluate
from tests.operators.oracle import onnxruntime_node

pytestmark = pytest.mark.usefixtures("as_planned")

RNG = np.random.default_rng(11)


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample(mode: str, padding_mode: str, align_corners: int) -> None:
    x = noise(2, 3, 5, 4)
    grid = RNG.uniform(-1.6, 1.6, (2, 3, 7, 2)).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    expected = onnxruntime_node("GridSample", [x, grid], **attributes)[0]
    np.testing.assert_allclose(evaluate("GridSample", x, grid, **attributes), expected, atol=2e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grid_sample_in_a_volume(mode: str) -> None:
    x, grid = noise(1, 2, 3, 4, 5), RNG.uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).astype(np.float32)
    expected = onnxruntime_node("GridSample", [x, grid], mode=mode)[0]
    np.testing.assert_allclose(evaluate("GridSample", x, grid, mode=mode), expected, atol=2e-5)


@pytest.mark.parametrize(("mode", "older"), [("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic")])
def test_modes_have_older_names(mode: str, older: str) -> None:
    x, grid = noise(3, 1, 1, 9), RNG.uniform(-1.6, 1.6, (3, 5, 1, 2)).astype(np.float32)
    expected = onnxruntime_node("GridSample", [x, grid], opset=16, mode=older)[0]
    np.testing.assert_allclose(evaluate("GridSample", x, grid, mode=older), expected, atol=2e-5)
    np.testing.assert_array_equal(
        evaluate("GridSample", x, grid, mode=mode), evaluate("GridSample", x, grid, mode=older)
    )


def test_grid_sample_on_a_line() -> None:
    x, grid = noise(2, 3, 6), RNG.uniform(-1.6, 1.6, (2, 7, 1)).astype(np.float32)
    in_a_plane = np.stack([grid, np.zeros_like(grid)], axis=-1)[..., 0, :]
    expected = evaluate("GridSample", x[:, :, None], in_a_plane[:, None])[:, :, 0]
    np.testing.assert_allclose(evaluate("GridSample", x, grid), expected, atol=2e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_what_is_outside_is_zero_beside_infinities(mode: str) -> None:
    x = np.full((1, 1, 3, 3), np.inf, np.float32)
    grid = np.array([[[[-5, 0], [-1.1, -1.2], [4, 4]]]], np.float32)
    expected = onnxruntime_node("GridSample", [x, grid], mode=mode)[0]
    np.testing.assert_array_equal(evaluate("GridSample", x, grid, mode=mode), expected)


def test_places_far_away_are_outside() -> None:
    grid = np.array([[[[1e30, 0.0], [-np.inf, 0.0]]]], np.float32)
    assert evaluate("GridSample", noise(1, 1, 3, 3) + 9, grid).tolist() == [[[[0.0, 0.0]]]]


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 1, 4, 5), (2, 1, 2, 3, 4)])
def test_affine_grid(size: tuple[int, ...], align_corners: int) -> None:
    theta = noise(2, len(size) - 2, len(size) - 1)
    expected = onnxruntime_node("AffineGrid", [theta, np.array(size, np.int64)], align_corners=align_corners)[0]
    got = evaluate("AffineGrid", theta, np.array(size), constants=[1], align_corners=align_corners)
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("sampling_ratio", [0, 1, 3])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str, coordinates: str, sampling_ratio: int) -> None:
    x = noise(2, 3, 9, 7)
    rois = np.array(
        [[0, 0, 6, 8], [1.3, 2.1, 4.4, 3.9], [-3, -2, 12, 5], [2, 2, 2.5, 2.5], [20, -9, 31, -5]], np.float32
    )
    batch = np.array([0, 1, 1, 0, 1], np.int32)
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "sampling_ratio": sampling_ratio,
        "output_height": 3,
        "output_width": 2,
        "spatial_scale": 0.9,
    }
    expected = onnxruntime_node("RoiAlign", [x, rois, batch.astype(np.int64)], **attributes)[0]
    np.testing.assert_allclose(evaluate("RoiAlign", x, rois, batch, **attributes), expected, atol=2e-5)


@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_roi_align_was_not_shifted_before_opset_16(sampling_ratio: int) -> None:
    x, batch = noise(1, 2, 9, 7), np.array([0, 0], np.int32)
    rois = np.array([[1.3, 2.1, 4.4, 3.9], [2, 2, 2.5, 2.5]], np.float32)
    attributes = {"sampling_ratio": sampling_ratio, "output_height": 2, "output_width": 2}
    expected = onnxruntime_node("RoiAlign", [x, rois, batch.astype(np.int64)], opset=10, **attributes)[0]
    np.testing.assert_allclose(evaluate("RoiAlign", x, rois, batch, opset=10, **attributes), expected, atol=2e-5)


def test_no_places_and_no_regions() -> None:
    x = noise(1, 2, 4, 4)
    assert evaluate("GridSample", x, np.zeros((1, 0, 3, 2), np.float32)).shape == (1, 2, 0, 3)
    regions = np.zeros((0, 4), np.float32), np.zeros(0, np.int32)
    assert evaluate("RoiAlign", x, *regions, sampling_ratio=2).shape == (0, 2, 1, 1)


def test_max_roi_pool() -> None:
    x = noise(2, 3, 9, 7)
    rois = np.array([[0, 0, 0, 6, 8], [1, 1, 2, 4, 4], [1, 3, 3, 3, 3], [0, -3, 5, 20, 30]], np.float32)
    attributes = {"pooled_shape": [3, 2], "spatial_scale": 0.9}
    expected = onnxruntime_node("MaxRoiPool", [x, rois], **attributes)[0]
    np.testing.assert_array_equal(evaluate("MaxRoiPool", x, rois, **attributes), expected)


@pytest.mark.parametrize(
    ("image", "block", "attributes"),
    [
        ((5, 5), (1, 5), {}),
        ((5, 6), (2, 3), {"strides": [2, 1]}),
        ((5, 5), (3, 2), {"pads": [1, 0, 1, 1], "dilations": [1, 2]}),
        ((8, 9), (4, 3), {"strides": [2, 2], "pads": [0, 1, 1, 2]}),
        ((9, 8), (2, 3), {"strides": [3, 4], "pads": [1, 0, 1, 0]}),  # places that no block reaches
        ((9, 10), (3, 3), {"strides": [3, 2], "dilations": [2, 3]}),
        ((3, 4, 4), (1, 2, 3), {"pads": [0, 1, 0, 1, 0, 2]}),
    ],
)
def test_col2im(image: tuple[int, ...], block: tuple[int, ...], attributes: dict[str, list[int]]) -> None:
    spatial = len(image)
    pads = attributes.get("pads", [0] * 2 * spatial)
    padded = [n + pads[a] + pads[spatial + a] for a, n in enumerate(image)]
    apart, steps = attributes.get("dilations", [1] * spatial), attributes.get("strides", [1] * spatial)
    blocks = [(padded[a] - apart[a] * (block[a] - 1) - 1) // steps[a] + 1 for a in range(spatial)]
    x = noise(2, 3 * int(np.prod(block)), int(np.prod(blocks)))
    shapes = [np.array(image, np.int64), np.array(block, np.int64)]
    expected = onnxruntime_node("Col2Im", [x, *shapes], **attributes)[0]
    np.testing.assert_allclose(evaluate("Col2Im", x, *shapes, constants=[1, 2], **attributes), expected, atol=1e-5)


def test_blocks_are_put_back_row_by_row() -> None:
    """Element by element, it took 361,625 cycles."""
    sizes = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(extents)))
        for name, extents in (("image", [16, 16]), ("block", [4, 4]))
    ]
    graph = helper.make_graph(
        [*sizes, helper.make_node("Col2Im", ["x", "image", "block"], ["y"], strides=[2, 2])],
        "fold",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 48, 49])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 16, 16])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    loaded = compiler.load(compiler.compile(model.SerializeToString(), chip="tw2"))
    x = noise(1, 48, 49)
    np.testing.assert_allclose(loaded.run({"x": x}, hazards=True)["y"], run(model, {"x": x})["y"], atol=1e-5)
    assert loaded.cycles < 4000
