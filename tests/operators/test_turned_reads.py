"""Operators that read a tensor along its axes in two orders, as what makes a matrix symmetric does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.script import tirx as T

import compiler
from compiler.operators import operator
from compiler.tir.turned_reads import turned_reads

pytestmark = pytest.mark.usefixtures("forget_operators")


def symmetric(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i, j: x[i, j] + x[j, i], "y")


def test_what_is_read_across_is_a_stage() -> None:
    @T.prim_func(s_tir=True)
    def after(x: T.Buffer((6, 6), "float32"), y: T.Buffer((6, 6), "float32")) -> None:
        T.func_attr({"tirx.noalias": True})
        x_turned = T.sblock_alloc_buffer((6, 6))
        for i, j in T.grid(6, 6):
            with T.sblock("x_turned"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.reads(x[v_j, v_i])
                T.writes(x_turned[v_i, v_j])
                x_turned[v_i, v_j] = x[v_j, v_i]
        for i, j in T.grid(6, 6):
            with T.sblock("y"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.reads(x[v_i, v_j], x_turned[v_i, v_j])
                T.writes(y[v_i, v_j])
                y[v_i, v_j] = x[v_i, v_j] + x_turned[v_i, v_j]

    x = te.placeholder((6, 6), "float32", "x")
    found = turned_reads(te.create_prim_func([x, symmetric(x)]))
    tvm.ir.assert_structural_equal(found.with_attr("global_symbol", "after"), after)


def across(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i, j: tirx.exp(x[j, i]), "y")


def by_parts(x: te.Tensor) -> te.Tensor:
    return te.compute((3, 3), lambda i, j: x[i, j] + x[j + 3, i], "y")


@pytest.mark.parametrize("function", [across, by_parts])
def test_other_reads_stay_as_they_are(function: Callable[..., Any]) -> None:
    x = te.placeholder((6, 6), "float32", "x")
    given = te.create_prim_func([x, function(x)])
    assert turned_reads(given).same_as(given)


def lower_on_both_sides(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i, j: te.if_then_else(j <= i, x[i, j], x[j, i]), "y")


@pytest.mark.parametrize(
    ("function", "expected"),
    [(symmetric, lambda x: x + x.T), (lower_on_both_sides, lambda x: np.tril(x) + np.tril(x, -1).T)],
)
@pytest.mark.parametrize(("chip", "size", "most"), [("tiny", 70, 40_000), ("tw2", 300, 5_000)])
def test_tiles_are_small(function: Any, expected: Any, chip: str, size: int, most: int) -> None:
    operator("com.example::Across", schedule="elementwise")(function)
    types = {"x": f"float32[{size}, {size}]"}
    artifact = compiler.compile_operator("com.example::Across", types, chip, cache=False, jobs=1)
    x = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    assert np.allclose(artifact.run({"x": x}, hazards=True)["out0"], expected(x), rtol=1e-6)
    assert artifact.report.cycles is not None and artifact.report.cycles < most
