"""Stages of one name, as those of TE are that nobody names, and of the name of an input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te

import compiler
from compiler.operators import operator
from compiler.tir.own_names import with_own_names

pytestmark = pytest.mark.usefixtures("forget_operators")


def spread(x: te.Tensor) -> te.Tensor:
    """The mean of squares around the mean."""
    rows, columns = (int(n) for n in x.shape)
    k, m = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "m")
    mean = te.compute((rows, 1), lambda i, j: te.sum(x[i, k], axis=k), "x")
    mean = te.compute((rows, 1), lambda i, j: mean[i, j] / float(columns), "x")
    far = te.compute(x.shape, lambda i, j: x[i, j] - mean[i, 0])
    square = te.compute(x.shape, lambda i, j: far[i, j] * far[i, j])
    total = te.compute((rows,), lambda i: te.sum(square[i, m], axis=m))
    return te.compute((rows,), lambda i: total[i] / float(columns), "x")


def names(func: Any) -> list[str]:
    return [str(buffer.name) for buffer in (*func.params, *func.body.block.alloc_buffers)]


def test_every_buffer_has_a_name_of_its_own() -> None:
    x = te.placeholder((5, 7), "float32", "x")
    given = te.create_prim_func([x, spread(x)])
    assert sorted(names(given)) == ["compute", "compute", "compute", "x", "x", "x", "x"]
    assert names(with_own_names(given)) == ["x", "x_1", "x_2", "x_3", "compute", "compute_1", "compute_2"]
    other = with_own_names(given)
    assert with_own_names(other).same_as(other)


@pytest.mark.parametrize("chip", ["tiny", "tw2"])
def test_the_result_is_told_from_what_is_called_like_it(chip: str) -> None:
    operator("com.example::Spread", schedule="reduction")(spread)
    artifact = compiler.compile_operator("com.example::Spread", {"x": "float32[33, 70]"}, chip, cache=False, jobs=1)
    x = np.random.default_rng(0).standard_normal((33, 70)).astype(np.float32)
    assert np.allclose(artifact.run({"x": x}, hazards=True)["out0"], x.var(1), rtol=1e-5)
