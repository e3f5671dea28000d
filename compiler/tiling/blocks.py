"""Questions a schedule template asks about the blocks of a kernel, answered once per block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from compiler.tir.rewriter import loads
from compiler.tir.structure import structural_walk

DATA_PARALLEL, REDUCTION = 0, 2
UB = "local.ub"


@dataclass(frozen=True)
class BlockFacts:
    """What one sblock does, as its body shows it."""

    extents: tuple[int, ...]  # of its data-parallel axes
    reduced: tuple[int, ...]  # extents of its reduction axes
    copies: bool  # its value is one element of another buffer
    guarded: bool  # a `Select` decides what is read
    dynamic_reads: frozenset[str]  # buffers read at positions that data decides
    dynamic_write: bool  # the position written depends on data
    reads: tuple[Any, ...]  # buffers, in the order of the block's read regions
    writes: tuple[Any, ...]


def block_facts(block: Any) -> BlockFacts:
    stores: list[Any] = []
    read: list[Any] = []
    choices: list[Any] = []
    kinds = [(tirx.BufferStore, stores.append), (ir.TensorLoad, read.append), (tirx.Select, choices.append)]
    structural_walk(block.body, kinds)
    value = stores[0].value if len(stores) == 1 else None
    return BlockFacts(
        extents=tuple(int(v.dom.extent) for v in block.iter_vars if int(v.iter_type) == DATA_PARALLEL),
        reduced=tuple(int(v.dom.extent) for v in block.iter_vars if int(v.iter_type) == REDUCTION),
        copies=block.init is None and isinstance(value, ir.TensorLoad),
        guarded=bool(choices),
        dynamic_reads=frozenset(load.source.name for load in read if depends_on_data(load.indices)),
        dynamic_write=any(depends_on_data(store.indices) for store in stores),
        reads=tuple(region.source for region in block.reads),
        writes=tuple(region.source for region in block.writes),
    )


def depends_on_data(indices: Any) -> bool:
    return any(not isinstance(index, ir.Var) and loads(index) for index in indices)
