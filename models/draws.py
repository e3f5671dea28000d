"""How inputs are drawn: one class per kind of data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from models.digits import dataset

FLOAT32 = np.dtype(np.float32)
INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class Normal:
    """Standard normal values: an image or signal after the usual normalisation."""

    dtype: np.dtype[Any] = FLOAT32

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(shape).astype(self.dtype)


@dataclass(frozen=True)
class Ids:
    """Indices below ``limit``: tokens of a vocabulary, or segments."""

    limit: int
    dtype: np.dtype[Any] = INT64

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(0, self.limit, shape, dtype=self.dtype)


@dataclass(frozen=True)
class Steps:
    """Whole numbers below ``limit`` as floats: the steps of a diffusion."""

    limit: int
    dtype: np.dtype[Any] = FLOAT32

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(0, self.limit, shape).astype(self.dtype)


@dataclass(frozen=True)
class Edges:
    """A symmetric matrix of zeros and ones: the edges of a graph in which any two nodes share one this often."""

    share: float
    dtype: np.dtype[Any] = FLOAT32

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        upper = np.triu(rng.random(shape) < self.share, 1)
        return (upper | np.swapaxes(upper, -1, -2)).astype(self.dtype)


@dataclass(frozen=True)
class Padding:
    """An attention mask: ones for the tokens of each sequence, at least half of it, then zeros for its padding."""

    dtype: np.dtype[Any] = INT64

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        *batch, length = shape
        lengths = rng.integers((length + 1) // 2, length + 1, (*batch, 1))
        return (np.arange(length) < lengths).astype(self.dtype)


@dataclass(frozen=True)
class Digits:
    """Images of the digits data that the network was not trained on."""

    dtype: np.dtype[Any] = FLOAT32

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        images = dataset.held_out().images
        which = rng.choice(len(images), shape[0], replace=shape[0] > len(images))
        return images[which].reshape(shape).astype(self.dtype)
