"""How a scheduled kernel becomes loops over buffers, and how large those must be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import ir, s_tir, sym, tirx

from compiler.tir.as_it_is import hidden, shown
from compiler.tir.structure import structural_map, structural_walk

BLOCK_BYTES = 32
# No FlattenBuffer: emission wants to see rows and columns.
TVM_PASSES = (
    "LowerInitBlock",
    "PlanAndUpdateBufferAllocationLocation",
    "ConvertBlocksToOpaque",
    "CompactBufferAllocation",
    "LowerMatchBuffer",
    "LowerOpaqueBlock",
    "StmtSimplify",
)


def lower_blocks(func: Any) -> Any:
    """Sblocks to plain loops, ifs and stores, by TVM's own passes."""
    module = ir.IRModule({"main": hidden(_within_results(func))})
    for name in TVM_PASSES:
        module = getattr(s_tir.transform, name)()(module)
    return shown(module["main"])


def _within_results(func: Any) -> Any:
    """Blocks that run over more than the result that they write do so within it only.

    TVM caches a result by what it takes a block to write at most. Where the cores of a grid outnumber the tiles, that
    is more than there is, and nothing keeps the block from it.
    """

    def realized(realize: Any) -> Any:
        block, condition = realize.block, realize.predicate
        store = block.body
        if not isinstance(store, tirx.BufferStore) or store.buffer.scope() != "global":
            return realize
        extents = {
            axis.var: (axis.dom.extent, value) for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)
        }
        for index, size in zip(store.indices, store.buffer.shape, strict=True):
            extent, value = extents.get(index, (size, None))
            if value is not None and int(extent) > int(size):
                condition = tirx.And(condition, value < size)
        if condition.same_as(realize.predicate):
            return realize
        return s_tir.SBlockRealize(realize.iter_values, condition, block, realize.span)

    return func.with_body(structural_map(func.body, (s_tir.SBlockRealize, realized)))


def shrink_buffers(func: Any) -> Any:
    """Each dimension of each on-chip buffer cut to its largest index."""
    reach = _Reach()
    reach.visit(func.body)
    smaller = dict[Any, Any]()
    for buffer in reach.allocated:
        shape = [int(n) for n in buffer.shape]
        used = [min(n, reach.extents.get((buffer, axis), n)) for axis, n in enumerate(shape)]
        if used != shape:
            smaller[buffer] = tirx.decl_buffer(used, buffer.dtype, buffer.name, scope=buffer.scope(), layout=None)
    if not smaller:
        return func
    return func.with_body(structural_map(func.body, (tirx.Var, lambda var: smaller.get(var, var))))


@dataclass
class _Reach:
    """The largest index of each dimension of each buffer, plus one, over one walk of the kernel."""

    allocated: list[Any] = field(default_factory=list)
    extents: dict[tuple[Any, int], int] = field(default_factory=dict)
    _ranges: dict[Any, tuple[int, int]] = field(default_factory=dict)
    _analyzer: Any = field(default_factory=sym.Analyzer)

    def visit(self, statement: Any) -> None:
        if isinstance(statement, tirx.AllocBuffer):
            self.allocated.append(statement.buffer)
        elif isinstance(statement, tirx.SeqStmt):
            for inner in statement.seq:
                self.visit(inner)
        elif isinstance(statement, tirx.For):
            self._bind(statement.loop_var, statement.min, statement.extent)
            self.visit(statement.body)
        elif isinstance(statement, tirx.AttrStmt):
            if statement.attr_key == "thread_extent":
                self._bind(statement.node.var, tirx.IntImm("int32", 0), statement.value)
            self.visit(statement.body)
        elif isinstance(statement, tirx.IfThenElse):
            self._loads(statement.condition)
            self.visit(statement.then_case)
            if statement.else_case is not None:
                self.visit(statement.else_case)
        elif isinstance(statement, tirx.BufferStore):
            self._access(statement.buffer, statement.indices)
            self._loads(statement)
        else:
            self._loads(statement)

    def _bind(self, variable: Any, low: Any, extent: Any) -> None:
        bound = self._analyzer.const_int_bound(low), self._analyzer.const_int_bound(extent)
        first, count = bound[0].min_value, max(1, bound[1].max_value)
        self._ranges[variable] = (first, bound[0].max_value + count - 1)
        self._analyzer.bind(variable, ir.Range(first, self._ranges[variable][1] + 1))

    def _loads(self, node: Any) -> None:
        structural_walk(node, (ir.TensorLoad, lambda load: self._access(load.source, load.indices)))

    def _access(self, buffer: Any, indices: Any) -> None:
        if buffer.scope() == "global":
            return
        for axis, index in enumerate(indices):
            key = (buffer, axis)
            self.extents[key] = max(self.extents.get(key, 1), self._last(index) + 1)

    def _last(self, index: Any) -> int:
        """The largest value of an index. What a variable adds linearly is taken out, for the rest to simplify."""
        last = 0
        for variable in _variables(index):
            if variable not in self._ranges:
                continue
            linear = sym.detect_linear_equation(index, [variable])
            if not linear or not isinstance(linear[0], tirx.IntImm):
                continue
            low, high = self._ranges[variable]
            factor = int(linear[0])
            last += factor * (high if factor > 0 else low)
            index = linear[1]
        return last + int(self._analyzer.const_int_bound(self._analyzer.simplify(index)).max_value)


def _variables(index: Any) -> list[Any]:
    found = dict[Any, None]()
    structural_walk(index, (tirx.Var, lambda var: found.setdefault(var)))
    return list(found)
