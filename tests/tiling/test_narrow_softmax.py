"""Softmax in fp16 whose powers stay in fp16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te

from compiler.operators.softmax import softmax_of
from compiler.tiling import narrow_sums, vector
from compiler.tiling.narrow_softmax import LONGEST, narrowed
from tests.tiling.kernels import run
from tests.tiling.test_late_division import stages
from tests.tiling.test_vector import exact_softmax


def kernel(dtype: str, shape: tuple[int, ...] = (4, 6), define: Any = softmax_of) -> Any:
    x = te.placeholder(shape, dtype, "x")
    return te.create_prim_func([x, define(x)])


def test_powers_and_the_factor_of_a_row_are_rounded_to_fp16() -> None:
    after = stages(narrowed(kernel("float16")))
    assert after["powers"].split(" = ")[1].startswith('T.Cast("float16", T.exp(T.Cast("float32", x[')
    assert after["row_sum"].endswith('row_sum[v_i0, v_i1] + T.Cast("float32", powers[v_i0, v_k1])')
    assert after["softmax"].endswith('= powers[v_i0, v_i1] * T.Cast("float16", T.float32(1.0) / row_sum[v_i0, 0])')


def test_sums_of_powers_may_be_narrow() -> None:
    after = stages(narrow_sums.narrowed(narrowed(kernel("float16"))))
    assert after["row_sum"].endswith("row_sum[v_i0, v_i1] + powers[v_i0, v_k1]")
    assert 'T.float32(1.0) / T.Cast("float32", row_sum[v_i0, 0])' in after["softmax"]


@pytest.mark.parametrize("func", [kernel("float32"), kernel("bfloat16"), kernel("float16", (2, LONGEST + 1))])
def test_wider_exponents_and_long_rows_stay(func: Any) -> None:
    assert narrowed(func) is func


def test_powers_that_another_stage_reads_stay() -> None:
    def with_powers_of_its_own(x: Any) -> Any:
        result = softmax_of(x)
        powers = next(stage for stage in result.op.input_tensors if stage.op.name == "powers")
        return te.compute(x.shape, lambda *i: result[i] + powers[i].astype("float16"), "both")

    func = kernel("float16", define=with_powers_of_its_own)
    assert narrowed(func) is func


# Five roundings to fp16 reach a result, each within 2**-11 of its value; below 2**-14 fp16 is spaced by 2**-24.
@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("columns", [1, 17, 777, 1024, LONGEST])
def test_rows_of_any_spread_and_offset(chip: str, columns: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((20, columns)) * rng.uniform(0.1, 8, (20, 1)) + rng.uniform(-20, 20, (20, 1))
    alike, wide = np.full((1, columns), -6e4), rng.uniform(-6e4, 6e4, (2, columns))
    one = np.where(np.arange(columns) == 0, 3, -np.inf)[None]
    x = np.concatenate([x, alike, wide, one]).astype(np.float16)
    result = run(vector.schedule, chip, {"x": x}, softmax_of).output
    np.testing.assert_allclose(result.astype(np.float64), exact_softmax(x.astype(np.float64)), rtol=2e-3, atol=1.2e-7)
