"""Whether what an operator's function returned is something to compile; every refusal says what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.operators import refusals
from compiler.operators.reads import check_reads
from compiler.tir.scopes import ISA_DTYPE

# The chips do not have them, but ONNX's quantisation does: kernels of these run on the host.
ON_THE_HOST = ("uint16", "uint32")


def check_results(results: Sequence[Any], promised: int | None) -> None:
    """``promised`` is how many results the function's annotation says it has; None where it leaves that open."""
    from tvm import te, tirx

    if any(isinstance(result, tirx.PrimFunc) for result in results):
        if len(results) != 1:
            raise refusals.wrong_result("a function that writes its own loops returns one PrimFunc")
        return
    if not results:
        raise refusals.wrong_result("it returns nothing")
    for result in results:
        if not isinstance(result, te.Tensor):
            text = f"it returns {_named(result)} where a te.Tensor is expected"
            raise refusals.wrong_result(text, "write `return te.compute(...)`")
        if isinstance(result.op, te.PlaceholderOp):
            text = f"it returns its input {result.op.name!r} as it is"
            raise refusals.wrong_result(text, "copy it: te.compute(x.shape, lambda *i: x(*i))")
    if promised is not None and promised != len(results):
        raise refusals.wrong_result(f"it returns {len(results)} tensors, but its annotation says {promised}")


def check_stages(results: Sequence[Any]) -> None:
    """Every stage behind the results has an element type of the chip, and calls nothing from outside."""
    from tvm import ir, te

    from compiler.tir.structure import structural_walk

    waiting, seen = [result for result in results if isinstance(result, te.Tensor)], set[Any]()
    while waiting:
        tensor = waiting.pop()
        if tensor.op in seen:
            continue
        seen.add(tensor.op)
        if str(tensor.dtype) not in (*ISA_DTYPE, *ON_THE_HOST):
            raise refusals.stage_dtype(tensor.op.name, str(tensor.dtype), tuple(ISA_DTYPE))
        if isinstance(tensor.op, te.ScanOp):
            raise refusals.scanned(tensor.op.name)
        if not isinstance(tensor.op, te.ComputeOp | te.ExternOp):
            continue
        calls: list[Any] = []
        is_computed = isinstance(tensor.op, te.ComputeOp)
        for value in tensor.op.body if is_computed else [tensor.op.body]:
            structural_walk(value, (ir.Call, calls.append))
        for call in calls:
            name = str(getattr(call.op, "name", call.op))
            if name in _OUTSIDE:
                raise refusals.calls_outside(tensor.op.name, name)
        if is_computed:
            _check_reductions(tensor.op)
            check_reads(tensor.op, calls)
        waiting += list(tensor.op.input_tensors if is_computed else tensor.op.inputs)


def _check_reductions(stage: Any) -> None:
    """TE takes conditions and initial values, but makes loops without them."""
    from tvm import tirx

    for value in stage.body:
        if not isinstance(value, tirx.Reduce):
            continue
        if not (isinstance(value.condition, tirx.IntImm) and int(value.condition)):
            raise refusals.reduced_under_condition(stage.name)
        if len(value.init):
            raise refusals.reduced_from(stage.name)


def check_lengths(func: Any) -> None:
    """Every axis of the loops that TVM made of stages has a length that is one number."""
    from tvm import tirx

    from compiler.tir.made_stages import stages_of
    from compiler.tir.sblocks import innermost

    for block in (realize.block for stage in stages_of(func) for realize in innermost(stage)):
        for axis in block.iter_vars:
            if not isinstance(axis.dom.extent, tirx.IntImm):
                raise refusals.unknown_extent(str(block.name_hint), str(axis.var.name).removeprefix("v_"))


_OUTSIDE = frozenset({
    "tirx.call_extern", "tirx.call_pure_extern", "tirx.call_llvm_intrin", "tirx.call_llvm_pure_intrin",
    "tirx.tvm_call_packed", "tirx.tvm_call_cpacked",
})  # fmt: skip


def _named(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
