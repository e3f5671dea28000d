"""What a load is worth in pieces: rows of DDR that are cut cost it the lines that both parts touch."""

from __future__ import annotations

from typing import Any

from compiler.target import Chip

LINES = 2  # of DDR that a row of a piece has at least, where rows do not begin with a line


def rows_may_be_cut(piece_bytes: Any, row_bytes: int, chip: Chip) -> Any:
    """Whether rows may come in pieces of so many bytes each; of many numbers an array."""
    line = chip.transfer.ddr_line_bytes
    return piece_bytes >= (line if row_bytes % line == 0 else LINES * line)
