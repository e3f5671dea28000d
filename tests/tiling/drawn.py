"""Random kernels: the first of a seed's cases that has a tile on a chip, by its best tile or any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from ci.random_cases import Outcome
from compiler.codegen.memory import MemoryOverflow
from compiler.errors import TilewrightError
from compiler.tiling.template import NoFeasibleTile

DRAWS = 40  # of cases of which none fits a chip
Pick = Callable[[int], int]  # which of so many tiles


class Drawn(NamedTuple):
    """A case: what is said of it, what it is counted as, and how it runs: by a tile, with how far it is off."""

    said: str
    kind: str
    run: Callable[[Pick], tuple[Any, float]]


def check_first(seed: int, chip: str, draw: Callable[[Random], Drawn], tolerance: float) -> Outcome:
    source = Random(seed)
    for _ in range(DRAWS):
        case, share = draw(source), source.choice((0.0, 0.0, source.random()))
        said = f"{case.said}, {share:.3f}: "
        try:
            _, error = case.run(_at(share))
        except (NoFeasibleTile, MemoryOverflow):  # too large after all: the next tile is tried where one is chosen
            continue
        except (AssertionError, TilewrightError) as problem:
            return Outcome(seed, chip, said + str(problem)[:300])
        text = f"{said}off by {error:.2g} of the largest" if error > tolerance else ""
        return Outcome(seed, chip, text, Counter({case.kind: 1}))
    return Outcome(seed, chip, "", Counter({"none that fits": 1}))


def _at(share: float) -> Pick:
    return lambda count: int(share * count)
