"""What a load is worth in pieces: rows of DDR that are cut cost it the lines that both parts touch, and cores may share
them."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.target import Chip

LINES = 2  # of DDR that a row of a piece has at least, where rows do not begin with a line


def rows_may_be_cut(piece_bytes: Any, row_bytes: int, chip: Chip) -> Any:
    """Whether rows may come in pieces of so many bytes each; of many numbers an array."""
    line = chip.transfer.ddr_line_bytes
    return piece_bytes >= (line if row_bytes % line == 0 else LINES * line)


def which_pay(
    none: np.ndarray, one: np.ndarray, both: np.ndarray, first_is_one: np.ndarray, chip: Chip
) -> tuple[np.ndarray, np.ndarray]:
    """Which of two loads cores share, as `ShareLoads` chooses: by the cycles with none of them shared, with the ``one``
    that saves DDR the most, and with both. Each further one has to pay for a flag between cores; where that one does
    not by itself, both may together.
    """
    pays = chip.sync.cross_flag_cycles
    with_one = none - one > pays
    with_both = np.where(with_one, one, none) - both > pays
    return with_both | (with_one & first_is_one), with_both | (with_one & ~first_is_one)
