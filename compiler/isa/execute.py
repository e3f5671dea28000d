"""Apply a row's semantics to memory: the one place where instructions change bytes, for both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from compiler.isa.convert import from_fp32, to_fp32
from compiler.isa.layout import Laid
from compiler.isa.model import Args, View

Bytes = np.ndarray  # one-dimensional uint8


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def reproducible() -> Iterator[None]:
    """One BLAS thread, for the bits of a product depend on their number; and IEEE arithmetic without warnings."""
    with _controller().limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
        yield


def array_at(memory: Bytes, view: View) -> np.ndarray:
    """The view's elements as a writable array over memory. Callers have checked the bounds."""
    size = view.dtype.itemsize
    strides = tuple(s * size for s in view.strides)
    return np.ndarray(view.shape, view.dtype.numpy, memory.data, view.address, strides)


def widened(array: np.ndarray) -> np.ndarray:
    """Floats as fp32, integers as they are: what a vector instruction computes with."""
    return to_fp32(array) if array.dtype.itemsize == 2 and array.dtype.kind not in "iu" else array


def store(target: np.ndarray, value: Any) -> None:
    """Round once to the destination: floats to nearest even, integers wrap, infinities and NaN follow IEEE."""
    if isinstance(value, Laid):
        value = value.blocks()
    if isinstance(value, np.ndarray) and value.dtype == np.float32 and target.dtype == np.float16:
        value = from_fp32(value, target.dtype)
    np.copyto(target, value, casting="unsafe")


def execute(args: Args, memories: Mapping[str, Bytes], array: Callable[[Bytes, View], np.ndarray] = array_at) -> None:
    """Run one bound instruction on memory: read every source, compute, then write every destination."""
    row = args.row
    if row.semantics is None:
        return
    arrays = [array(memories[view.memory], view) for view in args.views]
    inputs = [a if row.raw else widened(a) for a, v in zip(arrays, args.views, strict=True) if "r" in v.role]
    with np.errstate(all="ignore"):
        results = row.semantics(args, *inputs)
        if not isinstance(results, tuple):
            results = (results,)
        targets = [a for a, v in zip(arrays, args.views, strict=True) if "w" in v.role]
        for target, result in zip(targets, results, strict=True):
            store(target, result)
