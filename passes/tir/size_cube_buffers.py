"""Say how many bytes the buffers around the cube take, and where products that share one begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from compiler.emission.cube.feature_maps import map_axes
from compiler.emission.cube.places import MARK, ROWS
from compiler.emission.cube.sizes import physical_sizes, rows_of_one
from compiler.target import Chip
from compiler.tir.rewriter import Rewriter, uses
from compiler.tir.structure import structural_map
from passes.base import Pass

BYTES = "tw.bytes"


@dataclass(frozen=True)
class SizeCubeBuffers(Pass):
    """Annotate buffers that hold fractal layouts with what these take, since their logical shape does not tell.

    a = alloc((100, 77), "float16", scope="local.l0a")
    -> a = alloc((100, 77), "float16", scope="local.l0a", annotations={"tw.bytes": 17920})

    Nests of a buffer in L0C with several products say how many rows each of these has, so that a last one with fewer
    begins where it was meant to:

    mark "product": c[h * 2 + i, n] += ... -> tw.rows_of_one = 2: mark "product": c[h * 2 + i, n] += ...

    A buffer of a feature map becomes as large as what is loaded into it. TVM sizes it by the difference of two bounds
    that it cannot compare; legal because the first element that is loaded lies at the start of the buffer.
    """

    name: ClassVar[str] = "size-cube-buffers"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        subject = _cut_maps(subject)
        sizes = physical_sizes(subject.body)
        if not sizes:
            return subject
        subject = _with_rows(subject, rows_of_one(subject.body))

        def annotate(statement: Any) -> Any:
            size = sizes.get(statement.buffer)
            if size is None or size == int(statement.annotations.get(BYTES, 0)):
                return statement
            return tirx.AllocBuffer(statement.buffer, {**dict(statement.annotations), BYTES: size}, statement.span)

        return structural_map(subject, (tirx.AllocBuffer, annotate))


def _with_rows(func: Any, rows: dict[Any, int]) -> Any:
    """Nests say how many rows each of several products has."""

    def mark(statement: Any) -> Any:
        if statement.attr_key != MARK:
            return statement
        known = [count for buffer, count in rows.items() if uses(statement.body, (buffer,))]
        if not known:
            return statement
        return tirx.AttrStmt(0, ROWS, tirx.IntImm("int32", known[0]), statement, statement.span)

    return structural_map(func, (tirx.AttrStmt, mark)) if rows else func


def _cut_maps(func: Any) -> Any:
    loaded = _Loaded()
    loaded.function(func)
    smaller = {
        buffer: tirx.decl_buffer(shape, buffer.dtype, buffer.name, scope=buffer.scope(), layout=None)
        for buffer, shape in loaded.shapes.items()
        if shape != [int(n) for n in buffer.shape]
    }
    if not smaller:
        return func
    return func.with_body(structural_map(func.body, (tirx.Var, lambda var: smaller.get(var, var))))


class _Loaded(Rewriter):
    """How much of each feature map's buffer is filled at most, by axis."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[Any, list[int]] = {}

    def other(self, stmt: Any) -> Any | None:
        if (
            isinstance(stmt, tirx.AttrStmt)
            and stmt.attr_key == MARK
            and map_axes(str(stmt.value.value), ("map",)) is not None
        ):
            self._note(stmt.body)
        return stmt

    def _note(self, stmt: Any) -> None:
        extents: dict[Any, int] = {}
        while isinstance(stmt, tirx.For):
            extents[stmt.loop_var] = int(self.analyzer.const_int_bound(stmt.extent).max_value)
            stmt = stmt.body
        if not isinstance(stmt, tirx.BufferStore) or stmt.buffer.scope() != "shared.l1":
            return
        shape = []
        for index, extent in zip(stmt.indices, stmt.buffer.shape, strict=True):
            along = [bound for var, bound in extents.items() if uses(index, (var,))]
            shape.append(min(int(extent), max(along[0], 1)) if len(along) == 1 else int(extent))
        before = self.shapes.get(stmt.buffer)
        self.shapes[stmt.buffer] = shape if before is None else [max(a, b) for a, b in zip(before, shape, strict=True)]
