"""Stores of numbers that the loops give: ``viota`` writes affine index patterns, ``vramp`` float ones."""

from __future__ import annotations

from collections.abc import Iterator

from tvm.sym import detect_linear_equation

from compiler.emission.candidates import Found, Rejection, recogniser
from compiler.emission.copies import instruction_candidate
from compiler.emission.dims import eligible, merged, place
from compiler.emission.nest import Nest
from compiler.emission.operands import Operands, padded
from compiler.emission.terms import Term
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

_STEPS = ("step", "row_step", "plane_step")  # of n0, n1, n2


@recogniser
def patterns(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``dst[i, j, k] = start + i * plane_step + j * row_step + k * step``."""
    value = nest.value
    row = by_mnemonic()["viota"]
    if value.op != "index" or nest.target.memory != "ub":
        return
    if value.dtype != nest.target.dtype or value.dtype not in row.modifiers[0].choices:
        yield Rejection("viota", f"an index of type {value.dtype} has to be made in int32 and converted")
        return
    variables = [loop.var for loop in nest.loops]
    found = detect_linear_equation(value.value.key, variables)
    if len(found) != len(variables) + 1:
        yield Rejection("viota", f"{_shown(value)} is not affine in the loops")
        return
    steps = {loop.var: nest.surroundings.simplify(step) for loop, step in zip(nest.loops, found, strict=False)}
    dims = sorted(merged(eligible(nest, [nest.target], written=1), lambda a, b: False), key=lambda d: -d.strides[0])[
        -3:
    ]
    placement = place(nest, tuple(dims))
    rank = max(1, len(dims))
    start = found[-1]
    for loop in placement.outer:
        start = start + steps[loop.var] * loop.var
    scalars = dict.fromkeys(_STEPS, 0) | {"start": nest.surroundings.simplify(start)}
    for name, dim in zip(_STEPS, reversed(dims), strict=False):
        scalars[name] = steps[dim.loops[0].var]
    lacking = (1,) * (rank - len(dims))
    operands = Operands(
        row,
        (value.dtype, f"{rank}d"),
        {"dst": nest.target},
        {"dst": padded([dim.strides[0] for dim in dims], rank)},
        scalars,
        lacking + tuple(dim.extent for dim in dims),
        lacking + tuple(dim.bound for dim in dims),
    )
    yield instruction_candidate([operands], placement, [], chip, "vector")


def _shown(value: Term) -> str:
    return str(value.value.key)
