"""Which tiles are worth comparing with the one that ranking thinks is the best: few of many, that are not alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.target import Chip
from compiler.tiling.ranking import Ranked, forest_of
from compiler.tiling.search import Work, queue_cycles

# Tiles that ranking thinks within this of its best are lowered, too, and compared by the cycle model. More of them
# where more cycles are at stake (products above 20,000 cycles take 4 % less with three than with one, convolutions
# above 3,000 cycles 1 % less with two), and for a chip of which nothing was learned (ResNet-50 takes 1.6 % less with
# four there).
NEAR, UNLEARNED_RIVALS = 1.08, 4
TRIED_NEAR = 1.3  # where so many are asked for that some may be worse by ranking
RIVALS = ((20_000, 3), (3_000, 2), (1_000, 1))  # from so many cycles on


def rivals_of(found: Ranked, left: list[Ranked], chip: Chip, tries: int | None = None, times: int = 1) -> list[Ranked]:
    """Tiles for which it is worth the time to look whether they are better, one for each work: the best by the
    analytical cost alone, for what was learned may not hold for this kernel, and what ranking thinks nearly as good.
    The next in order comes first, then those that are least like those before: by how many times the cycles one of
    their queues is busy, or how many times the trips, turns or loads they have. Where ranking is wrong about a tile, it
    is about those like it. Of many that are asked for, the first half comes in order.
    """
    most = next((count for cycles, count in RIVALS if found.cycles >= cycles * (times if count > 1 else 1)), 0)
    if most and forest_of(chip) is None:
        most = UNLEARNED_RIVALS
    most, near_by = (most, NEAR) if tries is None else (tries, TRIED_NEAR)
    if not most or not left:
        return []
    plain = min(left, key=lambda one: one.analytical_cycles)
    near = [one for one in left if one.cycles <= found.cycles * near_by]
    tiles = [found, *([plain] if plain.analytical_cycles < found.analytical_cycles else []), *near]
    of_all: tuple[Any, ...] = found.works
    columns = Work(*(column[[one.number for one in tiles]] for column in of_all))
    asked = np.maximum(1.0, [*queue_cycles(columns, chip), columns.trips, columns.turns, columns.loads])
    works, order = np.stack(columns), [0]
    other, apart = np.full(len(tiles), fill_value=True), np.full(len(tiles), np.inf)
    while len(order) <= most:
        last = order[-1]
        apart = np.minimum(apart, np.abs(np.log(asked / asked[:, last, None])).max(axis=0))
        other = other & (works != works[:, last, None]).any(axis=0)
        if not other.any():
            break
        in_order = len(order) <= max(1, (tries or 0) // 2)
        order.append(int((other if in_order else np.where(other, apart, -1.0)).argmax()))
    return [tiles[index] for index in order[1 : most + 1]]
