"""Gives every on-chip buffer an address."""

from __future__ import annotations

from typing import Any, ClassVar

from compiler.codegen.instruction_form import at_addresses
from compiler.codegen.lifetimes import LocalBuffer, packed
from compiler.codegen.memory import MemoryOverflow
from compiler.target import Chip
from passes.base import Pass


class AllocateMemory(Pass):
    """Buffers get addresses by lifetime: those that never live at once may share bytes, where they must.

    Before: ``ub = T.alloc_buffer((64,), scope="local.ub")``; after: the same with ``annotations={"tw.address": 256}``.

    1. A buffer lives from its first use to its last; through a loop in which it is used if it is allocated outside.
    2. Who takes over bytes waits for those that worked on them before. Buffers share them where one queue that keeps
       its own order is alone with both; others only as far as there is no more room.
    3. An address is a multiple of what the memory asks for, and at least of a block.
    4. What lives at once must fit the memory, else :class:`MemoryOverflow` says what is largest.
    """

    name: ClassVar[str] = "allocate-memory"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})
    establishes: ClassVar[frozenset[str]] = frozenset({"allocated"})

    def run(self, subject: Any, chip: Chip) -> Any:
        addresses: dict[Any, int] = {}
        for memory, here, packed_at, needed in packed(subject, chip):
            if needed > chip.memory_bytes(memory):
                raise MemoryOverflow(memory, needed, chip.memory_bytes(memory), _largest([b for _, b in here]))
            addresses.update(zip((statement.buffer for statement, _ in here), packed_at, strict=True))
        return at_addresses(subject, addresses) if addresses else subject


def _largest(buffers: list[LocalBuffer]) -> tuple[tuple[str, int], ...]:
    """The largest of the buffers that live where most bytes do."""
    live = max(
        ([b for b in buffers if b.life.first <= other.life.first <= b.life.last] for other in buffers),
        key=lambda each: sum(b.life.size_bytes for b in each),
    )
    ordered = sorted(live, key=lambda b: (-b.life.size_bytes, b.name))
    return tuple((b.name, b.life.size_bytes) for b in ordered[:5])
