"""Softmax in fp16 whose powers stay in fp16.

    powers: fp32 = exp(fp32(x) - fp32(largest))        powers: fp16 = fp16(exp(fp32(x) - fp32(largest)))
    sums = sum of powers                           ->  sums = sum of fp32(powers)
    result = fp16(powers / sums)                       result = powers * fp16(1 / sums)

The vector unit rounds what one row computes once, so each line is a row in fp16, without conversions. Three roundings
reach a result instead of one. The sums may be fp16, too (:mod:`narrow_sums`): none of their terms cancel out.

1. Nothing but the sum and the quotient reads the powers.
2. A row is short enough that no factor is a denormal in fp16, and no sum too large; powers are at most one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.tiling.narrow_sums import ALLOWED
from compiler.tir.sblocks import in_other_buffers
from compiler.tir.structure import structural_map, structural_walk

NARROW, WIDE = "float16", "float32"
LONGEST = 8192  # elements of a row


def narrowed(func: Any) -> Any:
    """The kernel with such softmaxes in it narrowed; the same where there is none."""
    blocks: list[Any] = []
    structural_walk(func.body, (s_tir.SBlock, blocks.append))
    stages = [block for block in blocks if isinstance(block.body, tirx.BufferStore)]
    if len(blocks) != len(stages) + 1:  # stages with statements of their own
        return func
    found = [one for stage in stages if (one := _Softmax.of(stage, stages)) is not None]
    if not found:
        return func
    changed = {stage.name_hint: each.narrowed for each in found for stage in (each.powers, each.sums, each.result)}
    buffers, sums = {each.buffer: each.narrow for each in found}, {each.sums.name_hint for each in found}

    def block(old: Any) -> Any:
        body = changed[old.name_hint](old) if old.name_hint in changed else old.body
        allowed = {ALLOWED: NARROW} if old.name_hint in sums else {}
        return in_other_buffers(old, buffers, body=body, annotations={**old.annotations, **allowed})

    return func.with_body(structural_map(func.body, (s_tir.SBlock, block)))


@dataclass(frozen=True, eq=False)
class _Softmax:
    """The three stages, and the buffer of the powers as it is and as it will be."""

    powers: Any
    sums: Any
    result: Any
    narrow: Any

    @staticmethod
    def of(powers: Any, stages: list[Any]) -> _Softmax | None:
        buffer = powers.body.buffer
        if powers.init is not None or str(buffer.dtype) != WIDE or not _is_power_of_narrow(powers.body.value):
            return None
        readers = [stage for stage in stages if any(region.source.same_as(buffer) for region in stage.reads)]
        sums = [stage for stage in readers if _is_sum_of(stage, buffer)]
        results = [stage for stage in readers if sums and _is_quotient(stage, buffer, sums[0].body.buffer)]
        if len(readers) != 2 or not sums or not results:
            return None
        narrow = tirx.decl_buffer([int(n) for n in buffer.shape], NARROW, buffer.name, layout=None)
        return _Softmax(powers, sums[0], results[0], narrow)

    @property
    def buffer(self) -> Any:
        return self.powers.body.buffer

    def narrowed(self, block: Any) -> Any:
        """What one of the stages stores."""
        body = block.body
        if block.name_hint == self.powers.name_hint:
            return tirx.BufferStore(self.narrow, tirx.Cast(NARROW, body.value), body.indices)
        if block.name_hint == self.sums.name_hint:
            own, power = _own_first(body.value, body.buffer)
            value = own + tirx.Cast(WIDE, tirx.BufferLoad(self.narrow, power.indices))
        else:
            quotient = body.value.value
            factor = tirx.Cast(NARROW, tirx.FloatImm(WIDE, 1.0) / quotient.b)
            value = tirx.BufferLoad(self.narrow, quotient.a.indices) * factor
        return tirx.BufferStore(body.buffer, value, body.indices)


def _is_power_of_narrow(value: Any) -> bool:
    """``exp(fp32(a) - fp32(b))`` of numbers in fp16."""
    if not isinstance(value, ir.Call) or getattr(value.op, "name", "") != "tirx.exp":
        return False
    difference = value.args[0]
    return isinstance(difference, tirx.Sub) and all(
        isinstance(side, tirx.Cast) and str(side.value.ty.dtype) == NARROW for side in (difference.a, difference.b)
    )


def _is_sum_of(stage: Any, powers: Any) -> bool:
    value, own = stage.body.value, stage.body.buffer
    if stage.init is None or not isinstance(value, tirx.Add) or not _are_loads(value.a, value.b):
        return False
    _, power = _own_first(value, own)
    length = prod(int(axis.dom.extent) for axis in stage.iter_vars if int(axis.iter_type) == tirx.IterVar.CommReduce)
    return str(own.dtype) == WIDE and power.source.same_as(powers) and length <= LONGEST


def _own_first(total: Any, own: Any) -> tuple[Any, Any]:
    return (total.a, total.b) if total.a.source.same_as(own) else (total.b, total.a)


def _is_quotient(stage: Any, powers: Any, sums: Any) -> bool:
    """``fp16(powers / sums)``."""
    value = stage.body.value
    if stage.init is not None or not isinstance(value, tirx.Cast) or str(value.ty.dtype) != NARROW:
        return False
    quotient = value.value
    return (
        isinstance(quotient, tirx.Div)
        and _are_loads(quotient.a, quotient.b)
        and quotient.a.source.same_as(powers)
        and quotient.b.source.same_as(sums)
    )


def _are_loads(*values: Any) -> bool:
    return all(isinstance(value, ir.TensorLoad) for value in values)
