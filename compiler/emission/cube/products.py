"""Products and the start of their sums, in L0C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx

from compiler.emission.calls import address_at, guarded, instruction, number
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.costs import instruction_cycles
from compiler.emission.cube.places import (
    FRACTAL_ROW_BYTES,
    constant,
    even_step,
    index_of,
    is_gapless,
    is_zero,
    place_in_l0c,
    product_of,
    rounded_up,
    rows_and_columns,
)
from compiler.emission.nest import Access, Loop, Nest
from compiler.emission.terms import Term
from compiler.isa.dtypes import ALIGNMENT_BYTES, CUBE_TYPES, DTYPES
from compiler.isa.layout import FRACTAL
from compiler.target import Chip


def factors(nest: Nest) -> tuple[Access, Access] | None:
    """``a`` and ``b`` of a nest ``c += cast(a) * cast(b)`` with a in L0A, b in L0B and c in L0C."""
    if nest.target.memory != "l0c" or nest.value.op != "add":
        return None
    for total, product in (nest.value.args, nest.value.args[::-1]):
        if total.op == "load" and product.op == "mul" and nest.target.same_place(total.value):
            loads = [_uncast(side) for side in product.args]
            if all(load.op == "load" for load in loads):
                by_memory = {load.value.memory: load.value for load in loads}
                if set(by_memory) == {"l0a", "l0b"}:
                    return by_memory["l0a"], by_memory["l0b"]
    return None


def _uncast(term: Term) -> Term:
    return term.args[0] if term.op == "cast" else term


def loops_by_role(nest: Nest, a: Access, b: Access) -> dict[str, list[Loop]] | None:
    """The loops along m, n and k of a product; None where a loop is none of these."""
    roles: dict[str, list[Loop]] = {"m": [], "n": [], "k": []}
    names = {(True, True, False): "m", (True, False, True): "n", (False, True, True): "k"}
    for loop in nest.loops:
        moves = tuple(access.coefficient(loop) != 0 for access in (nest.target, a, b))
        if moves not in names:
            return None
        roles[names[moves]].append(loop)
    return roles


@recogniser
def product(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``c[m, n] += a[m, k] * b[k, n]``."""
    found = factors(nest)
    if found is None:
        return
    a, b = found
    if a.dtype != b.dtype or a.dtype not in CUBE_TYPES:
        yield Rejection("madacc", f"the cube does not multiply {a.dtype} and {b.dtype}")
        return
    roles = loops_by_role(nest, a, b)
    if roles is None:
        yield Rejection("madacc", "a loop is along neither m, n nor k")
        return
    if not all(is_gapless(index_of(access, axis)) for access in found for axis in range(len(access.indices))):
        yield Rejection("madacc", "an operand is not read step by step, as it lies")
        return
    place, offsets = place_in_l0c(nest, nest.target), [_offset(access, roles) for access in found]
    if place is None or not is_zero(place[1]) or any(offset is None for offset in offsets):
        yield Rejection("madacc", "an operand does not begin where its buffer does, or with a whole row of fractals")
        return
    extents = [product_of([loop.extent for loop in roles[role]]) for role in "mnk"]
    bounds = [product_of([loop.bound for loop in roles[role]]) for role in "mnk"]

    def build() -> Any:
        operands = [address_at(access.buffer, offset) for access, offset in zip(found, offsets, strict=True)]
        slots = [address_at(nest.target.buffer, place[0]), *operands, *extents]
        return guarded(nest.loops, instruction("madacc", (a.dtype,), slots))

    price = instruction_cycles("madacc", (a.dtype,), (0, 0, 0, *bounds), chip)
    if isinstance(price, str):
        yield Rejection("madacc", price)
    else:
        yield Candidate(f"madacc.{a.dtype}", price, 1, build, kind="cube")


def _offset(access: Access, roles: dict[str, list[Loop]]) -> Any | None:
    """The byte at which an operand begins, or None where that is not the start of a row of fractals.

    In L0A such a row has 16 rows and all of k, in L0B a block of k and all columns: those of packed weights.
    """
    if is_zero(access.base):
        return 0
    dtype = DTYPES[access.dtype]
    if access.memory == "l0a":
        k = product_of([loop.bound for loop in roles["k"]])
        whole, whole_bytes = FRACTAL * k, FRACTAL * k * dtype.itemsize
        is_dense = k % dtype.fractal_k == 0 and even_step(access, roles["m"]) == k
    else:
        rows, width = access.shape[-2:]
        columns = rounded_up(product_of([loop.extent for loop in roles["n"]]), FRACTAL)
        whole, whole_bytes = rows * width, columns * FRACTAL_ROW_BYTES
        is_dense = width == dtype.fractal_k
    analyzer = access.surroundings.analyzer
    if not is_dense or not analyzer.can_prove(tirx.floormod(access.base, whole) == 0):
        return None
    return access.surroundings.simplify(tirx.floordiv(access.base, whole) * whole_bytes)


@recogniser
def start(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``c[m, n] = constant``, or ``c[m, n] = bias[n]``."""
    bias: Access | None = nest.value.value if nest.value.op == "load" else None
    if nest.target.memory != "l0c" or (nest.value.op != "const" and (bias is None or bias.memory != "bt")):
        return
    rows, columns = rows_and_columns(nest, nest.target)
    place = place_in_l0c(nest, nest.target)
    if place is None or not is_zero(place[1]):
        yield Rejection("mfill", "the result does not begin where its buffer does")
        return
    m, n = (product_of([loop.extent for loop in group]) for group in (rows, columns))
    sizes = [product_of([loop.bound for loop in group]) for group in (rows, columns)]
    name, target = "mfill" if bias is None else "mbias", address_at(nest.target.buffer, place[0])
    if bias is None:
        slots, values = [target, m, n, float(nest.value.value)], (0, *sizes, 0)
    else:
        first = _first_of_table(bias)
        if first is None or even_step(bias, columns) not in (0, 1) or even_step(bias, rows) != 0:
            yield Rejection(name, "the bias is not one element for each column, from where the cube may begin to read")
            return
        slots, values = [target, address_at(bias.buffer, first), m, n], (0, 0, *sizes)

    def build() -> Any:
        return guarded(nest.loops, instruction(name, (nest.target.dtype,), slots))

    price = instruction_cycles(name, (nest.target.dtype,), values, chip)
    if isinstance(price, str):
        yield Rejection(name, price)
    else:
        yield Candidate(f"{name}.{nest.target.dtype}", price, 1, build, kind="cube")


def _first_of_table(bias: Access) -> Any | None:
    """The byte of the table at which a bias begins, where the cube may begin to read there."""
    offset = bias.surroundings.simplify(number(bias.base * DTYPES[bias.dtype].itemsize))
    aligned = bias.surroundings.analyzer.can_prove(tirx.floormod(offset, ALIGNMENT_BYTES["bt"]) == 0)
    known = constant(offset)
    return (offset if known is None else known) if aligned else None
