"""Scatters into a copy of much data, as two kernels: the copy, by all cores, and what is put into it.

Where data decides what is written, one core does all; most of what it does is to copy.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.s_tir import SBlock

from compiler.target import Chip
from compiler.tiling.blocks import block_facts
from compiler.tiling.in_parts import InParts, Part, function, mentions
from compiler.tiling.plain import IN_PART, SHARES, bytes_of
from compiler.tir.structure import structural_walk

SWITCH = "split-scatters"  # what ablations call it
LEAST_BYTES = 1 << 14  # of what is copied, where one core holds it twice; if not, it copies element by element


def split(func: Any, schedule: str, chip: Chip) -> tuple[InParts, ...]:
    """The two kernels; none where nothing is copied first, or little that has room beside its copy."""
    body = func.body.block.body
    if schedule != "scatter" or not isinstance(body, tirx.SeqStmt):
        return ()
    copy, *rest = body.seq
    data, *_, out = func.params
    if not _copies(copy, data, out) or any(mentions(nest, data) for nest in rest):
        return ()
    if bytes_of(data) < LEAST_BYTES and sum(map(bytes_of, func.params)) <= chip.memory.ub_bytes * SHARES[0]:
        return ()
    last = len(func.params) - 1
    copying = function(func, [data, out], [copy], [])
    putting = function(func, func.params[1:], rest, func.body.block.alloc_buffers).with_attr(IN_PART, True)
    first = Part(copying, "movement", (0, last), "the copy", "copy")
    return (InParts((), (first, Part(putting, schedule, tuple(range(1, last + 1)), "into the copy"))),)


def _copies(nest: Any, data: Any, out: Any) -> bool:
    """Whether a nest copies all of one buffer to another, element by element."""
    found: list[Any] = []
    structural_walk(nest, (SBlock, found.append))
    blocks = [block for block in found if len(block.iter_vars)]
    if len(blocks) != 1 or not block_facts(blocks[0]).copies:
        return False
    store = blocks[0].body
    axes = [axis.var for axis in blocks[0].iter_vars]
    same = isinstance(store.value, ir.TensorLoad) and store.value.source.same_as(data) and store.buffer.same_as(out)
    there = [list(side) for side in (store.indices, store.value.indices)]
    return same and all(len(one) == len(axes) and all(map(_is, one, axes)) for one in there)


def _is(index: Any, axis: Any) -> bool:
    return bool(index.same_as(axis))
