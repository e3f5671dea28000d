"""The cube's product: its bits are those of its operands, however they lie in memory."""

from __future__ import annotations

import numpy as np

from compiler.isa.execute import reproducible
from compiler.isa.layout import cube_product

SEED = 11


def test_a_product_does_not_depend_on_where_its_factors_lie() -> None:
    rng = np.random.default_rng(SEED)
    with reproducible():
        for round_ in range(400):
            longest = (3, 20, 70, 300)[round_ % 4]
            m, n, k = (int(size) for size in rng.integers(1, longest, 3))
            a = rng.standard_normal((m + 9, k + 7)).astype(np.float32)[4 : 4 + m, 3 : 3 + k]
            b = rng.standard_normal((k + 5, n + 8)).astype(np.float32)[1 : 1 + k, 2 : 2 + n]
            dense = cube_product(a.copy(), b.copy())
            for left, right in ((a, b), (a, b.T.copy().T), (a.T.copy().T, b)):
                np.testing.assert_array_equal(cube_product(left, right), dense, err_msg=f"seed {SEED}: {m} {n} {k}")


def test_int8_sums_are_exact() -> None:
    rng = np.random.default_rng(SEED)
    a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((17, 4095), (4095, 33)))
    np.testing.assert_array_equal(cube_product(a, b), a.astype(np.int64) @ b.astype(np.int64))
