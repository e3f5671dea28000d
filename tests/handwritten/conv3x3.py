"""A 3x3 convolution with bias and ReLU, 64 -> 64 channels on a 56 x 56 image, stride 1 and padding 1.

The image comes as NCHW. The weights are constant, so they come packed as the cube wants them: ``[k / 16][n][k % 16]``
where k counts (channel block of 16, kernel row, kernel column, channel in the block). The result is NC1HWC0,
``[n / 16][h][w][n % 16]``: a convolution that follows loads it by plain copies.
"""

from __future__ import annotations

import numpy as np

from tests.handwritten import Arrays, Case

CHANNELS, SIZE, C0 = 64, 56, 16


def _inputs(rng: np.random.Generator) -> Arrays:
    weights = rng.standard_normal((CHANNELS * 9 // C0, CHANNELS, C0)) / np.sqrt(CHANNELS * 9)
    return {
        "x": rng.standard_normal((CHANNELS, SIZE, SIZE)).astype(np.float16),
        "w": weights.astype(np.float16),
        "bias": rng.standard_normal(CHANNELS).astype(np.float32),
    }


def _expected(inputs: Arrays) -> Arrays:
    blocks = CHANNELS // C0
    image = np.pad(inputs["x"].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    weights = inputs["w"].astype(np.float64).reshape(blocks, 3, 3, CHANNELS, C0)
    result = np.broadcast_to(inputs["bias"].astype(np.float64)[:, None, None], (CHANNELS, SIZE, SIZE)).copy()
    for kh in range(3):
        for kw in range(3):
            kernel = weights[:, kh, kw].transpose(1, 0, 2).reshape(CHANNELS, CHANNELS)
            result += np.einsum("nc,chw->nhw", kernel, image[:, kh : kh + SIZE, kw : kw + SIZE], optimize=True)
    return {"y": np.maximum(result, 0).reshape(blocks, C0, SIZE, SIZE).transpose(0, 2, 3, 1)}


# One rounding to fp16, within 2**-11; sums in fp32 are off by far less than the absolute term.
CASES = [
    Case(
        f"conv3x3-{chip}-{CHANNELS}x{SIZE}x{SIZE}",
        f"conv3x3_{chip}.twasm",
        chip,
        _inputs,
        _expected,
        rtol=6e-4,
        atol=2e-5,
        macs=CHANNELS * CHANNELS * 9 * SIZE * SIZE,
    )
    for chip in ("tw1", "tw2")
]
