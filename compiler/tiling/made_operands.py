"""Sums of products whose operands are no matrices as they lie, with stages that make them.

    c[n, i, j, o] = sum(x[n, i + a, j + b, c] * w[a, b, c, o])                        over a, b, c
    -> left[n, i, j, k] = x[n, i + k // (B * C), ..]      right[k, o] = w[k // (B * C), .., o]
       c[n, i, j, o] = sum(left[n, i, j, k] * right[k, o])

What a stage is rewritten for:

1. Its sum begins with zero and is stored where its axes say, each of which moves one factor or both.
2. Each axis that is summed over moves both factors, and there is one.
3. The multiplications are work for the matrix unit, which knows the type of both factors, or that of their sum.
4. What is read is known before: elements that data picks stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx

from compiler.target import Chip
from compiler.tiling.blocks import block_facts
from compiler.tir.made_stages import made_stage, stages_of, with_stages
from compiler.tir.products import adds_products, begins_with_zero, is_product
from compiler.tir.sblocks import innermost
from compiler.tir.scopes import ISA_DTYPE
from compiler.tir.structure import structural_map, structural_walk

LEAST = 1 << 16  # multiplications
MADE = ((True, False), (False, True), (True, True))  # left, right: as few as will do

SIDES = ("left", "right")

Nest = tuple[Any, Any]  # a stage, and the buffer that it makes


def with_made_operands(func: Any, chip: Chip) -> Any:
    """The function with matrices made for each sum of products that is none for the matrix unit as it is."""
    nests, buffers = list[Any](), list[Any]()
    for nest in stages_of(func):
        blocks = [realize.block for realize in innermost(nest)]
        found = _Sum.of(blocks[0], chip) if len(blocks) == 1 and not is_product(blocks[0]) else None
        made, product = (found and found.by_matrices()) or ([], nest)
        nests += [*(stage for stage, _ in made), product]
        buffers += [buffer for _, buffer in made]
    return with_stages(func, nests, buffers)


@dataclass(frozen=True)
class _Sum:
    """A sum of products, of which the second factor says where in a row of the result one goes."""

    block: Any
    factors: tuple[Any, Any]
    dtype: str  # of the factors
    kept: tuple[Any, ...]  # axes of the result, and those that are summed over
    summed: tuple[Any, ...]

    @staticmethod
    def of(block: Any, chip: Chip) -> _Sum | None:
        store = block.body
        if not (adds_products(block) and begins_with_zero(block)) or block_facts(block).dynamic_reads:
            return None  # (1, 4)
        kept = tuple(axis for axis in block.iter_vars if int(axis.iter_type) == int(tirx.IterVar.DataPar))
        summed = tuple(axis for axis in block.iter_vars if int(axis.iter_type) == int(tirx.IterVar.CommReduce))
        indices = list(store.indices)
        if not kept or len(indices) != len(kept) or len(kept) + len(summed) != len(block.iter_vars):
            return None
        if not all(index.same_as(axis.var) for index, axis in zip(indices, kept, strict=True)):
            return None  # (1)
        factors = (store.value.b.a, store.value.b.b)
        if kept[-1].var not in _moving(factors[1]):
            factors = factors[::-1]
        left, right = map(_moving, factors)
        held = {axis.var for axis in kept}
        if not summed or not held <= left | right or not {axis.var for axis in summed} <= left & right:
            return None  # (1, 2)
        if not left - right or not right - left or prod(int(axis.dom.extent) for axis in block.iter_vars) < LEAST:
            return None  # (3)
        dtype = _common_dtype(factors, str(store.buffer.dtype))
        return _Sum(block, factors, dtype, kept, summed) if chip.multiplies(ISA_DTYPE.get(dtype, "")) else None

    def by_matrices(self) -> tuple[list[Nest], Any] | None:
        """The stages that make matrices, and the one that multiplies them; None where that is no product either."""
        for choice in MADE:
            made = [self._matrix(side) if wanted else None for side, wanted in enumerate(choice)]
            product = self._product(made)
            if is_product(next(innermost(product)).block):
                return [nest for nest in made if nest is not None], product
        return None

    def _matrix(self, side: int) -> Nest:
        """The axes of the sum lie before the columns of the second matrix, and behind all others of the first."""
        before, behind = self._axes(side)
        shape = [*map(_extent, before), prod(map(_extent, self.summed)), *map(_extent, behind)]
        buffer = _declared(shape, self.dtype, f"{self.block.name_hint}_{SIDES[side]}")

        def element(*index: Any) -> Any:
            depth = index[len(before)]
            others = index[: len(before)] + index[len(before) + 1 :]
            at = {axis.var: place for axis, place in zip(before + behind, others, strict=True)}
            return self._factor(side, at | _digits(self.summed, depth))

        return made_stage(buffer, element), buffer

    def _product(self, made: Sequence[Nest | None]) -> Any:
        """The sum, of matrices where they are made."""
        stored = self.block.body.buffer

        def element(*index: Any) -> Any:
            at = {axis.var: place for axis, place in zip(self.kept, index, strict=False)}
            digits = _digits(self.summed, index[-1])
            values = []
            for side, matrix in enumerate(made):
                if matrix is None:
                    values.append(self._factor(side, at | digits))
                else:
                    before, behind = ([at[axis.var] for axis in axes] for axes in self._axes(side))
                    values.append(matrix[1][(*before, index[-1], *behind)])
            left, right = (value.astype(str(stored.dtype)) for value in values)
            return left * right

        return made_stage(stored, element, prod(map(_extent, self.summed)), str(self.block.name_hint))

    def _axes(self, side: int) -> tuple[list[Any], list[Any]]:
        """Of a matrix, the axes before that of the sum, and behind it."""
        own = [axis for axis in self.kept if axis.var in _moving(self.factors[side])]
        return (own[:-1], own[-1:]) if side else (own, [])

    def _factor(self, side: int, at: Mapping[Any, Any]) -> Any:
        """Its value, with something in the place of each variable."""
        factor = _narrow(self.factors[side])
        if str(factor.ty) != self.dtype:
            factor = self.factors[side]
        return structural_map(factor, (tirx.Var, lambda var: at.get(var, var)))


def _narrow(factor: Any) -> Any:
    return factor.value if isinstance(factor, tirx.Cast) else factor


def _common_dtype(factors: Sequence[Any], of_sum: str) -> str:
    """What both are before they are made as wide as the sum, or that."""
    narrow = {str(_narrow(factor).ty) for factor in factors}
    return narrow.pop() if len(narrow) == 1 else of_sum


def _moving(factor: Any) -> set[Any]:
    found: list[Any] = []
    structural_walk(factor, (tirx.Var, found.append))
    return set(found)


def _extent(axis: Any) -> int:
    return int(axis.dom.extent)


def _digits(axes: Sequence[Any], number: Any) -> dict[Any, Any]:
    """The places of several axes, by the number of one that has all of them, the last one the fastest."""
    found, stride = dict[Any, Any](), 1
    for axis in reversed(axes):
        place = tirx.floordiv(number, stride) if stride > 1 else number
        found[axis.var] = tirx.floormod(place, _extent(axis)) if axis is not axes[0] else place
        stride *= _extent(axis)
    return found


def _declared(shape: Sequence[int], dtype: str, name: str) -> Any:
    return tirx.decl_buffer(shape, dtype, name, layout=None)
