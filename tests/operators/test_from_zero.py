"""Axes that begin behind zero, which the rest of the compiler never sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.script import tirx as T

import compiler
from compiler.operators import operator
from compiler.tir.from_zero import from_zero

pytestmark = pytest.mark.usefixtures("forget_operators")


def rows(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((3, 40), "k")
    return te.compute((7,), lambda i: te.sum(x[i, k] * k.var.astype("float32"), axis=k), "rows")


def columns(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((2, 6), "k")
    return te.compute((50,), lambda j: te.max(x[k, j], axis=k), "columns")


def product(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((3, 40), "k")
    return te.compute((7, 7), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k), "product")


def test_loops_and_axes_of_blocks_are_counted_from_zero() -> None:
    @T.prim_func(s_tir=True)
    def after(x: T.Buffer((7, 50), "float32"), columns: T.Buffer((50,), "float32")) -> None:
        T.func_attr({"tirx.noalias": True})
        for j, k in T.grid(50, 4):
            with T.sblock("columns"):
                v_j, v_k = T.axis.remap("SR", [j, k])
                T.reads(x[v_k + 2, v_j])
                T.writes(columns[v_j])
                with T.init():
                    columns[v_j] = T.float32(-3.4028234663852886e38)
                columns[v_j] = T.max(columns[v_j], x[v_k + 2, v_j])

    x = te.placeholder((7, 50), "float32", "x")
    before = te.create_prim_func([x, columns(x)])
    made = from_zero(before).with_attr("global_symbol", "after")
    tvm.ir.assert_structural_equal(made, after, map_free_vars=True)


@pytest.mark.parametrize("chip", ["tw2", "tiny"])
@pytest.mark.parametrize(
    "function, schedule, expected",
    [
        (rows, "reduction", lambda x: (x[:, 3:40] * np.arange(3, 40)).sum(1)),
        (columns, "reduction", lambda x: x[2:6].max(0)),
        (product, "matmul", lambda x: x[:, 3:40] @ x[:, 3:40].T),
    ],
)
def test_what_lies_before_them_is_left_out(
    function: Callable[..., Any], schedule: str, expected: Callable[[Any], Any], chip: str
) -> None:
    operator("test::Behind", schedule=schedule)(function)
    x = np.random.default_rng(0).standard_normal((7, 50)).astype(np.float32)
    result = compiler.compile_operator(function, {"x": "float32[7, 50]"}, chip).run({"x": x}, hazards=True)["out0"]
    np.testing.assert_allclose(result, expected(x.astype(np.float64)), rtol=1e-4, atol=1e-4)
