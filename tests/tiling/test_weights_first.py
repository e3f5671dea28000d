"""Convolutions of which a core has one tile: all weights come beside the cube before a map that is awaited does."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.tiling import convolution as template
from compiler.tiling.convolution_tiles import Tile
from compiler.tiling.convolution_work import weights_come_first
from compiler.tiling.search import cheapest_first
from compiler.tir.near import CONSTANTS
from tests.tiling.test_convolution import check, name_of

CASES: list[dict[str, Any]] = [
    {"x": (1, 64, 6, 5), "w": (24, 64, 3, 3), "pads": (1, 1, 1, 1)},
    {"x": (2, 176, 5, 5), "w": (32, 88, 3, 3), "group": 2, "strides": (2, 2)},
    {"x": (1, 600, 9, 7), "w": (16, 600, 1, 1)},
    {"x": (1, 40, 4, 3, 3), "w": (16, 40, 2, 1, 2)},
]
GIVEN = [1, 2]  # weights and bias, not the map


class Cut:
    """By the best tile of which a core has one, in several steps where there is such a tile; ``given`` are the
    parameters that nobody writes.
    """

    def __init__(self, given: list[int] | None, rounds: int = 1) -> None:
        self._given, self._rounds = given, rounds
        self.first: list[bool] = []

    def __call__(self, func: Any, chip: Any, _: int) -> Any:
        space = template.space(func if self._given is None else func.with_attr(CONSTANTS, self._given), chip)

        def is_wanted(tile: Tile) -> bool:
            alone = tile.rounds == 1 if self._rounds == 1 else tile.rounds >= self._rounds
            return alone and not tile.overlaid

        tiles = cheapest_first(space, [*filter(is_wanted, space.tiles())], chip)
        tiles.sort(key=lambda tile: tile.steps(space.problem) == 1)
        self.first.append(weights_come_first(tiles[0], space.problem, chip))
        return space.apply(tiles[0])


def are_first(instructions: list[str]) -> bool:
    """Whether all loads of weights beside the cube stand before the first of the map into L1."""
    near = [at for at, name in enumerate(instructions) if name.startswith("ldl0b")]
    return max(near) < min(at for at, name in enumerate(instructions) if name.startswith("ldc1"))


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_weights_come_before_a_map_that_is_awaited(chip: str, case: dict[str, Any]) -> None:
    cut = Cut([1])
    assert are_first(check(chip, case, "float16", relu=True, cut=cut))
    assert cut.first == [True]


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_with_what_sums_begin_with(chip: str) -> None:
    """Which comes beside the cube, too, where there is no table of it."""
    cut = Cut(GIVEN)
    check(chip, CASES[0], "float16", bias="float32", relu=True, side=True, cut=cut)
    assert cut.first == [True]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_of_other_types(dtype: str) -> None:
    case = (
        {"x": (1, 40, 6, 5), "w": (8, 40, 3, 3)} if dtype == "float32" else {"x": (1, 320, 6, 5), "w": (8, 320, 3, 3)}
    )
    assert are_first(check("tw2", case, dtype, cut=Cut([1])))


@pytest.mark.parametrize(
    "cut",
    [Cut(None), Cut([0, 1, 2]), Cut(GIVEN, rounds=2)],
    ids=["nothing is known", "the map is given", "several tiles of a core"],
)
def test_else_they_come_with_it(cut: Cut) -> None:
    case = {**CASES[0], "x": (64, 64, 6, 5)} if cut._rounds > 1 else CASES[0]
    assert not are_first(check("tw2", case, "float16", bias="float32", cut=cut))
    assert cut.first == [False]


def test_of_all_of_them_there_is_room_beside_the_cube() -> None:
    """Those of 16 channels take 73,728 bytes, of 65,536."""
    cut = Cut(GIVEN)
    check("tw2", {"x": (1, 256, 6, 5), "w": (32, 256, 3, 3)}, "float16", bias="float32", cut=cut)
    assert cut.first == [False]
