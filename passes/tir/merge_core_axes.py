"""Give every core one number: nested grids of cores, and several of them one after another, become one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from tvm import ir, tirx

from compiler.target import Chip
from compiler.tir.structure import structural_map
from passes.base import Pass

CORE_AXIS = "blockIdx.x"


@dataclass(frozen=True)
class MergeCoreAxes(Pass):
    """Merge the axes that spread a kernel over cores into one core number, outermost.

    launch x in 8: launch y in 4: A(x, y)
    -> launch core in 32: A(core // 4, core % 4)

    launch x in 8: A(x); launch x in 5: B(x)
    -> launch core in 8: A(core); if core < 5: B(core)

    Legal because cores share nothing while a kernel runs: what one part writes, no other part of the kernel reads.
    """

    name: ClassVar[str] = "merge-core-axes"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})
    establishes: ClassVar[frozenset[str]] = frozenset({"one-core-axis"})

    def run(self, subject: Any, chip: Chip) -> Any:
        parts = list(subject.body.seq) if isinstance(subject.body, tirx.SeqStmt) else [subject.body]
        peeled = [_peel(part) for part in parts]
        if len(peeled) == 1 and len(peeled[0][0]) == 1:
            return subject
        extents = [prod(extent for _, extent in axes) for axes, _ in peeled]
        core = tirx.Var("core", "int32")
        statements = []
        for (axes, body), extent in zip(peeled, extents, strict=True):
            statement = _renumbered(axes, body, core)
            if extent < max(extents):
                statement = tirx.IfThenElse(core < extent, statement, None)
            statements.append(statement)
        body = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
        axis = tirx.IterVar(ir.Range(0, max(extents)), core, tirx.IterVar.ThreadIndex, CORE_AXIS)
        return subject.with_body(tirx.AttrStmt(axis, "thread_extent", tirx.IntImm("int32", max(extents)), body))


def _peel(statement: Any) -> tuple[list[tuple[Any, int]], Any]:
    """The core axes around a statement as (variable, extent), outermost first, and what is inside them."""
    axes = []
    while isinstance(statement, tirx.AttrStmt) and statement.attr_key == "thread_extent":
        axes.append((statement.node.var, int(statement.value)))
        statement = statement.body
    return axes, statement


def _renumbered(axes: list[tuple[Any, int]], body: Any, core: Any) -> Any:
    values = dict[Any, Any]()
    inner = 1
    for position in reversed(range(len(axes))):
        variable, extent = axes[position]
        value = core // inner if inner > 1 else core
        values[variable] = value if position == 0 else value % extent
        inner *= extent
    return structural_map(body, (tirx.Var, lambda var: values.get(var, var))) if values else body
