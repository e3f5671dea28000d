"""`CanonicalizeLoop`, with bounds that depend on the variable of an outer loop that is moved.

The pass replaces ``for i in range(1, n)`` by a loop from zero whose body has ``i + 1`` for ``i``. Inner loops that do
not start at zero either get the new ``i`` in their bodies only: their bounds, which it reads from the loop as it was,
keep the old one, and they run once too seldom. It is the first pass of TVM's own pipeline for CPUs, so that host
kernels lose iterations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from patches import Patch

UPSTREAM = """
--- a/src/s_tir/transform/canonicalize_loop.cc
+++ b/src/s_tir/transform/canonicalize_loop.cc
@@ Stmt VisitStmt_(const ForNode* op) final
-    PrimExpr step = op->step.value_or(IntImm(loop_var_ty, 1));
+    // The bounds may use the variables of outer loops, which are being replaced.
+    PrimExpr min = VisitPrimExpr(op->min);
+    PrimExpr extent = VisitPrimExpr(op->extent);
+    PrimExpr step = VisitPrimExpr(op->step.value_or(IntImm(loop_var_ty, 1)));
@@
-    new_iter_info_[loop_var] = std::make_pair(step, op->min);
+    new_iter_info_[loop_var] = std::make_pair(step, min);
@@
-    n->extent = analyzer_->Simplify(ceildiv(op->extent, step));
+    n->extent = analyzer_->Simplify(ceildiv(extent, step));
"""


def canonicalize_loop() -> Any:
    """A pass: every loop starts at zero and goes by one."""
    from tvm import tirx

    from compiler.tir.structure import structural_map

    @tirx.transform.prim_func_pass(opt_level=0, name="s_tir.CanonicalizeLoop")
    def run(func: Any, _module: Any, _context: Any) -> Any:
        # From the inside out: what an outer loop replaces in its body are bounds of inner loops, too.
        return func.with_body(structural_map(func.body, [(tirx.For, _from_zero)]))

    return run


def _from_zero(loop: Any) -> Any:
    from tvm import ir, sym, tirx

    from compiler.tir.structure import structural_map

    step = tirx.const(1, loop.loop_var.ty.dtype) if loop.step is None else loop.step
    if _is(loop.min, 0) and _is(step, 1):
        return loop
    analyzer = sym.Analyzer()
    if not analyzer.can_prove(step >= 1):
        raise ValueError(f"the step of loop {loop.loop_var} may not be positive: {step}")
    variable, value = loop.loop_var, loop.loop_var * step + loop.min

    def moved(used: Any) -> Any:
        return value if used.same_as(variable) else used

    extent = analyzer.simplify(tirx.ceildiv(loop.extent, step))
    body = structural_map(loop.body, [(ir.Var, moved)])
    zero = tirx.const(0, variable.ty.dtype)
    return tirx.For(variable, zero, extent, loop.kind, body, loop.thread_binding, loop.annotations)


def _is(bound: Any, value: int) -> bool:
    from tvm import tirx

    return isinstance(bound, tirx.IntImm) and int(bound) == value


def triangle() -> Any:
    """For i from 1 to 8: y[i] is how often the inner loop runs, which is i times."""
    from tvm import tirx

    y = tirx.decl_buffer((9,), "int32", "y")
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    count = tirx.BufferStore(y, tirx.BufferLoad(y, [i]) + 1, [i])
    inner = tirx.For(j, tirx.const(1, "int32"), i, tirx.ForKind.SERIAL, count)
    outer = tirx.For(i, tirx.const(1, "int32"), tirx.const(8, "int32"), tirx.ForKind.SERIAL, inner)
    return tirx.PrimFunc([y], outer).with_attr("global_symbol", "main")


def counted() -> list[int]:
    """What TVM's CPU build of the triangle computes: 0 to 8 where it is right."""
    import tvm

    y = tvm.runtime.tensor(np.zeros(9, np.int32))
    tvm.compile(tvm.IRModule({"main": triangle()}), target="llvm")["main"](y)
    return [int(count) for count in y.numpy()]


def shows_fault() -> bool:
    return counted() != list(range(9))


PATCH = Patch(
    why="TVM's CPU pipeline loses iterations of inner loops whose bounds use an outer loop that does not start at zero",
    upstream=UPSTREAM,
    replaces=("tvm.s_tir.transform:CanonicalizeLoop", "tvm.s_tir.transform.transform:CanonicalizeLoop"),
    fits={"0.27.0.post1": "7b440a82383da75a69fd5df0c24096b80d133e748fb3766492e63306f2fe45a9"},
    replacement=canonicalize_loop,
    shows_fault=shows_fault,
)
