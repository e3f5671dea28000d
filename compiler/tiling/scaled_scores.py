"""Attention whose scores are scaled in the stage that rounds them, however it was written."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, s_tir, tirx

from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.masters import masters_of
from compiler.tiling.schedule import schedule_of
from compiler.tiling.template import NoFeasibleTile, name_of
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map, structural_walk

KIND = "attention"


def scaled_at_once(func: Any, chip: Chip) -> Any:
    """The attention whose scores are rounded and scaled in one stage, as the fixpipe does both.

        s = fp16(scores);  t = s * 0.125 + mask   ->   s = fp16(scores * 0.125);  t = s + mask

    A stage that only scales vanishes. A divisor becomes a factor: what is rounded is still the quotient of scores in
    fp32, and once less than before. What is no attention is refused.
    """
    sch = schedule_of(func)
    if len(masters_of(sch)) != 2 or not cube.path(chip, "ub", "l1"):
        raise NoFeasibleTile(name_of(func, KIND), "a product of the softmax of a product")
    scores = masters_of(sch)[0].block
    if made := cube.made_otherwise(sch, scores):
        raise NoFeasibleTile(name_of(func, KIND), f"stage {made!r}, which an attention reads and does not make")
    rounding = sch.get_consumers(scores)
    if not cube.takes_itself_out(sch, scores) or len(sch.get_consumers(rounding[0])) != 1:
        return func
    rounded = sch.get(rounding[0])
    scaling = sch.get(sch.get_consumers(rounding[0])[0])
    if not isinstance(rounded.body.value, tirx.Cast) or not isinstance(scaling.body, tirx.BufferStore):
        return func
    read = _loads(scaling.body.value, rounded.body.buffer)
    found = _scalings(scaling.body.value, read)
    if len(read) != 1 or len(found) != 1:
        return func
    ((expression, factor),) = found

    def with_scale(block: Any) -> Any:
        store = block.body
        if block.name_hint == rounded.name_hint:
            exact = store.value.value
            value = tirx.Cast(str(store.buffer.dtype), exact * tirx.FloatImm(str(exact.ty.dtype), factor))
        elif block.name_hint == scaling.name_hint:
            value = structural_map(store.value, (type(expression), lambda e: e.a if e.same_as(expression) else e))
        else:
            return block
        return block_with(block, body=tirx.BufferStore(store.buffer, value, store.indices))

    scaled = func.with_body(structural_map(func.body, (s_tir.SBlock, with_scale)))
    if not expression.same_as(scaling.body.value):
        return scaled
    sch = schedule_of(scaled)
    sch.compute_inline(sch.get_sblock(rounded.name_hint))
    return sch.mod["main"]


def _scalings(value: Any, loads: list[Any]) -> list[tuple[Any, float]]:
    """Products and quotients of a load with a number, and by what they multiply."""
    found: list[tuple[Any, float]] = []

    def visit(expression: Any) -> None:
        by = expression.b
        if isinstance(by, tirx.FloatImm) and by.value and any(load.same_as(expression.a) for load in loads):
            multiplies = isinstance(expression, tirx.Mul)
            found.append((expression, float(by.value if multiplies else np.float32(1) / np.float32(by.value))))

    for kind in (tirx.Mul, tirx.Div):
        structural_walk(value, (kind, visit))
    return found


def _loads(value: Any, buffer: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(value, (ir.TensorLoad, lambda load: found.append(load) if load.source.same_as(buffer) else None))
    return found
