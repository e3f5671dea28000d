"""Whether a nest only writes what a reduction after it starts from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm_ffi

from compiler.emission.nest import Nest
from compiler.emission.reductions import accumulation
from compiler.isa.dtypes import DTYPES, FLOATS


def holds_identity(initial: Nest, reduction: Nest) -> bool:
    """Whether ``initial`` fills exactly what ``reduction`` reduces into with the operation's identity."""
    found = accumulation(reduction)
    if found is None or initial.value.op != "const":
        return False
    target, filled = reduction.target, initial.target
    if not target.buffer.same_as(filled.buffer) or not (target.is_affine and filled.is_affine):
        return False
    if not is_identity(found.op, initial.value.value, target.dtype):
        return False
    if not _equal(target.base, filled.base):
        return False
    walked, covered = _walked(reduction), _walked(initial)
    return [step for step, _ in walked] == [step for step, _ in covered] and all(
        _equal(mine, others) or reduction.surroundings.analyzer.can_prove_equal(mine, others)
        for (_, mine), (_, others) in zip(walked, covered, strict=True)
    )


def is_identity(op: str, value: float, dtype: str) -> bool:
    """Whether combining with ``value`` changes nothing; the lowest finite number stands for minus infinity."""
    if op in ("add", "or"):
        return value == 0
    if op == "mul":
        return value == 1
    if op == "and":
        return bool(value)
    if dtype in FLOATS:
        # The limits of fp16 and bf16 differ from what TIR writes in the last digit at most.
        largest = float(np.finfo(np.float16).max) if dtype == "fp16" else 3.3e38
        return value <= -largest if op == "max" else value >= largest
    limits = np.iinfo(DTYPES[dtype].numpy)
    return bool(value == (limits.min if op == "max" else limits.max)) and math.isfinite(value)


def _walked(nest: Nest) -> list[tuple[int, Any]]:
    """What the target moves over: (elements per iteration, extent) of each loop that moves it, by step."""
    moved = [(step, loop.extent) for step, loop in zip(nest.target.coefficients, nest.loops, strict=True) if step]
    joined: list[tuple[int, Any]] = []
    for step, extent in sorted(moved, key=lambda one: one[0]):
        if joined and isinstance(joined[-1][1], int):
            below, count = joined[-1]
            if step == below * count:
                joined[-1] = (below, count * extent)
                continue
        joined.append((step, extent))
    return joined


def _equal(a: Any, b: Any) -> bool:
    return bool(tvm_ffi.structural_equal(a, b))
