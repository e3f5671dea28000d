"""Reductions of several values at once: sums beside each other, and places of the largest or smallest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi
from tvm.script import tirx as T

import compiler
from compiler.errors import UnsupportedError
from compiler.operators import operator
from compiler.tir.reductions_apart import reductions_apart

pytestmark = pytest.mark.usefixtures("forget_operators")


def place_of_largest(x: te.Tensor) -> te.Tensor:
    return topi.argmax(x, axis=1)


def test_a_maximum_and_then_where_it_is() -> None:
    @T.prim_func(s_tir=True)
    def after(x: T.Buffer((5, 7), "float32"), x_red: T.Buffer((5,), "int32")) -> None:
        T.func_attr({"tirx.noalias": True})
        place = T.sblock_alloc_buffer((5,), "int32")
        largest = T.sblock_alloc_buffer((5,))
        for i, k in T.grid(5, 7):
            with T.sblock("x_red_temp_v1"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                T.reads(x[v_i, v_k])
                T.writes(largest[v_i])
                with T.init():
                    largest[v_i] = T.float32(-3.4028234663852886e38)
                largest[v_i] = T.max(largest[v_i], x[v_i, v_k])
        for i, k in T.grid(5, 7):
            with T.sblock("x_red_temp_v0"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                T.reads(x[v_i, v_k], largest[v_i])
                T.writes(place[v_i])
                with T.init():
                    place[v_i] = 6
                place[v_i] = T.min(place[v_i], T.Select(x[v_i, v_k] == largest[v_i], v_k, 6))
        for i in range(5):
            with T.sblock("x_red"):
                v_i = T.axis.spatial(5, i)
                T.reads(place[v_i])
                T.writes(x_red[v_i])
                x_red[v_i] = place[v_i]

    x = te.placeholder((5, 7), "float32", "x")
    found = reductions_apart(te.create_prim_func([x, place_of_largest(x)]))
    tvm.ir.assert_structural_equal(found.with_attr("global_symbol", "after"), after)


def best(x: te.Tensor, keeps: Callable[[Any, Any], Any], worst: Callable[[str], Any]) -> list[te.Tensor]:
    """The value and place of each row's best, by what is written for it in most books."""
    rows, columns = (int(n) for n in x.shape)
    k = te.reduce_axis((0, columns), "k")

    def better(a: Any, b: Any) -> tuple[Any, Any]:
        return (tirx.Select(keeps(a[0], b[0]), a[0], b[0]), tirx.Select(keeps(a[0], b[0]), a[1], b[1]))

    reducer = te.comm_reducer(better, lambda *types: (worst(types[0]), tirx.const(-1, types[1])), "best")
    return list(te.compute((rows,), lambda i: reducer((x[i, k], k), axis=k), "best"))


def first_largest(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    value, place = best(x, lambda a, b: a >= b, tirx.min_value)
    return value, place


def last_largest(x: te.Tensor) -> te.Tensor:
    return best(x, lambda a, b: a > b, tirx.min_value)[1]


def first_smallest(x: te.Tensor) -> te.Tensor:
    return best(x, lambda a, b: a <= b, tirx.max_value)[1]


def of_all(x: te.Tensor) -> te.Tensor:
    return topi.argmax(x, axis=None)


def least_of_columns(x: te.Tensor) -> te.Tensor:
    return topi.argmin(x, axis=0)


def last_by_topi(x: te.Tensor) -> te.Tensor:
    return topi.argmax(x, axis=1, select_last_index=True)


def centred(x: te.Tensor) -> te.Tensor:
    return topi.nn.instance_norm(x, topi.full((33,), "float32", 1.0), topi.full((33,), "float32", 0.0), 0, [1], 1e-5)


CASES: dict[Callable[..., Any], Callable[[np.ndarray], tuple[np.ndarray, ...]]] = {
    place_of_largest: lambda x: (x.argmax(1),),
    first_largest: lambda x: (x.max(1), x.argmax(1)),
    last_largest: lambda x: (x.shape[1] - 1 - x[:, ::-1].argmax(1),),
    first_smallest: lambda x: (x.argmin(1),),
    of_all: lambda x: (np.asarray(x.argmax()),),
    least_of_columns: lambda x: (x.argmin(0),),
    last_by_topi: lambda x: (x.shape[1] - 1 - x[:, ::-1].argmax(1),),
    centred: lambda x: ((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),),
}


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
@pytest.mark.parametrize("chip", ["tiny", "tw2"])
def test_results_are_those_of_numpy_with_many_that_are_alike(function: Callable[..., Any], chip: str) -> None:
    operator("com.example::Best", schedule="reduction")(function)
    artifact = compiler.compile_operator("com.example::Best", {"x": "float32[33, 70]"}, chip, cache=False, jobs=1)
    x = np.random.default_rng(0).integers(-9, 9, (33, 70)).astype(np.float32)
    found = artifact.run({"x": x}, hazards=True)
    for at, expected in enumerate(CASES[function](x)):
        np.testing.assert_allclose(found[f"out{at}"], expected, rtol=1e-4, atol=1e-4)
    assert artifact.report.cycles is not None and artifact.report.cycles < 20_000


def test_values_that_need_each_other_are_refused_by_name() -> None:
    @operator("com.example::Running", schedule="reduction")
    def running(x: te.Tensor) -> te.Tensor:
        def joined(a: Any, b: Any) -> tuple[Any, Any]:
            return (a[0] + b[0] * a[1], a[1] * b[1])

        k = te.reduce_axis((0, 7), "k")
        reducer = te.comm_reducer(joined, lambda *types: (tirx.const(0.0, types[0]), tirx.const(1.0, types[1])))
        return te.compute((5,), lambda i: reducer((x[i, k], x[i, k]), axis=k), "running")[0]

    with pytest.raises(UnsupportedError, match=r"Running: stage 'running' reduces several values at once"):
        compiler.compile_operator("com.example::Running", {"x": "float32[5, 7]"}, "tiny", cache=False, jobs=1)
