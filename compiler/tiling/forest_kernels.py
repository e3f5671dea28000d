"""The compiled loop that finds the leaves of trees."""

from __future__ import annotations

import numpy as np

from compiler.isa.jit import kernel


@kernel
def leaves_of(
    rows: np.ndarray, feature: np.ndarray, value: np.ndarray, left: np.ndarray, right: np.ndarray, depth: int
) -> np.ndarray:
    """[row, tree]: what the leaf adds at which a row ends, which goes left wherever its feature is below the split."""
    trees = len(feature)
    found = np.empty((len(rows), trees), np.float32)
    for row in range(len(rows)):
        for tree in range(trees):
            at = 0
            for _ in range(depth):
                at = left[tree, at] if rows[row, feature[tree, at]] < value[tree, at] else right[tree, at]
            found[row, tree] = value[tree, at]
    return found
