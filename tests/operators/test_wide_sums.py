"""Sums of products of 16 bits, which are added up in fp32 and rounded once, whoever wrote them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi
from tvm.script import tirx as T

import compiler
from compiler.operators import operator
from compiler.tir.wide_sums import wide_sums

pytestmark = pytest.mark.usefixtures("forget_operators")


def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    rows, depth = (int(n) for n in a.shape)
    k = te.reduce_axis((0, depth), "k")
    return te.compute((rows, b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")


def made(function: Any, *types: tuple[tuple[int, ...], str]) -> Any:
    tensors = [te.placeholder(shape, dtype, name) for (shape, dtype), name in zip(types, "abcd", strict=False)]
    return te.create_prim_func([*tensors, function(*tensors)])


def test_a_product_becomes_sums_in_fp32_and_a_stage_that_rounds() -> None:
    @T.prim_func(s_tir=True)
    def after(a: T.Buffer((5, 7), "float16"), b: T.Buffer((7, 3), "float16"), c: T.Buffer((5, 3), "float16")) -> None:
        T.func_attr({"tirx.noalias": True})
        c_sums = T.sblock_alloc_buffer((5, 3))
        for i, j, k in T.grid(5, 3, 7):
            with T.sblock("c_sums"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                T.reads(a[v_i, v_k], b[v_k, v_j])
                T.writes(c_sums[v_i, v_j])
                with T.init():
                    c_sums[v_i, v_j] = T.float32(0.0)
                c_sums[v_i, v_j] = c_sums[v_i, v_j] + T.Cast("float32", a[v_i, v_k]) * T.Cast("float32", b[v_k, v_j])
        for i, j in T.grid(5, 3):
            with T.sblock("c"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.reads(c_sums[v_i, v_j])
                T.writes(c[v_i, v_j])
                c[v_i, v_j] = T.Cast("float16", c_sums[v_i, v_j])

    given = made(product, ((5, 7), "float16"), ((7, 3), "float16"))
    tvm.ir.assert_structural_equal(wide_sums(given).with_attr("global_symbol", "after"), after)


def weighted(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 7), "k")
    return te.compute((5,), lambda i: te.sum(x[i, k] * w[k], axis=k), "weighted")


def summed(x: te.Tensor) -> te.Tensor:
    return topi.sum(x, axis=1)


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (product, (((5, 7), "float32"), ((7, 3), "float32"))),
        (product, (((5, 7), "int8"), ((7, 3), "int8"))),
        (weighted, (((5, 7), "float16"), ((7,), "float16"))),
        (summed, (((5, 7), "float16"),)),
    ],
    ids=["fp32", "int8", "one-matrix", "no-product"],
)
def test_others_stay_as_they_are(function: Any, types: tuple[tuple[tuple[int, ...], str], ...]) -> None:
    given = made(function, *types)
    assert wide_sums(given).same_as(given)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_matrix_unit_multiplies_them(dtype: str) -> None:
    operator("com.example::Product", schedule="matmul")(product)
    types = {"a": f"{dtype}[64, 512]", "b": f"{dtype}[512, 96]"}
    artifact = compiler.compile_operator("com.example::Product", types, chip="tw2", cache=False, jobs=1)
    rng = np.random.default_rng(0)
    arrays = {"a": rng.random((64, 512)).astype(dtype), "b": rng.random((512, 96)).astype(dtype)}
    found = artifact.run(arrays, hazards=True)["out0"]
    expected = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64)
    assert np.abs(found.astype(np.float64) / expected - 1).max() < (2**-10 if dtype == "float16" else 2**-7)
    assert artifact.report.cycles is not None and artifact.report.cycles < 3_000  # 30,000 without


def test_a_bias_behind_it_and_an_activation_that_reads_it_twice() -> None:
    @operator("com.example::Gated", schedule="matmul")
    def gated(a: te.Tensor, b: te.Tensor, bias: te.Tensor) -> te.Tensor:
        sums = product(a, b)
        biased = te.compute(sums.shape, lambda i, j: sums[i, j] + bias[j], "biased")
        return te.compute(sums.shape, lambda i, j: biased[i, j] * tirx.sigmoid(biased[i, j]), "gated")

    rng = np.random.default_rng(0)
    arrays = {"a": rng.random((48, 64)), "b": rng.random((64, 32)) - 0.5, "bias": rng.random(32)}
    arrays = {name: array.astype(np.float16) for name, array in arrays.items()}
    types = {name: f"float16[{', '.join(map(str, array.shape))}]" for name, array in arrays.items()}
    artifact = compiler.compile_operator("com.example::Gated", types, chip="tw2", cache=False, jobs=1)
    found = artifact.run(arrays, hazards=True)["out0"].astype(np.float64)
    a, b, bias = (array.astype(np.float64) for array in arrays.values())
    biased = a @ b + bias
    assert np.allclose(found, biased / (1 + np.exp(-biased)), rtol=4e-3, atol=4e-3)
