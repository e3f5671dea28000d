"""Reads of one tensor along its axes in several orders, each other one from a stage that turns it.

    y[i, j] = x[i, j] + x[j, i]  ->  x_turned[i, j] = x[j, i]
                                     y[i, j] = x[i, j] + x_turned[i, j]

A tile of both together is all of the tensor. A stage that only moves reads what it needs by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx

from compiler.tir.made_stages import Names, is_plain, made_stage, reading, stages_of, with_stages
from compiler.tir.sblocks import innermost
from compiler.tir.structure import structural_walk

Order = tuple[int, ...]  # which axis of a stage each index of a load is


def turned_reads(func: Any) -> Any:
    """The function of TE with such reads of each stage from stages before it."""
    names, nests, made = Names(func), list[Any](), list[Any]()
    for nest in stages_of(func):
        blocks = [realize.block for realize in innermost(nest)]
        turned = dict[Any, Any]()
        for loads, order in _turned(blocks[0]) if len(blocks) == 1 and is_plain(blocks[0]) else ():
            axes, source = blocks[0].iter_vars, loads[0].source
            kept = sorted(order)
            shape = [int(axes[axis].dom.extent) for axis in kept]
            buffer = tirx.decl_buffer(shape, str(source.dtype), names.free(f"{source.name}_turned"), layout=None)
            nests.append(made_stage(buffer, _moving(source, [kept.index(axis) for axis in order])))
            made.append(buffer)
            turned |= {load: tirx.BufferLoad(buffer, [axes[axis].var for axis in kept]) for load in loads}
        nests.append(reading(blocks[0], turned) if turned else nest)
    return with_stages(func, nests, made)


def _turned(block: Any) -> list[tuple[list[Any], Order]]:
    """Loads that are not in the order of the axes of their stage, while others of the same tensor are."""
    loads: list[Any] = []
    structural_walk(block.body.value, (ir.TensorLoad, loads.append))
    found = dict[tuple[Any, Order], list[Any]]()
    for load in loads:
        if (order := _order(load, block)) is not None:
            found.setdefault((load.source, order), []).append(load)
    return [
        (same, order)
        for (source, order), same in found.items()
        if order != tuple(sorted(order)) and (source, tuple(sorted(order))) in found
    ]


def _order(load: Any, block: Any) -> Order | None:
    places = {axis.var: at for at, axis in enumerate(block.iter_vars)}
    found = tuple(places.get(index, -1) if isinstance(index, tirx.Var) else -1 for index in load.indices)
    return found if -1 not in found and len(set(found)) == len(found) else None


def _moving(source: Any, order: Sequence[int]) -> Any:
    return lambda *at: tirx.BufferLoad(source, [at[axis] for axis in order])
