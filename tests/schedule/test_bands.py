"""Functions in bands: which rows they need, which share a function, and what has no bands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, tirx
from tvm_ffi import structural_equal

from compiler.operators import TensorType, find_called
from compiler.schedule.bands import Bands


def kernel(name: str, *inputs: Any, **attributes: Any) -> Any:
    declared = find_called(name)
    assert declared is not None
    given = [TensorType(each, "float32") if isinstance(each, tuple) else each for each in inputs]
    return declared.kernels(given, attributes)[0]


def pool(size: int, stride: int, pad: int, rows: int = 32) -> Any:
    return kernel("MaxPool", (1, 4, rows, 16), kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4)


@pytest.mark.parametrize(("func", "band", "needed"), [
    (pool(3, 1, 1), (0, 8), (0, 9)), (pool(3, 1, 1), (8, 16), (7, 17)), (pool(3, 1, 1), (24, 32), (23, 32)),
    (pool(3, 2, 1), (4, 8), (7, 16)), (pool(2, 2, 0), (4, 8), (8, 16)), (pool(5, 3, 2), (0, 2), (0, 6)),
    (kernel("Relu", (1, 4, 32, 16)), (5, 7), (5, 7)),
    (kernel("Transpose", (1, 32, 4, 16), perm=[0, 2, 1, 3]), (5, 7), (5, 7)),
])  # fmt: skip
def test_rows_that_are_needed(func: Any, band: tuple[int, int], needed: tuple[int, int]) -> None:
    bands = Bands.of(func, 2)
    assert bands is not None
    assert bands.inputs_of(band) == (needed,)
    made = bands.function(bands.needed(band) or {})
    axis = bands.inputs[0]
    assert int(made.params[0].shape[axis]) == needed[1] - needed[0]
    assert int(made.params[-1].shape[2]) == band[1] - band[0]


def test_bands_between_the_edges_share_their_function() -> None:
    bands = Bands.of(pool(3, 2, 1), 2)
    assert bands is not None
    first, second, third, last = (bands.function(bands.needed((at, at + 4)) or {}) for at in (0, 4, 8, 12))
    assert structural_equal(second, third)
    assert not structural_equal(first, second)
    assert structural_equal(last, second)  # windows of two rows stand over the upper edge only
    assert "if_then_else(1 <= v_i2 and" in str(first)
    assert "1 <= v_i2" not in str(second)


def test_what_has_no_bands() -> None:
    x = (1, 4, 32, 16)
    assert Bands.of(kernel("tilewright::Softmax", x, axis=2), 2) is None  # each row depends on all
    assert Bands.of(kernel("tilewright::Softmax", x, axis=1), 2) is not None
    assert Bands.of(kernel("Reshape", x, np.array([1, 4, 16, 32])), 2) is None
    assert Bands.of(kernel("Relu", x), 4) is None
    data = te.placeholder((8, 8), "float32", "data")
    diagonal = te.create_prim_func([data, te.compute((8, 8), lambda i, j: data[i, i] + data[i, j], "diagonal")])
    assert Bands.of(diagonal, 0) is None
    both = te.create_prim_func([data, te.compute((8, 8), lambda i, j: data[i, j] + data[j, i], "both")])
    assert Bands.of(both, 0) is None


def test_rows_that_data_decides_are_not_cut() -> None:
    data = te.placeholder((8, 8), "float32", "data")
    index = te.placeholder((8,), "int32", "index")
    rows = te.compute((8, 8), lambda i, j: data[tirx.max(index[i], 0), j], "rows")
    assert Bands.of(te.create_prim_func([data, index, rows]), 0) is None


def test_padding_alone_is_nothing_that_is_needed() -> None:
    data = te.placeholder((4, 4), "float32", "data")
    value = lambda i, j: tirx.if_then_else(tirx.all(i >= 6, i < 10), data[i - 6, j], 0.0)  # noqa: E731
    bands = Bands.of(te.create_prim_func([data, te.compute((16, 4), value, "padded")]), 0)
    assert bands is not None
    assert bands.inputs_of((0, 4)) is None
    assert bands.inputs_of((4, 8)) == ((0, 2),)
