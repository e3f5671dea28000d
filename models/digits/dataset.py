"""The digits data in its two parts: what the network is trained on, and what its accuracy is measured on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

FOLDER = Path(__file__).parent
DATA = FOLDER / "data.npz"
WEIGHTS = FOLDER / "weights.npz"

HELD_OUT = 360  # of 1797 images
SPLIT_SEED = 20261121


class Part(NamedTuple):
    images: np.ndarray  # float32 [count, 1, 8, 8], 0..1
    labels: np.ndarray  # int64 [count]


@cache
def _parts() -> tuple[Part, Part]:
    with np.load(DATA) as data:
        images, labels = data["images"], data["labels"]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    whole = Part((images.astype(np.float32) / 16)[order, None], labels.astype(np.int64)[order])
    return Part(*(array[HELD_OUT:] for array in whole)), Part(*(array[:HELD_OUT] for array in whole))


def training() -> Part:
    return _parts()[0]


def held_out() -> Part:
    return _parts()[1]


def weights() -> dict[str, np.ndarray]:
    """The trained network's weights by name, float32."""
    with np.load(WEIGHTS) as stored:
        return {name: stored[name] for name in stored.files}
