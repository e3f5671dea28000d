"""The schedule of running sums and products: a core has some of the rows.

for core: for trip: x_ub = x[rows, :];  x_ub = scanned(x_ub);  y[rows, :] = x_ub
"""

from __future__ import annotations

from typing import Any

from compiler.isa.timing import ceil_div
from compiler.operators.broadcast import shape_of
from compiler.operators.rows_on_cores import Spread
from compiler.operators.running import NARROW, SUMS, built_again, row_bytes
from compiler.target import Chip
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.scopes import ISA_DTYPE

_SHARE = 0.9  # of UB
_SCANNED = ("fp32", "int32")


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Later attempts have half as many rows at once."""
    (rows, length), dtype = shape_of(func.params[0]), str(func.params[0].dtype)
    most = int(chip.memory.ub_bytes * _SHARE) // row_bytes(length)
    together = min(most, ceil_div(rows, chip.cores)) >> attempt
    if together < 1 or ISA_DTYPE.get(SUMS if dtype in NARROW else dtype) not in _SCANNED:
        raise NoFeasibleTile("running sums", f"{attempt} numbers of rows at once")
    spread = Spread.of(ceil_div(rows, together), together, chip.cores)
    words = f"{together} of {rows} rows of {length} at once, on {spread.cores} cores"
    return Tiled(built_again(func, spread).with_attrs(func.attrs), words)
