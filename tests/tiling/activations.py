"""What stands between the convolutions of random kernels, or behind them: in TE, and in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx


def _clipped(v: Any) -> Any:
    one = tirx.const(1, "float16")
    return tirx.min(tirx.max(v, -one), one)


ACTIVATIONS: dict[str, tuple[Callable[[Any], Any] | None, Callable[[Any], Any]]] = {
    "": (None, lambda v: v),
    "relu": (lambda v: tirx.max(v, tirx.const(0, "float16")), lambda v: np.maximum(v, 0)),
    "silu": (lambda v: v * tirx.sigmoid(v), lambda v: v / (1 + np.exp(-v))),
    "clip": (_clipped, lambda v: np.clip(v, -1, 1)),
}
