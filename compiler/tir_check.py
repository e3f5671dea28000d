"""Whether two forms of a kernel compute the same: both run on the host on random inputs, and are compared.

Works on loop form and nest form. Scopes become host memory and core numbers serial loops, so a kernel that is wrong
on purpose of its scopes alone (a buffer too small for a memory) passes here; one that is wrong in what it stores
does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import ir, tirx

from compiler.tir.conditions import unhinted
from compiler.tir.rewriter import Rewriter, is_opaque
from compiler.tir.structure import structural_map

DEFAULT_RANGE = (0, 4)
"""From (included) and to (excluded) which integers are drawn: valid as most indices, and small enough to sum."""

REASSOCIATION_ULPS = {8: 256, 4: 256, 2: 16}
"""By bytes: how many units in the last place, at the size of the tensor's values, another order of summing may make.

Rounding errors of a sum grow about with the root of its length: 65,536 elements, or 256 in the types of 16 bits, in
which nobody sums more."""

LONG = 1_000_000
"""Stores of a kernel that is worth being optimised: others run sooner as they are."""

_EXTENDED = {"bfloat16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Difference:
    """Where two kernels differ: the first element, and how many there are."""

    buffer: str
    index: tuple[int, ...]
    before: Any
    after: Any
    count: int

    def __str__(self) -> str:
        place = f"{self.buffer}[{', '.join(map(str, self.index))}]"
        return f"{place} was {self.before} and becomes {self.after}; {self.count} elements differ"


def differs(
    before: tirx.PrimFunc,
    after: tirx.PrimFunc,
    *,
    seed: int,
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> Difference | None:
    """Run both kernels on the same random arrays; the first difference in what their parameters hold afterwards.

    ``ranges`` gives, by parameter name, the integers to draw from (first, one past the last): indices must stay in
    range. Floats are drawn with both signs, then once more positive, as logarithms and roots want them.
    """
    first, second = host_kernel(before), host_kernel(after)
    for positive in (False, True):
        inputs = _draw(before, np.random.default_rng(seed), ranges or {}, positive)
        found = _first_difference(_run(first, inputs), _run(second, inputs), [p.name for p in before.params])
        if found is not None:
            return found
    return None


@lru_cache(maxsize=2)  # what one pass makes, the next one begins with
def host_kernel(func: tirx.PrimFunc) -> Any:
    """The kernel as a function of tensors on the host, by TVM's code generation."""
    func = _Hosted().function(func)
    func = structural_map(func, [(ir.Var, _HostBuffers()), (ir.Call, unhinted)])
    module = ir.IRModule({"main": func.with_attr("global_symbol", "main")})
    target = {"kind": "llvm", "opt-level": 2 if _stores(func.body) > LONG else 0}
    # Arguments are made for the kernel: code that looks at them would be half of what there is to compile.
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        return tvm.compile(module, target=target, tir_pipeline=_pipeline())["main"]


def _stores(stmt: Any) -> int:
    """How often the statements in one run, at most, where numbers say so."""
    if isinstance(stmt, tirx.SeqStmt):
        return sum(map(_stores, stmt.seq))
    if isinstance(stmt, tirx.For):
        return _extent(stmt.extent) * _stores(stmt.body)
    if isinstance(stmt, tirx.AttrStmt):
        return (_extent(stmt.value) if stmt.attr_key == "thread_extent" else 1) * _stores(stmt.body)
    if isinstance(stmt, tirx.IfThenElse):
        return _stores(stmt.then_case) + (0 if stmt.else_case is None else _stores(stmt.else_case))
    inside = getattr(stmt, "block", stmt)
    return _stores(inside.body) if hasattr(inside, "body") else 1


def _extent(extent: Any) -> int:
    return int(extent) if isinstance(extent, tirx.IntImm) else 1


@cache
def _pipeline() -> str:
    """The name of a way through TVM that only lowers.

    The default one of TVM 0.27 also canonicalises, splits and hoists, and loses iterations of loops that do not
    start at zero, and stores next to ``likely``: what is to be checked must not meet the same passes again.
    """
    name = "tilewright-check"
    names = (
        "FlattenBuffer",
        "BF16ComputeLegalize",
        "NarrowDataType",
        "StmtSimplify",
        "AnnotateEntryFunc",
        "SplitHostDevice",
        "MakePackedAPI",
        "BF16StorageLegalize",
    )
    passes = [getattr(tirx.transform, each)(*((32,) if each == "NarrowDataType" else ())) for each in names]
    finish = tirx.compilation_pipeline.finalize_host_passes, tirx.compilation_pipeline.finalize_device_passes
    tirx.register_tir_pipeline(name, lambda: (tvm.transform.Sequential(passes), *finish))
    return name


class _Hosted(Rewriter):
    """Core numbers become loops, marks and annotations go."""

    def attribute(self, attribute: tirx.AttrStmt) -> Any | None:
        body = self.statement(attribute.body)
        if attribute.attr_key == "thread_extent":
            return tirx.For(attribute.node.var, 0, attribute.value, tirx.ForKind.SERIAL, body)
        return tirx.AttrStmt(attribute.node, attribute.attr_key, attribute.value, body)

    def other(self, stmt: Any) -> Any | None:
        if isinstance(stmt, tirx.AttrStmt) and is_opaque(stmt):
            return self.statement(stmt.body)
        return tirx.AllocBuffer(stmt.buffer) if isinstance(stmt, tirx.AllocBuffer) else stmt

    def loop(self, loop: tirx.For) -> Any | None:
        body = self.statement(loop.body)
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, body, step=loop.step)


class _HostBuffers:
    """Buffers of on-chip scopes, as buffers of the host."""

    def __init__(self) -> None:
        self.hosted: dict[Any, Any] = {}

    def __call__(self, var: Any) -> Any:
        if not tirx.is_buffer_var(var) or var.scope() == "global":
            return var
        if var not in self.hosted:
            self.hosted[var] = tirx.decl_buffer(var.shape, var.dtype, var.name)
        return self.hosted[var]


def _draw(
    func: tirx.PrimFunc, random: np.random.Generator, ranges: Mapping[str, tuple[int, int]], positive: bool
) -> list[np.ndarray]:
    return [_array(param, random, ranges, positive) for param in func.params]


def _array(
    param: Any, random: np.random.Generator, ranges: Mapping[str, tuple[int, int]], positive: bool
) -> np.ndarray:
    shape, name = [int(extent) for extent in param.shape], str(param.dtype)
    if name == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    if name.startswith(("int", "uint")):
        return random.integers(*ranges.get(param.name, DEFAULT_RANGE), size=shape).astype(name)
    values = random.uniform(0.25, 2.0, shape)
    if not positive:
        values *= random.choice((-1.0, 1.0), shape)
    return values.astype(_EXTENDED.get(name, name))


def _run(kernel: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    tensors = [tvm.runtime.tensor(array) for array in inputs]
    kernel(*tensors)
    return [tensor.numpy() for tensor in tensors]


def _first_difference(before: list[np.ndarray], after: list[np.ndarray], names: list[str]) -> Difference | None:
    for old, new, name in zip(before, after, names, strict=True):
        wrong = ~_agree(old, new)
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            return Difference(name, index, old[index].item(), new[index].item(), int(wrong.sum()))
    return None


def _agree(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Elementwise: integers equal, floats but for the order of sums."""
    if old.dtype.kind in "iub":
        return np.asarray(old == new)
    unit = float(ml_dtypes.finfo(old.dtype).eps)  # type: ignore[no-untyped-call]
    wide_old, wide_new = old.astype(np.float64), new.astype(np.float64)
    finite = np.abs(wide_old[np.isfinite(wide_old)])
    size = np.maximum(np.abs(wide_old), finite.mean() if finite.size else 0.0)
    with np.errstate(invalid="ignore"):
        close = np.abs(wide_old - wide_new) <= REASSOCIATION_ULPS[old.dtype.itemsize] * unit * size
    return close | (wide_old == wide_new) | (np.isnan(wide_old) & np.isnan(wide_new))
