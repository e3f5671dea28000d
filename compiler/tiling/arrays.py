"""Arithmetic on numbers of many tiles at once."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from compiler.isa.layout import ceil_to
from compiler.isa.timing import ceil_div


def most(*columns: Any) -> Any:
    """Of each tile, the greatest."""
    return reduce(np.maximum, columns)


def quotient(a: Any, b: Any) -> np.ndarray:
    """Rounded up."""
    return np.asarray(ceil_div(a, b))


def rounded(value: Any, multiple: int) -> np.ndarray:
    """Up to a multiple."""
    return np.asarray(ceil_to(value, multiple))
