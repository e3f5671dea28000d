"""Random expressions over broadcast, shifted, padded and counted operands: split, emitted, simulated, compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler.target import load_chip
from tests.codegen.kernels import linked, run
from tests.emission.test_execution import PASSES, data, on_cpu

_TOLERANCE = {"float32": 2e-3, "float16": 5e-2, "int32": 0}


def _expression(rng: random.Random, leaves: list[Callable[[], Any]], depth: int, dtype: str) -> Any:
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.8:
            return rng.choice(leaves)()
        return te.const(rng.choice([0.5, 1.0, 2.0, -1.5] if dtype.startswith("f") else [0, 1, 3, -5]), dtype)

    def sub() -> Any:
        return _expression(rng, leaves, depth - 1, dtype)

    choices: list[Callable[[], Any]] = [
        lambda: sub() + sub(),
        lambda: sub() - sub(),
        lambda: sub() * sub(),
        lambda: tirx.max(sub(), sub()),
        lambda: tirx.min(sub(), sub()),
        lambda: tirx.Select(sub() < sub(), sub(), sub()),
    ]
    if dtype.startswith("f"):
        one = te.const(1.0, dtype)
        choices += [
            lambda: te.tanh(sub()),
            lambda: te.exp(tirx.min(sub(), one)),
            lambda: te.sqrt(tirx.abs(sub())),
            lambda: te.sigmoid(sub()),
            lambda: sub() / (tirx.abs(sub()) + one),
            lambda: -sub(),
        ]
    else:
        choices += [
            lambda: tirx.floormod(sub(), te.const(7, dtype)),
            lambda: tirx.floordiv(sub(), te.const(3, dtype)),
        ]
    return rng.choice(choices)()


def _operator(rng: random.Random) -> tuple[list[Any], Any]:
    dtype = rng.choice(["float32", "float32", "int32", "float16"])
    rows, columns = rng.choice([1, 3, 7, 33]), rng.choice([1, 5, 16, 77, 130])
    a = te.placeholder((rows, columns), dtype, "a")
    b = te.placeholder((columns,), dtype, "b")
    c = te.placeholder((rows,), dtype, "c")
    d = te.placeholder((rows + 2, columns + 3), dtype, "d")

    def value(i: Any, j: Any) -> Any:
        leaves = [
            lambda: a[i, j],
            lambda: b[j],
            lambda: c[i],
            lambda: d[i + 1, j + 2],
            lambda: te.if_then_else(j >= 2, a[i, j - 2], te.const(1, dtype)),
            lambda: (i * 3 + j).astype(dtype),
        ]
        return _expression(rng, leaves, rng.choice([2, 3, 4]), dtype)

    if rng.random() < 0.3 and dtype != "float16":
        k = te.reduce_axis((0, columns), "k")
        reduce = rng.choice([te.sum, te.max, te.min])
        return [a, b, c, d], te.compute((rows,), lambda i: reduce(value(i, k), axis=k))
    return [a, b, c, d], te.compute((rows, columns), value)


@pytest.mark.parametrize("seed", range(24))
def test_same_as_on_the_cpu(seed: int) -> None:
    rng = random.Random(seed)
    chip = load_chip(("tiny", "tw2")[seed % 2])
    inputs, out = _operator(rng)
    func = te.create_prim_func([*inputs, out])
    arrays = [data(tensor, np.random.default_rng(seed)) for tensor in inputs]
    expected = on_cpu(func, arrays, out)
    for step in PASSES:
        func = step.run(func, chip)
    names = tuple(f"t{n}" for n in range(len(arrays) + 1))
    roles = {**dict.fromkeys(names[:-1], "input"), names[-1]: "output"}
    result = run(linked([(func, names)], chip, roles), chip, dict(zip(names, arrays, strict=False)))
    tolerance = _TOLERANCE[str(out.dtype)]
    np.testing.assert_allclose(
        np.asarray(result.outputs[names[-1]]).reshape(expected.shape).astype(np.float64),
        expected.astype(np.float64),
        rtol=tolerance,
        atol=tolerance,
    )
