"""ShrinkBuffers: buffers as long as their largest index."""

from __future__ import annotations

from tvm.script import tirx as T

from passes.tir.shrink_buffers import ShrinkBuffers
from tests.passes.tir.rewriting import TINY, keeps


def shapes(kernel: object) -> dict[str, list[int]]:
    from tvm import tirx
    from tvm_ffi import structural_walk

    found: dict[str, list[int]] = {}

    def visit(node: object) -> None:
        found[node.buffer.name] = [int(n) for n in node.buffer.shape]  # type: ignore[attr-defined]

    structural_walk(ShrinkBuffers().run(kernel, TINY), (tirx.AllocBuffer, visit))
    return found


def test_a_window_that_is_cut_at_the_border() -> None:
    @T.prim_func(private=True)
    def kernel(x: T.Buffer((14, 14), "float32"), y: T.Buffer((4, 14), "float32")):
        for t in range(4):
            b = T.alloc_buffer((14, 14), scope="local.ub")
            for i, j in T.grid(5, 14):
                if 1 <= t * 4 + i and t * 4 + i < 15:
                    b[t * 4 + i - T.max(t * 4 - 1, 0) - 1, j] = x[t * 4 + i - 1, j]
            for j in range(14):
                y[t, j] = b[0, j]

    assert shapes(kernel) == {"b": [5, 14]}


def test_core_axes_count() -> None:
    @T.prim_func(private=True)
    def kernel(y: T.Buffer((8,), "float32")):
        core = T.launch_thread("blockIdx.x", 8)
        b = T.alloc_buffer((100,), scope="local.ub")
        b[core] = T.float32(1)
        y[core] = b[core]

    assert shapes(kernel) == {"b": [8]}


def test_an_index_that_is_not_understood_keeps_its_dimension() -> None:
    @T.prim_func(private=True)
    def kernel(i: T.Buffer((8,), "int32"), y: T.Buffer((8,), "float32")):
        b = T.alloc_buffer((100,), scope="local.ub")
        for k in range(8):
            b[i[k]] = T.float32(1)
        for k in range(8):
            y[k] = b[k]

    keeps(ShrinkBuffers(), kernel)
