"""PadRows: rows that are walked by columns get a pitch that spreads them over the banks' groups."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx
from tvm.script import tirx as T

from compiler.target import load_chip
from compiler.tiling import vector
from passes.tir.pad_rows import PadRows
from tests.passes.tir.rewriting import keeps
from tests.tiling.kernels import run

TW1, TW2 = load_chip("tw1"), load_chip("tw2")


def transposed(pixels: int, channels: int, dtype: str = "float16") -> Any:
    @T.prim_func(private=True)
    def kernel(x: T.Buffer((pixels, channels), dtype), y: T.Buffer((channels, pixels), dtype)):
        s = T.alloc_buffer((pixels, channels), dtype, scope="local.ub")
        t = T.alloc_buffer((channels, pixels), dtype, scope="local.ub")
        for p in range(pixels):
            for c in range(channels):
                s[p, c] = x[p, c]
        for c in range(channels):
            for p in range(pixels):
                t[c, p] = T.max(s[p, c], T.Cast(dtype, 0.0))
        for c in range(channels):
            for p in range(pixels):
                y[c, p] = t[c, p]

    return kernel


def strides(func: Any) -> dict[str, tuple[int, ...]]:
    """The strides of all buffers that say them."""
    found: dict[str, tuple[int, ...]] = {}

    def note(statement: Any) -> None:
        if statement.buffer.strides:
            found[statement.buffer.name] = tuple(int(stride) for stride in statement.buffer.strides)

    tvm_ffi.structural_walk(func.body, (tirx.AllocBuffer, note))
    return found


def test_the_rows_of_the_result_of_a_transposition() -> None:
    result = PadRows().run(transposed(128, 16), TW2)
    assert strides(result) == {"t": (144, 1)}  # nine blocks; a row of the source is one
    keeps(PadRows(), result, TW2)


@pytest.mark.parametrize("pixels", [48, 56, 64, 100, 165, 169, 256])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("chip", [TW1, TW2])
def test_pitches_are_blocks_that_take_turns(pixels: int, dtype: str, chip: Any) -> None:
    found = strides(PadRows().run(transposed(pixels, 16, dtype), chip))
    pitch = found.get("t", (pixels, 1))[0] * np.dtype(dtype).itemsize
    assert pitch % chip.block_bytes == 0 and gcd(pitch // chip.block_bytes, chip.vector.banks.groups) == 1
    assert pixels * np.dtype(dtype).itemsize <= pitch <= 1.5 * pixels * np.dtype(dtype).itemsize


def test_short_rows_and_full_memories_stay_as_they_are() -> None:
    assert "t" not in strides(PadRows().run(transposed(2, 320), TW2))
    keeps(PadRows(), transposed(2048, 20), TW1)


def test_rows_with_a_number_of_their_own_stay_as_they_are() -> None:
    @T.prim_func(private=True)
    def kernel(y: T.Buffer((8, 64), "float32")):
        s = T.alloc_buffer((8, 64), scope="local.ub")
        m = T.alloc_buffer((8,), scope="local.ub")
        for i in range(8):
            for j in range(64):
                s[i, j] = s[i, j] - m[i]
        for i in range(8):
            for j in range(64):
                y[i, j] = s[i, j]

    keeps(PadRows(), kernel, TW1)


@pytest.mark.parametrize(("columns", "pitch"), [(32, 40), (64, None)])
def test_short_rows_that_are_folded(columns: int, pitch: int | None) -> None:
    @T.prim_func(private=True)
    def kernel(y: T.Buffer((8,), "float32")):
        s = T.alloc_buffer((8, columns), scope="local.ub")
        m = T.alloc_buffer((8,), scope="local.ub")
        for i in range(8):
            for j in range(columns):
                m[i] = T.max(m[i], s[i, j])
        for i in range(8):
            y[i] = m[i]

    assert strides(PadRows().run(kernel, TW1)) == ({} if pitch is None else {"s": (pitch, 1)})


def test_what_a_mark_touches_or_data_chooses_stays_as_it_is() -> None:
    @T.prim_func(private=True)
    def kernel(y: T.Buffer((16, 64), "float16"), z: T.Buffer((16, 64), "float16")):
        s = T.alloc_buffer((64, 16), "float16", scope="local.ub")
        at = T.alloc_buffer((16,), "int32", scope="local.ub")
        t = T.alloc_buffer((16, 64), "float16", scope="local.ub")
        u = T.alloc_buffer((16, 64), "float16", scope="local.ub")
        for c in range(16):
            for p in range(64):
                t[c, p] = s[p, c]
        for c in range(16):
            for p in range(64):
                u[c, p] = s[p, c]
        with T.attr(0, "pragma_tw_cube", "result"):
            for c in range(16):
                for p in range(64):
                    y[c, p] = t[c, p]
        for c in range(16):
            for p in range(64):
                z[c, p] = u[at[c], p]

    keeps(PadRows(), kernel, TW2)


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("shape", [(64, 16), (3, 40, 24), (2, 31, 17)])
def test_kernels_with_padded_rows_compute_the_same(chip: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16)

    def build(given: Any) -> Any:
        flipped = (*shape[:-2], shape[-1], shape[-2])
        doubled = te.compute(shape, lambda *i: given[i] * given[i], "doubled")
        return te.compute(flipped, lambda *i: doubled[(*i[:-2], i[-1], i[-2])] + given[(*i[:-2], i[-1], i[-2])], "y")

    result = run(vector.schedule, chip, {"x": x}, build).output
    wide = x.astype(np.float64)
    np.testing.assert_allclose(result, np.swapaxes(wide * wide + wide, -1, -2), rtol=2e-3, atol=1e-3)
