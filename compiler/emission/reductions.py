"""Reductions ``d[i] = op(d[i], f(a[i, k]))`` by the rows that fold a whole dimension at once.

A fold gives one result per row, column or block of its source; what it gives is combined with the destination by the
element-wise row of the same operation. Where the destination holds nothing yet but the operation's identity, the
fold may write there itself (:func:`overwriting`). Accumulating element by element is what :mod:`vector` proposes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from compiler.emission import calls
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.dims import Dim, Placement, eligible, placements
from compiler.emission.hazards import order_matters
from compiler.emission.nest import Access, Nest
from compiler.emission.operands import Operands, padded
from compiler.emission.patterns import Match, fold_spellings, match_spelling, matches
from compiler.emission.terms import Term, numbered
from compiler.emission.vector import MEMORY, describe
from compiler.isa.dtypes import DTYPES
from compiler.isa.model import dense_strides
from compiler.target import Chip
from compiler.tir.scopes import TIR_DTYPE

FOLDED = ("add", "mul", "max", "min", "or", "and")


@dataclass(frozen=True)
class Accumulation:
    """``target = op(target, rest)``, with ``rest`` numbered; some loops do not move the target."""

    op: str
    rest: Term
    sources: tuple[Access, ...]


def accumulation(nest: Nest) -> Accumulation | None:
    """The reduction that a nest is, or None."""
    value = nest.value
    if value.op not in FOLDED or 0 not in nest.target.coefficients:
        return None
    for mine, rest in (value.args, value.args[::-1]):
        if mine.op == "load" and mine.value.same_place(nest.target):
            term, sources = numbered(rest)
            return Accumulation(value.op, term, tuple(sources))
    return None


@recogniser
def folds(nest: Nest, chip: Chip) -> Iterator[Found]:
    """A fold into a temporary, combined with the destination."""
    yield from _folds(nest, chip, overwrite=False)


def overwriting(nest: Nest, chip: Chip) -> Iterator[Found]:
    """Folds that write the destination instead of combining with it: right if it holds the operation's identity."""
    yield from _folds(nest, chip, overwrite=True)


def _folds(nest: Nest, chip: Chip, overwrite: bool) -> Iterator[Found]:
    reduction = accumulation(nest)
    if reduction is None or nest.target.memory != MEMORY:
        return
    if any(source.memory != MEMORY or order_matters(nest, source) for source in reduction.sources):
        yield Rejection("fold", f"a source of the reduction is not in {MEMORY}, or is the destination")
        return
    for axis in ("n0", "n1"):
        for spelling in fold_spellings().get((reduction.op, axis), ()):
            argument = spelling.pattern.args[0]
            for match in match_spelling(spelling, argument, reduction.rest, nest.target.dtype):
                if all(term.op == "load" for _, term in match.tensors):
                    yield from _placed(nest, reduction, match, axis, chip, overwrite)


def _placed(
    nest: Nest, reduction: Accumulation, match: Match, axis: str, chip: Chip, overwrite: bool
) -> Iterator[Found]:
    names = [name for name, _ in match.tensors]
    sources = [reduction.sources[term.value] for _, term in match.tensors]
    accesses = [nest.target, *sources]
    widest = max(DTYPES[access.dtype].itemsize for access in accesses)
    dims = eligible(nest, accesses)
    for placement in fold_placements(nest, dims, axis, chip, widest):
        made = Fold(nest, match, dict(zip(names, sources, strict=True)), placement, axis, overwrite)
        if overwrite and not made.may_overwrite:
            continue
        yield made.candidate(reduction.op, chip)
        if axis == "n0" and len(sources) == 1:
            yield from _of_one_block(made, reduction, chip)
            yield from _by_columns(made, reduction, chip)
        if axis == "n0" and len(sources) == 1 and reduction.rest.op == "load":
            yield from _by_blocks(made, reduction.op, chip)


def _reduces(dim: Dim) -> bool:
    return dim.strides[0] == 0


def _keeps(dim: Dim) -> bool:
    return dim.strides[0] > 0


def fold_placements(nest: Nest, dims: list[Dim], axis: str, chip: Chip, widest: int) -> list[Placement]:
    if axis == "n0":
        return placements(nest, dims, chip, widest, innermost=_reduces, others=_keeps)
    # Columns: n1 is reduced, n0 and n2 are kept.
    found = []
    for placement in placements(nest, dims, chip, widest, innermost=_keeps, others=lambda d: True):
        *others, inner = placement.dims
        reduced = [dim for dim in others if _reduces(dim)]
        kept = [dim for dim in others if _keeps(dim)]
        if reduced:
            chosen = max(reduced, key=lambda dim: dim.bound)
            used = (*kept[:1], chosen, inner)
            inside = {id(loop) for dim in used for loop in dim.loops}
            found.append(Placement(used, tuple(loop for loop in nest.loops if id(loop) not in inside)))
    return found


def new_buffer(nest: Nest, name: str, extents: Sequence[int]) -> Access:
    """The start of a new buffer of the type of a nest's destination."""
    buffer = calls.temporary(name, extents or [1], TIR_DTYPE[nest.target.dtype])
    zeros = tuple(calls.number(0) for _ in buffer.shape)
    return Access(buffer, zeros, nest.loops, nest.surroundings)


@dataclass(eq=False)
class Fold:
    """One fold with its dimensions chosen."""

    nest: Nest
    match: Match
    sources: dict[str, Access]
    placement: Placement
    axis: str
    overwrite: bool

    @property
    def kept(self) -> list[Dim]:
        return [dim for dim in self.placement.dims if _keeps(dim)]

    @property
    def may_overwrite(self) -> bool:
        """Whether one execution folds all there is, and always executes."""
        outer = self.placement.outer
        reduced = any(self.nest.target.coefficient(loop) == 0 for loop in outer)
        empty = any(loop.may_be_empty for dim in self.placement.dims if _reduces(dim) for loop in dim.loops)
        return not reduced and not empty

    def operands(self, target: Access, strides: Sequence[int]) -> Operands:
        dims = self.placement.dims
        ranks = next(m.choices for m in self.match.row.modifiers if m.name == "rank")
        rank = max(len(dims), int(ranks[0][0]))
        # A row of a block is one block: its result has a dimension of its own.
        blocks = self.axis == "blocks"
        all_strides = {"dst": padded([*strides, 1] if blocks else strides, rank if blocks else rank - 1)}
        for position, name in enumerate(self.sources):
            all_strides[name] = padded([dim.strides[1 + position] for dim in dims], rank)
        lacking = (1,) * (rank - len(dims))
        return Operands(
            self.match.row,
            self.match.mods_at(f"{rank}d"),
            {"dst": target, **self.sources},
            all_strides,
            dict(self.match.scalars),
            lacking + tuple(dim.extent for dim in dims),
            lacking + tuple(dim.bound for dim in dims),
        )

    def candidate(self, op: str, chip: Chip) -> Found:
        steps, temporaries = self.finished(op)
        return self.made(steps[0].name, steps, temporaries, chip)

    def finished(self, op: str) -> tuple[list[Operands], list[Access]]:
        """The fold's instruction and what brings its results to the destination, with the temporaries that takes."""
        if self.overwrite:
            return [self.operands(self.nest.target, [dim.strides[0] for dim in self.kept])], []
        result = self.temporary("folded", [dim.bound for dim in self.kept])
        return [self.operands(result, _dense(result.shape, len(self.kept))), self.combine(op, result)], [result]

    def temporary(self, name: str, extents: Sequence[int]) -> Access:
        return new_buffer(self.nest, name, extents)

    def combine(self, op: str, result: Access) -> Operands:
        """``target = op(target, result)`` over the kept dimensions."""
        dtype, kept = self.nest.target.dtype, self.kept
        match = matches(Term(op, dtype, (Term("load", dtype, value=0), Term("load", dtype, value=1))), dtype)[0]
        rank = max(1, len(kept))
        strides = padded([dim.strides[0] for dim in kept], rank)
        return Operands(
            match.row,
            match.mods_at(f"{rank}d"),
            {"dst": self.nest.target, "a": self.nest.target, "b": result},
            {"dst": strides, "a": strides, "b": padded(_dense(result.shape, len(kept)), rank)},
            {},
            padded_extents([dim.extent for dim in kept], rank),
            padded_extents([dim.bound for dim in kept], rank),
        )

    def made(self, name: str, steps: list[Operands], temporaries: list[Access], chip: Chip) -> Found:
        costs = [step.cycles(chip) for step in steps]
        broken = next((cost for cost in costs if isinstance(cost, str)), None)
        if broken is not None:
            return Rejection(name, broken)
        names = " + ".join(step.name for step in steps)
        placement = self.placement

        def build() -> Any:
            body = calls.sequence([step.statement(placement) for step in steps])
            body = calls.around(placement.outer, calls.guarded(placement.inner_loops, body))
            return calls.sequence([*(calls.allocation(t.buffer) for t in temporaries), body])

        return Candidate(
            names,
            sum(cost for cost in costs if isinstance(cost, int)),
            placement.executions,
            build,
            description=describe(placement),
            overhead_cycles=placement.overhead_cycles * len(steps),
        )


def _dense(shape: Sequence[int], dims: int) -> tuple[int, ...]:
    return dense_strides(tuple(shape)) if dims else ()


def padded_extents(extents: Sequence[Any], rank: int) -> tuple[Any, ...]:
    return (1,) * (rank - len(extents)) + tuple(extents)


# ---- blocks first ---------------------------------------------------------------------------------------------


def _by_blocks(fold: Fold, op: str, chip: Chip) -> Iterator[Found]:
    """Fold 32-byte blocks first, which is cheap, then rows an eighth (fp32) as long; a last part block is copied."""
    inner = fold.placement.dims[-1]
    name, source = next(iter(fold.sources.items()))
    block = DTYPES[source.dtype].fractal_k
    spelling = next(iter(fold_spellings().get((op, "blocks"), ())), None)
    if (
        spelling is None
        or not isinstance(inner.extent, int)
        or inner.extent < 4 * block
        or source.dtype not in (spelling.row.modifiers[0].choices)
    ):
        return
    blocks, rest = divmod(inner.extent, block)
    rows = [dim.bound for dim in fold.kept]
    partial = fold.temporary("partial", [*rows, blocks + rest])
    strides = dense_strides(partial.shape)
    steps = [_step(fold, spelling.row, source, partial, (*rows, blocks * block), 0, 0, strides)]
    if rest:
        copy = matches(Term("load", source.dtype, value=0), source.dtype)[0].row
        steps.append(_step(fold, copy, source, partial, (*rows, rest), blocks * block, blocks, strides))
    narrowed = Dim((), blocks + rest, blocks + rest, (0, 1))
    dims = tuple(replace(dim, strides=(dim.strides[0], s)) for dim, s in zip(fold.kept, strides, strict=False))
    again = Fold(fold.nest, fold.match, {name: partial}, Placement((*dims, narrowed), ()), fold.axis, fold.overwrite)
    finish, temporaries = again.finished(op)
    yield fold.made(steps[0].name, [*steps, *finish], [partial, *temporaries], chip)


def _of_one_block(fold: Fold, reduction: Accumulation, chip: Chip) -> Iterator[Found]:
    """Rows of 32 bytes each: a fold of blocks takes a cycle for as many as a fold of rows takes seven."""
    inner, (source,) = fold.placement.dims[-1], fold.sources.values()
    if inner.extent != DTYPES[source.dtype].fractal_k or source.dtype != fold.nest.target.dtype:
        return
    for match in fold_matches(reduction.op, "blocks", reduction.rest, fold.nest.target.dtype):
        sources = dict.fromkeys((name for name, _ in match.tensors), source)
        made = Fold(fold.nest, match, sources, fold.placement, "blocks", fold.overwrite)
        yield made.candidate(reduction.op, chip)


def _by_columns(fold: Fold, reduction: Accumulation, chip: Chip) -> Iterator[Found]:
    for steps, temporaries in column_ways(fold, reduction.op, reduction.rest):
        yield fold.made(steps[0].name, steps, temporaries, chip)


def column_ways(fold: Fold, op: str, rest_of: Term) -> Iterator[tuple[list[Operands], list[Access]]]:
    """Fold every row as a column of 32-byte blocks, at the cost of an addition, and then the one block that is left.

    Elements behind the last whole block are combined with the block that is left. Gives instructions and temporaries.
    """
    inner = fold.placement.dims[-1]
    (name, source), dtype = next(iter(fold.sources.items())), fold.nest.target.dtype
    block = DTYPES[source.dtype].fractal_k
    cut = inner.in_blocks(block)
    if source.dtype != dtype or cut is None or inner.bound < 4 * block or inner.strides[1] != 1:
        return
    blocks, most_blocks, rest = cut
    plain = Term("load", dtype, value=0)
    # The block that is left of each row is a row of one block.
    finishing = ((axis, match) for axis in ("blocks", "n0") for match in fold_matches(op, axis, plain, dtype))
    axis, again = next(finishing, ("", None))
    if len(fold.kept) > 1 or again is None or (rest and rest_of.op != "load"):
        return
    partial = fold.temporary("partial", [*(dim.bound for dim in fold.kept), block])
    strides = dense_strides(partial.shape)
    kept = tuple(replace(dim, strides=(s, dim.strides[1])) for dim, s in zip(fold.kept, strides, strict=False))
    column, lanes = Dim((), blocks, most_blocks, (0, block)), Dim((), block, block, (1, 1))
    left = tuple(replace(dim, strides=(dim.strides[0], s)) for dim, s in zip(fold.kept, strides, strict=False))
    last = Fold(
        fold.nest, again, {name: partial}, Placement((*left, replace(lanes, strides=(0, 1))), ()), axis, fold.overwrite
    )
    for match in fold_matches(op, "n1", rest_of, dtype):
        first = Fold(fold.nest, match, fold.sources, Placement((*kept, column, lanes), ()), "n1", fold.overwrite)
        steps = [first.operands(partial, strides)]
        if rest:
            steps.append(_tail(fold, op, source, partial, kept, rest))
        finish, temporaries = last.finished(op)
        yield [*steps, *finish], [partial, *temporaries]


def fold_matches(op: str, axis: str, argument: Term, dtype: str) -> Iterator[Match]:
    """Rows that fold ``argument`` over a dimension, all of it loads."""
    for spelling in fold_spellings().get((op, axis), ()):
        for match in match_spelling(spelling, spelling.pattern.args[0], argument, dtype):
            if all(term.op == "load" for _, term in match.tensors):
                yield match


def _tail(fold: Fold, op: str, source: Access, partial: Access, kept: Sequence[Dim], rest: int) -> Operands:
    """``partial = op(partial, source)`` for the last ``rest`` elements of every row."""
    dtype = source.dtype
    row = matches(Term(op, dtype, (Term("load", dtype, value=0), Term("load", dtype, value=1))), dtype)[0]
    end = int(fold.placement.dims[-1].extent) - rest
    strides = (*(dim.strides[0] for dim in kept), 1)
    rank = len(strides)
    return Operands(
        row.row,
        row.mods_at(f"{rank}d"),
        {"dst": partial, "a": partial, "b": replace_index(source, end)},
        {"dst": strides, "a": strides, "b": (*(dim.strides[1] for dim in kept), 1)},
        {},
        (*(dim.extent for dim in kept), rest),
        (*(dim.bound for dim in kept), rest),
    )


def _step(
    fold: Fold,
    row: Any,
    source: Access,
    target: Access,
    extents: Sequence[int],
    skip: int,
    start: int,
    strides: Sequence[int],
) -> Operands:
    """One instruction from ``skip`` elements into the source's rows to ``start`` elements into the target's."""
    dims = fold.placement.dims
    rank = len(extents)
    inner_stride = dims[-1].strides[1]
    moved = replace_index(source, skip * inner_stride) if skip else source
    begun = replace_index(target, start) if start else target
    dynamic = tuple(dim.extent for dim in fold.kept)
    return Operands(
        row,
        (source.dtype, f"{rank}d"),
        {"dst": begun, "a": moved},
        {"dst": strides, "a": [dim.strides[1] for dim in dims]},
        {},
        (*dynamic, extents[-1]),
        tuple(extents),
    )


def replace_index(access: Access, elements: int) -> Access:
    """The access a number of elements further: in the last dimension of which it is so many whole steps."""
    axis = max(axis for axis, pitch in enumerate(access.pitches) if elements % pitch == 0)
    indices = list(access.indices)
    indices[axis] += tirx.IntImm("int32", elements // access.pitches[axis])
    return Access(access.buffer, tuple(indices), access.loops, access.surroundings)
