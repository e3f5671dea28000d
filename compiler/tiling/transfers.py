"""What moving a box of a buffer between DDR and UB costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd, prod

from compiler.isa.timing import ceil_div


@dataclass(frozen=True)
class Transfer:
    """Bytes of a box, those of the lines of DDR that it touches, and how many instructions move it."""

    moved_bytes: int
    line_bytes: float
    instructions: int


@cache
def transfer(box: tuple[int, ...], shape: tuple[int, ...], itemsize: int, line: int) -> Transfer:
    """A box of a buffer, wherever it begins."""
    run, axis = itemsize, len(box) - 1
    while axis >= 0:
        run *= box[axis]
        if box[axis] != shape[axis]:
            break
        axis -= 1
    moved = prod(box) * itemsize
    outer = [n for n in box[: max(axis, 0)] if n > 1]
    # Runs begin at whole numbers of boxes into whole rows.
    pitch = prod(shape[axis:]) * itemsize if axis > 0 else line
    step = gcd(gcd(run, pitch), line)
    starts = range(0, line, step)
    lines = sum(ceil_div(start + run, line) for start in starts) / len(starts)
    return Transfer(moved, lines * line * moved / run, prod(outer[:-2]))
