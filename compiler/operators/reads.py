"""Whether a stage reads outside of a tensor for certain: what TE does not look at, and no chip notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.operators import refusals

_IF, _LOAD = "prim.if_then_else", "te.tensor_load"


def check_reads(stage: Any, calls: Sequence[Any]) -> None:
    """Refuse a stage, which calls these, if an index leaves its axis. It does for certain where

    1. nothing chooses whether an element is read,
    2. all loops have known extents and run, and
    3. the index is linear in their variables, so that it takes its least and its greatest value.
    """
    loads = [call for call in calls if _name(call) == _LOAD]
    loops = _loops(stage)
    if not loads or loops is None or _chooses(stage, calls):
        return
    for load in loads:
        tensor, *indices = load.args
        for axis, (index, extent) in enumerate(zip(indices, tensor.shape, strict=True)):
            outside = _outside(index, extent, loops)
            if outside is not None:
                raise refusals.reads_outside(stage.name, tensor.op.name, outside, axis, int(extent))


def _chooses(stage: Any, calls: Sequence[Any]) -> bool:
    from tvm import tirx

    from compiler.tir.structure import structural_walk

    found = [call for call in calls if _name(call) == _IF]
    for value in stage.body:
        structural_walk(value, (tirx.Select, found.append))
    return bool(found)


def _name(call: Any) -> str:
    return str(getattr(call.op, "name", call.op))


def _loops(stage: Any) -> dict[Any, tuple[int, int]] | None:
    """The first and the last value of each loop's variable."""
    from tvm import tirx

    found = {}
    for axis in (*stage.axis, *stage.reduce_axis):
        first, extent = axis.dom.min, axis.dom.extent
        if not isinstance(first, tirx.IntImm) or not isinstance(extent, tirx.IntImm) or int(extent) < 1:
            return None
        found[axis.var] = int(first), int(first) + int(extent) - 1
    return found


def _outside(index: Any, extent: Any, loops: Mapping[Any, tuple[int, int]]) -> int | None:
    """A value of the index that its axis does not have, if it is known to have one."""
    from tvm import tirx

    ends = loops[index] if index in loops else _ends(index, loops)  # most are a loop's variable
    if ends is None or not isinstance(extent, tirx.IntImm):
        return None
    low, high = ends
    return low if low < 0 else high if high >= int(extent) else None


def _ends(index: Any, loops: Mapping[Any, tuple[int, int]]) -> tuple[int, int] | None:
    """The least and the greatest value of a linear index."""
    from tvm import tirx
    from tvm.sym import detect_linear_equation

    found = detect_linear_equation(index, list(loops))
    if not found or not all(isinstance(one, tirx.IntImm) for one in found):
        return None
    *factors, offset = (int(one) for one in found)
    ends = [sorted((factor * low, factor * high)) for factor, (low, high) in zip(factors, loops.values(), strict=True)]
    return offset + sum(low for low, _ in ends), offset + sum(high for _, high in ends)
