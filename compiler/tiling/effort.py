"""What working out a stage takes of the vector unit and of UB, for a tile of its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from compiler.isa.declarations import BLOCK_BYTES
from compiler.tiling.stages import Stage
from compiler.tiling.values import Value


@dataclass(frozen=True)
class Effort:
    """Instructions of the vector unit, their bytes times cycles per repeat, bytes of temporaries beside the result."""

    instructions: int
    weighted_bytes: float
    temporary_bytes: int


def effort(stage: Stage, lengths: Mapping[Any, int], *, joined: bool = False) -> Effort:
    """What working out a stage takes for so many positions of its axes.

    Ranking was taught with operations that are not ``joined`` to instructions.
    """
    total = Effort(0, 0.0, 0)
    for value in stage.joined_values if joined else stage.values:
        root = _walk(value, lengths)
        moved = max(_bytes(value, lengths), root.moved)
        temporary = max(0, root.peak - root.result)
        if stage.reduced:  # what is folded is as large as all of it, its result is not
            temporary = max((_walk(part, lengths).peak >> part.halved for part in value.parts), default=0)
        weighted = root.weighted if root.instructions else float(moved)
        total = Effort(
            total.instructions + max(1, root.instructions) + _folds_of_blocks(stage, lengths),
            total.weighted_bytes + weighted,
            max(total.temporary_bytes, temporary),
        )
    return total


def _folds_of_blocks(stage: Stage, lengths: Mapping[Any, int]) -> int:
    """Instructions behind the one that folds rows to a block: what is left over joins it, then its places are folded.

    They take little of UB, but each has a head and a tail.
    """
    row_bytes = max((lengths[axis] * stage.made.itemsize for axis in stage.along_rows), default=0)
    return 0 if row_bytes <= BLOCK_BYTES else 1 + (row_bytes % BLOCK_BYTES > 0)


class _Node(NamedTuple):
    """A value: instructions and weighted bytes in all, most bytes of temporaries, those that its result takes."""

    instructions: int
    weighted: float
    peak: int
    result: int
    moved: int = 0


def _walk(value: Value, lengths: Mapping[Any, int]) -> _Node:
    if value.loaded:
        return _Node(0, 0.0, 0, 0, _bytes(value, lengths))
    parts = [_walk(part, lengths) for part in value.parts]
    if not parts:
        return _Node(0, 0.0, 0, 0)
    own = _bytes(value, lengths)
    widest = max([own, *(part.moved for part in parts)])
    ordered = sorted(parts, key=lambda part: part.result - part.peak)
    peak = held = 0
    for part in ordered:
        peak, held = max(peak, held + part.peak), held + part.result
    in_place = any(part.result == own for part in parts)
    peak = max(peak, held if in_place else held + own)
    return _Node(
        1 + sum(part.instructions for part in parts),
        widest * value.cycles + sum(part.weighted for part in parts),
        peak,
        own,
        widest,
    )


def _bytes(value: Value, lengths: Mapping[Any, int]) -> int:
    """Of a value for all positions of the axes that it depends on."""
    return prod([length for axis, length in lengths.items() if axis in value.axes]) * value.itemsize
