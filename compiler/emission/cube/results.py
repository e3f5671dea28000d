"""Results on their way out of L0C: the fixpipe scales, activates and rounds them as it moves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from compiler.emission.nest import Access, Loop, Nest
from compiler.emission.terms import Term, saturated
from compiler.isa.dtypes import DTYPES, FLOATS
from compiler.isa.layout import FRACTAL
from compiler.isa.table.fixpipe import ZERO_POINT
from compiler.target import Chip

ROUNDED = {"fp32": ("fp32", "fp16", "bf16"), "int32": ("int32",)}
SCALED = ("fp32", "fp16", "bf16", "int8", "uint8")
ZERO_POINTS = range(ZERO_POINT.lo, ZERO_POINT.hi + 1)


@recogniser
def fixpipe(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``near[m, n] = cast(max(c[m, n] * scale, 0))``, each part but the load left out where it is not wanted, saturated
    with a zero point where integers are made. A scaled float is rounded once, where the nest may round it before, too.
    """
    found = Taken.of(nest.value)
    if found is None:
        return
    source, target, name = found.source, nest.target, found.mnemonic
    if target.dtype not in (ROUNDED[source.dtype] if found.scale is None else SCALED):
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
    if not found.goes_along(rows, columns):
        yield Rejection(name, "scales do not lie side by side in FB, one for each column")
        return
    m, n = (product_of([loop.extent for loop in group]) for group in (rows, columns))
    mods = (target.memory, "nd", target.dtype, source.dtype, found.activation)
    sizes = [product_of([loop.bound for loop in group]) for group in (rows, columns)]
    shape = (*sizes, rounded_up(sizes[0], FRACTAL), max(stride, sizes[1]))
    values = (0, 0, *(0 for _ in found.table()), *shape, *(0 for _ in found.numbers()))
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
            *found.table(),
            m,
            n,
            pitch,
            max(stride, 1),
            *found.numbers(),
        ]
        return guarded(nest.loops, instruction(name, mods, slots))

    yield Candidate(f"{name}." + ".".join(mods), price, 1, build, kind="cube")


@dataclass(frozen=True)
class Taken:
    """What becomes of a place in L0C. Places are accesses, or whatever else has a ``memory``."""

    source: Any
    activation: str
    scale: Any  # of all columns, the place where those of each are, or none
    zero_point: int

    @staticmethod
    def of(value: Term) -> Taken | None:
        """None where the fixpipe does something else."""
        inside, zero_point = saturated(value), 0
        if inside is not None:
            inside, shift = _without(inside, "add", lambda other: other.op == "const")
            zero_point = 0 if shift is None else shift.value
            if inside.op != "round" or zero_point not in ZERO_POINTS:
                return None
            value, zero_point = inside.args[0], int(zero_point)
        value, zero = _without(_uncast(value), "max", lambda other: other.op == "const" and other.value == 0)
        is_float = value.dtype in FLOATS  # what is multiplied as integers is exact, or wraps
        value, factor = _without(value, "mul", lambda other: is_float and (other.op == "const" or _is_in(other, "fb")))
        if not _is_in(value, "l0c") or (inside is not None and factor is None):
            return None
        scale = None if factor is None else factor.value if factor.op == "load" else float(factor.value)
        return Taken(value.value, "none" if zero is None else "relu", scale, zero_point)

    @property
    def mnemonic(self) -> str:
        return "fix" if self.scale is None else "fixscale" if isinstance(self.scale, float) else "fixquant"

    def goes_along(self, rows: Sequence[Loop], columns: Sequence[Loop]) -> bool:
        """Whether scales lie side by side, one for each column."""
        if not isinstance(self.scale, Access):
            return True
        loops = {loop: 1 for loop in columns} | {loop: 0 for loop in rows}
        moves = (self.scale.coefficient(loop) == step for loop, step in loops.items())
        return len(columns) <= 1 and self.scale.is_affine and all(moves)

    def table(self) -> list[Any]:
        """The operand before the extents."""
        return [address(self.scale.buffer, start_of(self.scale))] if isinstance(self.scale, Access) else []

    def numbers(self) -> list[Any]:
        """The operands behind them."""
        if self.scale is None:
            return []
        return [self.zero_point] if isinstance(self.scale, Access) else [self.scale, self.zero_point]


def _without(value: Term, operation: str, is_other: Callable[[Term], bool]) -> tuple[Term, Term | None]:
    """The operand of an operation beside another one, and that; the value alone where it is no such operation."""
    if value.op == operation:
        for this, other in (value.args, value.args[::-1]):
            if is_other(this):
                return _uncast(other), this
    return value, None


def _is_in(value: Term, memory: str) -> bool:
    return value.op == "load" and bool(value.value.memory == memory)


def _uncast(value: Term) -> Term:
    """What became a float: the fixpipe rounds once, but what becomes an integer is cut off or wraps."""
    return value.args[0] if value.op == "cast" and value.dtype in FLOATS else value
