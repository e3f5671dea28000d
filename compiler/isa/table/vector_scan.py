"""Running results along the rows: element i of ``dst`` combines the elements of ``a`` up to i, one after the other.

``.excl`` leaves out element i itself, so that the first result is the operation's identity; ``.rev`` runs from the
end of the row to its beginning. Floats are combined in fp32, integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import FLOATS, NUMBERS, Queue
from compiler.isa.model import RANK, Args, Modifier, Row, Shape, Tensor, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table.rules import VECTOR_RULES
from compiler.isa.timing import vector_timing


def _lowest(dtype: np.dtype[Any]) -> float:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _highest(dtype: np.dtype[Any]) -> float:
    return np.inf if dtype.kind == "f" else int(np.iinfo(dtype).max)


def _scan(
    opcode: int,
    mnemonic: str,
    combine: np.ufunc,
    identity: Callable[[np.dtype[Any]], float],
    doc: str,
    dtypes: tuple[str, ...] = NUMBERS,
) -> Row:
    def semantics(args: Args, a: Any) -> Any:
        if args.order == "rev":
            a = a[..., ::-1]
        if args.form == "excl":
            first = np.full_like(a[..., :1], identity(a.dtype))
            a = np.concatenate((first, a[..., :-1]), axis=-1)
        running = combine.accumulate(a, axis=-1, dtype=a.dtype)
        return running[..., ::-1] if args.order == "rev" else running

    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(Tensor("dst", "w"), Tensor("a", "r"), Shape()),
        modifiers=(
            dtype_modifier(*dtypes),
            Modifier("form", ("incl", "excl")),
            Modifier("order", ("fwd", "rev")),
            RANK,
        ),
        rules=VECTOR_RULES,
        semantics=semantics,
        timing=lambda args: vector_timing(args, cost.SCAN),
    )


_SUMMABLE = (*FLOATS, "int32")

ROWS = [
    _scan(704, "vcumsum", np.add, lambda dtype: 0, "dst[i] = sum of a[0..i]", _SUMMABLE),
    _scan(705, "vcumprod", np.multiply, lambda dtype: 1, "dst[i] = product of a[0..i]", _SUMMABLE),
    _scan(706, "vcummax", np.maximum, _lowest, "dst[i] = greatest of a[0..i]; NaN from the first NaN on"),
    _scan(707, "vcummin", np.minimum, _highest, "dst[i] = least of a[0..i]; NaN from the first NaN on"),
]
