"""The check of passes: it runs every kind of kernel, and it finds what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from compiler.tir_check import Difference, differs, host_kernel


def scaled(dtype: str, factor: float, count: int = 12) -> Any:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((12,), dtype), b: T.Buffer((12,), dtype)):
        for c in T.thread_binding(3, "blockIdx.x"):
            u = T.alloc_buffer((4,), dtype, scope="local.ub")
            for i in range(4):
                if c * 4 + i < count:
                    with T.attr(0, "tw.special", 1):
                        u[i] = a[c * 4 + i]
            for i in range(4):
                if c * 4 + i < count:
                    b[c * 4 + i] = u[i] * T.Cast(dtype, factor)

    return kernel


DTYPES = ["float32", "float16", "bfloat16", "int8", "uint8", "int16", "int32"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_runs_and_a_wrong_value_is_found(dtype: str) -> None:
    assert differs(scaled(dtype, 2), scaled(dtype, 2), seed=3) is None
    found = differs(scaled(dtype, 2), scaled(dtype, 3), seed=3)
    assert found is not None
    assert found.buffer == "b"


def test_a_store_that_is_missing_is_found() -> None:
    found = differs(scaled("float32", 2, count=12), scaled("float32", 2, count=11), seed=0)
    assert isinstance(found, Difference)
    assert found.index == (11,)
    assert found.count == 1
    assert "b[11] was" in str(found)


def test_a_store_too_many_is_found() -> None:
    found = differs(scaled("float32", 2, count=11), scaled("float32", 2, count=12), seed=1)
    assert found is not None
    assert found.index == (11,)


def test_another_order_of_a_sum_is_no_difference() -> None:
    @T.prim_func(private=True)
    def forward(a: T.Buffer((4096,), "float32"), s: T.Buffer((1,), "float32")):
        s[0] = T.float32(0)
        for i in range(4096):
            s[0] = s[0] + a[i]

    @T.prim_func(private=True)
    def backward(a: T.Buffer((4096,), "float32"), s: T.Buffer((1,), "float32")):
        s[0] = T.float32(0)
        for i in range(4096):
            s[0] = s[0] + a[4095 - i]

    @T.prim_func(private=True)
    def short(a: T.Buffer((4096,), "float32"), s: T.Buffer((1,), "float32")):
        s[0] = T.float32(0)
        for i in range(4095):
            s[0] = s[0] + a[i]

    assert differs(forward, backward, seed=0) is None
    assert differs(forward, short, seed=0) is not None


def test_roots_and_logarithms_are_compared_where_they_are_numbers() -> None:
    @T.prim_func(private=True)
    def root(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(8):
            b[i] = T.sqrt(a[i]) * T.sqrt(T.float32(0) - a[i] * T.float32(-1))

    @T.prim_func(private=True)
    def other(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(8):
            b[i] = T.sqrt(a[i]) * T.sqrt(T.float32(0) - a[i] * T.float32(-4))

    assert differs(root, root, seed=0) is None
    assert differs(root, other, seed=0) is not None


def test_indices_are_drawn_in_the_range_that_is_asked_for() -> None:
    @T.prim_func(private=True)
    def gather(x: T.Buffer((9,), "float32"), rows: T.Buffer((5,), "int32"), b: T.Buffer((5,), "float32")):
        for i in range(5):
            b[i] = x[rows[i] - 100]

    @T.prim_func(private=True)
    def first(x: T.Buffer((9,), "float32"), rows: T.Buffer((5,), "int32"), b: T.Buffer((5,), "float32")):
        for i in range(5):
            b[i] = x[0]

    assert differs(gather, first, seed=0, ranges={"rows": (100, 101)}) is None
    assert differs(gather, first, seed=0, ranges={"rows": (101, 109)}) is not None


def test_loops_with_any_start_and_extent_run_as_written() -> None:
    """What TVM's default pipeline gets wrong: an inner loop that starts at one, as often as the outer one says."""

    @T.prim_func(private=True)
    def kernel(a: T.Buffer((32,), "int32"), b: T.Buffer((16,), "int32")):
        for i in range(1, 14):
            for j in range(1, 1 + T.min(11, i + 1)):
                if T.likely(j >= 1):
                    b[i] = a[j]

    a, b = np.arange(32, dtype=np.int32), np.zeros(16, np.int32)
    result = tvm.runtime.tensor(b)
    host_kernel(kernel)(tvm.runtime.tensor(a), result)
    expected = [0, *(min(11, i + 1) for i in range(1, 14)), 0, 0]
    assert result.numpy().tolist() == expected
