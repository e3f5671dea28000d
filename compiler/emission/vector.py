"""Element-wise stores as instructions of the vector unit.

Every row whose ``computes`` text matches the stored value is a candidate, with the loops placed as its dimensions
in the ways that cost least. Loops in which the destination stays where it is (a reduction's) remain scalar loops:
the instruction then accumulates over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from compiler.emission import calls
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.dims import Dim, Placement, eligible, place, placements
from compiler.emission.hazards import order_matters
from compiler.emission.nest import Access, Nest
from compiler.emission.operands import Operands, padded
from compiler.emission.patterns import Match, matches
from compiler.emission.terms import Term, numbered
from compiler.isa.dtypes import DTYPES
from compiler.target import Chip

MEMORY = "ub"


@recogniser
def elementwise(nest: Nest, chip: Chip) -> Iterator[Found]:
    """One instruction per match and placement."""
    if nest.target.memory != MEMORY:
        return
    term, loads = numbered(_as_stored(nest.value))
    for match in matches(term, nest.target.dtype):
        if all(bound.op == "load" for _, bound in match.tensors):
            yield from _placed(nest, match, [loads[bound.value] for _, bound in match.tensors], chip)


def _as_stored(value: Term) -> Term:
    """The bits of a load under another name of the same width are copied as they are."""
    if value.op == "reinterpret" and value.args[0].op == "load":
        load = value.args[0]
        if DTYPES[load.dtype].itemsize == DTYPES[value.dtype].itemsize:
            return Term("load", value.dtype, value=load.value)
    return value


def _placed(nest: Nest, match: Match, sources: list[Access], chip: Chip) -> Iterator[Found]:
    row = match.row
    names = [name for name, _ in match.tensors]
    reason = _unsuitable(nest, names, sources)
    if reason:
        yield Rejection(row.mnemonic, reason)
        return
    target = row.tensors[0].name
    accesses = {target: nest.target} | {n: s for n, s in zip(names, sources, strict=True) if n != target}
    ordered = list(accesses.values())
    dims = eligible(nest, ordered, written=1)
    widest = max(DTYPES[access.dtype].itemsize for access in ordered)
    chosen = placements(nest, dims, chip, widest) or [place(nest, ())]
    for placement in chosen:
        yield vector_candidate(match, accesses, placement, chip)


def _unsuitable(nest: Nest, names: list[str], sources: list[Access]) -> str:
    """Why a match cannot be emitted as it stands; empty if it can."""
    for name, source in zip(names, sources, strict=True):
        if source.memory != MEMORY:
            return f"{source.buffer.name} is in {source.memory}, not in {MEMORY}"
        if name == "dst" and not source.same_place(nest.target):
            return f"{source} is not the destination"
    if any(order_matters(nest, source) for source in sources):
        return "the order of the iterations matters: the destination overlaps a source elsewhere"
    return ""


def vector_candidate(
    match: Match, accesses: dict[str, Access], placement: Placement, chip: Chip
) -> Candidate | Rejection:
    """A match with its dimensions chosen, costed by the row."""
    ranks = next(m.choices for m in match.row.modifiers if m.name == "rank")
    rank = max(len(placement.dims), int(ranks[0][0]), 1)
    dims = placement.dims
    operands = Operands(
        match.row,
        match.mods_at(f"{rank}d"),
        accesses,
        {name: padded([dim.strides[i] for dim in dims], rank) for i, name in enumerate(accesses)},
        dict(match.scalars),
        (1,) * (rank - len(dims)) + tuple(dim.extent for dim in dims),
        (1,) * (rank - len(dims)) + tuple(dim.bound for dim in dims),
    )
    cycles = operands.cycles(chip)
    if isinstance(cycles, str):
        return Rejection(operands.name, cycles)
    return Candidate(
        operands.name,
        cycles,
        placement.executions,
        partial(_built, operands, placement),
        description=describe(placement),
        overhead_cycles=placement.overhead_cycles,
    )


def _built(operands: Operands, placement: Placement) -> Any:
    body = calls.guarded(placement.inner_loops, operands.statement(placement))
    return calls.around(placement.outer, body)


def describe(placement: Placement) -> str:
    """The placement in words, for explanations."""
    shape = " x ".join(_shown(dim) for dim in placement.dims) or "one element"
    loops = " ".join(f"{loop.var.name}<{loop.extent}" for loop in placement.outer)
    return f"{shape}, in loops {loops}" if loops else shape


def _shown(dim: Dim) -> str:
    names = "*".join(loop.var.name for loop in dim.loops)
    return f"{names}<{dim.extent}"
