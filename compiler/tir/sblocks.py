"""TVM's blocks: where they are, and with other contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tvm import ir, s_tir, tirx
from tvm_ffi import structural_equal

from compiler.tir.structure import structural_walk

FIELDS = (
    "iter_vars", "reads", "writes", "name_hint", "body", "init", "alloc_buffers", "match_buffers", "annotations",
)  # fmt: skip


def block_with(block: Any, **fields: Any) -> Any:
    """The block with other fields where they are given."""
    return s_tir.SBlock(**{**{name: getattr(block, name) for name in FIELDS}, **fields})


def in_other_buffers(block: Any, buffers: Mapping[Any, Any], **fields: Any) -> Any:
    """The block with other buffers in what it reads, writes and allocates, and other fields where they are given."""
    reads, writes = (
        [tirx.BufferRegion(buffers.get(region.source, region.source), region.region) for region in side]
        for side in (block.reads, block.writes)
    )
    allocated = [buffers.get(buffer, buffer) for buffer in block.alloc_buffers]
    return block_with(block, **{"reads": reads, "writes": writes, "alloc_buffers": allocated, **fields})


def point(buffer: Any, indices: Sequence[Any]) -> Any:
    """The region of one element."""
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(index, 1) for index in indices])


def distinct(regions: Iterable[Any]) -> list[Any]:
    """Regions without those that are there already: operators may be given the same buffer twice."""
    found: list[Any] = []
    for region in regions:
        if not any(region.source.same_as(other.source) and structural_equal(region, other) for other in found):
            found.append(region)
    return found


def innermost(body: Any) -> Iterator[Any]:
    """The realizations of blocks that hold no others."""
    found: list[Any] = []
    structural_walk(body, (s_tir.SBlockRealize, found.append))
    for realize in found:
        inner: list[Any] = []
        structural_walk(realize.block.body, (s_tir.SBlockRealize, inner.append))
        if not inner:
            yield realize
