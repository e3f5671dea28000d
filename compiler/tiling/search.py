"""What a schedule template says of the tiles of a kernel, and what a tile costs by that alone.

A template gives a *space*: the tiles that fit, the *work* that each makes, and how it is applied. Ranking sees nothing
of a tile but its work, so that all templates share one cost and one learned correction of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np

from compiler.target import Chip
from compiler.tiling.template import Tiled


class Work(NamedTuple):
    """What a tile makes the busiest core do. Cycles of a queue are those it is busy for when nothing holds it up."""

    cores: int  # that take part
    cube_cycles: float = 0.0
    vector_cycles: float = 0.0
    mte1_cycles: float = 0.0  # from L1 to beside the cube
    mte2_cycles: float = 0.0  # into the core
    mte3_cycles: float = 0.0  # out of UB, alone on the path
    fix_cycles: float = 0.0  # out of L0C
    ddr_bytes: float = 0.0  # of all cores together, in whole lines
    llb_bytes: float = 0.0  # of the busiest cluster
    trips: float = 1.0  # results that the core makes one after another
    turns: float = 1.0  # times that it loads from afar, one after another
    steps: float = 1.0  # times that it loads beside the cube, one after another
    instructions: float = 0.0  # that its scalar unit dispatches
    first_cycles: float = 0.0  # from the start until the busiest queue can begin
    last_cycles: float = 0.0  # from its end until all results are out
    serial_cycles: float = 0.0  # of all queues, what cannot overlap: buffers for which there is room once only
    loads: float = 0.0  # from afar, of each operand by itself: fewer of what is kept; where not known, turns
    shared: float = 0.0  # of these, pieces that cores of a cluster bring to LLB for each other
    sharers: float = 1.0  # cores that wait for the same piece
    rows: float = 1.0  # of a result
    columns: float = 1.0


class Space(Protocol):
    """All tiles of one kernel that fit the chip.

    One that has many tiles may also have `work_of_all(tiles)`, at once; each number is an array.
    """

    def tiles(self) -> Sequence[Any]: ...

    def work(self, tile: Any) -> Work: ...

    def taken(self, tile: Any) -> dict[str, int]:
        """Bytes of each memory."""

    def apply(self, tile: Any) -> Tiled: ...


def columns_of(works: Sequence[Work]) -> Work:
    """Of many tiles as one: each number is an array."""
    if not works:
        return Work(*np.zeros((len(Work._fields), 0)))
    return Work(*np.array(works, np.float64).T)


def works_in(columns: Work) -> list[Work]:
    """Of each tile by itself."""
    return [Work._make(numbers) for numbers in np.stack(columns, axis=1).tolist()]


def works_of(space: Space, tiles: Sequence[Any]) -> Work:
    """The work of tiles, each number an array."""
    if tiles and hasattr(space, "work_of_all"):
        return Work(*np.array(space.work_of_all(tiles), np.float64))
    return columns_of([space.work(tile) for tile in tiles])


def queue_cycles(work: Work, chip: Chip) -> tuple[float, ...]:
    """Of the cube, the vector unit, MTE1, MTE2, MTE3, FIX, the scalar unit, DDR and LLB, each by itself."""
    return (
        work.cube_cycles,
        work.vector_cycles,
        work.mte1_cycles,
        work.mte2_cycles,
        work.mte3_cycles,
        work.fix_cycles,
        work.instructions * chip.scalar.issue_cycles,
        work.ddr_bytes * 1000 / chip.bandwidth.ddr_bytes_per_kilocycle,
        work.llb_bytes * 1000 / chip.bandwidth.llb_bytes_per_kilocycle,
    )


def analytical_cycles(work: Work, chip: Chip) -> float:
    """The busiest queue or shared path, what happens before and after it, and what cannot overlap."""
    return max(1.0, *queue_cycles(work, chip)) + work.first_cycles + work.last_cycles + work.serial_cycles


def analytical_cycles_of_all(columns: Work, chip: Chip) -> np.ndarray:
    """The same of many tiles; added in the same order, on which sums of floats depend."""
    busiest = reduce(np.maximum, queue_cycles(columns, chip), 1.0)
    return np.asarray(busiest + columns.first_cycles + columns.last_cycles + columns.serial_cycles)


def cheapest_first(space: Space, tiles: Sequence[Any], chip: Chip) -> list[Any]:
    """In the order of their cost by that alone."""
    order = np.argsort(analytical_cycles_of_all(works_of(space, tiles), chip), kind="stable")
    return [tiles[index] for index in order]
