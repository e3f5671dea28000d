"""What the vector instructions' operands have in common: ranks, groups of types, operands that lack a dimension."""

from __future__ import annotations

from typing import Any

from compiler.isa.dtypes import NUMBERS
from compiler.isa.model import Modifier, Tensor

FROM_2D = Modifier("rank", ("2d", "3d"))
ONLY_2D = Modifier("rank", ("2d",))
ONLY_3D = Modifier("rank", ("3d",))

# What moves carry: they never look at a value, so a bool keeps its byte.
MOVABLE = (*NUMBERS, "bool", "int64")


def without_inner(args: Any) -> tuple[int, ...]:
    """The iteration shape without its innermost dimension."""
    return tuple(args.shape[:-1])


def without_n1(args: Any) -> tuple[int, ...]:
    """The iteration shape without ``n1``: what is left when rows are combined."""
    return (*args.shape[:-2], args.shape[-1])


def per_row(name: str, role: str, dtype: str = "@dtype") -> Tensor:
    """An operand with one element per row of the iteration shape."""
    return Tensor(name, role, dtype=dtype, extents=without_inner, lacks=1)


def per_column(name: str, role: str, dtype: str = "@dtype") -> Tensor:
    """An operand with one element per column: it lacks ``n1``."""
    return Tensor(name, role, dtype=dtype, extents=without_n1, lacks=1)


def elements(args: Any) -> int:
    """The number of elements of the iteration shape."""
    return int(args.n0 * args.n1 * args.n2)
