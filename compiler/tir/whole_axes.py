"""Blocks that read what other blocks make at places that data decides, as readers of all of these axes.

What a block reads decides how much of it is made for a tile, and that must be known before the data is:

    T.reads(table[i, index[i, j]], index[i, j])  ->  T.reads(table[i, 0:64], index[i, j])
"""

from __future__ import annotations

from typing import Any

from tvm import ir, s_tir, tirx

from compiler.tir.rewriter import loads
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map


def whole_axes(func: Any) -> Any:
    """The function with blocks that say so. Of its own inputs only what is picked is moved, one by one."""
    inputs = {buffer.name for buffer in func.params}

    def widened(block: Any) -> Any:
        given = list(block.reads)
        reads = [region if region.source.name in inputs else _whole(region) for region in given]
        is_same = all(new is old for new, old in zip(reads, given, strict=True))
        return block if is_same else block_with(block, reads=reads)

    return func.with_body(structural_map(func.body, (s_tir.SBlock, widened)))


def _whole(region: Any) -> Any:
    picked = [loads(each.min) for each in region.region]
    if not any(picked):
        return region
    sides = zip(region.region, picked, region.source.shape, strict=True)
    return tirx.BufferRegion(
        region.source, [ir.Range.from_min_extent(0, extent) if chosen else each for each, chosen, extent in sides]
    )
