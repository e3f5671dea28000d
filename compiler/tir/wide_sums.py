"""Sums of products of 16 bits as the matrix unit adds them up: in fp32, rounded once.

    c: fp16 = sum of a * b  ->  c_sums: fp32 = sum of fp32(a) * fp32(b)
                                c = fp16(c_sums)

Which stages are:

1. Their sum begins with zero and is in fp16 or bf16.
2. They multiply matrices: what is summed over moves both factors, and an axis of the result moves one of them alone.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from compiler.tir.made_stages import Names, made_stage, stages_of, with_stages
from compiler.tir.products import adds_products, begins_with_zero, variables_in
from compiler.tir.sblocks import in_other_buffers, innermost
from compiler.tir.structure import structural_map

NARROW = ("float16", "bfloat16")
WIDE = "float32"


def wide_sums(func: Any) -> Any:
    """The function of TE with such stages in two."""
    names, nests, made = Names(func), list[Any](), list[Any]()
    for stage in stages_of(func):
        blocks = [realize.block for realize in innermost(stage)]
        if len(blocks) != 1 or not _is_narrow(blocks[0]):
            nests.append(stage)
            continue
        result = blocks[0].body.buffer
        sums = tirx.decl_buffer(list(result.shape), WIDE, names.free(f"{result.name}_sums"), layout=None)
        nests += [_widened(stage, sums), made_stage(result, _rounded(sums, str(result.dtype)))]
        made.append(sums)
    return with_stages(func, nests, made)


def _is_narrow(block: Any) -> bool:
    if not (adds_products(block) and begins_with_zero(block)) or str(block.body.buffer.dtype) not in NARROW:
        return False  # (1)
    factors = block.body.value.b
    left, right = (set(variables_in([factor])) for factor in (factors.a, factors.b))
    kept = set(variables_in(block.body.indices))
    summed = {axis.var for axis in block.iter_vars} - kept
    return bool(summed) and summed <= left & right and bool((left - right) & kept) and bool((right - left) & kept)


def _widened(stage: Any, sums: Any) -> Any:
    """The sum in another buffer, after which its block is called: two of one name are not told apart."""

    def block_of(block: Any) -> Any:
        store = block.body
        factors = (tirx.Cast(WIDE, factor) for factor in (store.value.b.a, store.value.b.b))
        total = tirx.Add(tirx.BufferLoad(sums, store.indices), tirx.Mul(*factors))
        init = tirx.BufferStore(sums, tirx.FloatImm(WIDE, 0.0), block.init.indices)
        body = tirx.BufferStore(sums, total, store.indices)
        return in_other_buffers(block, {store.buffer: sums}, name_hint=sums.name, body=body, init=init)

    return structural_map(stage, (s_tir.SBlock, block_of))


def _rounded(sums: Any, dtype: str) -> Any:
    return lambda *place: tirx.BufferLoad(sums, place).astype(dtype)
