"""Copies that run backwards in one loop: ``vflip``, after a load and before a store where DDR is read or written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from compiler.emission import calls
from compiler.emission.candidates import Found, Rejection, recogniser
from compiler.emission.copies import STAGING_SHARE, instruction_candidate, plain_source, transfer
from compiler.emission.dims import Dim, Placement, eligible, merged, place
from compiler.emission.hazards import order_matters
from compiler.emission.nest import Access, Loop, Nest, tirx_substitute
from compiler.emission.operands import Operands
from compiler.isa.dtypes import DTYPES
from compiler.isa.model import dense_strides
from compiler.isa.table import by_mnemonic
from compiler.target import Chip
from compiler.tir.scopes import TIR_DTYPE

_REACHABLE = ("ub", "ddr")


@recogniser
def backwards(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``dst[i] = src[n - 1 - i]`` over the longest loop in which the source runs backwards."""
    source = plain_source(nest)
    if source is None or source.memory not in _REACHABLE or nest.target.memory not in _REACHABLE:
        return
    steps = zip(nest.loops, source.coefficients, strict=True)
    falling = [loop for loop, step in steps if step is not None and step < 0]
    if not falling or source.dtype not in by_mnemonic()["vflip"].modifiers[0].choices:
        return
    if order_matters(nest, source):
        yield Rejection("vflip", "source and destination overlap")
        return
    loop = max(falling, key=lambda one: one.bound)
    turned = _turned(source, loop)
    dims = _dims(nest, turned, loop, chip)
    if dims:
        yield _flipped(nest, turned, loop, place(nest, dims), chip)


def _turned(source: Access, loop: Loop) -> Access:
    """The access in the opposite order of a loop: it then begins at the lowest element."""
    opposite = {loop.var: (loop.extent - 1) - loop.var}
    indices = tuple(tirx_substitute(index, opposite) for index in source.indices)
    return Access(source.buffer, indices, source.loops, source.surroundings)


def _dims(nest: Nest, turned: Access, loop: Loop, chip: Chip) -> tuple[Dim, ...]:
    """The reversed loop and up to two others, as many as a staging buffer holds."""
    found = merged(
        eligible(nest, [nest.target, turned], written=1), lambda a, b: loop not in a.loops and loop not in b.loops
    )
    own = [dim for dim in found if loop in dim.loops]
    others = sorted((dim for dim in found if loop not in dim.loops), key=lambda dim: -dim.bound)[:2]
    limit = chip.memory.ub_bytes // STAGING_SHARE // DTYPES[turned.dtype].itemsize
    while others and prod(dim.bound for dim in own + others) > limit:
        others.pop()
    if not own or own[0].bound > limit:
        return ()
    return tuple(sorted(own + others, key=lambda dim: -dim.strides[0]))


def _flipped(nest: Nest, turned: Access, loop: Loop, placement: Placement, chip: Chip) -> Found:
    dims, target = placement.dims, nest.target
    bounds = [dim.bound for dim in dims]
    dense = dense_strides(tuple(bounds))
    staged: list[Access] = []
    steps: list[Operands] = []
    source, source_strides = turned, tuple(dim.strides[1] for dim in dims)
    if source.memory == "ddr":
        staged.append(_staging(nest, "forwards", bounds))
        steps.append(transfer("ld", staged[-1], source, placement, dense, source_strides))
        source, source_strides = staged[-1], dense
    result, result_strides = target, tuple(dim.strides[0] for dim in dims)
    if target.memory == "ddr":
        staged.append(_staging(nest, "backwards", bounds))
        result, result_strides = staged[-1], dense
    axis = len(dims) - 1 - next(n for n, dim in enumerate(dims) if loop in dim.loops)
    steps.append(_flip(result, source, result_strides, source_strides, dims, axis))
    if target.memory == "ddr":
        steps.append(transfer("st", target, result, placement, tuple(dim.strides[0] for dim in dims), dense))
    kind = "vector" if len(steps) == 1 else "copy"
    return instruction_candidate(steps, placement, staged, chip, kind)


def _staging(nest: Nest, name: str, bounds: Sequence[int]) -> Access:
    buffer = calls.temporary(name, bounds, TIR_DTYPE[nest.target.dtype])
    return Access(buffer, tuple(calls.number(0) for _ in bounds), nest.loops, nest.surroundings)


def _flip(
    target: Access,
    source: Access,
    target_strides: Sequence[int],
    source_strides: Sequence[int],
    dims: Sequence[Dim],
    axis: int,
) -> Operands:
    extents: list[Any] = [dim.extent for dim in dims]
    return Operands(
        by_mnemonic()["vflip"],
        (source.dtype, f"n{axis}", f"{len(dims)}d"),
        {"dst": target, "a": source},
        {"dst": target_strides, "a": source_strides},
        {},
        extents,
        [dim.bound for dim in dims],
    )
