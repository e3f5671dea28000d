"""Windows that are combined become one instruction of the rows that pool."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from compiler.target import load_chip
from passes.tir.emit_instructions import EmitInstructions

TW2 = load_chip("tw2")


def emitted(func: Any) -> list[str]:
    lines = EmitInstructions().run(func, TW2).script().splitlines()
    found = [line.split('"tw.')[1].replace("T.address_of", "&") for line in lines if '"tw.' in line]
    return [line.replace('",', "").rstrip(")") for line in found if "." in line.split(" ")[0]]


def test_a_pool_of_images() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((4, 29, 31), "float16", scope="local.ub")
        b = T.alloc_buffer((4, 14, 15), "float16", scope="local.ub")
        for c, y, x in T.grid(4, 14, 15):
            b[c, y, x] = T.float16("-inf")
        for c, y, x, i, j in T.grid(4, 14, 15, 3, 3):
            b[c, y, x] = T.max(b[c, y, x], a[c, y * 2 + i, x * 2 + j])

    assert emitted(func) == [
        "vmaxpool.fp16.3d &(b[0, 0, 0]), 15, 1, 210, &(a[0, 0, 0]), 31, 1, 899, 3, 3, 2, 2, 1, 1, 14, 15, 4"
    ]


def test_channels_may_be_last_and_windows_dilated() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((20, 20, 32), "float32", scope="local.ub")
        b = T.alloc_buffer((16, 16, 32), "float32", scope="local.ub")
        for y, x, c in T.grid(16, 16, 32):
            b[y, x, c] = T.float32(0)
        for y, x, c, i, j in T.grid(16, 16, 32, 2, 3):
            b[y, x, c] = b[y, x, c] + a[y + i * 4, x + j * 2, c]

    assert emitted(func) == [
        "vsumpool.fp32.3d &(b[0, 0, 0]), 512, 32, 1, &(a[0, 0, 0]), 640, 32, 1, 2, 3, 1, 1, 4, 2, 16, 16, 32"
    ]


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_a_window_along_one_axis_needs_its_identity(start: float) -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((1600,), "float32", scope="local.ub")
        b = T.alloc_buffer((500,), "float32", scope="local.ub")
        for x in range(500):
            b[x] = T.float32(start)
        for x, j in T.grid(500, 3):
            b[x] = b[x] + a[x * 3 + j + 1]

    pools = [line for line in emitted(func) if line.startswith("vsumpool")]
    assert len(pools) == (start == 0.0)


def test_windows_that_leave_elements_out_are_no_pool() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((2000,), "float32", scope="local.ub")
        b = T.alloc_buffer((500,), "float32", scope="local.ub")
        for x in range(500):
            b[x] = T.float32(0)
        for x, j in T.grid(500, 2):
            b[x] = b[x] + a[x * 4 + j]

    assert not any(line.startswith("vsumpool") for line in emitted(func))


@pytest.mark.parametrize(("columns", "pooled"), [(576, True), (575, False)])
def test_windows_that_leave_elements_out_on_the_last_core_are_no_pool(columns: int, pooled: bool) -> None:
    """Taps a row of the buffer apart meet where every core fills its rows, and leave gaps on one that does not."""

    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        core = T.launch_thread("blockIdx.x", 16)
        a = T.alloc_buffer((31, 36), "float32", scope="local.ub")
        b = T.alloc_buffer((36,), "float32", scope="local.ub")
        for x in range(T.min(36, columns - core * 36)):
            b[x] = T.float32(0)
        for x, j in T.grid(T.min(36, columns - core * 36), 31):
            b[x] = b[x] + a[j, x]

    assert any(line.startswith("vsumpool") for line in emitted(func)) == pooled


def test_sums_of_what_is_converted_are_those_of_a_copy() -> None:
    """Each element is converted once, what lies without a gap by one instruction over one axis."""

    @T.prim_func(s_tir=True, private=True)
    def func() -> None:
        a = T.alloc_buffer((16, 16, 32), "float16", scope="local.ub")
        b = T.alloc_buffer((14, 14, 32), "float32", scope="local.ub")
        for y, x, c in T.grid(14, 14, 32):
            b[y, x, c] = T.float32(0)
        for y, x, c, i, j in T.grid(14, 14, 32, 3, 3):
            b[y, x, c] = b[y, x, c] + T.Cast("float32", a[y + i, x + j, c])

    assert emitted(func) == [
        "vconv.fp16.fp32.rne.1d &(widened[0]), 1, &(a[0, 0, 0]), 1, 8192",
        "vsumpool.fp32.3d &(b[0, 0, 0]), 448, 32, 1, &(widened[0]), 512, 32, 1, 3, 3, 1, 1, 1, 1, 14, 14, 32",
    ]
