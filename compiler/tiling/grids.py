"""Which core works on which block of a product, and how often a chip then reads each operand from DDR.

Cores of one cluster have consecutive numbers. They are a grid of blocks of their own, inside a grid of clusters, so
that a cluster works on one large block of the result and its cores read the same rows of a, or columns of b.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from compiler.isa.timing import ceil_div
from compiler.target import Chip


@dataclass(frozen=True)
class Grid:
    """Groups of cores along batch, m and n, and the cores of one group along m and n."""

    batch: tuple[int, ...]
    groups: tuple[int, int]
    cores: tuple[int, int]

    @property
    def count(self) -> int:
        return prod(self.batch) * prod(self.groups) * prod(self.cores)

    @property
    def blocks(self) -> tuple[int, int]:
        """Along m and n."""
        return self.groups[0] * self.cores[0], self.groups[1] * self.cores[1]


@dataclass(frozen=True)
class Readers:
    """Of one operand: blocks that clusters read from DDR, all together, where each reads what its cores share once."""

    blocks: int
    shared: bool  # whether any cluster has cores that read the same block


@lru_cache(maxsize=4096)
def readers(grid: Grid, batch_of: tuple[str, ...], cluster_cores: int) -> tuple[Readers, Readers]:
    """Of a and of b. ``batch_of`` says of each batch axis which operand alone has it, "" for both."""
    seen: tuple[set[tuple[int, ...]], set[tuple[int, ...]]] = (set(), set())
    for core in range(grid.count):
        rest, inside_n = divmod(core, grid.cores[1])
        rest, inside_m = divmod(rest, grid.cores[0])
        rest, group_n = divmod(rest, grid.groups[1])
        rest, group_m = divmod(rest, grid.groups[0])
        batch = []
        for extent in reversed(grid.batch):
            rest, place = divmod(rest, extent)
            batch.append(place)
        batch.reverse()
        for operand, name, block in (
            (seen[0], "a", (group_m, inside_m)),
            (seen[1], "b", (group_n, inside_n)),
        ):
            own = [at for at, of in zip(batch, batch_of, strict=True) if of in ("", name)]
            operand.add((core // cluster_cores, *own, *block))
    a, b = (Readers(len(blocks), len(blocks) < grid.count) for blocks in seen)
    return a, b


def grids(batch: tuple[int, ...], m: int, n: int, chip: Chip) -> Iterator[Grid]:
    """Grids for a result of ``m`` x ``n`` fractals, of nearly all cores of some clusters.

    Fewer clusters than there are read less from DDR. Where there are batches, each has one group of cores.
    """
    seen: set[Grid] = set()
    batches = prod(batch)
    of_group = chip.cores_per_cluster if batches == 1 else chip.cores
    for count in range(1, (chip.clusters if batches == 1 else 1) + 1):
        for all_groups in _pairs(count):
            groups = (min(all_groups[0], m), min(all_groups[1], n))
            for limit in dict.fromkeys(of_group // parts for parts in range(1, min(of_group, batches) + 1)):
                for all_cores in _pairs(limit):
                    cores = (min(all_cores[0], ceil_div(m, groups[0])), min(all_cores[1], ceil_div(n, groups[1])))
                    grid = Grid(_spread(batch, chip.cores // (prod(groups) * prod(cores))), groups, cores)
                    if grid not in seen:
                        seen.add(grid)
                        yield grid


def _spread(batch: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """How many of the cores each axis of the batch takes, so that each core has nearly as many of them."""
    taken = []
    for extent in batch:
        trips = ceil_div(extent, min(extent, cores))
        taken.append(ceil_div(extent, trips))
        cores //= taken[-1]
    return tuple(taken)


def _pairs(most: int) -> list[tuple[int, int]]:
    """Numbers whose product is as near to ``most`` as one of them allows."""
    return sorted(
        {(first, most // first) for first in range(1, most + 1)} | {(most // s, s) for s in range(1, most + 1)}
    )
