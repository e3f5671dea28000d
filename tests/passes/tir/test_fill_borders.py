"""FillBorders: images are loaded into their frames, of which only the border is filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.script import tirx as T

from compiler.target import load_chip
from compiler.tiling import vector
from passes.tir.fill_borders import FillBorders
from tests.passes.tir.rewriting import keeps, rewrites
from tests.tiling.kernels import random, run

TINY = load_chip("tiny")


def _in_copies() -> Any:
    @T.prim_func(private=True)
    def before(image: T.Buffer((4, 8, 8), "float16"), y: T.Buffer((4, 9, 10), "float16")):
        for n in range(4):
            x = T.alloc_buffer((1, 8, 8), "float16", scope="local.ub")
            f = T.alloc_buffer((1, 9, 10), "float16", scope="local.ub")
            for h, w in T.grid(8, 8):
                x[0, h, w] = image[n, h, w]
            for h, w in T.grid(9, 10):
                f[0, h, w] = T.float16(0)
            for h, w in T.grid(8, 8):
                f[0, h + 1, w + 1] = x[0, h, w]
            for h, w in T.grid(9, 10):
                y[n, h, w] = f[0, h, w]

    return before


def test_a_load_takes_the_place_of_the_copy_and_borders_are_filled_behind_it() -> None:
    @T.prim_func(private=True)
    def after(image: T.Buffer((4, 8, 8), "float16"), y: T.Buffer((4, 9, 10), "float16")):
        for n in range(4):
            f = T.alloc_buffer((1, 9, 10), "float16", scope="local.ub")
            for h, w in T.grid(8, 8):
                f[0, h + 1, w + 1] = image[n, h, w]
            for w in range(10):
                f[0, 0, w] = T.float16(0)
            for h in range(8):
                f[0, h + 1, 0] = T.float16(0)
            for h in range(8):
                f[0, h + 1, 9] = T.float16(0)
            for h, w in T.grid(9, 10):
                y[n, h, w] = f[0, h, w]

    rewrites(FillBorders(), _in_copies(), after)


def test_a_part_of_what_is_loaded_turned() -> None:
    @T.prim_func(private=True)
    def before(image: T.Buffer((8, 6), "float16"), y: T.Buffer((6, 8), "float16")):
        x = T.alloc_buffer((8, 6), "float16", scope="local.ub")
        f = T.alloc_buffer((6, 8), "float16", scope="local.ub")
        for h, w in T.grid(6, 8):
            f[h, w] = T.float16(0)
        for h, w in T.grid(8, 6):
            x[h, w] = image[h, w]
        for h, w in T.grid(4, 8):
            f[h, w] = x[w, h + 2]
        for h, w in T.grid(6, 8):
            y[h, w] = f[h, w]

    @T.prim_func(private=True)
    def after(image: T.Buffer((8, 6), "float16"), y: T.Buffer((6, 8), "float16")):
        f = T.alloc_buffer((6, 8), "float16", scope="local.ub")
        for h, w in T.grid(4, 8):
            f[h, w] = image[w, h + 2]
        for h, w in T.grid(2, 8):
            f[h + 4, w] = T.float16(0)
        for h, w in T.grid(6, 8):
            y[h, w] = f[h, w]

    rewrites(FillBorders(), before, after)


def _framed(fill: int = 9, step: int = 1) -> Any:
    """``fill``: columns that are filled; ``step``: of the copy."""

    @T.prim_func(private=True)
    def kernel(image: T.Buffer((8, 8), "float16"), y: T.Buffer((16, 9), "float16")):
        x = T.alloc_buffer((8, 8), "float16", scope="local.ub")
        f = T.alloc_buffer((16, 9), "float16", scope="local.ub")
        for h, w in T.grid(8, 8):
            x[h, w] = image[h, w]
        for h, w in T.grid(16, fill):
            f[h, w] = T.float16(0)
        for h, w in T.grid(8, 8):
            f[h * step, w] = x[h, w]
        for h, w in T.grid(16, 9):
            y[h, w] = f[h, w]

    return kernel


def _read_again() -> Any:
    @T.prim_func(private=True)
    def kernel(image: T.Buffer((8, 8), "float16"), y: T.Buffer((9, 8), "float16"), z: T.Buffer((8,), "float16")):
        x = T.alloc_buffer((8, 8), "float16", scope="local.ub")
        f = T.alloc_buffer((9, 8), "float16", scope="local.ub")
        for h, w in T.grid(8, 8):
            x[h, w] = image[h, w]
        for h, w in T.grid(9, 8):
            f[h, w] = T.float16(0)
        for h, w in T.grid(8, 8):
            f[h, w] = x[h, w]
        for h, w in T.grid(9, 8):
            y[h, w] = f[h, w]
        for w in range(8):
            z[w] = x[0, w]

    return kernel


def test_other_kernels_stay_as_they_are() -> None:
    kernel = _framed()
    assert not FillBorders().run(kernel, TINY).same_as(kernel)
    for other in (_framed(fill=8), _framed(step=2), _read_again()):
        keeps(FillBorders(), other)


@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
@pytest.mark.parametrize(("shape", "pads", "stride"), [
    ((2, 20, 14, 14), (1, 1, 1, 1), 2),
    ((1, 3, 9, 30), (0, 2, 1, 0), 1),
    ((3, 5, 60, 11), (1, 0, 0, 3), 2),
])  # fmt: skip
def test_pools_of_padded_images_are_right(chip: str, shape: Any, pads: Any, stride: int) -> None:
    x = random(np.random.default_rng(5), "float16", *shape)
    top, left, bottom, right = pads
    height, width = shape[2] + top + bottom, shape[3] + left + right
    result_shape = (*shape[:2], (height - 3) // stride + 1, (width - 3) // stride + 1)
    least = tirx.min_value("float16")

    def define(x: te.Tensor) -> te.Tensor:
        def inside(n: Any, c: Any, h: Any, w: Any) -> Any:
            is_inside = tirx.all(h >= top, h < top + shape[2], w >= left, w < left + shape[3])
            return tirx.if_then_else(is_inside, x[n, c, h - top, w - left], least)

        padded = te.compute((*shape[:2], height, width), inside, "padded")
        rows, columns = te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
        return te.compute(
            result_shape,
            lambda n, c, h, w: te.max(padded[n, c, h * stride + rows, w * stride + columns], axis=[rows, columns]),
            "pool",
        )

    result = run(vector.schedule, chip, {"x": x}, define)
    wide = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-65504.0)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
    expected = windows[:, :, ::stride, ::stride].max(axis=(-1, -2))
    np.testing.assert_array_equal(result.output, expected)


def test_what_is_made_is_well_formed() -> None:
    tvm.tirx.analysis.verify_well_formed(FillBorders().run(_framed(), TINY))
