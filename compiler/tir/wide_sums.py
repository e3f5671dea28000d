"""Sums of products of 16 bits as the matrix unit adds them up: in fp32, rounded once.

    c: fp16 = sum of a * b  ->  c_sums: fp32 = sum of fp32(a) * fp32(b)
                                c = fp16(c_sums)

Which stages are:

1. Their sum begins with zero and is in fp16 or bf16.
2. They multiply matrices: what is summed over moves both factors, and an axis of the result moves one of them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir, te, tirx

from compiler.tir.products import adds_products, begins_with_zero, variables_in
from compiler.tir.sblocks import in_other_buffers, innermost
from compiler.tir.structure import structural_map

NARROW = ("float16", "bfloat16")
WIDE = "float32"


def wide_sums(func: Any) -> Any:
    """The function of TE with such stages in two."""
    root = func.body.block
    stages = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    names = {buffer.name for buffer in (*func.params, *root.alloc_buffers)}  # blocks are called like what they make
    nests, made = list[Any](), list[Any]()
    for stage in stages:
        blocks = [realize.block for realize in innermost(stage)]
        if len(blocks) != 1 or not _is_narrow(blocks[0]):
            nests.append(stage)
            continue
        result = blocks[0].body.buffer
        sums = tirx.decl_buffer(list(result.shape), WIDE, _free(f"{result.name}_sums", names), layout=None)
        nests += [_widened(stage, sums), _rounding(sums, result)]
        made.append(sums)
    if not made:
        return func
    inner = s_tir.SBlock([], [], [], "root", tirx.SeqStmt(nests), alloc_buffers=[*root.alloc_buffers, *made])
    return func.with_body(s_tir.SBlockRealize([], True, inner))


def _is_narrow(block: Any) -> bool:
    if not (adds_products(block) and begins_with_zero(block)) or str(block.body.buffer.dtype) not in NARROW:
        return False  # (1)
    factors = block.body.value.b
    left, right = (set(variables_in([factor])) for factor in (factors.a, factors.b))
    kept = set(variables_in(block.body.indices))
    summed = {axis.var for axis in block.iter_vars} - kept
    return bool(summed) and summed <= left & right and bool((left - right) & kept) and bool((right - left) & kept)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _widened(stage: Any, sums: Any) -> Any:
    def block_of(block: Any) -> Any:
        store = block.body
        factors = (tirx.Cast(WIDE, factor) for factor in (store.value.b.a, store.value.b.b))
        total = tirx.Add(tirx.BufferLoad(sums, store.indices), tirx.Mul(*factors))
        init = tirx.BufferStore(sums, tirx.FloatImm(WIDE, 0.0), block.init.indices)
        body = tirx.BufferStore(sums, total, store.indices)
        return in_other_buffers(block, {store.buffer: sums}, name_hint=sums.name, body=body, init=init)

    return structural_map(stage, (s_tir.SBlock, block_of))


def _rounding(sums: Any, result: Any) -> Any:
    def rounded(*place: Sequence[Any]) -> Any:
        return given(*place).astype(str(result.dtype))

    given = te.placeholder(list(sums.shape), WIDE, sums.name)
    func = te.create_prim_func([given, te.compute(list(result.shape), rounded, result.name)])
    buffers = dict(zip(func.params, (sums, result), strict=True))
    return structural_map(func.body.block.body, (tirx.Var, lambda var: buffers.get(var, var)))
