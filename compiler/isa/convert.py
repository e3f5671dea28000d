"""Between fp16 or bf16 and fp32, bit for bit as numpy does it but several times faster."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

import numpy as np

# Below this many elements the call into a compiled loop costs more than numpy's own conversion.
SMALL = 512


@lru_cache(maxsize=1)
def _kernels() -> ModuleType:
    """Compiled code is loaded when the first array is converted, not when a program is merely assembled."""
    from compiler.isa import convert_kernels

    return convert_kernels


def to_fp32(array: np.ndarray) -> np.ndarray:
    """Exact. Arrays that are no 16-bit floats come back as fp32 too; fp32 itself is not copied."""
    if array.dtype == np.float32:
        return array
    if array.dtype.itemsize != 2 or array.dtype.kind in "iu" or array.size < SMALL:
        return array.astype(np.float32)
    bits = np.ascontiguousarray(array).view(np.uint16)
    if array.dtype != np.float16:
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    wide = np.empty(array.size, np.uint32)
    _kernels().widen(bits.reshape(-1), wide)
    return wide.view(np.float32).reshape(array.shape)


def from_fp32(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rounded to nearest even."""
    if dtype != np.float16 or array.dtype != np.float32 or array.size < SMALL:
        return array.astype(dtype)
    narrow = np.empty(array.shape, np.uint16)
    _kernels().narrow(np.ascontiguousarray(array).view(np.uint32).reshape(-1), narrow.reshape(-1))
    return narrow.view(np.float16)
