"""Results on their way out of L0C: the fixpipe rounds and activates them as it moves them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compiler.emission.calls import address, address_at, guarded, instruction, number
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.costs import instruction_cycles
from compiler.emission.cube.places import (
    constant,
    even_step,
    place_in_l0c,
    product_of,
    rounded_up,
    rows_and_columns,
    start_of,
)
from compiler.emission.nest import Access, Nest
from compiler.emission.terms import Term
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL
from compiler.target import Chip

ROUNDED = {"fp32": ("fp32", "fp16", "bf16"), "int32": ("int32",)}


@recogniser
def fixpipe(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``near[m, n] = cast(max(c[m, n], 0))`` or ``cast(c[m, n] * scale)``, each part but the load left out where it is
    not wanted. A scaled value is rounded once, where the nest may round it before, too.
    """
    found = _taken(nest.value)
    if found is None:
        return
    source, activation, scale = found
    name, factor = ("fix", []) if scale is None else ("fixscale", [scale])
    target = nest.target
    if target.dtype not in ROUNDED[source.dtype]:
        yield Rejection("fix", f"the fixpipe does not make {target.dtype} of {source.dtype}")
        return
    place = place_in_l0c(nest, source)
    if place is None or not target.is_affine or not source.is_affine:
        yield Rejection("fix", "the columns do not begin with a block of them, or the rows not where their buffer does")
        return
    rows, columns = rows_and_columns(nest, source)
    stride = even_step(target, rows)
    if stride is None or any(target.coefficient(loop) != 1 for loop in columns):
        yield Rejection("fix", "the rows of the result do not lie evenly, or its columns side by side")
        return
    m, n = (product_of([loop.extent for loop in group]) for group in (rows, columns))
    mods = (target.memory, "nd", target.dtype, source.dtype, activation)
    sizes = [product_of([loop.bound for loop in group]) for group in (rows, columns)]
    values = (0, 0, *sizes, rounded_up(sizes[0], FRACTAL), max(stride, sizes[1]), *(0 for _ in factor))
    price = instruction_cycles(name, mods, values, chip)
    if isinstance(price, str):
        yield Rejection("fix", price)
        return

    def build() -> Any:
        pitch = rounded_up(m, FRACTAL)
        offset = source.surroundings.simplify(number(place[0] + place[1] * pitch * DTYPES[source.dtype].itemsize))
        known = constant(offset)
        slots = [
            address(target.buffer, start_of(target)),
            address_at(source.buffer, offset if known is None else known),
            m,
            n,
            pitch,
            max(stride, 1),
            *factor,
        ]
        return guarded(nest.loops, instruction(name, mods, slots))

    yield Candidate(f"{name}." + ".".join(mods), price, 1, build, kind="cube")


def _taken(value: Term) -> tuple[Access, str, float | None] | None:
    """The place in L0C, the activation, and the scale if there is one."""
    value = _uncast(value)
    activation, scale = "none", None
    if value.op == "max":
        for this, other in (value.args, value.args[::-1]):
            if this.op == "const" and this.value == 0:
                value, activation = _uncast(other), "relu"
                break
    elif value.op == "mul":
        for this, other in (value.args, value.args[::-1]):
            if this.op == "const":
                value, scale = _uncast(other), float(this.value)
                break
    if value.op != "load" or value.value.memory != "l0c" or (scale is not None and value.value.dtype != "fp32"):
        return None
    return value.value, activation, scale


def _uncast(value: Term) -> Term:
    return value.args[0] if value.op == "cast" else value
