"""The schedule of the best elements of blocks: a core has some of the blocks, or several rows that are one block each.

for core: for trip: x_ub = x[rows, block]
                    values_ub, places_ub = sorted(x_ub)
                    values[rows, block], places[rows, block] = values_ub, places_ub
"""

from __future__ import annotations

import json
from typing import Any

from compiler.isa.dtypes import NUMBERS
from compiler.isa.layout import ceil_to
from compiler.isa.timing import ceil_div
from compiler.operators.best_of_blocks import built_again
from compiler.operators.broadcast import shape_of
from compiler.operators.rows_on_cores import PITCH, Spread
from compiler.target import Chip
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.scopes import ISA_DTYPE

_BYTES = 4  # of an element, at most
_SHARE = 0.9  # of UB


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Later attempts sort half as many rows at once."""
    (rows, length), dtype = shape_of(func.params[0]), ISA_DTYPE.get(str(func.params[0].dtype))
    told = json.loads(str(func.attrs["tw.attributes"]))
    block, pairs = min(told["block"], length), len(func.params) == 4
    blocks = ceil_div(length, told["block"])
    held, chosen = ceil_to(block, PITCH), ceil_to(told["k"], PITCH)
    row_bytes = _BYTES * (2 * held if pairs else held + 2 * chosen)
    most = int(chip.memory.ub_bytes * _SHARE) // row_bytes
    together = min(most, 1 if blocks > 1 else ceil_div(rows, chip.cores)) >> attempt
    if together < 1 or dtype not in NUMBERS:
        raise NoFeasibleTile("the order of a block", f"{attempt} numbers of rows at once")
    spread = Spread.of(ceil_div(rows, together) * blocks, together, chip.cores)
    words = f"{together} of {rows} rows at once, {blocks} blocks of {block} on {spread.cores} cores"
    return Tiled(built_again(func, spread).with_attrs(func.attrs), words)
