"""The fast conversions equal numpy's, bit for bit: for every fp16, and for fp32 around every edge."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from compiler.isa.convert import from_fp32, to_fp32

ALL_HALVES = np.arange(1 << 16, dtype=np.uint16)


def test_every_fp16_widens_as_numpy_does() -> None:
    want = ALL_HALVES.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(to_fp32(ALL_HALVES.view(np.float16)).view(np.uint32), want.view(np.uint32))


def test_every_bf16_widens_as_ml_dtypes_does() -> None:
    halves = ALL_HALVES.view(ml_dtypes.bfloat16)
    got, want = to_fp32(halves), halves.astype(np.float32)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(got[numbers].view(np.uint32), want[numbers].view(np.uint32))
    assert np.isnan(got[~numbers]).all()


def test_fp32_narrows_as_numpy_does() -> None:
    rng = np.random.default_rng(7)
    edges = to_fp32(ALL_HALVES.view(np.float16)).view(np.uint32)
    near = [edges + np.uint32(step) for step in (0, 1, 0xFFF, 0x1000, 0x1001, 0xFFFFFFFF)]
    bits = np.concatenate([*near, rng.integers(0, 2**32, 1 << 20, dtype=np.uint32)])
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        want = values.astype(np.float16)
    np.testing.assert_array_equal(from_fp32(values, np.dtype(np.float16)).view(np.uint16), want.view(np.uint16))


def test_views_and_small_arrays_convert_too() -> None:
    square = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
    np.testing.assert_array_equal(to_fp32(square.T), square.T.astype(np.float32))
    np.testing.assert_array_equal(to_fp32(square[:3, ::7]), square[:3, ::7].astype(np.float32))
