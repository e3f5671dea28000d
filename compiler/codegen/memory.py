"""What does not fit a memory, said so that the step before can try again with less."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.errors import CapacityError, Problem
from compiler.target import Chip

SPILLED_BYTES = 1024  # at the end of UB, for scalars that find no register
SMALLER = "make the tile smaller"  # of what a kernel works on
HINTS = {"ddr": "a smaller batch, smaller inputs, or a chip with more of it"}


def free_bytes(memory: str, chip: Chip) -> int:
    """What of a memory may be taken beyond need."""
    return chip.memory_bytes(memory) - (SPILLED_BYTES if memory == "ub" else 0)


class MemoryOverflow(CapacityError):
    """Buffers that live at the same time need more of a memory than there is."""

    def __init__(self, memory: str, needed_bytes: int, limit_bytes: int, largest: tuple[tuple[str, int], ...]) -> None:
        self.memory, self.needed_bytes, self.limit_bytes, self.largest = memory, needed_bytes, limit_bytes, largest
        names = ", ".join(f"{name} ({size} bytes)" for name, size in largest)
        text = f"{needed_bytes} bytes of {memory} are needed at once; there are {limit_bytes}"
        super().__init__(Problem("TW2610", f"{text}: {names}" if names else text, hint=HINTS.get(memory, SMALLER)))

    def __reduce__(self) -> tuple[type[MemoryOverflow], tuple[object, ...]]:  # type: ignore[override]
        return type(self), (self.memory, self.needed_bytes, self.limit_bytes, self.largest)


def check_capacity(used: Mapping[str, int], chip: Chip) -> None:
    for memory, needed in used.items():
        if needed > chip.memory_bytes(memory):
            raise MemoryOverflow(memory, needed, chip.memory_bytes(memory), ())
