"""Attention whose results are divided, not its weights."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import s_tir, te, tirx
from tvm_ffi import structural_walk

from compiler.operators.matmul import matmul
from compiler.operators.softmax import softmax_of
from compiler.tiling.late_division import prepare


def stages(func: Any) -> dict[str, str]:
    """What each stage stores, by its name."""
    found: dict[str, str] = {}

    def visit(block: Any) -> None:
        if block.name_hint != "root":
            found[block.name_hint] = str(block.body).splitlines()[-1]

    structural_walk(func.body, (s_tir.SBlock, visit))
    return found


def attention(dtype: str, define: Any = lambda scores: softmax_of(scores)) -> Any:
    q, k, v = (te.placeholder(shape, dtype, name) for shape, name in (((8, 4), "q"), ((4, 6), "k"), ((6, 5), "v")))
    product = matmul(define(matmul(q, k)), v)
    half = te.compute(product.shape, lambda i, j: product[i, j] * tirx.const(0.5, dtype), "half")
    return te.create_prim_func([q, k, v, half])


def test_results_are_divided_and_powers_kept_in_fp16() -> None:
    prepared = prepare(attention("float16"))
    after = stages(prepared.finish(prepared.func))
    assert "softmax" not in after
    assert after["powers"].endswith("= T.exp(cast[v_i0, v_i1] - row_max[v_i0, 0])")
    assert after["row_sum"].endswith("= row_sum[v_i0, v_i1] + powers[v_i0, v_k1]")
    assert 'T.Cast("float32", powers[v_i0, v_k])' in after["matmul_1"]
    assert after["cast_1"].endswith('= T.Cast("float16", matmul[v_i0, v_i1] / T.Cast("float32", row_sum[v_i0, 0]))')


def test_a_batch_of_one_is_no_other_form() -> None:
    """A product reads its operands at 0 along such an axis."""
    shapes = {"q": (1, 3, 8, 4), "k": (1, 3, 4, 6), "v": (1, 3, 6, 5)}
    q, k, v = (te.placeholder(shape, "float16", name) for name, shape in shapes.items())
    prepared = prepare(te.create_prim_func([q, k, v, matmul(softmax_of(matmul(q, k)), v)]))
    after = stages(prepared.finish(prepared.func))
    assert "softmax" not in after
    assert "powers[0, v_i1, v_i2, v_k]" in after["matmul_1"]
    assert after["cast_1"].endswith('/ T.Cast("float32", row_sum[0, v_i1, v_i2, 0]))')


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_types_keep_sums_in_fp32(dtype: str) -> None:
    prepared = prepare(attention(dtype))
    after = stages(prepared.finish(prepared.func))
    assert "row_sum[v_i0, v_i1] + powers[v_i0, v_k1]" in after["row_sum"]
    assert "/" not in after.get("softmax", "")
    assert "/ row_sum" in " ".join(after.values())


def test_weights_of_another_form_stay() -> None:
    func = attention("float16", lambda scores: te.compute(scores.shape, lambda i, j: tirx.exp(scores[i, j]), "weights"))
    prepared = prepare(func)
    assert prepared.func.same_as(func)
    assert prepared.finish(func).same_as(func)
