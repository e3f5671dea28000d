"""Factors of operands become factors of products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import s_tir, te, tirx
from tvm_ffi import structural_equal, structural_walk

from compiler.operators.matmul import matmul
from compiler.tiling.factors import scaled_behind


def stages(func: Any) -> dict[str, str]:
    """What each stage stores, by its name."""
    blocks: list[Any] = []
    structural_walk(func.body, (s_tir.SBlock, blocks.append))
    return {block.name_hint: str(block.body).splitlines()[-1] for block in blocks if block.name_hint != "root"}


def product(a: te.Tensor, b: te.Tensor, results: Callable[[te.Tensor, te.Tensor], list[te.Tensor]]) -> Any:
    half = te.compute(a.shape, lambda i, k: a[i, k] * tirx.const(0.5, a.dtype), "half")
    return te.create_prim_func([a, b, *results(half, b)])


def operands(dtype: str) -> tuple[te.Tensor, te.Tensor]:
    return te.placeholder((4, 8), dtype, "a"), te.placeholder((8, 6), dtype, "b")


def test_the_product_is_scaled_instead_of_its_operand() -> None:
    after = stages(scaled_behind(product(*operands("float16"), lambda half, b: [matmul(half, b)])))
    assert "half" not in after
    assert 'T.Cast("float32", a[v_i0, v_k])' in after["matmul"]
    assert after["cast"].endswith('T.Cast("float16", matmul[v_i0, v_i1] * T.float32(0.5))')


def test_factors_of_both_operands_are_one() -> None:
    a, b = operands("float16")
    third = te.compute(b.shape, lambda k, j: b[k, j] * tirx.const(0.25, "float16"), "quarter")
    after = stages(scaled_behind(product(a, b, lambda half, _: [matmul(half, third)])))
    assert set(after) == {"matmul", "cast"}
    assert after["cast"].endswith("* T.float32(0.125))")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_that_may_overflow_keep_their_factors(dtype: str) -> None:
    func = product(*operands(dtype), lambda half, b: [matmul(half, b)])
    assert structural_equal(scaled_behind(func), func)


def test_a_product_of_what_is_scaled_with_itself_keeps_its_operands_apart() -> None:
    square = te.placeholder((8, 8), "float16", "b")
    for others in (lambda half, b: [matmul(half, b)], lambda half, _: [matmul(half, half)]):
        func = product(square, square, others)
        assert structural_equal(scaled_behind(func), func)


def test_what_is_moved_between_stays() -> None:
    def moved(half: te.Tensor, b: te.Tensor) -> list[te.Tensor]:
        return [matmul(te.compute((8, 4), lambda i, k: half[k, i], "turned"), te.compute((4, 6), lambda *i: b[i], "c"))]

    func = product(*operands("float16"), moved)
    assert structural_equal(scaled_behind(func), func)


def test_what_others_read_stays() -> None:
    def both(half: te.Tensor, b: te.Tensor) -> list[te.Tensor]:
        return [matmul(half, b), te.compute(half.shape, lambda i, k: half[i, k] + half[i, k], "twice")]

    func = product(*operands("float16"), both)
    assert structural_equal(scaled_behind(func), func)
