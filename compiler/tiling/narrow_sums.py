"""Sums in the narrower type that their operator allows (``tw.sum``).

    sums: fp32 = sum of terms                     sums: bf16 = sum of bf16(terms)
    result = ... sums ...                     ->  result = ... fp32(sums) ...

A row of the vector unit that adds up columns computes in fp32, rounds once, and reads and writes one type: of a narrow
one it takes twice as many elements at a time.

1. The stage says so, and is a sum in fp32 of its own.
2. It is no result of the kernel.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, s_tir, tirx

from compiler.tir.sblocks import in_other_buffers
from compiler.tir.structure import structural_map, structural_walk

ALLOWED = "tw.sum"
WIDE = "float32"


def narrowed(func: Any) -> Any:
    """The kernel with such sums in it narrowed; the same where there is none."""
    found: list[Any] = []
    structural_walk(func.body, (s_tir.SBlock, lambda block: found.append(block) if _may_be_narrow(block) else None))
    parameters = [buffer.name for buffer in func.params]
    narrow = {
        block.body.buffer: tirx.decl_buffer(
            [int(n) for n in block.body.buffer.shape],
            str(block.annotations[ALLOWED]),
            block.body.buffer.name,
            layout=None,
        )
        for block in found
        if block.body.buffer.name not in parameters  # (2)
    }
    return func.with_body(structural_map(func.body, (s_tir.SBlock, lambda b: _with(b, narrow)))) if narrow else func


def _may_be_narrow(block: Any) -> bool:  # (1)
    if ALLOWED not in block.annotations or block.init is None or not isinstance(block.body, tirx.BufferStore):
        return False
    value, own = block.body.value, block.body.buffer
    return (
        str(own.dtype) == WIDE
        and isinstance(value, tirx.Add)
        and any(isinstance(side, ir.TensorLoad) and side.source.same_as(own) for side in (value.a, value.b))
    )


def _rounded(term: Any, dtype: str) -> Any:
    """As a type: products of what is of that type anyway are summed before they are rounded."""
    if isinstance(term, tirx.Mul) and _is_widened(term.a, dtype) and _is_widened(term.b, dtype):
        return term.a.value * term.b.value
    return term.value if _is_widened(term, dtype) else tirx.Cast(dtype, term)


def _is_widened(term: Any, dtype: str) -> bool:
    return isinstance(term, tirx.Cast) and str(term.value.ty.dtype) == dtype


def _with(block: Any, narrow: dict[Any, Any]) -> Any:
    def load(old: Any) -> Any:
        if old.source not in narrow:
            return old
        return tirx.Cast(WIDE, tirx.BufferLoad(narrow[old.source], old.indices))

    body, init, annotations = block.body, block.init, dict(block.annotations)
    if isinstance(body, tirx.BufferStore) and body.buffer in narrow:
        own, dtype = narrow[body.buffer], str(narrow[body.buffer].dtype)
        sides = (body.value.a, body.value.b)
        term = next(s for s in sides if not (isinstance(s, ir.TensorLoad) and s.source.same_as(body.buffer)))
        total = tirx.BufferLoad(own, body.indices)
        body = tirx.BufferStore(own, total + _rounded(structural_map(term, (ir.TensorLoad, load)), dtype), body.indices)
        init = tirx.BufferStore(own, tirx.FloatImm(dtype, 0.0), init.indices)
        del annotations[ALLOWED]
    elif block.name_hint != "root":
        body = structural_map(body, (ir.TensorLoad, load))
    return in_other_buffers(block, narrow, body=body, init=init, annotations=annotations)
