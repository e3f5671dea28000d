"""Sums that begin with a bias instead of with zero: nothing is left to add behind the product.

Where the cube reads what sums begin with from a table, each column of the result has its element there; where there is
no table, the cube can multiply ones with the bias. A bias of a narrow type becomes as wide as sums on its way to the
table, so that a result is rounded once, with its bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import ir, s_tir, te, tirx
from tvm.sym import detect_linear_equation
from tvm_ffi import structural_equal

from compiler.emission.cube.bias import BIAS as MARK
from compiler.emission.cube.halves import HALVES
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.convolution_stages import merged
from compiler.tiling.convolution_tiles import KD, KH, KW
from compiler.tiling.epilogue import epilogue_of
from compiler.tiling.masters import Master, masters_of
from compiler.tiling.schedule import schedule_of
from compiler.tir.products import operands_of
from compiler.tir.rewriter import substitute
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map, structural_walk

BT = "local.bt"
BIAS = 2  # which of the reads of a product


@dataclass(frozen=True)
class _Added:
    """A stage that adds a bias to the sums of a product, or to what they are rounded to."""

    stage: Any
    bias: Any  # a load of a parameter
    column: Any  # the axis of the stage that counts columns
    alone: Any  # what the stage does without

    @staticmethod
    def of(sch: Any, master: Master) -> _Added | None:
        """By the only stage that reads the sums, or the only one that reads what this one rounds them to."""
        parameters, result = list(sch.mod["main"].params), sch.get(master.block).writes[0].source
        readers = sch.get_consumers(master.block)
        if len(readers) == 1 and _rounds(sch.get(readers[0]), result) and not _is_among(result, parameters):
            result = sch.get(readers[0]).writes[0].source
            readers = sch.get_consumers(readers[0])
        if len(readers) != 1 or _is_among(result, parameters):
            return None
        return _Added._in(sch.get(readers[0]), result, parameters)

    @staticmethod
    def _in(stage: Any, result: Any, parameters: Sequence[Any]) -> _Added | None:
        axes, found = [axis.var for axis in stage.iter_vars], list[Any]()

        def without(total: Any) -> Any:
            for value, other in ((total.a, total.b), (total.b, total.a)):
                bias = _bias(other, axes, parameters) if _is_in_order(value, result, axes) else None
                if bias is not None and (not found or structural_equal(bias, found[0])):
                    found.append(bias)
                    return value
            return total

        alone, loads = structural_map(stage.body, (tirx.Add, without)), list[Any]()
        structural_walk(alone, (ir.TensorLoad, loads.append))
        if not found or len([load for load in loads if load.source.same_as(result)]) != len(found):
            return None
        if any(load.source.same_as(found[0].source) for load in loads):
            return None
        return _Added(stage, found[0], axes[-1], alone)

    @property
    def is_of_columns(self) -> bool:
        """Whether columns alone say which element is added, each its own."""
        return bool(self.bias.indices[-1].same_as(self.column))


def _rounds(block: Any, sums: Any) -> bool:
    """Whether a stage rounds sums, and no more."""
    value = block.body.value if isinstance(block.body, tirx.BufferStore) and block.init is None else None
    axes = [axis.var for axis in block.iter_vars]
    return isinstance(value, tirx.Cast) and _is_in_order(value.value, sums, axes) and _in_order(block.body, axes)


def _is_in_order(value: Any, buffer: Any, axes: Sequence[Any]) -> bool:
    return isinstance(value, ir.TensorLoad) and value.source.same_as(buffer) and _in_order(value, axes)


def _in_order(access: Any, axes: Sequence[Any]) -> bool:
    indices = list(access.indices)
    return len(indices) == len(axes) and all(i.same_as(v) for i, v in zip(indices, axes, strict=True))


def _bias(value: Any, axes: Sequence[Any], parameters: Sequence[Any]) -> Any | None:
    """The load of a parameter that a value is or makes wider, if it moves on with the last axis, element by element."""
    load = value.value if isinstance(value, tirx.Cast) and str(value.ty) == "float32" else value
    if not isinstance(load, ir.TensorLoad) or not _is_among(load.source, parameters) or not len(load.indices):
        return None
    *outer, last = load.indices
    linear = detect_linear_equation(last, axes)
    per_column = len(linear) == len(axes) + 1 and isinstance(linear[-2], tirx.IntImm) and int(linear[-2]) == 1
    alone = all(isinstance(index, tirx.IntImm) and int(index) == 0 for index in outer)
    return load if per_column and alone else None


def _is_among(buffer: Any, buffers: Sequence[Any]) -> bool:
    return any(buffer.same_as(one) for one in buffers)


# ---- of convolutions ---------------------------------------------------------------------------------------------


def started_with_bias(func: Any, chip: Chip) -> Any:
    """The function whose sums begin with the bias that its first stage adds, where the cube can begin so.

    It can where there is a table of it; where there is none, it can multiply ones with it, and does so where that pays.
    """
    sch = schedule_of(func)
    master = masters_of(sch)[0]
    if not (begins_with_table(chip) or _can_multiply(sch, master.block, chip)):
        return func
    product, added = sch.get(master.block), _Added.of(sch, master)
    if added is None or str(added.bias.ty) != str(product.body.buffer.dtype) or len(added.bias.indices) != 1:
        return func
    own = [axis.var for axis in added.stage.iter_vars]
    index = substitute(added.bias.indices[0], dict(zip(own, product.body.indices, strict=True)))
    begun = _begun(func, product, added, added.bias.source, [index])
    return begun if begins_with_table(chip) or _pays_to_multiply(sch, begun, chip) else func


def begins_with_table(chip: Chip) -> bool:
    """Whether the cube reads what sums begin with from a table."""
    return cube.path(chip, "l1", "bt") and cube.path(chip, "ddr", "l1")


def _begun(func: Any, product: Any, added: _Added, source: Any, indices: Sequence[Any]) -> Any:
    init = tirx.BufferStore(product.body.buffer, tirx.BufferLoad(source, indices), list(product.body.indices))
    region = tirx.BufferRegion(source, [ir.Range.from_min_extent(index, 1) for index in indices])
    others = [region for region in added.stage.reads if not region.source.same_as(added.bias.source)]
    said = {"tw.role": "matmul", **product.annotations}  # sums that begin with zero are known to be products without
    begun = with_block(func, block_with(product, annotations=said), [*product.reads, region], product.body, init)
    return with_block(begun, added.stage, others, added.alone, None)


def _can_multiply(sch: Any, master: Any, chip: Chip) -> bool:
    """Whether what sums begin with can be a product of its own.

    Channels of a core begin with a block of them then, wherever they begin.
    """
    product = sch.get(master)
    factors = {cube.isa_dtype(operand.source) for operand in operands_of(product)}
    paths = (("ddr", "ub"), ("ub", "l1"), ("l1", "l0a"), ("l1", "l0b"))
    channels = int(product.iter_vars[len(product.body.indices) - 1].dom.extent)
    return factors == {"fp16"} and all(cube.path(chip, *each) for each in paths) and channels % FRACTAL == 0


def _pays_to_multiply(sch: Any, begun: Any, chip: Chip) -> bool:
    """Whether the vector unit would be busier without than the cube is with that product.

    Half as busy is enough where nothing is left for it then, since the fixpipe does the rest, and windows are single
    elements: what such short products make waits for whatever is behind them.
    """
    master, after = masters_of(sch)[0], schedule_of(begun)
    product = sch.get(master.block)
    extents = [int(axis.dom.extent) for axis in product.iter_vars]
    of_cube = prod(extents[len(product.body.indices) :]) / chip.macs_per_cycle("fp16")
    of_vector = epilogue_of(sch, master, joined=True).vector_bytes / chip.vector.bytes_per_cycle
    single = all(extents[axis] == 1 for axis in (KD, KH, KW))
    if single and not epilogue_of(after, masters_of(after)[0]).instructions:
        return of_vector * 2 >= of_cube
    return of_vector > of_cube + FRACTAL / chip.macs_per_cycle("fp16")


def bring_bias(sch: Any, master: Any, at_far: Any, at_near: Any, chip: Chip) -> None:
    """What sums begin with comes to L1 in every turn of a loop, and beside the cube in those of one in it."""
    beside, what = (BT, MARK) if begins_with_table(chip) else (cube.L0B, HALVES)
    far = sch.cache_read(master, BIAS, cube.L1)
    near = sch.cache_read(master, BIAS, beside)
    for copy, loop in ((near, at_near), (far, at_far)):
        sch.compute_at(copy, loop, preserve_unit_loops=True)
        cube.mark(sch, copy, loop, what)


# ---- of products of matrices -------------------------------------------------------------------------------------


def matrix_started_with_bias(func: Any, chip: Chip) -> Any:
    """The function of one product whose sums begin with the bias that is added to it, where there is a table of it.

       c[m, n] += a[m, k] * b[k, n];  r[m, n] = cast16(c[m, n]);  result[m, n] = max(r[m, n] + bias[n], 0)
    -> begin[n] = cast32(bias[n])
       c[m, n] = begin[n], c[m, n] += a[m, k] * b[k, n];  result[m, n] = cast16(max(c[m, n], 0))
    """
    if not begins_with_table(chip):
        return func
    sch = schedule_of(func)
    master = masters_of(sch)[0]
    product, added = sch.get(master.block), _Added.of(sch, master)
    columns = len(product.body.indices) - 1
    if added is None or not added.is_of_columns or master.axes("n") != [columns]:
        return func
    begin, nest = _widened(product, added.bias)
    begun = _begun(func, product, added, begin, [product.body.indices[columns]])
    return merged(_with_stage(begun, begin, nest), moves=False)


def _widened(product: Any, bias: Any) -> tuple[Any, Any]:
    """What the sums of a product begin with, and the stage that makes it of a bias."""
    sums, (width,) = product.body.buffer, [int(extent) for extent in bias.source.shape][-1:]
    name = f"{product.name_hint}_begin"
    added = te.placeholder([int(extent) for extent in bias.source.shape], str(bias.ty), "bias")
    outer = [0] * (len(bias.indices) - 1)
    made = te.compute([width], lambda n: added[(*outer, n)].astype(str(sums.dtype)), name)
    func = te.create_prim_func([added, made])
    begin = tirx.decl_buffer([width], str(sums.dtype), name, layout=None)
    buffers = dict(zip(func.params, (bias.source, begin), strict=True))
    return begin, structural_map(func.body.block.body, (tirx.Var, lambda var: buffers.get(var, var)))


def _with_stage(func: Any, made: Any, nest: Any) -> Any:
    """The function with a stage more, before all others, and the buffer that it makes."""
    root = func.body.block
    nests = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    body, buffers = tirx.SeqStmt([nest, *nests]), [*root.alloc_buffers, made]
    return func.with_body(s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body, alloc_buffers=buffers)))


def bias_bytes(sch: Any, master: Any) -> int:
    """Of an element of the bias, as it comes to L1, of which a stage makes what the sums of a product begin with."""
    near = beginning_of(sch, master)
    return 0 if near is None else DTYPES[cube.isa_dtype(sch.get(near).reads[0].source)].itemsize


def beginning_of(sch: Any, master: Any) -> Any | None:
    """The stage that makes what the sums of a product begin with, if there is one."""
    block = sch.get(master)
    begin = block.reads[BIAS].source if len(block.reads) > BIAS else None
    makers = (one for one in sch.get_producers(master) if sch.get(one).writes[0].source.same_as(begin))
    return next(makers, None)


def bring_begin(sch: Any, master: Any, at_far: Any, at_near: Any) -> None:
    """The same of a stage that makes what sums begin with."""
    near = beginning_of(sch, master)
    sch.set_scope(near, 0, BT)
    sch.compute_at(near, at_near, preserve_unit_loops=True)
    far = sch.cache_read(near, 0, cube.L1)
    sch.compute_at(far, at_far, preserve_unit_loops=True)
    for copy, loop in ((near, at_near), (far, at_far)):
        cube.mark(sch, copy, loop, MARK)


def with_block(func: Any, block: Any, reads: Sequence[Any], body: Any, init: Any) -> Any:
    """The function with other contents of a block."""
    changed = block_with(block, reads=list(reads), body=body, init=init)
    return structural_map(func, (s_tir.SBlock, lambda one: changed if one.name_hint == block.name_hint else one))
