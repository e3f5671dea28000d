"""Stores of what is loaded, unchanged: loads and stores between DDR and UB, transpositions inside UB, row gathers.

L1 and the memories beside the cube hold fractal layouts, whose copies the cube's recognisers know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

from compiler.emission import calls
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.costs import shared_cycles
from compiler.emission.dims import TIMED, Dim, Placement, eligible, merged, place, placements
from compiler.emission.hazards import order_matters
from compiler.emission.nest import Access, Nest
from compiler.emission.operands import Operands, padded
from compiler.emission.vector import describe
from compiler.isa.dtypes import DTYPES
from compiler.isa.model import dense_strides
from compiler.isa.table import by_mnemonic
from compiler.target import Chip
from compiler.tir.scopes import TIR_DTYPE

# A copy from DDR to DDR passes through UB in pieces of at most this share of it: other data lives there too.
STAGING_SHARE = 4
MOST_DIMS = 3  # of an instruction
LOOPS_CHOSEN_FROM = 8


def plain_source(nest: Nest) -> Access | None:
    value = nest.value
    return value.value if value.op == "load" and value.dtype == nest.target.dtype else None


@recogniser
def transfers(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``ld`` from DDR to UB, ``st`` back."""
    source = plain_source(nest)
    if source is None:
        return
    memories = (source.memory, nest.target.memory)
    mnemonic = {("ddr", "ub"): "ld", ("ub", "ddr"): "st"}.get(memories)
    if mnemonic is None:
        return
    for placement in _far_choices(nest, source, chip):
        fitting = _counting(nest, placement, chip.memory.ub_bytes)  # what is repeated counts as often
        operands = transfer(mnemonic, nest.target, source, fitting, *_strides(fitting))
        yield instruction_candidate([operands], fitting, [], chip)


def _counting(nest: Nest, placement: Placement, limit: int) -> Placement:
    """With as many of the last dimensions as count so many elements at most."""
    dims = placement.dims
    while dims and prod(dim.bound for dim in dims) > limit:
        dims = dims[1:]
    return placement if dims == placement.dims else place(nest, dims)


@recogniser
def through_ub(nest: Nest, chip: Chip) -> Iterator[Found]:
    """A copy from DDR to DDR: a load into a staging buffer and a store from it."""
    source = plain_source(nest)
    if source is None or (source.memory, nest.target.memory) != ("ddr", "ddr"):
        return
    if order_matters(nest, source):
        yield Rejection("ld + st", "source and destination overlap")
        return
    size = DTYPES[source.dtype].itemsize
    limit = chip.memory.ub_bytes // STAGING_SHARE // size
    for placement in _far_choices(nest, source, chip):
        fitting = _counting(nest, placement, limit)
        dims = fitting.dims
        bounds = [dim.bound for dim in dims] or [1]
        buffer = calls.temporary("staging", bounds, TIR_DTYPE[source.dtype])
        staging = Access(buffer, tuple(calls.number(0) for _ in bounds), nest.loops, nest.surroundings)
        dense = dense_strides(tuple(bounds)) if dims else ()
        targets, sources = _strides(fitting)
        steps = [
            transfer("ld", staging, source, fitting, dense, sources),
            transfer("st", nest.target, staging, fitting, targets, dense),
        ]
        yield instruction_candidate(steps, fitting, [staging], chip)


@recogniser
def transpositions(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``vtrans``: two dimensions exchanged by the permutation network, which no bank conflict slows down."""
    source = plain_source(nest)
    if source is None or (source.memory, nest.target.memory) != ("ub", "ub") or order_matters(nest, source):
        return
    row = by_mnemonic()["vtrans"]
    if source.dtype not in row.modifiers[0].choices:
        return
    for placement in _choices(nest, [nest.target, source], chip):
        dims = placement.dims
        if len(dims) < 2:
            continue
        targets, sources = _strides(placement)
        operands = Operands(
            row,
            (source.dtype, f"{len(dims)}d"),
            {"dst": nest.target, "a": source},
            {"dst": (*targets[:-2], targets[-1], targets[-2]), "a": sources},
            {},
            tuple(dim.extent for dim in dims),
            tuple(dim.bound for dim in dims),
        )
        yield instruction_candidate([operands], placement, [], chip, kind="vector")


def _far_choices(nest: Nest, source: Access, chip: Chip) -> list[Placement]:
    """For copies from or to DDR, whose dimensions may have any order: those that move the fewest lines come first."""
    dims = sorted(eligible(nest, [nest.target, source], written=1), key=lambda dim: -dim.bound)[:LOOPS_CHOSEN_FROM]
    size = DTYPES[nest.target.dtype].itemsize
    paths = {0: "ub_ddr", 1: "ddr_ub"}  # by the position of the access that is far
    far = [position for position, access in enumerate((nest.target, source)) if access.memory == "ddr"]
    in_order = [dim for loop in nest.loops for dim in dims if dim.loops == (loop,)]
    found = [place(nest, chosen) for chosen in combinations(in_order, min(MOST_DIMS, len(dims)))]
    return sorted(found, key=lambda one: sum(_far_cycles(one, at, size, paths[at], chip) for at in far))[:TIMED]


def _far_cycles(placement: Placement, position: int, size: int, path: str, chip: Chip) -> int:
    """Of all executions: the lines that the runs of one side touch, at the rate that a core has of DDR."""
    line = chip.transfer.ddr_line_bytes
    run, runs = size, 1
    for dim in sorted(placement.dims, key=lambda dim: dim.strides[position]):
        contiguous = runs == 1 and dim.strides[position] * size == run
        run, runs = (run * dim.bound, runs) if contiguous else (run, runs * dim.bound)
    moving = shared_cycles(path, runs * -(-run // line) * line, chip)
    return placement.executions * (max(chip.path[path].issue_cycles, moving) + placement.overhead_cycles)


def _choices(nest: Nest, accesses: Sequence[Access], chip: Chip) -> list[Placement]:
    dims = eligible(nest, accesses, written=1)
    size = DTYPES[nest.target.dtype].itemsize
    return placements(nest, dims, chip, size) or [place(nest, ())]


def _strides(placement: Placement) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(dim.strides[0] for dim in placement.dims), tuple(dim.strides[1] for dim in placement.dims)


def transfer(
    mnemonic: str,
    target: Access,
    source: Access,
    placement: Placement,
    target_strides: Sequence[int],
    source_strides: Sequence[int],
) -> Operands:
    """``ld`` and ``st`` name the memory that is not UB and its direction in their modifiers."""
    dims = placement.dims
    rank = max(1, len(dims))
    memories = ("ddr", "ub") if mnemonic == "ld" else ("ddr",)
    lacking = (1,) * (rank - len(dims))
    return Operands(
        by_mnemonic()[mnemonic],
        (*memories, source.dtype, f"{rank}d"),
        {"dst": target, "src": source},
        {"dst": padded(target_strides, rank), "src": padded(source_strides, rank)},
        {},
        lacking + tuple(dim.extent for dim in dims),
        lacking + tuple(dim.bound for dim in dims),
    )


def instruction_candidate(
    steps: list[Operands], placement: Placement, temporaries: list[Access], chip: Chip, kind: str = "copy"
) -> Found:
    costs = [step.cycles(chip) for step in steps]
    broken = next((cost for cost in costs if isinstance(cost, str)), None)
    name = " + ".join(step.name for step in steps)
    if broken is not None:
        return Rejection(name, broken)
    return Candidate(
        name,
        sum(cost for cost in costs if isinstance(cost, int)),
        placement.executions,
        partial(_built, steps, placement, temporaries),
        kind,
        describe(placement),
        placement.overhead_cycles * len(steps),
    )


def _built(steps: list[Operands], placement: Placement, temporaries: list[Access]) -> Any:
    body = calls.sequence([step.statement(placement) for step in steps])
    body = calls.around(placement.outer, calls.guarded(placement.inner_loops, body))
    return calls.sequence([*(calls.allocation(access.buffer) for access in temporaries), body])


# ---- rows that data chooses -----------------------------------------------------------------------------------


@recogniser
def gathers(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``dst[i, :] = table[index[i], :]``: ``ldgather`` from DDR, ``vgatherrow`` and ``vgather`` inside UB.

    ``dst[i, j] = table[i, index[i, j]]``: ``vgatherlane`` inside UB.
    """
    source = plain_source(nest)
    if source is None or nest.target.memory != "ub":
        return
    chosen = _chosen_index(source)
    if chosen is None:
        return
    position, index = chosen
    if index.memory != "ub" or index.dtype != "int32":
        yield Rejection("gather", f"the index {index} is not int32 in UB")
        return
    if source.buffer.same_as(nest.target.buffer):
        yield Rejection("gather", "the table is the destination")
        return
    yield from _gathered(nest, source, position, index, chip)


def _chosen_index(source: Access) -> tuple[int, Access] | None:
    """(the dimension whose index is one element of data, that element), or None."""
    loads = [p for p, index in enumerate(source.indices) if type(index).__name__ == "TensorLoad"]
    if len(loads) != 1:
        return None
    load = source.indices[loads[0]]
    index = Access(load.source, tuple(load.indices), source.loops, source.surroundings)
    return (loads[0], index) if index.is_affine else None


def _gathered(nest: Nest, source: Access, position: int, index: Access, chip: Chip) -> Iterator[Found]:
    table = Access(
        source.buffer,
        tuple(calls.number(0) if p == position else i for p, i in enumerate(source.indices)),
        source.loops,
        source.surroundings,
    )
    pitch = table.pitches[position]
    dims = eligible(nest, [nest.target, table, index], written=1)
    rows = merged(dim for dim in dims if dim.strides[1] == 0 and dim.strides[2] > 0)
    columns = merged(dim for dim in dims if dim.strides[1] > 0 and dim.strides[2] == 0)
    row = next((dim for dim in sorted(rows, key=lambda d: -d.bound) if dim.strides[2] == 1), None)
    if row is None:
        yield Rejection("gather", "no loop walks the index densely")
        return
    column = next((dim for dim in columns if dim.strides[:2] == (1, 1)), None)
    if source.memory == "ddr":
        yield _row_gather("ldgather", nest, table, index, row, column, pitch, source.shape[position], chip)
    elif source.memory == "ub":
        if column is not None:
            yield _row_gather("vgatherrow", nest, table, index, row, column, pitch, source.shape[position], chip)
        if pitch == 1:
            yield _element_gather(nest, table, index, rows, source.shape[position], chip)
            lanes = merged(dim for dim in dims if all(dim.strides))
            if lanes:
                yield _element_gather(
                    nest, table, index, [*lanes[:2], row], source.shape[position], chip, in_lanes=True
                )


def _row_gather(
    mnemonic: str,
    nest: Nest,
    table: Access,
    index: Access,
    row: Dim,
    column: Dim | None,
    pitch: int,
    table_rows: int,
    chip: Chip,
) -> Found:
    dims = (row,) if column is None else (row, column)
    placement = place(nest, dims)
    columns, width = (1, 1) if column is None else (column.extent, column.bound)
    source = "src" if mnemonic == "ldgather" else "table"
    shape = ("rows", "cols") if mnemonic == "ldgather" else ("n1", "n0")
    scalars: dict[str, Any] = {"table_rows": table_rows}
    strides = {"dst": (row.strides[0], 1), "table": (pitch, 1), "index": (1,)}
    if mnemonic == "ldgather":
        scalars |= {"dst_stride": max(1, row.strides[0]), "table_stride": pitch}
    mods = ("ddr", table.dtype) if mnemonic == "ldgather" else (table.dtype, "2d")
    operands = Operands(
        by_mnemonic()[mnemonic],
        mods,
        {"dst": nest.target, source: table, "index": index},
        strides,
        scalars,
        (row.extent, columns),
        (row.bound, width),
        shape,
    )
    return instruction_candidate([operands], placement, [], chip, "copy" if mnemonic == "ldgather" else "vector")


def _element_gather(
    nest: Nest,
    table: Access,
    index: Access,
    rows: Sequence[Dim],
    table_elems: int,
    chip: Chip,
    *,
    in_lanes: bool = False,
) -> Found:
    """Of one table; or in lanes, all but the last of the dimensions being those of a table for each."""
    if not in_lanes:
        rows = tuple(sorted(rows, key=lambda d: -d.strides[0]))[-3:]
    placement = place(nest, tuple(rows))
    dims = placement.dims
    strides = {"dst": [dim.strides[0] for dim in dims], "index": [dim.strides[2] for dim in dims]}
    if in_lanes:
        strides["table"] = [*(dim.strides[1] for dim in dims[:-1]), 1]
    operands = Operands(
        by_mnemonic()["vgatherlane" if in_lanes else "vgather"],
        (table.dtype, f"{len(dims)}d"),
        {"dst": nest.target, "table": table, "index": index},
        strides,
        {"table_elems": table_elems},
        tuple(dim.extent for dim in dims),
        tuple(dim.bound for dim in dims),
    )
    return instruction_candidate([operands], placement, [], chip, "vector")
