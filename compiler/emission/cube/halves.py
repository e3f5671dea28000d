"""What sums begin with where there is no table of it: the product of ones with a row in two parts.

A sum of fp16 products is in fp32, and so is what it begins with. An fp32 number is the sum of two in fp16, what it is
rounded to and what that leaves, up to 22 bits of it or the least step of fp16. L1 holds both parts of each column in nz
layout, as two rows: they take as many bytes as the fp32 numbers that the buffer is said to hold. L0B has them as a
matrix of two rows, which ones in L0A multiply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx

from compiler.emission.calls import address, address_at, allocation, guarded, instruction, number, temporary
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.costs import instruction_cycles
from compiler.emission.cube.bias import is_row
from compiler.emission.cube.places import (
    bound,
    constant,
    even_step,
    extent,
    is_zero,
    mark_of,
    place_in_l0c,
    product_of,
    rows_and_columns,
    start_of,
)
from compiler.emission.nest import Access, Nest
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.target import Chip

HALVES = "halves"
PARTS = 2
DTYPE = "fp16"
MOST = 65504.0  # the greatest number of fp16


def halves_bytes(columns: int) -> int:
    """Of the parts of so many columns in L1."""
    return ceil_to(columns, FRACTAL) * PARTS * DTYPES[DTYPE].itemsize


@recogniser
def halves_to_l1(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l1[at + n] = far[first + n]``: the vector unit takes it apart on the way."""
    if mark_of(nest) != HALVES or nest.value.op != "load" or nest.target.memory != "l1":
        return
    target, source, loop = nest.target, nest.value.value, nest.loops[0] if nest.loops else None
    offset = _offset(target)
    if source.memory != "ddr" or source.dtype != "fp32" or not (is_row(target, nest) and is_row(source, nest)):
        yield Rejection("stnz", "what sums begin with is no row of fp32 numbers in DDR")
        return
    if offset is None:
        yield Rejection("stnz", "what sums begin with does not begin with a block of columns")
        return
    size, most = extent(loop), ceil_to(bound(loop), FRACTAL)
    prices = [
        instruction_cycles("ld", ("ddr", "ub", "fp32", "1d"), (0, 1, 0, 1, most), chip),
        instruction_cycles("stnz", (DTYPE,), (0, 0, PARTS, most, most, PARTS), chip),
    ]
    refused = next((price for price in prices if isinstance(price, str)), None)
    if refused is not None:
        yield Rejection("stnz", refused)
        return

    def build() -> Any:
        wide, rounded = (temporary(name, [most], "float32") for name in ("wide", "rounded"))
        parts = temporary("parts", [PARTS, most], "float16")
        whole, again = ([address(buffer, [0]), 1] for buffer in (wide, rounded))
        high, low = ([address(parts, [part, 0]), 1] for part in range(PARTS))
        # What is beyond fp16 leaves a rest, no infinity that is taken from itself.
        steps = [
            allocation(wide),
            allocation(rounded),
            allocation(parts),
            instruction("ld", ("ddr", "ub", "fp32", "1d"), [*whole, address(source.buffer, start_of(source)), 1, size]),
            instruction("vmins", ("fp32", "1d"), [*again, *whole, MOST, size]),
            instruction("vmaxs", ("fp32", "1d"), [*again, *again, -MOST, size]),
            instruction("vconv", ("fp32", DTYPE, "rne", "1d"), [*high, *again, size]),
            instruction("vconv", (DTYPE, "fp32", "rne", "1d"), [*again, *high, size]),
            instruction("vsub", ("fp32", "1d"), [*again, *whole, *again, size]),
            instruction("vconv", ("fp32", DTYPE, "rne", "1d"), [*low, *again, size]),
            instruction("stnz", (DTYPE,), [address_at(target.buffer, offset), high[0], PARTS, size, most, PARTS]),
        ]
        return guarded(nest.loops, tirx.SeqStmt(steps))

    cycles = sum(price for price in prices if isinstance(price, int))
    yield Candidate(f"stnz.{DTYPE}", cycles, len(prices), build, kind="copy")


@recogniser
def halves_to_l0b(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l0b[n] = l1[at + n]``."""
    if mark_of(nest) != HALVES or nest.value.op != "load" or nest.target.memory != "l0b":
        return
    source, loop = nest.value.value, nest.loops[0] if nest.loops else None
    offset = _offset(source)
    rows = is_row(nest.target, nest) and is_row(source, nest) and is_zero(nest.target.base)
    if source.memory != "l1" or offset is None or not rows:
        yield Rejection("ldl0b", "what sums begin with is no row in L1 that begins with a block of columns")
        return
    price = instruction_cycles("ldl0b", (DTYPE,), (0, 0, PARTS, bound(loop), PARTS), chip)
    if isinstance(price, str):
        yield Rejection("ldl0b", price)
        return

    def build() -> Any:
        slots = [address_at(nest.target.buffer, 0), address_at(source.buffer, offset), PARTS, extent(loop), PARTS]
        return guarded(nest.loops, instruction("ldl0b", (DTYPE,), slots))

    yield Candidate(f"ldl0b.{DTYPE}", price, 1, build, kind="copy")


@recogniser
def start_of_halves(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``c[m, n] = l0b[at + n]``: ones times both parts."""
    if nest.target.memory != "l0c" or nest.value.op != "load" or nest.value.value.memory != "l0b":
        return
    row: Access = nest.value.value
    rows, columns = rows_and_columns(nest, nest.target)
    place = place_in_l0c(nest, nest.target)
    if place is None or not is_zero(place[1]):
        yield Rejection("mad", "the result does not begin where its buffer does")
        return
    offset = _offset(row, DTYPES[DTYPE].fractal_k)
    if offset is None or even_step(row, columns) not in (0, 1) or even_step(row, rows) != 0:
        yield Rejection("mad", "what sums begin with is not one element for each column")
        return
    m, n = (product_of([loop.extent for loop in group]) for group in (rows, columns))
    sizes = [product_of([loop.bound for loop in group]) for group in (rows, columns)]
    elements = ceil_to(sizes[0], FRACTAL) * DTYPES[DTYPE].fractal_k
    prices = [
        instruction_cycles("filll0a", (DTYPE,), (0, elements, 1), chip),
        instruction_cycles("mad", (DTYPE,), (0, 0, 0, *sizes, PARTS), chip),
    ]
    refused = next((price for price in prices if isinstance(price, str)), None)
    if refused is not None:
        yield Rejection("mad", refused)
        return

    def build() -> Any:
        ones = temporary("ones", [elements], "float16", "local.l0a")
        fill = instruction("filll0a", (DTYPE,), [address(ones, [0]), elements, 1.0])
        slots = [
            address_at(nest.target.buffer, place[0]),
            address(ones, [0]),
            address_at(row.buffer, offset),
            m,
            n,
            PARTS,
        ]
        return guarded(nest.loops, tirx.SeqStmt([allocation(ones), fill, instruction("mad", (DTYPE,), slots)]))

    cycles = sum(price for price in prices if isinstance(price, int))
    yield Candidate(f"mad.{DTYPE}", cycles, len(prices), build, kind="cube")


def _offset(access: Access, parts: int = PARTS) -> Any | None:
    """The byte at which a row of columns of so many parts begins; None where that may be within a block of columns."""
    base = access.surroundings.simplify(number(access.base))
    if not access.surroundings.analyzer.can_prove(tirx.floormod(base, FRACTAL) == 0):
        return None
    offset = access.surroundings.simplify(base * (parts * DTYPES[DTYPE].itemsize))
    known = constant(offset)
    return offset if known is None else known
