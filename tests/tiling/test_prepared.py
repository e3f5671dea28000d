"""A convolution in one kernel with what makes its map, against numpy in float64; and what is none such."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tvm import te, tirx

from ci.random_cases import CHIPS
from compiler.operators.convolution import convolution
from compiler.target import load_chip
from compiler.tiling import prepared
from compiler.tiling.search import analytical_cycles, analytical_cycles_of_all, works_in, works_of
from compiler.tiling.template import NoFeasibleTile
from compiler.tir.near import strided
from tests.tiling.random_prepared import Case, check, one_kernel

CASES: list[tuple[str, Case]] = [
    ("tw1", Case(1, 128, 14, 14, 64)),
    ("tw1", Case(3, 48, 7, 7, 20, "of images", "")),
    ("tw1", Case(1, 80, 5, 33, 128, "added", "silu", bias=False)),
    ("tw2", Case(2, 240, 28, 28, 48)),
    ("tw2", Case(1, 32, 1, 16, 5, "", "", behind="clip")),
    ("tw2", Case(2, 16, 3, 7, 64, "", "clip")),
    ("tiny", Case(1, 48, 8, 8, 32)),
]
TILES = 2  # of each case
SHAPE = (1, 32, 9, 9)


@pytest.mark.parametrize("part", range(TILES))
@pytest.mark.parametrize(("chip", "case"), CASES, ids=str)
def test_it_is_what_the_stages_are_apart(chip: str, case: Case, part: int) -> None:
    """By the best tile of the space, and by others."""
    result, error = one_kernel(chip, case, lambda count: part * count // TILES)
    assert error <= 2e-3
    assert result.description.endswith("its map by way of UB")


@pytest.mark.parametrize("seed", range(9))
def test_random_ones_are_free_of_hazards_and_right(seed: int) -> None:
    assert check(seed, CHIPS[seed % 3]).text == ""


def test_the_map_is_turned_on_its_way_beside_the_cube_and_never_stored() -> None:
    func = str(one_kernel("tw1", CASES[0][1], lambda _: 0)[0].func)
    assert "tw.stnz" in func
    assert "tw.ldl0at" in func
    assert "tw.ldc1" not in func
    assert func.count("tw.st.") == 1  # the result


def _space(
    stage: Callable[[Any], Any] | None = None,
    shape: tuple[int, ...] = SHAPE,
    kernel: int = 1,
    dtype: str = "float16",
    pitch: int = 0,
) -> prepared.PreparedSpace:
    k0 = 16 if dtype == "float16" else 8
    blocks = -(-shape[1] // k0)
    x = te.placeholder(shape, dtype, "x")
    w = te.placeholder((1, 1, blocks, kernel, kernel, 16, k0), dtype, "w")
    rank = len(shape) - 2
    sizes = {"channels": shape[1], "outputs": 16, "kernel": (kernel,) * rank}
    made = stage(x) if stage else te.compute(x.shape, lambda *i: tirx.max(x(*i), tirx.const(0, dtype)), "made")
    result = convolution(made, w, **sizes, strides=(1,) * rank, pads=(0,) * (2 * rank), dilations=(1,) * rank)
    func = te.create_prim_func([x, w, result])
    if pitch:  # columns of a wider map
        func = strided(func, {0: (shape[1] * shape[2] * pitch, shape[2] * pitch, pitch, 1)})
    return prepared.space(func, load_chip("tw1"))


@pytest.mark.parametrize("shape", [(1, 128, 1), (2, 32, 50), (1, 32, 1, 9, 9)])
def test_maps_of_one_and_three_axes_have_tiles_too(shape: tuple[int, ...]) -> None:
    space = _space(shape=shape)
    assert "by way of UB" in space.apply(space.tiles()[0]).description


def _turned(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda n, c, h, w: x(n, c, h, 8 - w), "turned")


def _summed(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 3), "k")
    return te.compute(x.shape, lambda n, c, h, w: te.sum(x(n, c, h, w) * (k + 1).astype("float16"), axis=k), "summed")


@pytest.mark.parametrize("changed", [
    {"kernel": 3}, {"shape": (1, 20, 9, 9)}, {"dtype": "float32"}, {"pitch": 16}, {"stage": _turned},
    {"stage": _summed},
], ids=lambda changed: next(iter(changed)))  # fmt: skip
def test_other_windows_channels_types_and_stages_have_no_tile(changed: dict[str, Any]) -> None:
    assert _space().tiles()
    with pytest.raises(NoFeasibleTile):
        _space(**changed)


def test_a_chip_without_the_path_has_no_tile() -> None:
    chip = load_chip("tw1")
    without = replace(chip, path={name: path for name, path in chip.path.items() if name != "ub_l1"})
    assert not prepared.is_possible([None, _space().problem], without)
    with pytest.raises(NoFeasibleTile):
        prepared.space(_space().func, without)


def test_the_work_of_a_tile_does_not_depend_on_the_tiles_beside_it() -> None:
    chip, space = load_chip("tw1"), _space(shape=(1, 128, 14, 14))
    columns = works_of(space, space.tiles())
    works = [space.work(tile) for tile in space.tiles()]
    assert len(set(works)) > 1
    assert works_in(columns) == works
    assert analytical_cycles_of_all(columns, chip).tolist() == [analytical_cycles(work, chip) for work in works]
