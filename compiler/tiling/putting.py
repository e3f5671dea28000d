"""The schedule of elements put into rows: a core has some of the rows.

for core: for row: row_ub = data[row, :];  row_ub[index_ub] = updates_ub, piece by piece;  result[row, :] = row_ub
"""

from __future__ import annotations

from typing import Any

from compiler.isa.layout import ceil_to
from compiler.operators.broadcast import shape_of
from compiler.operators.putting import PIECE, built_again, element_bytes, index_bytes
from compiler.operators.rows_on_cores import PITCH, Spread
from compiler.target import Chip
from compiler.tiling.template import NoFeasibleTile, Tiled

_SHARE = 0.9  # of UB


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Later attempts have half as many indices at once; rows that do not fit are left to loops."""
    *_, indices, updates, out = func.params
    (rows, length), count, dtype = shape_of(out), shape_of(indices)[1], str(updates.dtype)
    room = int(chip.memory.ub_bytes * _SHARE) - ceil_to(length, PITCH) * element_bytes(dtype)
    most = (min(PIECE, room // index_bytes(dtype)) >> attempt) // PITCH * PITCH
    if most < PITCH:
        raise NoFeasibleTile("elements put into rows", f"{attempt} numbers of indices at once")
    spread = Spread.of(rows, 1, chip.cores)
    words = f"{rows} rows of {length} one by one, on {spread.cores} cores"
    return Tiled(built_again(func, spread, min(count, most)).with_attrs(func.attrs), words)
