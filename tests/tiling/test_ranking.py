"""Tiles in the order of what they cost, with the correction that was learned and without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from compiler.target import load_chip
from compiler.tiling import ranking
from compiler.tiling.ranking import FEATURES, Forest, features, forest_of, predicted_cycles, ranked
from compiler.tiling.search import Work, analytical_cycles
from compiler.tiling.template import Tiled

CHIP = load_chip("tw1")
WORKS = [
    Work(32, cube_cycles=900.0, first_cycles=50, last_cycles=50),
    Work(16, vector_cycles=400.0, ddr_bytes=20_000.0, trips=4),
    Work(32, mte2_cycles=700.0, instructions=80, turns=7, steps=14),
]
# One tree: where the cube takes more than half of the time, half as long again; else twice as long.
TABLES = {
    "base": 0.0,
    "depth": 2,
    "trees": [
        {
            "left": [1, 1, 2],
            "right": [2, 1, 2],
            "feature": [FEATURES.index("cube"), 0, 0],
            "value": [0.5, np.log(2.0), np.log(1.5)],
        }
    ],
}


@dataclass
class Listed:
    """A space of tiles that are their own numbers."""

    works: list[Work]

    def tiles(self) -> Sequence[int]:
        return range(len(self.works))

    def work(self, tile: int) -> Work:
        return self.works[tile]

    def taken(self, tile: int) -> dict[str, int]:
        return {}

    def apply(self, tile: int) -> Tiled:
        raise NotImplementedError


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "forest_of", lambda chip: Forest.from_tables(TABLES))


def test_without_the_correction_the_analytical_cost_decides() -> None:
    found = ranked(Listed(WORKS), CHIP, learned=False)
    assert [one.tile for one in found] == [1, 2, 0]
    assert [one.cycles for one in found] == sorted(analytical_cycles(work, CHIP) for work in WORKS)


def test_the_correction_is_a_factor(learned: Any) -> None:
    found = {one.tile: one.cycles for one in ranked(Listed(WORKS), CHIP)}
    expected = [analytical_cycles(work, CHIP) * factor for work, factor in zip(WORKS, (1.5, 2, 2), strict=True)]
    assert [found[tile] for tile in range(3)] == pytest.approx(expected)


def test_of_equals_the_first_is_first() -> None:
    assert [one.tile for one in ranked(Listed([WORKS[0]] * 3), CHIP)] == [0, 1, 2]


def test_features_are_named_and_finite() -> None:
    rows = features([*WORKS, Work(1)], CHIP)
    assert rows.shape == (4, len(FEATURES))
    assert np.isfinite(rows).all()
    assert rows[0, FEATURES.index("cube")] == pytest.approx(0.9)
    assert rows[0, FEATURES.index("cores")] == 1


def test_a_chip_that_was_changed_has_no_model() -> None:
    changed = replace(CHIP, clock_mhz=CHIP.clock_mhz + 1)
    assert forest_of(changed) is None
    assert predicted_cycles(WORKS, changed).tolist() == [analytical_cycles(work, changed) for work in WORKS]


def test_a_cluster_has_the_model_of_its_chip() -> None:
    chip = load_chip("tw1")
    rows, whole = features(WORKS, chip), forest_of(chip)
    assert whole is not None
    for running in range(1, chip.clusters + 1):
        cluster = forest_of(chip.one_cluster(running))
        assert cluster is not None
        assert cluster.predict(rows).tolist() == whole.predict(rows).tolist()
    slower = replace(chip, bandwidth=replace(chip.bandwidth, ddr_bytes_per_kilocycle=1000))
    assert forest_of(slower.one_cluster()) is None


def test_no_tile_is_faster_than_its_busiest_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    tenth = {**TABLES, "base": float(np.log(0.1))}
    monkeypatch.setattr(ranking, "forest_of", lambda chip: Forest.from_tables(tenth))
    assert predicted_cycles(WORKS[:1], CHIP)[0] == 900
