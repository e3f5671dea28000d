"""The kernels that the ranking of tiles is learned from, and others that it is judged by."""

from __future__ import annotations

from ci.fused_shapes import drawn_fused
from ci.kernel_shapes import drawn, drawn_large
from compiler.kernel_pool import Job
from compiler.target import Chip

# In turn: single operators, fused ones as a model has them, large products.
TURNS = "ofofolofof"


def drawn_in_turn(count: int, chip: Chip, *, held_out: bool, seed: int = 0) -> list[Job]:
    """Kernels of all kinds; of fewer, the first ones of more."""
    turns = (TURNS * (count // len(TURNS) + 1))[:count]
    of = {
        "o": iter(drawn(turns.count("o"), held_out=held_out, seed=seed)),
        "f": iter(drawn_fused(turns.count("f"), chip, held_out=held_out, seed=seed)),
        "l": iter(drawn_large(turns.count("l"), held_out=held_out, seed=seed)),
    }
    return [next(of[turn]) for turn in turns]
