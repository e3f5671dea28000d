"""Packed weights on their way to L0B. In DDR and L1 they lie as ``[block of k][n][k0]``: nz of their transpose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compiler.emission.calls import address, address_at, guarded, instruction
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.costs import instruction_cycles
from compiler.emission.cube.places import constant, even_step, is_zero, mark_of, product_of, start_of
from compiler.emission.nest import Access, Loop, Nest
from compiler.isa.dtypes import DTYPES
from compiler.target import Chip

WEIGHTS = "weights"


def _parts(nest: Nest) -> tuple[Access, list[Loop], list[Loop], list[Loop]] | None:
    """The source, and the loops over blocks of k, over n and inside a block."""
    if mark_of(nest) != WEIGHTS or nest.value.op != "load":
        return None
    source: Access = nest.value.value
    width = source.shape[-1]
    inside = [loop for loop in nest.loops if source.coefficient(loop) == 1]
    columns = [loop for loop in nest.loops if source.coefficient(loop) == width and loop not in inside]
    if source.shape[-2] == 1:
        columns = []
    blocks = [loop for loop in nest.loops if loop not in inside and loop not in columns]
    return source, blocks, columns, inside


@recogniser
def weights_to_l1(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l1[block, n, k0] = far[block, n, k0]``: rows of whole blocks."""
    parts = _parts(nest)
    if parts is None or nest.target.memory != "l1":
        return
    source, blocks, columns, inside = parts
    steps = [even_step(access, blocks) for access in (nest.target, source)]
    if None in steps:
        yield Rejection("ld", "the blocks do not lie evenly")
        return
    rows = product_of([loop.extent for loop in blocks])
    length = product_of([loop.extent for loop in (*columns, *inside)])
    sizes = [product_of([loop.bound for loop in group]) for group in (blocks, (*columns, *inside))]
    mods = ("ddr", "l1", source.dtype, "2d")
    target_step, source_step = (max(step or 0, 1) for step in steps)
    price = instruction_cycles("ld", mods, (0, max(target_step, sizes[1]), 1, 0, source_step, 1, *sizes), chip)
    if isinstance(price, str):
        yield Rejection("ld", price)
        return

    def build() -> Any:
        target = address_at(nest.target.buffer, _offset(nest.target))
        slots = [target, target_step, 1, address(source.buffer, start_of(source)), source_step, 1, rows, length]
        return guarded(nest.loops, instruction("ld", mods, slots))

    yield Candidate("ld." + ".".join(mods), price, 1, build, kind="copy")


@recogniser
def weights_to_l0b(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l0b[k, n] = l1[block, n, k0]``."""
    parts = _parts(nest)
    if parts is None or nest.target.memory != "l0b":
        return
    source, blocks, columns, inside = parts
    step, (rows, width) = even_step(source, blocks), source.shape[-2:]
    if step is None or step % (rows * width) or not is_zero(nest.target.base):
        yield Rejection("ldl0bt", "the blocks do not lie evenly")
        return
    pitch = step // width or rows
    k, n = (product_of([loop.extent for loop in group]) for group in ((*blocks, *inside), columns))
    sizes = [product_of([loop.bound for loop in group]) for group in ((*blocks, *inside), columns)]
    price = instruction_cycles("ldl0bt", (source.dtype,), (0, 0, *sizes, pitch), chip)
    if isinstance(price, str):
        yield Rejection("ldl0bt", price)
        return

    def build() -> Any:
        slots = [address_at(nest.target.buffer, 0), address_at(source.buffer, _offset(source)), k, n, pitch]
        return guarded(nest.loops, instruction("ldl0bt", (source.dtype,), slots))

    yield Candidate(f"ldl0bt.{source.dtype}", price, 1, build, kind="copy")


def _offset(access: Access) -> Any:
    """Packed weights are dense in L1: the byte follows from the flat index."""
    offset = access.surroundings.simplify(access.base * DTYPES[access.dtype].itemsize)
    known = constant(offset)
    return offset if known is None else known
