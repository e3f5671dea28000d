"""Results of a kernel that may be written over one of its inputs.

Each element of such a result is worked out from the element of the input that lies there (`compiler.tir.replaced`).
Where the kernel loads each element of the input once, and stores each of the result once, whichever core does it, then
that store waits for that load as for all that it is worked out from, and nobody else comes by. What is loaded twice may
have been written over; what other cores or other turns do is not asked.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from compiler.codegen.far_loads import Grid, Site, Sites, operands, view_of
from compiler.codegen.instruction_form import Address, strides_of
from compiler.isa.model import View
from compiler.target import Chip
from compiler.tir.evaluate import DependsOnData
from compiler.tir.replaced import replaced_of

MOST_BOXES = 1 << 14  # of a parameter, that are looked at


def in_place(func: Any, chip: Chip) -> tuple[tuple[int, int], ...]:
    """(result, input), of a kernel in instruction form."""
    pairs = replaced_of(func)
    sites = Sites.of(func) if pairs else Sites()
    if sites.stored:  # the scalar unit does some of it
        return ()
    return tuple(
        (result, source)
        for result, source in pairs
        if _once(sites, func.params[result], "w", chip) and _once(sites, func.params[source], "r", chip)
    )


def _once(sites: Sites, buffer: Any, role: str, chip: Chip) -> bool:
    """Whether instructions touch each element of a parameter once, in one way."""
    extent = prod(int(n) for n in buffer.shape)
    counts, left = np.zeros(extent, np.uint8), MOST_BOXES
    for site in sites.found:
        for tensor, address in operands(site.call):
            if not address.buffer.same_as(buffer):
                continue
            if tensor.role != role or tensor.offset is not None:
                return False
            try:
                left = _count(counts, site, view_of(site, tensor.name, chip), address, sites, left)
            except DependsOnData:
                return False
            if left < 0:
                return False
    return bool((counts == 1).all())


def _count(counts: np.ndarray, site: Site, view: View, address: Address, sites: Sites, left: int) -> int:
    """Add one for each element that an instruction touches; how many more boxes may be looked at, below zero where it
    is not known what they are.
    """
    grid, size = Grid.of(site, sites.core, sites.cores), view.dtype.itemsize
    offset: Any = tirx.IntImm("int32", 0)
    for index, stride in zip(address.indices, strides_of(address.buffer), strict=True):
        offset = offset + site.full(index) * (stride * size)
    offsets = grid.values(offset if address.byte_offset is None else offset + site.full(address.byte_offset))
    runs = grid.runs.ravel()
    if runs.sum() > left:
        return -1
    extents = [grid.values(extent).ravel()[runs] for extent in view.shape]
    strides = [grid.values(stride).ravel()[runs] for stride in view.strides]
    for start, *box in zip(offsets.ravel()[runs].tolist(), *extents, *strides, strict=True):
        axes = [(int(n), int(s)) for n, s in zip(box[: len(extents)], box[len(extents) :], strict=True) if n != 1]
        axes.sort(key=lambda axis: -axis[1])
        if any(n == 0 for n, _ in axes):
            continue
        apart = all(outer >= inner * count for (_, outer), (count, inner) in pairwise(axes))
        end = start // size + sum((n - 1) * s for n, s in axes)
        if start % size or start < 0 or end >= len(counts) or not apart or any(s < 1 for _, s in axes):
            return -1
        shape, steps = [n for n, _ in axes], [s * counts.itemsize for _, s in axes]
        np.lib.stride_tricks.as_strided(counts[start // size :], shape, steps)[...] += 1
    return left - int(runs.sum())
