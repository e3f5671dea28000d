"""Initial weights that keep activations near unit variance through any depth, and dependent on the input.

Every filter sums to zero over its inputs (scaled weight standardisation, arXiv 2101.08692): random filters would turn
the positive mean behind each ReLU into a constant per channel, which after some layers drowns what the input says.
Not so the filters of depthwise convolutions, which would be left with edges only.
"""

from __future__ import annotations

import math

import numpy as np

LINEAR = 1.0
RELU = math.sqrt(2 / (1 - 1 / math.pi))  # 1 / standard deviation of relu(normal)
SWISH = 1.7881
GELU = 1.7015


def filters(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> np.ndarray:
    """Weights [outputs, inputs, ...]: every filter has mean 0 and standard deviation gain / sqrt(its inputs)."""
    return _standardised(rng, shape, gain, tuple(range(1, len(shape))))


def matrix(rng: np.random.Generator, shape: tuple[int, int], gain: float) -> np.ndarray:
    """Weights [inputs, outputs] with the same property per column."""
    return _standardised(rng, shape, gain, (0,))


def vector(rng: np.random.Generator, size: int, mean: float = 0.0, spread: float = 0.1) -> np.ndarray:
    """Biases, scales and statistics: uniform around ``mean``."""
    return rng.uniform(mean - spread, mean + spread, size).astype(np.float32)


def _standardised(rng: np.random.Generator, shape: tuple[int, ...], gain: float, axes: tuple[int, ...]) -> np.ndarray:
    weights = rng.standard_normal(shape, dtype=np.float32)
    inputs = math.prod(shape[axis] for axis in axes)
    if shape[axes[0]] < 3:  # of one input channel, or of so few that no shape is left once they are standardised
        return weights * np.float32(gain / math.sqrt(inputs))
    weights -= weights.mean(axes, keepdims=True)
    weights *= np.float32(gain / math.sqrt(inputs)) / weights.std(axes, keepdims=True)
    return weights
