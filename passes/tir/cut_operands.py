"""Load beside the cube no more of an operand than its product reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, tirx

from compiler.emission.cube.places import MARK
from compiler.target import Chip
from compiler.tir.conditions import constant
from compiler.tir.rewriter import Rewriter, is_opaque, loop_with
from compiler.tir.structure import structural_walk
from passes.base import Pass

BESIDE_THE_CUBE = ("local.l0a", "local.l0b")


@dataclass(frozen=True)
class CutOperands(Pass):
    """L0A and L0B hold an operand dense: where its blocks lie follows from how much of it was loaded.

    mark "operand": for k in 33: for n in 64: b.l0b[k, n] = b.l1[k, n]
    mark "product": for m in 16: for n in min(64, 200 - t): for k in 33: c[m, n] += a.l0a[m, k] * b.l0b[k, n]
    -> mark "operand": for k in 33: for n in min(64, 200 - t): ...

    TVM loads a whole tile as far as the operand goes on, though the result ends: a product of slices. The first column
    of blocks that no product reads would then move those that it does read. Legal because the product is the only
    reader, and reads the same places in all of its nests.

    1. One loop of the load moves along an axis of the buffer, from its start and step by step, and one loop of each
       product or none.
    2. All products agree on how far they read, and know it where the load stands.
    """

    name: ClassVar[str] = "cut-operands"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        reads = _reads(subject.body)
        return _Cutter(reads).function(subject) if reads else subject


def _reads(body: Any) -> dict[Any, list[dict[int, Any]]]:
    """Of every buffer beside the cube: how far each product reads it along which axes (1)."""
    found: dict[Any, list[dict[int, Any]]] = {}

    def visit(mark: Any) -> None:
        if str(mark.attr_key) != MARK:
            return
        loops, store = _nest(mark.body)
        if store is None or store.buffer.scope() != "local.l0c":
            return

        def load(access: Any) -> None:
            if access.source.scope() in BESIDE_THE_CUBE:
                found.setdefault(access.source, []).append(_along(access.indices, loops))

        structural_walk(store.value, (ir.TensorLoad, load))

    structural_walk(body, (tirx.AttrStmt, visit))
    return found


def _nest(stmt: Any) -> tuple[list[Any], Any | None]:
    """The loops and the store of a nest without guards."""
    loops = []
    while isinstance(stmt, tirx.For):
        loops.append(stmt)
        stmt = stmt.body
    return loops, stmt if isinstance(stmt, tirx.BufferStore) else None


def _along(indices: Any, loops: list[Any]) -> dict[int, Any]:
    """The extent of the loop whose variable an index is, by axis; one where it stands at the start."""
    extents = {loop.loop_var: loop.extent for loop in loops}
    standing = {axis: tirx.IntImm("int32", 1) for axis, index in enumerate(indices) if constant(index) == 0}
    return standing | {axis: extents[index] for axis, index in enumerate(indices) if index in extents}


class _Cutter(Rewriter):
    def __init__(self, reads: dict[Any, list[dict[int, Any]]]) -> None:
        super().__init__()
        self.reads = reads
        self.known: set[Any] = set()

    def bind(self, var: Any, start: Any, extent: Any) -> None:
        self.known.add(var)
        super().bind(var, start, extent)

    def loop(self, loop: tirx.For) -> Any | None:
        rewritten = super().loop(loop)
        self.known.discard(loop.loop_var)
        return rewritten

    def other(self, stmt: Any) -> Any | None:
        if not isinstance(stmt, tirx.AttrStmt) or not is_opaque(stmt):
            return stmt
        loops, store = _nest(stmt.body)
        if store is None or store.buffer not in self.reads:
            return stmt
        cuts = {}
        for axis, index in enumerate(store.indices):
            loop = next((one for one in loops if one.loop_var.same_as(index)), None)
            read = None if loop is None else self._read(store.buffer, axis)
            if loop is None or read is None:  # (1), (2)
                continue
            extent = self.analyzer.simplify(tirx.min(loop.extent, read))
            if not self.analyzer.can_prove_equal(extent, loop.extent):
                cuts[loop.loop_var] = extent
        if not cuts:
            return stmt
        body: Any = store
        for loop in reversed(loops):
            body = loop_with(loop, body, extent=cuts.get(loop.loop_var, loop.extent))
        return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, body, stmt.span)

    def _read(self, buffer: Any, axis: int) -> Any | None:
        """How far all products read an axis, as far as it is known here."""
        extents = [along.get(axis) for along in self.reads[buffer]]
        first = extents[0]
        if first is None or not _variables(first) <= self.known:
            return None
        same = all(other is not None and self.analyzer.can_prove_equal(first, other) for other in extents[1:])
        return first if same else None


def _variables(expr: Any) -> set[Any]:
    found: set[Any] = set()
    structural_walk(expr, (ir.Var, found.add))
    return found
