"""Tiles from the best on: by what their work costs, corrected by what was learned of such work on the simulator.

The correction is a boosted forest of regression trees, trained by `ci.train_ranking` and kept per chip. It sees of a
tile what :func:`features` gives, and gives the logarithm of simulated by analytical cycles.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from compiler.target import Chip, chip_names, load_chip
from compiler.tiling.search import Space, Work, columns_of, queue_cycles, works_of

# What the trees see. All of it is a ratio, or a number that means the same on every chip.
FEATURES = (
    "log_cycles",  # analytical
    "cube",  # each queue and shared path: its share of the analytical cycles
    "vector",
    "mte1",
    "mte2",
    "mte3",
    "fix",
    "scalar",
    "ddr",
    "llb",
    "first",  # what is before and after the busiest one, and what cannot overlap: their shares
    "last",
    "serial",
    "second",  # the share of the second busiest
    "sum",  # of the shares of all queues
    "log_trips",
    "log_turns",
    "log_steps",
    "log_instructions",
    "log_cycles_of_trip",
    "log_cycles_of_turn",
    "log_cycles_of_step",
    "cores",  # share of the chip's
    "log_more_cube",  # how much more each queue and shared path does than by the tile that asks the least of it
    "log_more_vector",
    "log_more_mte1",
    "log_more_mte2",
    "log_more_mte3",
    "log_more_fix",
    "log_more_scalar",
    "log_more_ddr",
    "log_more_llb",
    "log_more_cycles",  # analytical
    "log_first",  # cycles
    "log_last",
    "log_serial",
    "log_mte2_of_turn",  # cycles of a queue each time
    "log_mte2_of_load",
    "log_mte3_of_trip",
    "log_vector_of_trip",
    "log_loads_of_turn",
    "log_shared",
    "log_sharers",
    "log_rows",
    "log_columns",
)


class Ranked(NamedTuple):
    """A tile, what it makes the chip do, and the cycles that this is thought to take, learned and analytical."""

    tile: Any
    works: Work  # of all tiles, each number an array
    number: int  # of the tile in these
    cycles: float
    analytical_cycles: float

    @property
    def work(self) -> Work:
        """Worked out of all only where it is asked for: of a few of tens of thousands."""
        numbers: tuple[Any, ...] = self.works
        return Work._make(float(column[self.number]) for column in numbers)


def ranked(space: Space, chip: Chip, *, learned: bool = True, forest: Forest | None = None) -> list[Ranked]:
    """All tiles, the fastest first; of equals the one that the template names first.

    ``forest`` stands for what was learned on this chip.
    """
    tiles = list(space.tiles())
    costs = _Costs.of(works_of(space, tiles), chip)
    cycles = costs.learned(chip, forest=forest) if learned else costs.cycles
    # Where what was learned is below what the busiest queue takes, tiles differ by what it does not know.
    order, works = np.lexsort((costs.cycles, cycles)), costs.columns
    found = zip(order.tolist(), cycles[order].tolist(), costs.cycles[order].tolist(), strict=True)
    return [Ranked(tiles[number], works, number, learnt, analytical) for number, learnt, analytical in found]


def predicted_cycles(
    works: Sequence[Work], chip: Chip, *, learned: bool = True, least: np.ndarray | None = None
) -> np.ndarray:
    """Of each tile, no less than its busiest queue takes. Without a model for the chip, the analytical cost alone.

    ``least`` is that of all tiles of the kernel, where these works are not of all.
    """
    costs = _Costs.of(columns_of(works), chip)
    return costs.learned(chip, least) if learned else costs.cycles


def features(works: Sequence[Work], chip: Chip, least: np.ndarray | None = None) -> np.ndarray:
    """[work, feature], in the order of FEATURES."""
    return _Costs.of(columns_of(works), chip).features(chip, least)


def least_of(works: Sequence[Work], chip: Chip) -> np.ndarray:
    """The least cycles of each queue and shared path by any tile of a kernel, and the least analytical cost."""
    return _Costs.of(columns_of(works), chip).demands.min(axis=0)


@dataclass(frozen=True)
class _Costs:
    """The analytical cost of tiles, and what it is made of."""

    queues: np.ndarray  # [work, queue]
    around: np.ndarray  # [work, first, last and serial cycles]
    cycles: np.ndarray
    columns: Work  # of all tiles: each number is an array

    @classmethod
    def of(cls, columns: Work, chip: Chip) -> _Costs:
        queues = np.stack(queue_cycles(columns, chip), axis=1)
        around = np.stack((columns.first_cycles, columns.last_cycles, columns.serial_cycles), axis=1)
        # In the order in which `analytical_cycles` adds: sums of floats depend on it.
        cycles = np.maximum(1.0, queues.max(axis=1)) + around[:, 0] + around[:, 1] + around[:, 2]
        return cls(queues, around, cycles, columns)

    @property
    def demands(self) -> np.ndarray:
        return np.maximum(np.concatenate((self.queues, self.cycles[:, None]), axis=1), 1.0)

    def learned(self, chip: Chip, least: np.ndarray | None = None, forest: Forest | None = None) -> np.ndarray:
        forest = (forest or forest_of(chip)) if len(self.cycles) else None
        if forest is None:
            return self.cycles
        corrected = self.cycles * np.exp(forest.predict(self.features(chip, least)))
        return np.asarray(np.maximum(self.queues.max(axis=1), corrected))

    def _loads(self) -> np.ndarray:
        return np.asarray(np.where(self.columns.loads > 0, self.columns.loads, self.columns.turns))

    def _at_once(self) -> np.ndarray:
        of = self.columns
        cycles = (of.mte2_cycles, of.mte2_cycles, of.mte3_cycles, of.vector_cycles)
        return np.stack(cycles, axis=1) / np.stack((of.turns, self._loads(), of.trips, of.trips), axis=1)

    def features(self, chip: Chip, least: np.ndarray | None = None) -> np.ndarray:
        of, cycles = self.columns, self.cycles[:, None]
        queues, around = self.queues / cycles, self.around / cycles
        counts = np.stack((of.trips, of.turns, of.steps, of.instructions), axis=1)
        loads = self._loads()
        second = np.sort(queues, axis=1)[:, -2:-1]
        cores = np.asarray(of.cores / chip.cores)[:, None]
        parts = (
            np.log(cycles),
            queues,
            around,
            second,
            queues.sum(axis=1, keepdims=True),
            np.log1p(counts),
            np.log(cycles / np.maximum(counts[:, :3], 1)),
            cores,
            np.log(self.demands / (self.demands.min(axis=0) if least is None else least)),
            np.log1p(self.around),
            np.log1p(self._at_once()),
            np.log(np.stack((loads / of.turns, of.shared + 1, of.sharers, of.rows, of.columns), axis=1)),
        )
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Forest:
    """Regression trees as arrays: [tree, node]. A leaf is its own child on both sides and holds its value."""

    base: float
    feature: np.ndarray
    value: np.ndarray  # of the split: less goes left; of a leaf: what it adds
    left: np.ndarray
    right: np.ndarray
    depth: int

    def predict(self, rows: np.ndarray) -> np.ndarray:
        from compiler.tiling.forest_kernels import leaves_of  # compiled code is loaded when tiles are ranked

        compared = np.ascontiguousarray(rows, np.float32)
        leaves = leaves_of(compared, self.feature, self.value, self.left, self.right, self.depth)
        return np.asarray(self.base + leaves.sum(axis=1, dtype=np.float64))

    @classmethod
    def from_tables(cls, tables: dict[str, Any]) -> Forest:
        """From what a model file holds; trees there end where their last node does."""
        trees, nodes = len(tables["trees"]), max(len(tree["left"]) for tree in tables["trees"])
        left, right, feature = (np.zeros((trees, nodes), np.int64) for _ in range(3))
        value = np.zeros((trees, nodes), np.float32)
        for index, tree in enumerate(tables["trees"]):
            for array, name in ((left, "left"), (right, "right"), (feature, "feature"), (value, "value")):
                array[index, : len(tree[name])] = tree[name]
        return cls(float(tables["base"]), feature, value, left, right, int(tables["depth"]))


@cache
def forest_of(chip: Chip) -> Forest | None:
    """What was learned on this chip, or on the chip that it is a cluster of: what trees see means the same on both.

    A chip that is not exactly the one of its name, or a cluster of that, beside however many that run, has no model.
    """
    file = resources.files("compiler.tiling") / "models" / f"{chip.name}.json"
    if chip.name not in chip_names() or not file.is_file():
        return None
    tables = json.loads(file.read_text(encoding="utf-8"))
    whole = load_chip(chip.name)
    if tables["chip"] != whole.content_hash or tuple(tables["features"]) != FEATURES:
        return None
    known = (whole, *(whole.one_cluster(running) for running in range(1, whole.clusters + 1)))
    if chip.content_hash not in {each.content_hash for each in known}:
        return None
    return Forest.from_tables(tables)
