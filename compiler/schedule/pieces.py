"""Functions in pieces: tensors are cut into equal pieces, and each piece of a result is made of those of its number.

Results are cut along one axis, if nobody says another their first one of more than one element: its pieces are
contiguous. From there it goes back to what they are made of, each of it cut along the axis that this needs, into
``count`` pieces of as many rows. A function can be cut where all of its blocks are proven to be:

1. What is cut is stored by a variable ``v`` of its block, so that ``v`` one piece further on stores one piece further.
2. Each tensor that is read is read one piece further on then, too (it is *cut*), or in the same place (it is *whole*).
   No tensor is read both ways, and what the function keeps for itself is written as it is read.
3. Nothing else in the block depends on ``v`` but what is the same in each piece.
4. In the first piece, all that is cut is touched in its first piece only. With (1) and (2), so it is in all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from tvm import ir, relax, s_tir, sym, te, tirx
from tvm_ffi import structural_equal

from compiler import graph
from compiler.operators import recurrence
from compiler.operators.views import viewed
from compiler.tir.rewriter import loop_with
from compiler.tir.sblocks import innermost
from compiler.tir.structure import structural_map, structural_walk

# Their blocks are loops in an order, or data decides what they write; and who reads them looks at how they are made.
NEVER = frozenset({"library", "scatter", "suppression", "sorting", "running", "putting"})
RECURRENCE = "recurrence"
Axes = tuple[int | None, ...]  # by tensor: the axis along which it is cut, or None where it is whole
Along = tuple[int, ...] | None  # by result: the axis along which it is cut; None for the first one of each
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


@dataclass(frozen=True)
class Proof:
    """That a function can be cut into ``count`` pieces, and how: which of its tensors and variables go in pieces."""

    func: Any
    count: int
    along: Along
    inputs: Axes
    cut: Mapping[Any, int] = field(default_factory=dict)  # by buffer that goes in pieces: along which axis
    axes: Mapping[Any, int] = field(default_factory=dict)  # by variable: how far it goes, in all pieces together

    def coarser(self, count: int) -> Proof:
        """The same for fewer pieces, each of several of these."""
        return replace(self, count=count)


def cut_axis(shape: tuple[int, ...]) -> int:
    """The first axis of more than one element; 0 where there is none."""
    return next((axis for axis, extent in enumerate(shape) if extent > 1), 0)


def piece_shape(shape: tuple[int, ...], count: int, axis: int | None = None) -> tuple[int, ...] | None:
    """The shape of one piece, where a tensor can be cut along the axis, or its first one."""
    axis = cut_axis(shape) if axis is None else axis
    if axis >= len(shape) or shape[axis] % count or 0 in shape:
        return None
    return (*shape[:axis], shape[axis] // count, *shape[axis + 1 :])


def piece_type(kind: Any, count: int, axis: int | None = None) -> Any:
    """The type of one piece of a tensor."""
    return relax.TensorType(piece_shape(graph.extents_of(kind), count, axis), str(kind.dtype))


def proven(func: Any, count: int, along: Along = None) -> Proof | None:
    """That a PrimFunc can be cut into so many pieces of all its results, along these axes; None where it cannot."""
    schedule = graph.attribute(func, "tw.schedule")
    if schedule in NEVER or graph.attribute(func, "tw.valid_count") is not None:
        return None
    if schedule == "view":
        source = _viewed_axis(func, count, None if along is None else along[0])
        return None if source is None else Proof(func, count, along, (source,))
    if schedule == RECURRENCE:
        return _recurrence(func, count, along)
    return _Cutter(func, count, along).proof()


def only_cut(func: Any) -> Axes | None:
    """How all results are cut where any of them is; None of a function that may be cut in several ways."""
    return recurrence.form_of(func).axes_of_results if graph.attribute(func, "tw.schedule") == RECURRENCE else None


def _recurrence(func: Any, count: int, along: Along) -> Proof | None:
    """Rows of the batch have nothing to do with each other: it is said by who writes the loops, where they are."""
    form = recurrence.form_of(func)
    results = func.params[form.inputs :]
    axes = along or tuple(cut_axis(graph.extents_of(result)) for result in results)
    batch = graph.extents_of(results[-1])[form.axes_of_results[-1]]
    if axes != form.axes_of_results or batch % count:
        return None
    cut = dict(zip(func.params, [*form.axes_of_inputs, *form.axes_of_results], strict=True))
    goes = {buffer: axis for buffer, axis in cut.items() if axis is not None}
    return Proof(func, count, along, form.axes_of_inputs, goes)


def _viewed_axis(func: Any, count: int, axis: int | None) -> int | None:
    """The axis of what is seen along which its pieces are the same bytes as those of the result."""
    if len(func.params) != 2:
        return None
    source, result = (graph.extents_of(param) for param in func.params)
    axis = cut_axis(result) if axis is None else axis
    if piece_shape(result, count, axis) is None:
        return None
    for at, extent in enumerate(source):
        if extent > 1 and prod(source[:at]) == prod(result[:axis]):
            return at if extent % count == 0 else None
    return None


def in_pieces(proof: Proof) -> Any:
    """The PrimFunc for one piece."""
    func, count = proof.func, proof.count
    schedule = graph.attribute(func, "tw.schedule")
    if schedule == "view":
        return _view_in_pieces(proof)
    made = {
        buffer: _declared(buffer, piece_shape(graph.extents_of(buffer), count, axis))
        for buffer, axis in proof.cut.items()
    }
    if schedule == RECURRENCE:
        params = [made.get(param, param) for param in func.params]
        return recurrence.built_again(func, params=params).with_attrs(_attributes(func))
    extents = {var: extent // count for var, extent in proof.axes.items()}

    def loop(loop: Any) -> Any:
        return loop_with(loop, loop.body, extent=extents[loop.loop_var]) if loop.loop_var in extents else loop

    def block(block: Any) -> Any:
        return s_tir.SBlock(
            [_shorter(axis, extents) for axis in block.iter_vars],
            [_region(region, made, proof.cut) for region in block.reads],
            [_region(region, made, proof.cut) for region in block.writes],
            block.name_hint, block.body, block.init,
            [made.get(buffer, buffer) for buffer in block.alloc_buffers],
            block.match_buffers, block.annotations,
        )  # fmt: skip

    body = structural_map(func.body, [(tirx.For, loop), (s_tir.SBlock, block)])
    body = structural_map(body, (tirx.Var, lambda var: made.get(var, var)))
    params = [made.get(param, param) for param in func.params]
    return s_tir.renew_defs(tirx.PrimFunc(params, body).with_attrs(_attributes(func)))


def _view_in_pieces(proof: Proof) -> Any:
    func, axes = proof.func, (*proof.inputs, None if proof.along is None else proof.along[0])
    source, result = (
        piece_shape(graph.extents_of(param), proof.count, axis) or ()
        for param, axis in zip(func.params, axes, strict=True)
    )
    data = te.placeholder(source, str(func.params[0].dtype), func.params[0].name)
    return te.create_prim_func([data, viewed(data, list(result))]).with_attrs(_attributes(func))


def _attributes(func: Any) -> dict[str, Any]:
    return {name: value for name, value in func.attrs.items() if name != "global_symbol"}


def _shorter(axis: Any, extents: Mapping[Any, int]) -> Any:
    if axis.var not in extents:
        return axis
    return tirx.IterVar(ir.Range(0, extents[axis.var]), axis.var, axis.iter_type, axis.thread_tag)


def _region(region: Any, made: Mapping[Any, Any], cut: Mapping[Any, int]) -> Any:
    """A region that holds all pieces holds one; others say by their variables where they are."""
    buffer = region.source
    if buffer not in made:
        return region
    at, ranges = cut[buffer], list(region.region)
    if isinstance(ranges[at].extent, tirx.IntImm) and int(ranges[at].extent) == graph.extents_of(buffer)[at]:
        ranges[at] = ir.Range(0, made[buffer].shape[at])
    return tirx.BufferRegion(buffer, ranges)


# ---- the proof ---------------------------------------------------------------------------------------------------


@dataclass
class _Cutter:
    func: Any
    count: int
    along: Along
    status: dict[Any, int | None] = field(default_factory=dict)  # of buffers: the axis that is cut, or None
    axes: dict[Any, int] = field(default_factory=dict)  # loop variables and variables of blocks that count pieces
    shapes: dict[Any, tuple[int, ...]] = field(default_factory=dict)

    def proof(self) -> Proof | None:
        self.shapes = {buffer: graph.extents_of(buffer) for buffer in self.func.params}
        structural_walk(self.func.body, (s_tir.SBlock, self._allocations))
        blocks = list(innermost(self.func.body))
        written = {store.buffer for realize in blocks for store in _stores(realize.block)}
        results = [param for param in self.func.params if param in written]
        axes = self.along or tuple(cut_axis(self.shapes[result]) for result in results)
        for result, axis in zip(results, axes, strict=True):
            self.status[result] = axis
            if piece_shape(self.shapes[result], self.count, self.status[result]) is None:
                return None
        if not results or not all(self._block(realize) for realize in reversed(blocks)):
            return None
        if not self._loops_are_theirs(blocks):
            return None
        inputs = tuple(self.status.get(param) for param in self.func.params if param not in written)
        cut = {buffer: axis for buffer, axis in self.status.items() if axis is not None}
        return Proof(self.func, self.count, self.along, inputs, cut, self.axes)

    def _allocations(self, block: Any) -> None:
        for buffer in block.alloc_buffers:
            self.shapes[buffer] = graph.extents_of(buffer)

    def _block(self, realize: Any) -> bool:
        """Conditions 1 to 4 of one block."""
        stores = _stores(realize.block)
        if not stores or not structural_equal(realize.predicate, tirx.const(True, "bool")):
            return False
        cut = next(((store, at) for store in stores if (at := self.status.get(store.buffer)) is not None), None)
        if cut is None:  # what does not depend on any piece is whole
            return self._agrees(_Shift(realize, None, 0, self.shapes), {})
        store, at = cut
        return any(
            self._moves(realize, axis, value)
            for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
            if _is_spatial(axis) and _uses(store.indices[at], axis.var)
        )

    def _moves(self, realize: Any, axis: Any, value: Any) -> bool:
        extent = int(axis.dom.extent)
        if not isinstance(value, tirx.Var) or int(axis.dom.min) or extent % self.count:
            return False
        shift = _Shift(realize, axis.var, extent // self.count, self.shapes)
        if not self._agrees(shift, {axis.var: extent // self.count}):
            return False
        self.axes[value] = self.axes[axis.var] = extent
        return True

    def _agrees(self, shift: _Shift, extents: Mapping[Any, int]) -> bool:
        """Whether what the block touches moves as its status says; notes those of buffers seen for the first time."""
        found = dict[Any, int | None]()
        for access in shift.accesses:
            buffer = access.buffer if isinstance(access, tirx.BufferStore) else access.source
            moved = {at: rows for at, index in enumerate(access.indices) if (rows := shift.moves(index)) != 0}
            cut, rows = next(iter(moved.items()), (None, None))
            if len(moved) > 1 or (cut is not None and (rows or 0) * self.count != self.shapes[buffer][cut]):
                return False
            if found.setdefault(buffer, self.status.get(buffer, cut)) != cut:
                return False
            if cut is not None and not shift.stays_below(access.indices[cut], rows or 0, extents):
                return False
        if not shift.else_the_same():
            return False
        self.status.update(found)
        return True

    def _loops_are_theirs(self, blocks: list[Any]) -> bool:
        """A loop that becomes shorter counts pieces for all that is in it, and does nothing else."""
        bindings, uses = dict[Any, int](), dict[Any, int]()
        for realize in blocks:
            for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
                if axis.var in self.axes:
                    bindings[value] = bindings.get(value, 0) + 1

        def use(var: Any) -> None:
            if var in bindings:
                uses[var] = uses.get(var, 0) + 1

        found: list[Any] = []
        structural_walk(self.func.body, (tirx.For, found.append))
        structural_walk(self.func.body, (tirx.Var, use))
        loops = {loop.loop_var: loop for loop in found}
        # The walk sees the loop's own variable once.
        return all(
            uses[var] - 1 == count and var in loops and int(loops[var].min) == 0
            and int(loops[var].extent) == self.axes[var]
            for var, count in bindings.items()
        )  # fmt: skip


class _Shift:
    """One block, and what changes in it when a variable moves on by some steps."""

    def __init__(self, realize: Any, var: Any, steps: int, shapes: Mapping[Any, tuple[int, ...]]) -> None:
        self.realize, self.var, self.steps = realize, var, steps
        self.analyzer = sym.Analyzer()
        self.ranges: dict[Any, int] = {axis.var: int(axis.dom.extent) for axis in realize.block.iter_vars}
        structural_walk(realize.block.body, (tirx.For, self._inner))
        for inner, extent in self.ranges.items():
            self.analyzer.bind(inner, ir.Range(0, extent))
        self.accesses: list[Any] = []
        for part in self._statements():
            structural_walk(part, (tirx.BufferStore, self.accesses.append))
            structural_walk(part, (ir.TensorLoad, self.accesses.append))

    def _inner(self, loop: Any) -> None:
        self.ranges[loop.loop_var] = int(loop.extent)

    def _statements(self) -> list[Any]:
        block = self.realize.block
        return [block.body] if block.init is None else [block.init, block.body]

    def moves(self, index: Any) -> int | None:
        """By how much an index moves, whatever the other variables are; None where that depends."""
        if self.var is None or not _uses(index, self.var):
            return 0
        still = _without_loads(index)
        moved = self.analyzer.simplify(self._moved(still) - still)
        return int(moved) if isinstance(moved, tirx.IntImm) else None

    def _moved(self, expression: Any) -> Any:
        further = self.var + self.steps
        return structural_map(expression, (tirx.Var, lambda v: further if v.same_as(self.var) else v))

    def stays_below(self, index: Any, rows: int, extents: Mapping[Any, int]) -> bool:
        """Condition 4, of an index of what is cut."""
        analyzer = sym.Analyzer()
        for var, extent in {**self.ranges, **extents}.items():
            analyzer.bind(var, ir.Range(0, extent))
        bound = analyzer.const_int_bound(analyzer.simplify(_without_loads(index)))
        return bool(bound.min_value >= 0 and bound.max_value < rows)

    def else_the_same(self) -> bool:
        """Condition 3."""
        return self.var is None or not any(_uses(self._invariant(part), self.var) for part in self._statements())

    def _invariant(self, statement: Any) -> Any:
        """The statement without what it touches, and without comparisons that are the same in each piece."""
        values = list[Any]()
        structural_walk(statement, (tirx.BufferStore, lambda store: values.append(store.value)))
        structural_walk(statement, (tirx.IfThenElse, lambda branch: values.append(branch.condition)))
        return tirx.SeqStmt([tirx.Evaluate(tirx.const(0)), *(tirx.Evaluate(self._plain(value)) for value in values)])

    def _plain(self, value: Any) -> Any:
        def settled(comparison: Any) -> Any:
            if not _uses(comparison, self.var):
                return comparison
            before, after = self.analyzer.simplify(comparison), self.analyzer.simplify(self._moved(comparison))
            return tirx.const(True, "bool") if structural_equal(before, after) else comparison

        return structural_map(_without_loads(value), (_COMPARISONS, settled))


# ---- nodes -------------------------------------------------------------------------------------------------------


def _stores(node: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(node, (tirx.BufferStore, found.append))
    return found


def _without_loads(expression: Any) -> Any:
    """With an unknown in the place of each value that is read: it is the same wherever in its piece it is read."""
    return structural_map(
        expression, (ir.TensorLoad, lambda load: tirx.Var("loaded", str(load.source.dtype))), order="pre"
    )


def _uses(node: Any, var: Any) -> bool:
    found: list[Any] = []
    structural_walk(node, (tirx.Var, lambda v: found.append(v) if v.same_as(var) else None))
    return bool(found)


def _is_spatial(axis: Any) -> bool:
    return int(axis.iter_type) == int(tirx.IterVar.DataPar)


def _declared(buffer: Any, shape: tuple[int, ...] | None) -> Any:
    return tirx.decl_buffer(shape, str(buffer.dtype), buffer.name, layout=None)
