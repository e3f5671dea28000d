"""MergeCoreAxes: one number per core."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from passes.tir.merge_core_axes import MergeCoreAxes
from tests.passes.tir.rewriting import keeps, rewrites


def test_nested_axes_become_one() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8, 4), "float32")):
        x = T.launch_thread("blockIdx.x", 8)
        y = T.launch_thread("blockIdx.y", 4)
        a[x, y] = T.float32(1)

    @T.prim_func(private=True)
    def after(a: T.Buffer((8, 4), "float32")):
        core = T.launch_thread("blockIdx.x", 32)
        a[core // 4, core % 4] = T.float32(1)

    rewrites(MergeCoreAxes(), before, after)


def test_parts_one_after_another_share_the_cores() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8,), "float32"), b: T.Buffer((5,), "float32")):
        with T.launch_thread("blockIdx.x", 8) as x:
            a[x] = T.float32(1)
        with T.launch_thread("blockIdx.x", 5) as y:
            b[y] = T.float32(2)

    result = MergeCoreAxes().run(before, None)
    text = result.script()
    assert text.count("launch_thread") == 1
    assert "if core < 5" in text


def test_a_kernel_without_cores_gets_one() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((8,), "float32")):
        for i in range(8):
            a[i] = T.float32(1)

    result: Any = MergeCoreAxes().run(before, None)
    assert int(result.body.value) == 1


def test_one_axis_stays() -> None:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((8,), "float32")):
        x = T.launch_thread("blockIdx.x", 8)
        a[x] = T.float32(1)

    keeps(MergeCoreAxes(), kernel)
