"""Which core works on which block, and who reads what."""

from __future__ import annotations

import pytest

from compiler.target import load_chip
from compiler.tiling.grids import Grid, Readers, grids, readers


def test_a_cluster_reads_once_what_its_cores_share() -> None:
    """Four clusters, 2 x 2, of eight cores that each have rows of their own."""
    grid = Grid((), (2, 2), (8, 1))
    assert readers(grid, (), cluster_cores=8) == (Readers(32, shared=False), Readers(4, shared=True))


def test_cores_alone_read_all_they_need() -> None:
    grid = Grid((), (1, 1), (4, 5))
    assert readers(grid, (), cluster_cores=1) == (Readers(20, shared=False), Readers(20, shared=False))
    assert readers(grid, (), cluster_cores=20) == (Readers(4, shared=True), Readers(5, shared=True))


def test_batches_share_only_what_does_not_have_their_axis() -> None:
    grid = Grid((4,), (1, 1), (2, 1))
    assert readers(grid, ("",), cluster_cores=8) == (Readers(8, shared=False), Readers(4, shared=True))
    assert readers(grid, ("a",), cluster_cores=8) == (Readers(8, shared=False), Readers(1, shared=True))


@pytest.mark.parametrize("chip_name", ["tw1", "tw2", "tiny"])
@pytest.mark.parametrize(("batch", "m", "n"), [((), 64, 64), ((), 1, 1), ((), 1, 300), ((12,), 8, 8), ((3, 5), 1, 2)])
def test_every_grid_fits_the_chip_and_one_uses_nearly_all_of_it(
    chip_name: str, batch: tuple[int, ...], m: int, n: int
) -> None:
    chip = load_chip(chip_name)
    found = list(grids(batch, m, n, chip))
    assert len(set(found)) == len(found)
    assert all(1 <= grid.count <= chip.cores for grid in found)
    work = m * n
    for extent in batch:
        work *= extent
    assert max(grid.count for grid in found) >= min(work, chip.cores) * 0.7
