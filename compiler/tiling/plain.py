"""The schedule of what no template can cut: one core, loops as they stand."""

from __future__ import annotations

from typing import Any

from compiler.target import Chip
from compiler.tiling.blocks import UB
from compiler.tiling.footprint import scope_bytes
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tiling.vector import new_schedule, result_blocks, root_blocks


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Keep the kernel as it is; intermediate buffers go to UB where they fit at once, else they stay in DDR."""
    if attempt:
        raise NoFeasibleTile("the kernel", "the kernel as it is, on one core")
    sch = new_schedule(func)
    results = {sch.get(block).name_hint for block in result_blocks(sch)}
    for block in root_blocks(sch):
        if sch.get(block).name_hint not in results:
            sch.set_scope(block, 0, UB)
    if scope_bytes(sch.mod["main"]).get(UB, 0) > chip.memory.ub_bytes:
        return Tiled(func, "as it is, on one core, intermediates in DDR")
    return Tiled(sch.mod["main"], "as it is, on one core")
