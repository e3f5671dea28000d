"""Reductions over axes. Floating-point sums and products are kept in float32, integer ones in int32."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.arithmetic import raised
from compiler.operators.broadcast import (
    FLOATS,
    NUMBERS,
    element_dtype,
    literal,
    normalised_axes,
    require_dtype,
    result_dtype,
    shape_of,
)
from compiler.operators.registry import operator
from compiler.operators.signature import Constant

_sum = te.comm_reducer(lambda a, b: a + b, lambda dtype: tirx.const(0, dtype), "sum")
_product = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), "prod")
_maximum = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda dtype: literal(lowest(dtype), dtype), "max")
_minimum = te.comm_reducer(lambda a, b: tirx.min(a, b), lambda dtype: literal(highest(dtype), dtype), "min")


MOST_FACTORS = 8  # of a power of a norm; a higher one is a function


def lowest(dtype: str) -> float:
    return -float("inf") if dtype in FLOATS else int(np.iinfo(dtype).min)


def highest(dtype: str) -> float:
    return float("inf") if dtype in FLOATS else int(np.iinfo(dtype).max)


@dataclass(frozen=True)
class Combine:
    """How elements become one: the reducer, and the result where there is no element."""

    reducer: Any
    empty: Callable[[str], float]


SUM = Combine(_sum, lambda dtype: 0)
PRODUCT = Combine(_product, lambda dtype: 1)
MAX = Combine(_maximum, lowest)
MIN = Combine(_minimum, highest)


def sum_dtype(dtype: str) -> str:
    """In which elements of ``dtype`` are added and multiplied."""
    return "float32" if dtype in FLOATS else "int32"


@dataclass(frozen=True)
class Rows:
    """Which axes of a tensor are reduced. Reduced tensors keep them, with one element each."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @staticmethod
    def of(x: Any, axes: Sequence[int]) -> Rows:
        return Rows(shape_of(x), normalised_axes(axes, len(shape_of(x))))

    @property
    def kept(self) -> tuple[int, ...]:
        """The shape of a reduced tensor."""
        return tuple(1 if axis in self.axes else extent for axis, extent in enumerate(self.shape))

    @property
    def elements(self) -> int:
        """In one row."""
        return int(np.prod([self.shape[axis] for axis in self.axes], dtype=np.int64))

    def row(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Where the row of an element is in a reduced tensor."""
        return tuple(0 if axis in self.axes else index for axis, index in enumerate(indices))

    def place(self, indices: Sequence[Any]) -> Any:
        """The number of an element in its row, as int32."""
        position: Any = 0
        for axis in self.axes:
            position = position * self.shape[axis] + indices[axis]
        return tirx.Cast("int32", position)

    def only_elements(self, name: str, x: te.Tensor, dtype: str, keeps: bool) -> te.Tensor:
        """Of rows of one element each: those."""
        left = [axis for axis in range(len(self.shape)) if keeps or axis not in self.axes]

        def only(*indices: Any) -> Any:
            given = dict(zip(left, indices, strict=True))
            return x[tuple(0 if axis in self.axes else given[axis] for axis in range(len(self.shape)))].astype(dtype)

        return te.compute([1 if axis in self.axes else self.shape[axis] for axis in left], only, name)

    def reduce(
        self, name: str, combine: Combine, dtype: str, element: Callable[[tuple[Any, ...]], Any], keeps: bool = True
    ) -> te.Tensor:
        """The stage that combines ``element(indices)``, of type ``dtype``, over every row."""
        shape = self.kept if keeps else tuple(n for axis, n in enumerate(self.shape) if axis not in self.axes)
        if self.elements == 0:
            return te.compute(shape, lambda *i: literal(combine.empty(dtype), dtype), name)
        along = {axis: te.reduce_axis((0, self.shape[axis]), f"k{axis}") for axis in self.axes}

        def reduced(*indices: Any) -> Any:
            outer = iter(indices)
            where = []
            for axis in range(len(self.shape)):
                index = next(outer) if keeps or axis not in self.axes else None
                where.append(along[axis] if axis in self.axes else index)
            if not along:
                return element(tuple(where))
            return combine.reducer(element(tuple(where)), axis=list(along.values()))

        return te.compute(shape, reduced, name)


def _identity(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Reduction:
    """``after(combine(before(x)))``; extremes stay in the tensor's type, the rest is summed in a wider one."""

    combine: Combine
    before: Callable[[Any], Any] = _identity
    after: Callable[[Any], Any] = _identity
    is_extreme: bool = False
    is_mean: bool = False

    def of(self, name: str, x: te.Tensor, axes: Sequence[int], keepdims: bool) -> te.Tensor:
        require_dtype((*NUMBERS, "bool") if self.is_extreme else NUMBERS, x=x)
        rows = Rows.of(x, axes)
        dtype = result_dtype(x)
        if rows.elements == 1 and self.before is _identity and self.after is _identity:
            return rows.only_elements(name, x, dtype, keepdims)
        inner = sum_dtype(dtype)
        if self.is_extreme:
            inner = "uint8" if dtype == "bool" else dtype
        stage = rows.reduce(name, self.combine, inner, lambda i: self.before(x[i].astype(inner)), keepdims)
        if inner == dtype and self.after is _identity and not self.is_mean:
            return stage

        def finished(*i: Any) -> Any:
            value = self.after(stage[i])
            if self.is_mean:
                value = _divided(value, rows.elements)
            return tirx.NE(value, literal(0, inner)) if dtype == "bool" else value.astype(dtype)

        return te.compute(shape_of(stage), finished, f"{name}_result")


def _divided(value: Any, count: int) -> Any:
    if element_dtype(value) == "int32":
        return tirx.truncdiv(value, tirx.const(max(count, 1), "int32"))
    return value * literal(1 / count if count else float("nan"), "float32")


def _square(value: Any) -> Any:
    return value * value


def _in_floats(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Integer sums go through float32 to a function of real numbers; the cast back truncates."""
    return lambda value: function(value.astype("float32"))


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": Reduction(SUM),
    "ReduceMean": Reduction(SUM, is_mean=True),
    "ReduceMax": Reduction(MAX, is_extreme=True),
    "ReduceMin": Reduction(MIN, is_extreme=True),
    "ReduceProd": Reduction(PRODUCT),
    "ReduceL1": Reduction(SUM, before=tirx.abs),
    "ReduceL2": Reduction(SUM, before=_square, after=_in_floats(tirx.sqrt)),
    "ReduceLogSum": Reduction(SUM, after=_in_floats(tirx.log)),
    "ReduceSumSquare": Reduction(SUM, before=_square),
}


def reduced_axes(x: te.Tensor, axes: Constant | None, noop_with_empty_axes: bool) -> list[int]:
    """No axes mean all of them, or none at all."""
    if axes is None or axes.size == 0:
        return [] if noop_with_empty_axes else list(range(len(shape_of(x))))
    return [int(axis) for axis in axes.reshape(-1)]


def _declare(onnx_name: str, reduction: Reduction) -> None:
    def reduce(
        x: te.Tensor, axes: Constant | None = None, *, keepdims: bool = True, noop_with_empty_axes: bool = False
    ) -> te.Tensor:
        return reduction.of(onnx_name.lower(), x, reduced_axes(x, axes, noop_with_empty_axes), keepdims)

    operator(onnx_name, schedule="reduction")(reduce)


for _name, _reduction in _REDUCTIONS.items():
    _declare(_name, _reduction)


def _declare_global(onnx_name: str, reduction: Reduction) -> None:
    def reduce(x: te.Tensor) -> te.Tensor:
        return reduction.of(onnx_name.lower(), x, spatial_axes(x), True)

    operator(onnx_name, schedule="reduction")(reduce)


def spatial_axes(x: te.Tensor) -> range:
    """All but batch and channel."""
    rank = len(shape_of(x))
    if rank < 2:
        raise refusals.wrong_shape("x must be [batch, channels, ...]", x=x)
    return range(2, rank)


_declare_global("GlobalAveragePool", _REDUCTIONS["ReduceMean"])
_declare_global("GlobalMaxPool", _REDUCTIONS["ReduceMax"])


@operator("GlobalLpPool", schedule="reduction")
def global_lp_pool(x: te.Tensor, *, p: int = 2) -> te.Tensor:
    return lp_norm(p).of("globallppool", x, spatial_axes(x), True)


def lp_norm(p: int) -> Reduction:
    """``(sum |x| ** p) ** (1 / p)``."""
    if p < 1:
        raise refusals.wrong_value("must be at least 1", "p", p)
    if p in (1, 2):
        return _REDUCTIONS[f"ReduceL{p}"]
    root = literal(1 / p, "float32")

    def power(value: Any) -> Any:
        if p > MOST_FACTORS:
            return raised(tirx.abs(value), literal(float(p), "float32"))
        return functools.reduce(lambda a, b: a * b, [tirx.abs(value)] * p)

    return Reduction(SUM, before=power, after=lambda value: raised(value, root))


@operator("ReduceLogSumExp", schedule="softmax")
def reduce_log_sum_exp(
    x: te.Tensor, axes: Constant | None = None, *, keepdims: bool = True, noop_with_empty_axes: bool = False
) -> te.Tensor:
    """Exponents are taken relative to the row's maximum, where that is finite."""
    require_dtype(NUMBERS, x=x)
    rows = Rows.of(x, reduced_axes(x, axes, noop_with_empty_axes))
    largest = rows.reduce("row_max", MAX, "float32", lambda i: x[i].astype("float32"))
    finite = te.compute(
        rows.kept, lambda *i: tirx.Select(tirx.abs(largest[i]) < float("inf"), largest[i], 0.0), "finite_max"
    )
    total = rows.reduce("row_sum", SUM, "float32", lambda i: tirx.exp(x[i].astype("float32") - finite[rows.row(i)]))
    shape = rows.kept if keepdims else tuple(n for axis, n in enumerate(rows.shape) if axis not in rows.axes)

    def result(*indices: Any) -> Any:
        outer = iter(indices)
        where = tuple(next(outer) if keepdims or axis not in rows.axes else 0 for axis in range(len(rows.shape)))
        return (tirx.log(total[where]) + finite[where]).astype(result_dtype(x))

    return te.compute(shape, result, "reducelogsumexp")


def _declare_arg(onnx_name: str, extreme: Combine) -> None:
    def argument(x: te.Tensor, *, axis: int = 0, keepdims: bool = True, select_last_index: bool = False) -> te.Tensor:
        require_dtype(NUMBERS, x=x)
        rows = Rows.of(x, [axis])
        return extreme_position(rows, x, extreme, select_last_index, keepdims)

    operator(onnx_name, schedule="softmax")(argument)


def extreme_position(rows: Rows, x: te.Tensor, extreme: Combine, last: bool = False, keeps: bool = True) -> te.Tensor:
    """The place in its row of the first (or last) element that equals the row's extreme, as int32."""
    dtype = result_dtype(x)
    best = rows.reduce("row_extreme", extreme, dtype, lambda i: x[i])
    none = tirx.const(-1 if last else np.iinfo(np.int32).max, "int32")

    def place(indices: tuple[Any, ...]) -> Any:
        return tirx.Select(x[indices] == best[rows.row(indices)], rows.place(indices), none)

    return rows.reduce("row_position", MAX if last else MIN, "int32", place, keeps)


_declare_arg("ArgMax", MAX)
_declare_arg("ArgMin", MIN)
