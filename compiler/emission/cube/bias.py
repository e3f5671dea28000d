"""What sums begin with on its way to BT, and what they are scaled with on its way to FB: one element for each column,
dense in DDR or LLB, L1 and there.

What is narrower than sums becomes as wide as they are in BT.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx

from compiler.emission.calls import address, address_at, guarded, instruction, number
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.costs import instruction_cycles
from compiler.emission.cube.places import bound, constant, extent, is_zero, mark_of, start_of
from compiler.emission.nest import Access, Nest
from compiler.isa.declarations import BLOCK_BYTES
from compiler.isa.dtypes import DTYPES
from compiler.target import Chip

BIAS = "bias"
WAYS = {("ddr", "l1"): "ld", ("llb", "l1"): "ld", ("l1", "bt"): "ldbt", ("l1", "fb"): "ldfb"}


@recogniser
def bias(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l1[at + n] = far[first + n]``, where loads of a part at a time fill L1, and ``bt[n] = l1[at + n]``, where what
    is read may be cast.
    """
    widens = nest.value.op == "cast"
    value = nest.value.args[0] if widens else nest.value
    if mark_of(nest) != BIAS or value.op != "load":
        return
    target, source, loop = nest.target, value.value, nest.loops[0] if nest.loops else None
    name = WAYS.get((source.memory, target.memory))
    if widens and (name != "ldbt" or target.dtype != "fp32"):
        yield Rejection("ldbtw", f"only what comes to BT is made wider on its way, as fp32: not {target.dtype}")
        return
    if name is None or not is_row(target, nest) or not is_row(source, nest):
        yield Rejection("ldbt", "the bias is no row")
        return
    in_l1 = source if source.memory == "l1" else target
    offset = in_l1.surroundings.simplify(in_l1.base * DTYPES[in_l1.dtype].itemsize)
    if not in_l1.surroundings.analyzer.can_prove(tirx.floormod(number(offset), BLOCK_BYTES) == 0):
        yield Rejection(name, "the bias does not begin with a block of L1")
        return
    if target.memory in ("bt", "fb") and not is_zero(target.base):
        yield Rejection(name, f"the bias does not begin with {target.memory.upper()}")
        return
    name = "ldbtw" if widens else name
    mods = (source.memory, "l1", target.dtype, "1d") if name == "ld" else (source.dtype,)
    price = instruction_cycles(name, mods, (0, 1, 0, 1, bound(loop)) if name == "ld" else (0, 0, bound(loop)), chip)
    if isinstance(price, str):
        yield Rejection(name, price)
        return

    def build() -> Any:
        known = constant(offset)
        place = address_at(in_l1.buffer, offset if known is None else known)
        if name == "ld":
            slots = [place, 1, address(source.buffer, start_of(source)), 1, extent(loop)]
        else:
            slots = [address_at(target.buffer, 0), place, extent(loop)]
        return guarded(nest.loops, instruction(name, mods, slots))

    yield Candidate(".".join((name, *mods)), price, 1, build, kind="copy")


def is_row(access: Access, nest: Nest) -> bool:
    """Whether the only loop of a nest moves an access element by element."""
    return len(nest.loops) <= 1 and access.is_affine and all(access.coefficient(loop) == 1 for loop in nest.loops)
