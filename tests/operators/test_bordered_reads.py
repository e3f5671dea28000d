"""Stencils that ask at each point whether a neighbour is there, which read from a stage with a border instead."""

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
from compiler.tir.bordered_reads import bordered_reads

pytestmark = pytest.mark.usefixtures("forget_operators")

ZERO = 0.0


def neighbours(x: te.Tensor) -> te.Tensor:
    def at(i: Any) -> Any:
        return te.if_then_else(te.all(i >= 0, i < 64), x[i], tirx.const(ZERO, x.dtype))

    return te.compute((64,), lambda i: at(i - 1) - x[i] + at(i + 2), "y")


def test_reads_of_neighbours_share_a_stage_with_a_border() -> None:
    @T.prim_func(s_tir=True)
    def after(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
        T.func_attr({"tirx.noalias": True})
        x_bordered = T.sblock_alloc_buffer((67,))
        for q in range(67):
            with T.sblock("x_bordered"):
                v_q = T.axis.spatial(67, q)
                T.reads(x[v_q - 1])
                T.writes(x_bordered[v_q])
                x_bordered[v_q] = T.if_then_else(1 <= v_q and v_q < 65, x[v_q - 1], T.float32(0.0))
        for i in range(64):
            with T.sblock("y"):
                v_i = T.axis.spatial(64, i)
                T.reads(x_bordered[v_i : v_i + 4])
                T.writes(y[v_i])
                y[v_i] = x_bordered[v_i] - x_bordered[v_i + 1] + x_bordered[v_i + 3]

    x = te.placeholder((64,), "float32", "x")
    found = bordered_reads(te.create_prim_func([x, neighbours(x)]))
    tvm.ir.assert_structural_equal(found.with_attr("global_symbol", "after"), after)


def one_shift(x: te.Tensor) -> te.Tensor:
    return te.compute((64,), lambda i: te.if_then_else(i > 0, x[i - 1], tirx.const(ZERO, x.dtype)), "y")


def by_data(x: te.Tensor) -> te.Tensor:
    zero = tirx.const(ZERO, x.dtype)
    return te.compute((64,), lambda i: te.if_then_else(x[i] > zero, x[63 - i], zero) + x[i], "y")


def inside(x: te.Tensor) -> te.Tensor:
    return te.compute((62,), lambda i: x[i] + x[i + 2], "y")


def sums(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 3), "k")
    zero = tirx.const(ZERO, x.dtype)
    return te.compute((64,), lambda i: te.sum(te.if_then_else(i + k < 64, x[i + k], zero), axis=k), "y")


@pytest.mark.parametrize("function", [one_shift, by_data, inside, sums])
def test_other_reads_stay_as_they_are(function: Callable[..., Any]) -> None:
    x = te.placeholder((64,), "float32", "x")
    given = te.create_prim_func([x, function(x)])
    assert bordered_reads(given).same_as(given)


def shifted(x: np.ndarray, down: int, right: int, mode: str = "constant") -> np.ndarray:
    padded = np.pad(x, 2, mode=mode)  # type: ignore[call-overload]
    return np.asarray(padded[2 - down : 2 - down + len(x), 2 - right : 2 - right + x.shape[1]])


def cold(x: te.Tensor) -> te.Tensor:
    height, width = (int(n) for n in x.shape)

    def at(i: Any, j: Any) -> Any:
        inside = te.all(i >= 0, i < height, j >= 0, j < width)
        return te.if_then_else(inside, x[i, j], tirx.const(1.5, x.dtype))

    return te.compute(x.shape, lambda i, j: at(i - 1, j) + at(i + 2, j) + at(i, j - 1) - at(i, j), "cold")


def cold_expected(x: np.ndarray) -> np.ndarray:
    above, left = shifted(x - 1.5, 1, 0), shifted(x - 1.5, 0, 1)
    return above + shifted(x - 1.5, -2, 0) + left - x + 4.5


def one_side(x: te.Tensor) -> te.Tensor:
    zero = tirx.const(ZERO, x.dtype)
    return te.compute(
        x.shape, lambda i, j: x[i, j] - te.if_then_else(i < 1, zero, x[i - 1, j]) * tirx.const(2.0, x.dtype), "one_side"
    )


def at_the_edge(x: te.Tensor) -> te.Tensor:
    height, width = (int(n) for n in x.shape)
    return te.compute(
        x.shape,
        lambda i, j: x[tirx.min(i + 1, height - 1), j] - x[i, tirx.max(tirx.min(j - 2, width - 1), 0)],
        "at_the_edge",
    )


def around(x: te.Tensor) -> te.Tensor:
    height, width = (int(n) for n in x.shape)
    return te.compute(x.shape, lambda i, j: x[(i + height - 1) % height, j] - x[i, (j + 1) % width] + x[i, j], "around")


def inner_points(x: te.Tensor) -> te.Tensor:
    height, width = (int(n) for n in x.shape)

    def value(i: Any, j: Any) -> Any:
        is_inside = te.all(i > 0, i < height - 1, j > 0, j < width - 1)
        return te.if_then_else(is_inside, x[i - 1, j] + x[i + 1, j] - x[i, j - 1] * x[i, j + 1], x[i, j])

    return te.compute(x.shape, value, "inner_points")


def inner_points_expected(x: np.ndarray) -> np.ndarray:
    found = x.copy()
    found[1:-1, 1:-1] = x[:-2, 1:-1] + x[2:, 1:-1] - x[1:-1, :-2] * x[1:-1, 2:]
    return found


CASES: dict[Callable[..., Any], Callable[[np.ndarray], np.ndarray]] = {
    cold: cold_expected,
    one_side: lambda x: x - 2 * shifted(x, 1, 0),
    at_the_edge: lambda x: shifted(x, -1, 0, "edge") - shifted(x, 0, 2, "edge"),
    around: lambda x: np.roll(x, 1, 0) - np.roll(x, -1, 1) + x,
    inner_points: inner_points_expected,
}


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
@pytest.mark.parametrize(("chip", "shape"), [("tiny", (45, 70)), ("tw2", (300, 257))])
def test_stencils_take_some_rows_at_a_time(function: Callable[..., Any], chip: str, shape: tuple[int, int]) -> None:
    operator("com.example::Stencil", schedule="elementwise")(function)
    types = {"x": f"float32[{shape[0]}, {shape[1]}]"}
    artifact = compiler.compile_operator("com.example::Stencil", types, chip=chip, cache=False, jobs=1)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    assert np.allclose(artifact.run({"x": x}, hazards=True)["out0"], CASES[function](x), rtol=1e-5, atol=1e-5)
    assert all("as it is" not in kernel.tile for kernel in artifact.report.kernels)
