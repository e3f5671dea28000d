"""Split stores of compound values into stores that one instruction each can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, tirx

from compiler.emission.accumulators import accumulator
from compiler.emission.nest import Surroundings
from compiler.emission.splitting import Split
from compiler.emission.temporaries import ChainLoop
from compiler.target import Chip
from compiler.tir.conditions import conditional, negated
from compiler.tir.rewriter import Rewriter, contains, loop_with, same, sequence, statements, substitute
from compiler.tir.structure import structural_walk
from passes.base import Pass

_SMALLEST_SHARE = 8  # temporaries of one nest may always take this share of UB
_SUMS_SHARE = 4  # of UB, for a reduction into DDR that is kept there while it runs
_CHAIN = (tirx.For, tirx.IfThenElse, tirx.BufferStore, tirx.SeqStmt)


@dataclass(frozen=True)
class PreProcess(Pass):
    """Split values by what the instruction set computes, with temporaries in UB.

    for i, j: s[i, j] = exp(a[i, j] - m[i]) * g[j] + b[j]           (g, b in DDR)
    -> for j: t0[j] = g[j]
       for j: t1[j] = b[j]
       for i, j: {s[i, j] = exp(a[i, j] - m[i]); s[i, j] = s[i, j] * t0[j] + t1[j]}

    1. The split costs least among those that the rows' ``computes`` texts allow; common subexpressions are worked
       out once, those that do not depend on all loops in a nest of their own.
    2. What is read from DDR is staged in UB first, and what is stored there last, unless the store is a plain copy.
       A reduction into DDR is kept in UB while its nest runs.
    3. A temporary has one element per iteration of the loops its value depends on. If those of a nest do not fit
       into what UB has left, the outermost loop becomes a tile loop with temporaries inside it.
    4. Conditions over loop variables stay conditions: a value they choose becomes an if around two stores.
    5. A store that reads what another iteration of it writes stays as it is, and so does one that no rows cover.
    """

    name: ClassVar[str] = "pre-process"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})
    establishes: ClassVar[frozenset[str]] = frozenset({"single-operations"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _PreProcessor(subject, chip).function(subject)


class _PreProcessor(Rewriter):
    def __init__(self, func: Any, chip: Chip) -> None:
        super().__init__()
        self.chip = chip
        self.surroundings = Surroundings(self.analyzer)
        self.written = self.surroundings.written
        self.allocated_bytes = _allocated_bytes(func)

    @property
    def budget_bytes(self) -> int:
        """What the temporaries of one nest may take; emission needs a little for what it folds."""
        ub_bytes = self.chip.memory.ub_bytes
        return max((ub_bytes - self.allocated_bytes) * 3 // 4, ub_bytes // _SMALLEST_SHARE)

    def loop(self, loop: tirx.For) -> Any | None:
        return self._split_nest(loop) if _is_chain(loop) else self._entered(loop)

    def _entered(self, loop: tirx.For) -> Any | None:
        with self.written.inside(loop):
            return super().loop(loop)

    def branch(self, branch: tirx.IfThenElse) -> Any | None:
        with self.written.under(branch.condition):
            then = self.statement(branch.then_case)
        with self.written.under(negated(branch.condition)):
            otherwise = self.statement(branch.else_case)
        if same(then, branch.then_case) and same(otherwise, branch.else_case):
            return branch
        return conditional(branch.condition, then, otherwise)

    def other(self, stmt: Any) -> Any | None:
        self.written.note(stmt)
        return stmt

    def store(self, store: tirx.BufferStore) -> Any | None:
        return self._assembled(*self._split(store, ()), store)

    def _split_nest(self, loop: tirx.For) -> Any:
        """The nest with its stores split, in tiles if the temporaries are too large (3)."""
        loops = tuple(_chain_loops(loop, self))
        sums = accumulator(loop, loops)
        if sums is not None and sums.bytes <= self.chip.memory.ub_bytes // _SUMS_SHARE:
            self.allocated_bytes += sums.bytes
            inside = self.statement(sums.inside(loop))
            self.allocated_bytes -= sums.bytes
            return sequence([tirx.AllocBuffer(sums.local), *sums.before(), inside, sums.after()])
        if sums is not None and len(loops) > 1 and loops[0] in sums.moved:
            return self._entered(loop)
        body, split = self._split(loop, loops)
        if body.same_as(loop) or split.peak_bytes <= self.budget_bytes:
            return self._assembled(body, split, loop)
        if len(loops) > 1:
            return self._entered(loop)
        factor = max(1, loops[0].bound * self.budget_bytes // split.peak_bytes)
        if factor >= loops[0].bound:
            return self._assembled(body, split, loop)
        return self.statement(_tiled(loop, factor))

    def _split(self, stmt: Any, loops: tuple[ChainLoop, ...]) -> tuple[Any, Split]:
        split = Split(loops, frozenset(_written(stmt)), self.surroundings, self.chip)
        return _rewritten(stmt, split, ()), split

    def _assembled(self, body: Any, split: Split, original: Any) -> Any:
        self.written.note(original)
        if body.same_as(original):
            return original
        allocations = [tirx.AllocBuffer(temporary.buffer) for temporary in split.temporaries]
        return sequence([*allocations, *split.before, body])


def _is_chain(stmt: Any) -> bool:
    """Whether a nest is loops and ifs one in the other, with stores and ifs of stores at the end."""
    if isinstance(stmt, tirx.For):
        return stmt.kind == tirx.ForKind.SERIAL and _is_chain(stmt.body)
    if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
        return _is_chain(stmt.then_case)
    if isinstance(stmt, tirx.SeqStmt | tirx.IfThenElse):
        return not contains(stmt, tirx.For) and all(isinstance(part, _CHAIN) for part in _parts(stmt))
    return isinstance(stmt, tirx.BufferStore)


def _parts(stmt: Any) -> list[Any]:
    """Every statement inside sequences and ifs."""
    if isinstance(stmt, tirx.SeqStmt):
        return [inner for part in stmt.seq for inner in _parts(part)]
    if isinstance(stmt, tirx.IfThenElse):
        branches = [stmt.then_case] + ([stmt.else_case] if stmt.else_case is not None else [])
        return [inner for branch in branches for inner in _parts(branch)]
    return [stmt]


def _chain_loops(stmt: Any, rewriter: Rewriter) -> list[ChainLoop]:
    """The loops of a chain, outermost first; their ranges become known."""
    loops: list[ChainLoop] = []
    while isinstance(stmt, tirx.For | tirx.IfThenElse):
        if isinstance(stmt, tirx.IfThenElse):
            if stmt.else_case is not None:
                break
            stmt = stmt.then_case
            continue
        rewriter.bind(stmt.loop_var, stmt.min, stmt.extent)
        bound = rewriter.analyzer.const_int_bound(stmt.extent)
        loops.append(
            ChainLoop(stmt.loop_var, stmt.min, stmt.extent, max(1, int(bound.max_value)), int(bound.min_value))
        )
        stmt = stmt.body
    return loops


def _rewritten(stmt: Any, split: Split, conditions: tuple[Any, ...]) -> Any:
    """The statement with every store split."""
    if isinstance(stmt, tirx.For):
        body = _rewritten(stmt.body, split, conditions)
        return stmt if body.same_as(stmt.body) else loop_with(stmt, body)
    if isinstance(stmt, tirx.IfThenElse):
        then = _rewritten(stmt.then_case, split, (*conditions, stmt.condition))
        otherwise = stmt.else_case
        if otherwise is not None:
            otherwise = _rewritten(otherwise, split, (*conditions, tirx.Not(stmt.condition)))
        unchanged = then.same_as(stmt.then_case) and (otherwise is None or otherwise.same_as(stmt.else_case))
        return stmt if unchanged else tirx.IfThenElse(stmt.condition, then, otherwise)
    if isinstance(stmt, tirx.SeqStmt):
        before = statements(stmt)
        after = [_rewritten(part, split, conditions) for part in before]
        if all(new.same_as(old) for new, old in zip(after, before, strict=True)):
            return stmt
        return sequence(after)
    parts = split.store(stmt, conditions)
    return stmt if len(parts) == 1 and parts[0].same_as(stmt) else sequence(parts)


def _tiled(loop: tirx.For, factor: int) -> tirx.For:
    """The loop in tiles of ``factor`` iterations."""
    outer = ir.Var(f"{loop.loop_var.name}_tile", loop.loop_var.ty)
    inner = ir.Var(loop.loop_var.name, loop.loop_var.ty)
    left = loop.extent - outer * factor
    whole = isinstance(loop.extent, tirx.IntImm) and int(loop.extent.value) % factor == 0
    extent = tirx.IntImm("int32", factor) if whole else tirx.min(factor, left)
    body = substitute(loop.body, {loop.loop_var: loop.min + outer * factor + inner})
    zero = tirx.IntImm("int32", 0)
    tile = tirx.For(inner, zero, extent, tirx.ForKind.SERIAL, body)
    tiles = tirx.floordiv(loop.extent + (factor - 1), tirx.IntImm("int32", factor))
    return tirx.For(outer, zero, tiles, tirx.ForKind.SERIAL, tile)


def _written(stmt: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(stmt, (tirx.BufferStore, lambda store: found.append(store.buffer)))
    return found


def _allocated_bytes(func: Any) -> int:
    """UB bytes of all buffers that the kernel allocates."""
    total = 0

    def visit(alloc: Any) -> None:
        nonlocal total
        buffer = alloc.buffer
        if buffer.scope() == "local.ub":
            size = (ir.PrimType(str(buffer.dtype)).dtype.bits + 7) // 8
            for extent in buffer.shape:
                size *= int(extent)
            total += size

    structural_walk(func.body, (tirx.AllocBuffer, visit))
    return total
