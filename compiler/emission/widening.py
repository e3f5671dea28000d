"""Sums of what is converted to fp32 first: both halves of a row are added as they are converted, then the sums summed.

    s[i] += float32(a[i, k])   ->   t[i, k] = float32(a[i, k]) + float32(a[i, k + n / 2]);  s[i] = sum of t[i, :]

A conversion costs two cycles a repeat, however much it adds on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from compiler.emission.candidates import Found, recogniser
from compiler.emission.dims import Dim, Placement, eligible
from compiler.emission.nest import Access, Nest
from compiler.emission.operands import Operands
from compiler.emission.patterns import matches
from compiler.emission.reductions import (
    Fold,
    accumulation,
    column_ways,
    fold_matches,
    fold_placements,
    replace_index,
)
from compiler.emission.terms import Term
from compiler.emission.vector import MEMORY
from compiler.isa.dtypes import FLOATS
from compiler.isa.model import dense_strides
from compiler.target import Chip

WIDE = "fp32"


def is_widened(op: str, rest: Term) -> bool:
    """Whether a reduction sums what it only converts."""
    converts = rest.op == "cast" and rest.dtype == WIDE and rest.args[0].op == "load"
    return op == "add" and converts and rest.args[0].dtype in FLOATS and rest.args[0].dtype != WIDE


@recogniser
def widened(nest: Nest, chip: Chip) -> Iterator[Found]:
    """Into a temporary, combined with the destination."""
    yield from widened_sums(nest, chip, overwrite=False)


def widened_sums(nest: Nest, chip: Chip, overwrite: bool) -> Iterator[Found]:
    reduction = accumulation(nest)
    if reduction is None or not is_widened(reduction.op, reduction.rest) or nest.target.memory != MEMORY:
        return
    source = reduction.sources[reduction.rest.args[0].value]
    if source.memory != MEMORY:
        return
    plain = Term("load", WIDE, value=0)
    dims = eligible(nest, [nest.target, source])
    for axis in ("n0", "n1"):
        for match in fold_matches("add", axis, plain, WIDE):
            for placement in fold_placements(nest, dims, axis, chip, 4):
                fold = Fold(nest, match, {"a": source}, placement, axis, overwrite)
                if not overwrite or fold.may_overwrite:
                    yield from _ways(fold, source, chip)


def _ways(fold: Fold, source: Access, chip: Chip) -> Iterator[Found]:
    first, temporary, dims = _converted(fold, source)
    again = Fold(
        fold.nest, fold.match, {"a": temporary}, Placement(dims, fold.placement.outer), fold.axis, fold.overwrite
    )
    ways = [again.finished("add")]
    if fold.axis == "n0":
        ways += column_ways(again, "add", Term("load", WIDE, value=0))
    for steps, temporaries in ways:
        yield again.made(f"{first[0].name} + {steps[0].name}", [*first, *steps], [temporary, *temporaries], chip)


def _converted(fold: Fold, source: Access) -> tuple[list[Operands], Access, tuple[Dim, ...]]:
    """The instructions that convert, halves added where there are two, and what they leave to be summed.

    Of an odd number the one in the middle is only converted.
    """
    dims = fold.placement.dims
    at = max((k for k, dim in enumerate(dims) if dim.strides[0] == 0), key=lambda k: dims[k].bound)
    long = dims[at]
    pairs, odd = divmod(long.extent, 2) if isinstance(long.extent, int) else (0, 0)
    length = pairs + odd if pairs else long.bound
    shape = [length if k == at else dim.bound for k, dim in enumerate(dims)]
    temporary = fold.temporary("widened", shape)
    strides = dense_strides(tuple(shape))
    left = tuple(
        replace(dim, extent=length if k == at and pairs else dim.extent, bound=shape[k], strides=(dim.strides[0], s))
        for k, (dim, s) in enumerate(zip(dims, strides, strict=True))
    )
    loaded = [Term("cast", WIDE, (Term("load", source.dtype, value=n),)) for n in range(2)]

    def step(term: Term, start: int, count: int | None) -> Operands:
        """Makes ``count`` of what is left from ``start`` on, or all of it."""
        match = next(one for one in matches(term, WIDE) if all(bound.op == "load" for _, bound in one.tensors))
        accesses = {"dst": replace_index(temporary, start * strides[at]) if start else temporary}
        accesses["a"] = replace_index(source, start * long.strides[1]) if start else source
        if len(match.tensors) == 2:
            accesses["b"] = replace_index(source, length * long.strides[1])
        each: dict[str, Any] = {name: [dim.strides[1] for dim in dims] for name in accesses}
        return Operands(
            match.row,
            match.mods_at(f"{len(dims)}d"),
            accesses,
            {**each, "dst": strides},
            dict(match.scalars),
            [count if k == at and count else dim.extent for k, dim in enumerate(left)],
            [count if k == at and count else dim.bound for k, dim in enumerate(left)],
        )

    if not pairs:
        return [step(loaded[0], 0, None)], temporary, left
    steps = [step(Term("add", WIDE, tuple(loaded)), 0, pairs)]
    return [*steps, step(loaded[0], pairs, odd)] if odd else steps, temporary, left
