"""What no template can cut runs as it is, over buffers on the chip where they fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te

from compiler.operators import find
from compiler.tiling import plain
from tests.tiling.kernels import Result, run


def cumulated(x: np.ndarray, attempt: int) -> Result:
    declared = find("tilewright", "Running")
    assert declared is not None

    def define(data: te.Tensor) -> Any:
        (function,) = declared.instantiate([data], {"what": "Sum"})
        return function

    return run(plain.schedule, "tiny", {"x": x}, define, attempt)


@pytest.mark.parametrize("attempt", range(len(plain.SHARES)))
@pytest.mark.parametrize("shape", [(3, 7), (1, 1), (5, 301)])
def test_less_lies_on_the_chip_with_every_attempt(shape: tuple[int, int], attempt: int) -> None:
    x = np.random.default_rng(8).standard_normal(shape).astype(np.float32)
    result = cumulated(x, attempt)
    np.testing.assert_allclose(result.output, x.astype(np.float64).cumsum(1), rtol=1e-4, atol=1e-4)
    if attempt == len(plain.SHARES) - 1:
        assert "all buffers in DDR" in result.description
    elif shape != (5, 301):
        assert result.description == "as it is, on one core"


def test_loops_over_buffers_on_the_chip_take_less_time() -> None:
    x = np.random.default_rng(9).standard_normal((4, 33)).astype(np.float32)
    assert cumulated(x, 0).cycles < cumulated(x, len(plain.SHARES) - 1).cycles
