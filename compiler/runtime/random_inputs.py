"""Arrays to try a model on, the same for the same seed."""

from __future__ import annotations

import numpy as np

from compiler.runtime.model import Port
from compiler.runtime.ports import ONNX_DTYPES


def random_array(port: Port, seed: int) -> np.ndarray:
    """Depends on the seed and the input's name only. Integers are 0 or 1: they may be indices into anything."""
    generator = np.random.default_rng([seed, *port.name.encode("utf-8", "surrogatepass")])
    dtype = ONNX_DTYPES[port.onnx_dtype]
    if port.dtype in ("fp16", "bf16", "fp32"):
        return generator.standard_normal(port.shape, np.float32).astype(dtype)
    return generator.integers(0, 2, port.shape, np.int8).astype(dtype)
