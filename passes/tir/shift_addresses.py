"""Moves the buffers of UB to where the vector unit's operands do not collide in its banks."""

from __future__ import annotations

from typing import Any, ClassVar

from tvm import tirx

from compiler.codegen.banks import MEMORY, conflicts
from compiler.codegen.instruction_form import ADDRESS, at_addresses, memory_of, physical_bytes
from compiler.codegen.lifetimes import alignment
from compiler.codegen.memory import free_bytes
from compiler.codegen.shifting import Addresses, Room, shifted
from compiler.isa.layout import ceil_to
from compiler.target import Chip
from compiler.tir.structure import structural_walk
from passes.base import Pass

ENOUGH = 0.002  # of the vector unit's cycles: less is not looked for
TIMED = 800  # instructions at addresses, after which the search ends with what it has


class ShiftAddresses(Pass):
    """Buffers of UB change their places by whole blocks until the vector instructions lose least to bank conflicts.

    Before: ``a``, ``b``, ``c`` of 512 bytes at 0, 512 and 1024, and ``vadd c, a, b``: a repeat reads the same groups
    of banks twice; after: ``b`` is at 768, half a period of the groups further.

    1. Which buffers are apart in memory stays as it is: two that shared no byte before share none after.
    2. An address is a multiple of what the memory asks for, and no buffer ends behind the memory's end.
    3. What instructions lose is worked out by their rows' timing, in turns that stand for all (:mod:`.banks`); where
       that is no less than before, nothing moves.
    """

    name: ClassVar[str] = "shift-addresses"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form", "allocated"})

    def run(self, subject: Any, chip: Chip) -> Any:
        allocations = _allocations(subject)
        if not allocations:
            return subject
        buffers = [statement.buffer for statement in allocations]
        start = tuple(int(statement.annotations[ADDRESS]) for statement in allocations)
        found = conflicts(subject, chip, buffers)
        before = found.cost(start)
        enough = before.busy * ENOUGH
        if before.lost <= enough:
            return subject
        sizes = tuple(ceil_to(physical_bytes(s), alignment(MEMORY, chip)) for s in allocations)
        room = Room(sizes, _apart(start, sizes), _limit(start, sizes, chip))
        better = shifted(room, start, found.lost, found.by_buffer, enough, lambda: found.timed >= TIMED, chip)
        if better == start:
            return subject
        return at_addresses(subject, dict(zip(buffers, better, strict=True)))


def _allocations(func: Any) -> list[Any]:
    found: list[Any] = []

    def note(statement: Any) -> None:
        if memory_of(statement.buffer) == MEMORY and ADDRESS in statement.annotations:
            found.append(statement)

    structural_walk(func.body, (tirx.AllocBuffer, note))
    return found


def _apart(start: Addresses, sizes: tuple[int, ...]) -> tuple[frozenset[int], ...]:
    """For every buffer those that it shares no byte with (1)."""
    spans = [(address, address + size) for address, size in zip(start, sizes, strict=True)]
    return tuple(
        frozenset(k for k, other in enumerate(spans) if k != at and (other[1] <= mine[0] or mine[1] <= other[0]))
        for at, mine in enumerate(spans)
    )


def _limit(start: Addresses, sizes: tuple[int, ...], chip: Chip) -> int:
    used = max(address + size for address, size in zip(start, sizes, strict=True))
    return max(used, free_bytes(MEMORY, chip))
