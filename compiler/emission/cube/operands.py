"""Operands on their way to the cube: DDR to L1 in nz layout, L1 to L0A and L0B, transposed on the way where needed."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from compiler.emission.calls import address, address_at, guarded, instruction
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.costs import instruction_cycles
from compiler.emission.cube.places import (
    Index,
    bound,
    extent,
    is_gapless,
    is_simple,
    is_zero,
    l1_offset,
    l1_pitch,
    mark_of,
    matrix_indices,
    product_of,
    single_loop,
    start_of,
)
from compiler.emission.nest import Access, Loop, Nest
from compiler.isa.dtypes import CUBE_TYPES
from compiler.target import Chip

Loops = tuple[Loop, ...]


@recogniser
def to_l1(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l1[row, column] = far[...]``: a block of DDR into nz layout."""
    target = nest.target
    if target.memory != "l1" or nest.value.op != "load" or mark_of(nest) != "operand":
        return
    source: Access = nest.value.value
    if source.memory != "ddr":
        return
    if target.dtype != source.dtype or target.dtype not in CUBE_TYPES:
        yield Rejection("ldnz", f"{source.dtype} in DDR and {target.dtype} in L1")
        return
    row, column, _ = matrix_indices(target)
    offset = l1_offset(target)
    if not is_simple(row) or not is_simple(column) or offset is None or not source.is_affine:
        yield Rejection("ldnz", "the block is no matrix of rows and columns")
        return
    rows, columns = single_loop(row), single_loop(column)
    if {loop for loop in (rows, columns) if loop} != set(nest.loops):
        yield Rejection("ldnz", "a loop moves more than one matrix")
        return
    row_stride, column_stride = (0 if loop is None else source.coefficient(loop) for loop in (rows, columns))
    pitch = l1_pitch(target.buffer)
    for mnemonic, fits, stride in (
        ("ldnz", columns is None or column_stride == 1, row_stride),
        ("ldnzt", rows is None or row_stride == 1, column_stride),
    ):
        if not fits:
            yield Rejection(mnemonic, f"elements are {column_stride} apart along a row, {row_stride} along a column")
            continue
        shape = (extent(rows), extent(columns))
        values = (0, 0, bound(rows), bound(columns), stride or 0, pitch)
        price = instruction_cycles(mnemonic, ("ddr", target.dtype), values, chip)
        if isinstance(price, str):
            yield Rejection(mnemonic, price)
            continue

        def build(mnemonic: str = mnemonic, shape: tuple[Any, Any] = shape, stride: Any = stride) -> Any:
            slots = [address_at(target.buffer, offset), address(source.buffer, start_of(source)), *shape]
            return guarded(nest.loops, instruction(mnemonic, ("ddr", target.dtype), [*slots, stride, pitch]))

        yield Candidate(f"{mnemonic}.ddr.{target.dtype}", price, 1, build, kind="copy")


@recogniser
def from_ub(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l1[row, column] = ub[...]``: rows of UB into nz layout."""
    target = nest.target
    if target.memory != "l1" or nest.value.op != "load" or mark_of(nest) != "operand":
        return
    source: Access = nest.value.value
    if source.memory != "ub":
        return
    row, column, _ = matrix_indices(target)
    offset = l1_offset(target)
    rows, columns = single_loop(row), single_loop(column)
    simple = is_simple(row) and is_simple(column) and offset is not None and source.is_affine
    if not simple or {loop for loop in (rows, columns) if loop} != set(nest.loops) or target.dtype != source.dtype:
        yield Rejection("stnz", "the block is no matrix of rows and columns")
        return
    if columns is not None and source.coefficient(columns) != 1:
        yield Rejection("stnz", "the elements of a row do not lie side by side")
        return
    stride = 0 if rows is None else source.coefficient(rows)
    pitch = l1_pitch(target.buffer)
    price = instruction_cycles("stnz", (target.dtype,), (0, 0, bound(rows), bound(columns), stride or 0, pitch), chip)
    if isinstance(price, str):
        yield Rejection("stnz", price)
        return

    def build() -> Any:
        slots = [address_at(target.buffer, offset), address(source.buffer, start_of(source))]
        slots += [extent(rows), extent(columns), stride, pitch]
        return guarded(nest.loops, instruction("stnz", (target.dtype,), slots))

    yield Candidate(f"stnz.{target.dtype}", price, 1, build, kind="copy")


@recogniser
def to_l0(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l0a[m, k] = l1[m, k]`` or ``l1[k, m]``, and the same for L0B."""
    target = nest.target
    if target.memory not in ("l0a", "l0b") or nest.value.op != "load" or not mark_of(nest).startswith("operand"):
        return
    source: Access = nest.value.value
    if source.memory != "l1":
        return
    first, second = _operand_indices(target, mark_of(nest).endswith("transposed"))
    row, column, _ = matrix_indices(source)
    offset = l1_offset(source)
    indices = [index for index in (first, second, row, column) if index is not None and is_gapless(index)]
    mnemonic = f"ld{target.memory}"
    if len(indices) < 4 or offset is None or not is_zero(target.base):
        yield Rejection(mnemonic, "the block is no matrix of rows and columns that begins with whole fractal rows")
        return
    wanted, held = ((one.loops, other.loops) for one, other in (indices[:2], indices[2:]))
    if {*wanted[0], *wanted[1]} != set(nest.loops):
        yield Rejection(mnemonic, "a loop moves more than one matrix")
        return
    transposed = _is_transposed(wanted, held)
    if transposed is None:
        yield Rejection(mnemonic, "the rows and columns in L1 are not those of the operand")
        return
    mnemonic += "t" if transposed else ""
    pitch, sizes = l1_pitch(source.buffer), [prod(loop.bound for loop in loops) for loops in wanted]
    price = instruction_cycles(mnemonic, (target.dtype,), (0, 0, *sizes, pitch), chip)
    if isinstance(price, str):
        yield Rejection(mnemonic, price)
        return

    def build() -> Any:
        slots = [address_at(target.buffer, 0), address_at(source.buffer, offset)]
        slots += [*(product_of([loop.extent for loop in loops]) for loops in wanted), pitch]
        return guarded(nest.loops, instruction(mnemonic, (target.dtype,), slots))

    yield Candidate(f"{mnemonic}.{target.dtype}", price, 1, build, kind="copy")


def _operand_indices(access: Access, transposed: bool) -> tuple[Index | None, Index | None]:
    """(m, k) in L0A and (k, n) in L0B, in TIR the other way round if transposed; a single axis is k."""
    first, second, _ = matrix_indices(access)
    if transposed or (len(access.indices) == 1 and access.memory == "l0b"):
        return second, first
    return first, second


def _is_transposed(wanted: tuple[Loops, Loops], held: tuple[Loops, Loops]) -> bool | None:
    if wanted == held:
        return False
    return True if wanted == held[::-1] else None
