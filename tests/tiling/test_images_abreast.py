"""Convolutions one of whose products has the places of several images, against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.pipeline import Observer
from compiler.tiling import convolution as template
from compiler.tiling.search import cheapest_first
from models import checks
from tests.tiling.test_convolution import check, name_of

CASES: list[dict[str, Any]] = [
    {"x": (5, 20, 3, 3), "w": (40, 20, 1, 1)},
    {"x": (7, 40, 1, 1), "w": (24, 20, 1, 1), "group": 2},
    {"x": (9, 33, 5, 6), "w": (20, 33, 1, 1), "strides": (1, 2)},
    {"x": (6, 17, 5, 4), "w": (18, 17, 1, 3), "pads": (0, 1, 0, 2)},
    {"x": (3, 9, 17), "w": (6, 9, 5), "pads": (2, 1), "strides": (2,)},
    {"x": (5, 24, 7, 5), "w": (10, 24, 1, 1), "strides": (1, 2), "pads": (-1, 0, -1, 0)},
    {"x": (5, 8, 1, 3, 2), "w": (18, 8, 1, 1, 1)},
]
KINDS: dict[str, Any] = {
    "cheapest": lambda tile, images: True,
    "dearest": lambda tile, images: True,
    "several products": lambda tile, images: tile.images > 1,
    "fewer at the end": lambda tile, images: images % (tile.images * tile.abreast),
}


def abreast(case: dict[str, Any], kind: str) -> Any:
    """By a tile of that kind whose products are of several images."""

    def cut(func: Any, target: Any, _: int) -> Any:
        space = template.space(func, target)
        wanted, images = KINDS[kind], case["x"][0]
        tiles = [tile for tile in space.tiles() if tile.abreast > 1 and wanted(tile, images)]
        tiles = cheapest_first(space, tiles, target)
        return space.apply(tiles[-1 if kind == "dearest" else 0])

    return cut


@pytest.mark.parametrize(
    ("case", "kind", "chip"),
    [
        (case, kind, ("tw1", "tw2")[(at + place) % 2])
        for at, case in enumerate(CASES)
        for place, kind in enumerate(KINDS)
        if kind != "several products" or case["x"][0] > 3
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_products_of_several_images(chip: str, case: dict[str, Any], kind: str) -> None:
    check(chip, case, "float16", bias="float32", relu=True, cut=abreast(case, kind))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
def test_of_other_types(chip: str, dtype: str) -> None:
    check(chip, CASES[2], dtype, cut=abreast(CASES[2], "cheapest"))


def test_what_is_added_lies_as_results_do() -> None:
    check("tw2", CASES[0], "float16", bias="float32", relu=True, side=True, cut=abreast(CASES[0], "cheapest"))


@pytest.mark.parametrize(
    "case",
    [
        {"x": (1, 20, 3, 3), "w": (40, 20, 1, 1)},  # one image
        {"x": (5, 20, 4, 4), "w": (40, 20, 1, 1)},  # nothing to be filled up
        {"x": (5, 20, 3, 3), "w": (40, 20, 3, 3), "pads": (1, 1, 1, 1)},  # rows of other images would be seen
        {"x": (5, 20, 3, 3), "w": (40, 20, 1, 1), "pads": (1, 0, 0, 0)},
        {"x": (5, 20, 3, 4), "w": (40, 20, 1, 1), "pads": (0, -1, 0, 0)},
        {"x": (5, 20, 3, 4), "w": (40, 20, 1, 1), "pads": (0, 0, 0, -1)},
        {"x": (5, 20, 5, 5), "w": (40, 20, 1, 1), "strides": (2, 2)},
        {"x": (5, 20, 3, 3, 3), "w": (40, 20, 1, 1, 1)},
    ],
    ids=name_of,
)
def test_where_products_are_of_one_image(case: dict[str, Any]) -> None:
    def cut(func: Any, target: Any, _: int) -> Any:
        space = template.space(func, target)
        assert all(tile.abreast == 1 for tile in space.tiles())
        return template.schedule(func, target, 0)

    check("tw2", case, "float16", cut=cut)


@pytest.mark.parametrize("channels", [128, 120])
def test_images_that_lie_in_llb(channels: int) -> None:
    """Where runs of one image are filled up to blocks, those of images side by side would reach into the next one."""
    seed = np.random.default_rng(channels)
    sizes = [(channels, 64), (1024, channels), (64, 1024)]
    weights = [
        numpy_helper.from_array((seed.standard_normal((*size, 1, 1)) / size[1] ** 0.5).astype(np.float32), f"w{at}")
        for at, size in enumerate(sizes)
    ]
    nodes = [helper.make_node("Conv", [f"x{at}", f"w{at}"], [f"x{at + 1}"]) for at in range(len(sizes))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [40, 64, 7, 7]) for name in ("x0", f"x{len(sizes)}")]
    graph = helper.make_graph(nodes, "three", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inputs = {"x0": seed.standard_normal((40, 64, 7, 7)).astype(np.float32)}
    observer = Observer(without=frozenset({"keep-in-l1"}))
    artifact = compiler.compile(model, "tw2", cache=False, jobs=1, precision="fp16", observer=observer)
    assert any("images, 7x7" in kernel.tile for kernel in artifact.report.kernels)
    loaded = compiler.load(artifact.model)
    expected = checks.run(model, inputs)
    np.testing.assert_allclose(loaded.run(inputs)["x3"], expected["x3"], atol=2e-2)
    loaded.timed(inputs, hazards=True)
    assert not loaded.hazards
