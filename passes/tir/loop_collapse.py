"""Merge loops that walk every operand without a gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, sym, tirx

from compiler.target import Chip
from compiler.tir.conditions import constant, linear_in
from compiler.tir.nests import MATRIX_SCOPES, accessed_buffers, leaf_nest, pitches
from compiler.tir.rewriter import Rewriter, loop_with, uses
from compiler.tir.structure import structural_map
from passes.base import Pass


@dataclass(frozen=True)
class LoopCollapse(Pass):
    """Merge two neighbouring loops of a leaf nest that step through all operands as one loop would.

    for i in 16: for j in 777: x[i, j] = y[i*777 + j] * 2
    -> for ij in 12432: x[ij // 777, ij % 777] = y[ij] * 2

    1. Flattened row-major, each operand is affine in both loops, and one iteration of the outer loop moves it as
       far as all of the inner one, whose extent is a constant.
    2. The loops' variables occur nowhere else: in no value, in no extent.
    3. Both loops are serial, count from zero and have no annotations.
    4. No operand is in a scope with a fractal layout, where neighbours in a row are not neighbours in memory.
    5. One instruction dimension can count the merged loop: at most ``longest`` iterations.
    """

    longest: int = 65535

    name: ClassVar[str] = "loop-collapse"
    requires: ClassVar[frozenset[str]] = frozenset({"zero-based-loops", "one-store-per-nest", "guard-free"})
    establishes: ClassVar[frozenset[str]] = frozenset({"nest-form"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Collapser(self.longest).function(subject)


class _Collapser(Rewriter):
    def __init__(self, longest: int) -> None:
        super().__init__()
        self.longest = longest

    def loop(self, loop: tirx.For) -> Any | None:
        nest = leaf_nest(loop)
        if nest is None:
            return super().loop(loop)
        loops, store = nest
        if len(loops) < 2 or any(buffer.scope() in MATRIX_SCOPES for buffer in accessed_buffers(store)):  # (4)
            return loop
        for each in loops:
            self.bind(each.loop_var, each.min, each.extent)
        merged = loops
        position = len(loops) - 2
        while position >= 0:
            outer, inner = merged[position : position + 2]
            found = self._merged(outer, inner, merged[position + 2 :], store)
            if found is not None:
                loop_over_both, store = found
                merged = [*merged[:position], loop_over_both, *merged[position + 2 :]]
            position -= 1
        if len(merged) == len(loops):
            return loop
        body: Any = store
        for each in reversed(merged):
            body = loop_with(each, body)
        return body

    def _merged(
        self, outer: tirx.For, inner: tirx.For, deeper: Sequence[tirx.For], store: tirx.BufferStore
    ) -> tuple[tirx.For, tirx.BufferStore] | None:
        """One loop for two and the store in it, or None if they must stay two."""
        if not _may_merge(outer, inner, deeper):
            return None
        extent = self.analyzer.simplify(outer.extent * inner.extent)
        if self.analyzer.const_int_bound(extent).max_value > self.longest:  # (5)
            return None
        var = tirx.Var(outer.loop_var.name + inner.loop_var.name, str(inner.loop_var.ty))
        self.bind(var, 0, extent)
        collapsed = _Merge(outer, inner, var, self.analyzer).store(store)
        return None if collapsed is None else (loop_with(inner, inner.body, loop_var=var, extent=extent), collapsed)


def _may_merge(outer: tirx.For, inner: tirx.For, deeper: Sequence[tirx.For]) -> bool:
    plain = all(
        loop.kind == tirx.ForKind.SERIAL and loop.step is None and not loop.annotations and constant(loop.min) == 0
        for loop in (outer, inner)
    )  # (3)
    variables = (outer.loop_var, inner.loop_var)
    return plain and constant(inner.extent) is not None and not any(uses(loop.extent, variables) for loop in deeper)


class _Merge:
    """One pair of loops, and the variable that takes their place."""

    def __init__(self, outer: tirx.For, inner: tirx.For, var: Any, analyzer: sym.Analyzer) -> None:
        self.variables = (outer.loop_var, inner.loop_var)
        self.inner_extent = int(inner.extent.value)
        self.var = var
        self.analyzer = analyzer
        self.fails = False

    def store(self, store: tirx.BufferStore) -> tirx.BufferStore | None:
        """The store over the merged loop, or None if the loops do not merge."""

        def load(access: Any) -> Any:
            indices = self._indices(access.source, access.indices)
            return access if indices is None else tirx.BufferLoad(access.source, indices)

        indices = self._indices(store.buffer, store.indices)
        value = None if self.fails else structural_map(store.value, (ir.TensorLoad, load))
        if self.fails or uses(value, self.variables):  # (2)
            return None
        return tirx.BufferStore(store.buffer, value, store.indices if indices is None else indices)

    def _indices(self, buffer: Any, indices: Any) -> list[Any] | None:
        """The indices over the merged loop, or None if they stay; sets ``fails`` where they are not what one walks."""
        touched = [axis for axis, index in enumerate(indices) if uses(index, self.variables)]
        if self.fails or not touched:
            return None
        axes = range(touched[0], touched[-1] + 1)
        shape = [constant(buffer.shape[axis]) for axis in axes]
        offset: Any = indices[axes[0]]
        for axis, extent in zip(axes[1:], shape[1:], strict=True):
            if extent is None or not _is_dense(buffer, axis):
                self.fails = True
                return None
            offset = offset * extent + indices[axis]
        linear = linear_in(self.analyzer.simplify(offset), self.variables)
        if linear is None or linear[0][0] != linear[0][1] * self.inner_extent:  # (1)
            self.fails = True
            return None
        merged = list(indices)
        rest = self.analyzer.simplify(self.var * linear[0][1] + linear[1])
        for axis, extent in zip(reversed(axes), reversed(shape), strict=True):
            first = axis == axes[0]
            merged[axis] = self.analyzer.simplify(rest if first else tirx.floormod(rest, extent))
            rest = rest if first else tirx.floordiv(rest, extent)
        return merged


def _is_dense(buffer: Any, axis: int) -> bool:
    """Whether the rows along an axis follow one another without a gap."""
    pitch = pitches(buffer)
    outer, inner, extent = constant(pitch[axis - 1]), constant(pitch[axis]), constant(buffer.shape[axis])
    return not buffer.strides or (None not in (outer, inner, extent) and outer == inner * extent)  # type: ignore[operator]
