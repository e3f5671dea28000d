"""The schedule of what no template can cut: one core, loops as they stand, over buffers on the chip where they fit.

    for i: out[index[i]] = f(a[i])        ->  index_ub = index; a_ub = a
                                              for i: out_ub[index_ub[i]] = f(a_ub[i])
                                              out = out_ub

Whole buffers move: which parts of them such loops touch, data decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from compiler.graph import attribute
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling.blocks import UB
from compiler.tiling.footprint import BLOCK_BYTES
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.scopes import itemsize
from compiler.tir.structure import structural_map, structural_walk

# UB that the buffers of each attempt may fill: the rest is for temporaries of split expressions.
SHARES = (0.7, 0.35, 0.1, 0.0)
IN_PART = "written_in_part"  # attribute of a PrimFunc: its results hold something already, of which some stays


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Keep the loops as they are; intermediate buffers, inputs and results lie in UB, the smallest first."""
    if attempt >= len(SHARES):
        raise NoFeasibleTile("the kernel", "the kernel as it is, on one core")
    buffers = _buffers(s_tir.renew_defs(func))
    budget = chip.memory.ub_bytes * SHARES[attempt]
    chosen = []
    for buffer in sorted((*buffers.scratch, *buffers.read, *buffers.written), key=bytes_of):
        budget -= bytes_of(buffer)
        if budget < 0:
            break
        chosen.append(buffer)
    every = len(chosen) == len(buffers.scratch) + len(buffers.read) + len(buffers.written)
    where = "" if every else f", {len(chosen)} buffers in UB" if chosen else ", all buffers in DDR"
    return Tiled(_placed(buffers, chosen), f"as it is, on one core{where}")


@dataclass(frozen=True)
class _Buffers:
    func: Any
    scratch: tuple[Any, ...]
    read: tuple[Any, ...]  # parameters
    written: tuple[Any, ...]


def _buffers(func: Any) -> _Buffers:
    scratch, stored = list[Any](), dict[Any, None]()
    structural_walk(func.body, (s_tir.SBlock, lambda block: scratch.extend(block.alloc_buffers)))
    structural_walk(func.body, (tirx.BufferStore, lambda store: stored.setdefault(store.buffer)))
    written = tuple(param for param in func.params if param in stored)
    read = tuple(param for param in func.params if param not in stored)
    return _Buffers(func, tuple(buffer for buffer in scratch if buffer.scope() == "global"), read, written)


def bytes_of(buffer: Any) -> int:
    size = prod(int(n) for n in buffer.shape) * itemsize(buffer.dtype)
    return ceil_div(size, BLOCK_BYTES) * BLOCK_BYTES


def _placed(buffers: _Buffers, chosen: list[Any]) -> Any:
    """The function with the chosen buffers in UB, and copies of those that come from DDR or go there."""
    on_chip = {
        buffer: tirx.decl_buffer(buffer.shape, buffer.dtype, f"{buffer.name}_ub", scope=UB, layout=None)
        for buffer in chosen
    }
    root = structural_map(buffers.func.body.block, (tirx.Var, lambda var: on_chip.get(var, var)))
    held = buffers.written if attribute(buffers.func, IN_PART, False) else ()
    loads = [_copy(param, on_chip[param]) for param in (*buffers.read, *held) if param in on_chip]
    stores = [_copy(on_chip[param], param) for param in buffers.written if param in on_chip]
    body = [*loads, *(root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]), *stores]
    staged = [on_chip[param] for param in (*buffers.read, *buffers.written) if param in on_chip]
    block = s_tir.SBlock(
        [],
        [],
        [],
        root.name_hint,
        tirx.SeqStmt(body) if len(body) > 1 else body[0],
        alloc_buffers=[*root.alloc_buffers, *staged],
    )
    return buffers.func.with_body(s_tir.SBlockRealize([], True, block))


def _copy(source: Any, target: Any) -> Any:
    """A block that copies all elements."""
    extents = [int(n) for n in source.shape] or [1]
    with IRBuilder() as builder:
        frames = [T.serial(0, extent) for extent in extents]
        variables = [frame.__enter__() for frame in frames]
        with T.sblock(f"{source.name}_to_{target.name}"):
            at = [T.axis.spatial(extent, var) for extent, var in zip(extents, variables, strict=True)]
            at = at[: len(source.shape)]
            T.reads(source[tuple(at)])
            T.writes(target[tuple(at)])
            T.buffer_store(target, source[tuple(at)], at)
        for frame in reversed(frames):
            frame.__exit__(None, None, None)
    return builder.get()
