"""What an operator of the graph asks of the chip: products, elements for the vector unit, and bytes of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import ir, s_tir, sym, tirx

from compiler import graph
from compiler.isa.dtypes import DTYPES
from compiler.target import Chip
from compiler.tir.scopes import ISA_DTYPE
from compiler.tir.structure import answered_once, structural_walk

# Shares of what the chip could do at most that kernels come to, as measured on ResNet-50, BERT and MobileNet on one
# cluster of tw1, and the cycles in which a kernel's queues fill and drain.
CUBE_SHARE, VECTOR_SHARE, DDR_SHARE, LLB_SHARE = 0.7, 0.7, 0.95, 0.6
BORDER_CYCLES = 800
_BLOCK = 16  # rows and columns of the cube's blocks
_VECTOR_BYTES = 4  # per element: most is worked out in fp32
_FUNCTION = 5  # instructions of a function such as tanh


@dataclass(frozen=True)
class Work:
    """Of one call, for all of its pieces together."""

    cube_cycles: float  # of all cores, in whole blocks
    rows: int  # of products, that pieces share
    vector_bytes: int


def work_of(module: Any, callee: str, chip: Chip) -> Work:
    cycles, rows, elements = 0.0, 0, 0
    for function in functions_of(module, callee):
        asked = _asked_of(function)
        elements += asked.elements
        for dtype, points, own_rows in asked.products:
            if chip.multiplies(dtype):
                cycles += points / chip.macs_per_cycle(dtype)
                rows = max(rows, own_rows)
            else:
                elements += points
    return Work(cycles, rows, elements * _VECTOR_BYTES)


@dataclass(frozen=True)
class _Asked:
    """By a function of whatever chip it is."""

    products: tuple[tuple[str, int, int], ...]  # of the cube, if it multiplies that: type, how many, and rows of them
    elements: int  # of the vector unit


@answered_once
def _asked_of(func: Any) -> _Asked:
    products, elements = list[tuple[str, int, int]](), _elements_in_turn(func)
    for block in _blocks(func):
        points = prod(int(axis.dom.extent) for axis in block.iter_vars)
        if "tw.role" in block.annotations:
            products.append((_operand_dtype(block), points, _rows(block)))
        elif not _moves_only(block):
            elements += points
    return _Asked(tuple(products), elements)


def read_shares(module: Any, callee: str) -> tuple[float, ...]:
    """Of each of its inputs, how much a call reads at most: rows that it picks, where it picks some."""
    function = module[callee]
    if isinstance(function, tirx.PrimFunc):
        return _loaded_shares(function)
    body = graph.read(function)
    found = dict.fromkeys(body.params, 0.0)
    for call in body.calls:
        for value, share in zip(call.arguments, read_shares(module, call.callee), strict=True):
            if value in found:
                found[value] = min(1.0, found[value] + share)
    return tuple(found.values())


@answered_once
def _loaded_shares(func: Any) -> tuple[float, ...]:
    found, written = dict.fromkeys(func.params, 0), set[Any]()
    structural_walk(func.body, (tirx.BufferStore, lambda store: written.add(store.buffer)))
    for block in _blocks(func):
        extents = {axis.var: int(axis.dom.extent) for axis in block.iter_vars}
        analyzer, loads = sym.Analyzer(), list[Any]()
        for var, extent in extents.items():
            analyzer.bind(var, ir.Range(0, extent))
        structural_walk(block.body, (ir.TensorLoad, loads.append))
        for load in loads:
            if load.source in found:
                found[load.source] += prod(_places(index, extents, analyzer) for index in load.indices)
    sizes = {param: prod(int(extent) for extent in param.shape) for param in func.params}
    return tuple(min(1.0, elems / max(1, sizes[param])) for param, elems in found.items() if param not in written)


def _places(index: Any, extents: Mapping[Any, int], analyzer: Any) -> int:
    """How far an index goes; where data says where, how often it does."""
    loads, used = list[Any](), set[Any]()
    structural_walk(index, (ir.TensorLoad, loads.append))
    if loads:
        structural_walk(index, (tirx.Var, used.add))
        return prod(extents.get(var, 1) for var in used)
    bound = analyzer.const_int_bound(index)
    return int(bound.max_value - bound.min_value + 1)


def cycles_of(work: Work, count: int, near_bytes: int, far_bytes: int, whole_bytes: int, chip: Chip) -> float:
    """Of one piece of ``count``: the busiest of what works at the same time, and what no other kernel hides.

    ``near_bytes`` and ``far_bytes`` are those of its tensors in LLB and in DDR, ``whole_bytes`` what each piece reads
    again from DDR.
    """
    rows = max(1, work.rows // count)
    full = rows / (-(-rows // _BLOCK) * _BLOCK)
    rates = chip.bandwidth
    return BORDER_CYCLES + max(
        work.cube_cycles / count / full / chip.cores / CUBE_SHARE,
        work.vector_bytes / count / chip.vector.bytes_per_cycle / chip.cores / VECTOR_SHARE,
        (far_bytes / count + whole_bytes) * 1000 / rates.ddr_bytes_per_kilocycle / DDR_SHARE,
        near_bytes / count * 1000 / rates.llb_bytes_per_kilocycle / LLB_SHARE,
    )


def size_bytes(kind: Any) -> int:
    """Of a tensor's type, as the chip keeps it."""
    return prod(graph.extents_of(kind)) * DTYPES[ISA_DTYPE[str(kind.dtype)]].itemsize


def functions_of(module: Any, callee: str) -> list[Any]:
    """What a call does, one after another."""
    function = module[callee]
    if isinstance(function, tirx.PrimFunc):
        return [function]
    return [module[call.callee] for call in graph.read(function).calls]


def _blocks(func: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(func.body, (s_tir.SBlock, found.append))
    return [block for block in found if block.iter_vars]


def _elements_in_turn(func: Any) -> int:
    """Of what is written out as loops, since its turns depend on each other: a recurrence, a choice among boxes.

    Sums of products are not counted, which the cube takes.
    """

    def elements(statement: Any, times: int) -> int:
        match statement:
            case tirx.For():
                extent = statement.extent
                return elements(statement.body, times * (int(extent) if isinstance(extent, tirx.IntImm) else 1))
            case tirx.SeqStmt():
                return sum(elements(each, times) for each in statement.seq)
            case tirx.IfThenElse():
                otherwise = elements(statement.else_case, times) if statement.else_case is not None else 0
                return elements(statement.then_case, times) + otherwise
            case s_tir.SBlockRealize():
                return 0 if statement.block.iter_vars else elements(statement.block.body, times)
            case tirx.BufferStore():
                return 0 if _adds_product(statement) else times * max(1, _operations(statement.value))
        body = getattr(statement, "body", None)
        return 0 if body is None else elements(body, times)

    return elements(func.body, 1)


def _operations(value: Any) -> int:
    if isinstance(value, ir.Call):
        return _FUNCTION + sum(map(_operations, value.args))
    if isinstance(value, tirx.Cast):
        return _operations(value.value)
    operands = [getattr(value, name, None) for name in ("a", "b")]
    return 1 + sum(map(_operations, operands)) if all(operand is not None for operand in operands) else 0


def _adds_product(store: Any) -> bool:
    value = store.value
    return isinstance(value, tirx.Add) and isinstance(value.a, ir.TensorLoad) and isinstance(value.b, tirx.Mul)


def _operand_dtype(block: Any) -> str:
    loads: list[Any] = []
    structural_walk(block.body, (ir.TensorLoad, loads.append))
    written = block.writes[0].source
    return next((str(load.source.dtype) for load in loads if not load.source.same_as(written)), str(written.dtype))


def _rows(block: Any) -> int:
    """Positions of the result: its last axis is columns or channels."""
    spatial = [int(axis.dom.extent) for axis in block.iter_vars if int(axis.iter_type) == int(tirx.IterVar.DataPar)]
    return prod(spatial[:-1])


def _moves_only(block: Any) -> bool:
    """Whether a block only brings elements to another place, as the windows of a convolution: loads do that."""
    stores: list[Any] = []
    structural_walk(block.body, (tirx.BufferStore, stores.append))
    values = [store.value for store in stores]
    chosen = [v.args[1] if isinstance(v, ir.Call) and "if_then_else" in str(v.op) else v for v in values]
    return all(isinstance(value, (ir.TensorLoad, tirx.FloatImm, tirx.IntImm)) for value in chosen)
