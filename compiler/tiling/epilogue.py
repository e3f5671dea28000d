"""What the stages behind a product make the vector unit and the loads do, as the choice of a tile sees it.

The result of a product leaves the core piece by piece, and every stage works on each piece: instructions of the vector
unit, whose heads and tails count where pieces are small, and other inputs that are as large as the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from compiler.isa.dtypes import DTYPES
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.blocks import block_facts
from compiler.tiling.effort import effort
from compiler.tiling.masters import Master
from compiler.tiling.reads import Known
from compiler.tiling.stages import Stage
from compiler.tir.near import memory_of_parameter

PIECE = 64  # positions of each of the last two axes, at most, for which the work is counted


@dataclass(frozen=True)
class Epilogue:
    """Of all stages together."""

    instructions: int = 0  # of the vector unit, for each piece
    vector_bytes: float = 0.0  # of an element, times cycles per repeat
    side_bytes: int = 0  # of other inputs, for each element
    sides_near: bool = False  # whether all of these lie in LLB

    def vector_cycles(self, elements: Any, pieces: Any, chip: Chip) -> Any:
        """For so many elements in so many pieces; numbers or arrays of them."""
        vector = chip.vector
        heads = self.instructions * (vector.head_cycles + vector.tail_cycles)
        return elements * self.vector_bytes / vector.bytes_per_cycle + pieces * heads


NO_EPILOGUE = Epilogue()


def epilogue_of(sch: Any, master: Master, *, joined: bool = False) -> Epilogue:
    stages = cube.working(sch, master.block)
    if cube.takes_itself_out(sch, master.block):
        stages = stages[1:]
    func, elements = sch.mod["main"], prod(int(extent) for extent in sch.get(master.block).writes[0].source.shape)
    return work_of_stages(stages, func, elements, joined=joined)


def work_of_stages(stages: Sequence[Any], func: Any, elements: int, *, joined: bool = False) -> Epilogue:
    """What blocks do that work on as many elements, one after another; operations may be ``joined`` to instructions."""
    sides = _sides(stages, list(func.params), elements)
    instructions, weighted = 0, 0.0
    for stage, lengths in _pieces(stages):
        made = effort(stage, lengths, joined=joined)
        instructions += made.instructions
        weighted += made.weighted_bytes / prod(lengths[axis] for axis in stage.kept)
    return Epilogue(
        instructions,
        weighted,
        sum(DTYPES[cube.isa_dtype(side)].itemsize for side in sides),
        bool(sides) and all(memory_of_parameter(func, side) == "llb" for side in sides),
    )


def _sides(stages: Sequence[Any], parameters: Sequence[Any], elements: int) -> set[Any]:
    """Inputs of stages, as large as the result."""
    read = {region.source for stage in stages for region in stage.reads}
    return {
        buffer
        for buffer in read
        if any(buffer.same_as(parameter) for parameter in parameters)
        and prod(int(extent) for extent in buffer.shape) >= elements
    }


def _pieces(stages: Sequence[Any]) -> Iterable[tuple[Stage, dict[Any, int]]]:
    known = Known()
    for block in stages:
        stage = Stage(block, block_facts(block), known)
        cut = dict.fromkeys(stage.kept, 1) | {axis: min(PIECE, stage.axes[axis]) for axis in stage.kept[-2:]}
        yield stage, stage.lengths(cut)
