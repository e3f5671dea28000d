"""The schedule of picking boxes: a core has some classes of some images, and goes through all steps with them.

    for core: boxes_ub = boxes                                # the edges and areas of all of them
              for step: { best = max(scores); ...             # of all its classes at once
                          scores = dead where overlap(boxes_ub, best) > limit }
              picked[classes] = ...

Cores need nothing of each other. Each works out the areas of all boxes for itself: that takes less than to wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from compiler.isa.timing import ceil_div
from compiler.operators.broadcast import shape_of
from compiler.operators.suppression import Places, built_again
from compiler.target import Chip
from compiler.tiling.template import NoFeasibleTile, Tiled

_AT_ONCE = 8192  # scores that one instruction works on, at most
# Of a step, for the choice of how many classes go together: its instructions for one score, and the bytes that they
# pass over for each more.
_STEP_CYCLES, _SCORE_BYTES = 700, 84
_PIECES = (1024, 256, 64)  # boxes, where not all lie on the chip
_HELD_SHARE = 0.5  # of UB, that boxes and scores may take: the rest is for temporaries


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Later attempts work on fewer classes at once, and then keep boxes and scores beside the chip."""
    found = list(_places(func, chip))
    if attempt >= len(found):
        raise NoFeasibleTile("the selection of boxes", f"{len(found)} numbers of classes at once")
    places = found[attempt]
    batches, classes, number = shape_of(func.params[1])
    words = (
        f"{places.rows} of {classes} classes at once, {number} boxes of {batches} images on "
        f"{places.image_cores}x{places.class_cores} cores"
    )
    again = built_again(func, places).with_attrs(func.attrs)
    return Tiled(again, words + (", boxes held in UB" if places.held else ""))


def _places(func: Any, chip: Chip) -> Iterator[Places]:
    batches, classes, number = shape_of(func.params[1])
    image_cores = max(count for count in range(1, min(batches, chip.cores) + 1) if batches % count == 0)
    cores = chip.cores // image_cores

    def cycles(rows: int) -> float:
        each = _STEP_CYCLES + rows * number * _SCORE_BYTES / chip.vector.bytes_per_cycle
        return ceil_div(classes // rows, cores) * each

    together = [
        rows for rows in range(1, classes + 1) if classes % rows == 0 and (rows == 1 or rows * number <= _AT_ONCE)
    ]
    best = min(together, key=cycles)
    for rows in sorted((rows for rows in together if rows <= best), reverse=True):
        trips = ceil_div(classes // rows, cores)
        places = Places(rows, image_cores, ceil_div(classes // rows, trips), scopes=True)
        if (5 + rows) * number * 4 <= chip.memory.ub_bytes * _HELD_SHARE:
            yield places
    for piece in _PIECES:
        yield replace(places, held=False, piece=piece)
