"""Times as series over equal stretches of a run: what share of each a queue was busy, what DDR moved in it."""

from __future__ import annotations

from base64 import b64encode

import numpy as np

from compiler.sim.trace import flow

MAX_BINS = 8192


def edges(cycles: int) -> np.ndarray:
    """Borders of the stretches: of one cycle each in a short run."""
    bins = max(1, min(MAX_BINS, cycles))
    return np.linspace(0, max(1, cycles), bins + 1)


def covered(start: np.ndarray, end: np.ndarray, borders: np.ndarray) -> np.ndarray:
    """The share of every stretch that intervals cover, which may overlap: then it is their sum."""
    return flow(start, end, np.ones(len(start)), borders) / np.diff(borders)


def rebinned(series: np.ndarray, bins: int) -> np.ndarray:
    """The mean over wider stretches, as the page's script draws it too."""
    if len(series) <= bins:
        return series
    starts = np.linspace(0, len(series), bins + 1)[:-1].astype(int)
    counts = np.diff(np.append(starts, len(series)))
    found: np.ndarray = np.add.reduceat(series, starts) / counts
    return found


def packed(series: np.ndarray) -> str:
    """Shares as bytes, for the page's script; nothing where all are zero."""
    if not series.any():
        return ""
    levels = np.ceil(np.clip(series, 0, 1) * 255).astype(np.uint8)
    return b64encode(levels.tobytes()).decode()
