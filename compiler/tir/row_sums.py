"""Sums of rows and of their squares, as stages and as nests have them; and who may do them."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

# Of a function: the matrix unit sums its rows, in as many steps as this says at least.
ON_CUBE = "tw.sums-on-cube"
NARROW, WIDE = "float16", "float32"


def uncast(value: Any) -> Any:
    return value.value if isinstance(value, tirx.Cast) else value


def summed(store: Any) -> Any | None:
    """What a store adds to what it had before."""
    total = getattr(store, "value", None)
    if not isinstance(total, tirx.Add) or not isinstance(total.a, ir.TensorLoad):
        return None
    return total.b if total.a.source.same_as(store.buffer) else None


def plain(term: Any) -> Any | None:
    """The load of which a term is the element."""
    load = uncast(term)
    return load if isinstance(load, ir.TensorLoad) else None


def squared(term: Any) -> Any | None:
    """The load of which a term is the square."""
    value = uncast(term)
    if not isinstance(value, tirx.Mul) or not tvm_ffi.structural_equal(value.a, value.b):
        return None
    return plain(value.a)
