"""Comparisons, which write a bool tensor, and selections, which read one.

A comparison with NaN is false, except "not equal". Any nonzero byte of a bool tensor is true; comparisons write
zero or one. An integer scalar is compared as it is, whether or not it fits the tensor's type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import FLOATS, INTS, NUMBERS, Queue
from compiler.isa.model import RANK, Computes, Float, Int, Operand, Row, Shape, Tensor, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table import vector_numerics as numerics
from compiler.isa.table.rules import VECTOR_RULES
from compiler.isa.table.vector_operands import MOVABLE
from compiler.isa.timing import vector_timing

_COMPARISONS: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("eq", np.equal, "=="),
    ("ne", np.not_equal, "!="),
    ("lt", np.less, "<"),
    ("le", np.less_equal, "<="),
    ("gt", np.greater, ">"),
    ("ge", np.greater_equal, ">="),
)


def _compare(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    other: tuple[Operand, ...],
    dtypes: tuple[str, ...],
    computes: Computes,
) -> Row:
    """``dst = function(a, other)``, where ``other`` is a tensor or scalars."""
    scalars = [operand.name for operand in other if isinstance(operand, Float | Int)]

    def semantics(args: Any, *inputs: Any) -> Any:
        return function(*inputs, *(getattr(args, name) for name in scalars))

    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w", dtype="bool"), Tensor("a", "r"), *other, Shape()),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=VECTOR_RULES,
        semantics=semantics,
        timing=lambda args: vector_timing(args, cost.COMPARE),
        computes=computes,
    )


def _select(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    others: tuple[Operand, ...],
    dtypes: tuple[str, ...] = MOVABLE,
    accumulates: bool = False,
    raw: bool = True,
    computes: Computes = (),
) -> Row:
    """``dst = function(args, *inputs)``; the tensors move as they are."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(
            Tensor("dst", "rw" if accumulates else "w"),
            Tensor("mask", "r", dtype="bool"),
            *others,
            Shape(),
        ),
        modifiers=(dtype_modifier(*dtypes), RANK),
        rules=VECTOR_RULES,
        semantics=function,
        raw=raw,
        timing=lambda args: vector_timing(args, cost.SELECT),
        computes=computes,
    )


_A, _B = Tensor("a", "r"), Tensor("b", "r")

ROWS = [
    *(
        _compare(608 + i, f"vcmp{name}", function, f"dst = a {sign.removeprefix('=')} b", (_B,), NUMBERS, f"a {sign} b")
        for i, (name, function, sign) in enumerate(_COMPARISONS)
    ),
    *(
        _compare(614 + i, f"vcmps{name}", function, f"dst = a {sign.removeprefix('=')} scalar", (Float("scalar"),),
                 FLOATS, f"a {sign} scalar")
        for i, (name, function, sign) in enumerate(_COMPARISONS)
    ),
    *(
        _compare(620 + i, f"vcmpi{name}", function, f"dst = a {sign.removeprefix('=')} scalar", (Int("scalar"),),
                 INTS, f"a {sign} scalar")
        for i, (name, function, sign) in enumerate(_COMPARISONS)
    ),
    _compare(
        626, "vcmpsin", lambda a, low, high: (low <= a) & (a <= high), "dst = low <= a <= high",
        (Float("low"), Float("high")), FLOATS,
        computes="low <= a <= high",
    ),
    _compare(
        627, "vcmpiin", lambda a, low, high: (low <= a) & (a <= high), "dst = low <= a <= high",
        (Int("low"), Int("high")), INTS,
        computes="low <= a <= high",
    ),
    _select(
        628, "vsel", lambda args, mask, a, b: np.where(numerics.truth(mask), a, b), "dst = a where mask, else b",
        (_A, _B),
        computes="where(mask, a, b)",
    ),
    _select(
        629, "vsels", lambda args, mask, a: np.where(numerics.truth(mask), a, np.float32(args.scalar)),
        "dst = a where mask, else scalar", (_A, Float("scalar")), FLOATS, raw=False,
        computes="where(mask, a, scalar)",
    ),
    _select(
        630, "vseli", lambda args, mask, a: np.where(numerics.truth(mask), a, numerics.wrapped(args.scalar, a)),
        "dst = a where mask, else scalar", (_A, Int("scalar")), INTS,
        computes="where(mask, a, scalar)",
    ),
    _select(
        631, "vmaskmov", lambda args, dst, mask, a: np.where(numerics.truth(mask), a, dst),
        "dst = a where mask, else unchanged", (_A,), accumulates=True,
        computes="where(mask, a, dst)",
    ),
]  # fmt: skip
