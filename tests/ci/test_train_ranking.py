"""What is learned of tiles: the same from the same samples, and to the compiler what it is to the library."""

from __future__ import annotations

import json

import numpy as np

from ci.kernel_shapes import drawn, is_held_out
from ci.tile_samples import Sample, Sampled, drawn_tiles
from ci.train_ranking import check, examples, tables, trained
from compiler.target import load_chip
from compiler.tiling.ranking import Forest, Ranked
from compiler.tiling.search import Work, analytical_cycles, columns_of

CHIP = load_chip("tw1")


def kernels(count: int) -> list[Sampled]:
    """Kernels whose tiles take longer than their work says the more turns they take."""
    rng = np.random.default_rng(5)
    found = []
    for number in range(count):
        works = [
            Work(32, cube_cycles=float(rng.integers(1000, 9000)), turns=float(rng.integers(1, 40))) for _ in range(10)
        ]
        samples = [Sample(work, work, round(analytical_cycles(work, CHIP) * (1 + work.turns / 20))) for work in works]
        found.append(Sampled(f"kernel {number}", CHIP, tuple(samples), len(samples)))
    return found


def test_what_is_learned_is_right_and_the_same_twice() -> None:
    given = examples(kernels(30))
    texts = []
    for _ in range(2):
        booster = trained(given)
        found = tables(booster, CHIP)
        check(found, booster, given.rows)
        texts.append(json.dumps(found))
    assert texts[0] == texts[1]
    unseen = examples(kernels(40)[30:])
    assert np.abs(Forest.from_tables(json.loads(texts[0])).predict(unseen.rows) - unseen.labels).mean() < 0.05


def test_kernels_that_are_judged_by_are_not_learned_from() -> None:
    learned = {job.name for job in drawn(12, held_out=False)}
    judged = {job.name for job in drawn(6, held_out=True, seed=1)}
    assert len(learned) == 12 and len(judged) == 6
    assert not learned & judged
    assert all(is_held_out(name) for name in judged)
    assert [job.name for job in drawn(12, held_out=False)] == [job.name for job in drawn(12, held_out=False)]


def test_a_sample_has_more_of_the_first_tiles_than_of_the_others() -> None:
    found = [Ranked(index, columns_of([Work(1)]), 0, float(index), float(index)) for index in range(1000)]
    chosen = drawn_tiles(found, 20, "name")
    assert list(chosen) == sorted(chosen)
    assert sum(tile < 40 for tile in chosen) >= 10
    assert sum(chosen.values()) == 10  # drawn from all alike
    assert drawn_tiles(found[:5], 20, "name") == dict.fromkeys(range(5), True)
