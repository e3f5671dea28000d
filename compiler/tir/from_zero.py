"""Stages of TE with all axes counted from zero, as whoever cuts them into tiles takes them to be.

for k in range(3, 40): r[0] += x[k]  ->  for k in range(37): r[0] += x[k + 3]
"""

from __future__ import annotations

from typing import Any

from tvm import ir, s_tir, tirx

from compiler.tir.rewriter import loop_with, substitute
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map


def from_zero(func: Any) -> Any:
    """The function with loops, and axes of blocks, that begin at zero: TE makes an axis of a block of each loop."""
    return func.with_body(structural_map(func.body, [(s_tir.SBlock, _block), (tirx.For, _loop)]))


def _block(block: Any) -> Any:
    later = [axis for axis in block.iter_vars if not _is_zero(axis.dom.min)]
    if not later:
        return block
    places = {axis.var: axis.var + axis.dom.min for axis in later}
    axes = [axis if _is_zero(axis.dom.min) else _counted(axis) for axis in block.iter_vars]
    reads, writes = ([substitute(region, places) for region in side] for side in (block.reads, block.writes))
    init = None if block.init is None else substitute(block.init, places)
    return block_with(block, iter_vars=axes, reads=reads, writes=writes, body=substitute(block.body, places), init=init)


def _counted(axis: Any) -> Any:
    return tirx.IterVar(ir.Range.from_min_extent(0, axis.dom.extent), axis.var, axis.iter_type, axis.thread_tag)


def _loop(loop: Any) -> Any:
    return loop if _is_zero(loop.min) else loop_with(loop, loop.body, min=tirx.IntImm(str(loop.loop_var.ty), 0))


def _is_zero(value: Any) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == 0
