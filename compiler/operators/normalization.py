"""Normalisation by the statistics of a row, which are computed in float32.

Layer norm of fp16 has rows in fp16 meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.isa.timing import ceil_div
from compiler.operators import refusals
from compiler.operators.axes import along_last, in_three_axes
from compiler.operators.broadcast import broadcast_shape, literal, normalised_axis, read, result_dtype, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.reduction import MAX, SUM, Combine, Rows, lp_norm, spatial_axes
from compiler.operators.registry import composition, operator

_NARROW = "float16"
_SMALLER = 0.25  # no difference of fp16 numbers overflows, and the factor of one that large is no denormal
_PLACES = 16  # of a block, of numbers of two bytes
_LONG = 4  # blocks
# As attributes are. Beside smaller ones what fp16 rounds small differences by is large,
_COARSE_EPSILON = float(np.float32(1e-6))
_LEAST_EPSILON = float(np.float32(1e-12))  # and smaller ones than this hide nothing
_FEW_ELEMENTS = 2**15  # of all rows: below that more instructions on a core take longer than fewer bytes save,
_SHORT_ROW = 2**11  # where no row, which one core has, is longer
_FEW_FOR_OWN_FACTORS = 2**16
_MOST_ELEMENTS = 2**15  # of a row: the sums of their squares are numbers of fp16 that are no denormals
_GREATEST = 65504.0  # of fp16
_MOST_FACTOR = 2.0**15
_LEAST_SQUARE = 2.0**-31  # less than rows of numbers that differ have; the root's inverse is a number of fp16


def row_mean(rows: Rows, element: Callable[[tuple[Any, ...]], Any]) -> te.Tensor:
    total = rows.reduce("row_sum", SUM, "float32", element)
    return te.compute(rows.kept, lambda *i: total[i] * literal(1 / max(rows.elements, 1), "float32"), "row_mean")


def centred(rows: Rows, x: te.Tensor) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Each row's mean, the elements less their row's mean, and each row's variance."""
    mean = row_mean(rows, lambda i: x[i].astype("float32"))
    rest = te.compute(rows.shape, lambda *i: x[i].astype("float32") - mean[rows.row(i)], "centred")
    return mean, rest, row_mean(rows, lambda i: rest[i] * rest[i])


def inverse_deviation(rows: Rows, variance: te.Tensor, epsilon: float) -> te.Tensor:
    return te.compute(rows.kept, lambda *i: tirx.rsqrt(variance[i] + literal(epsilon, "float32")), "inverse_deviation")


def _affine(value: Any, scale: Any, bias: Any, dtype: str) -> Any:
    """``value * scale + bias`` of a normalised value, as ``dtype``; either may be left out.

    Where all is fp16 the value, which is less than the root of a row's elements, is rounded to it first: both steps
    are then one in fp16, and neither scale nor bias is converted.
    """
    terms = [term for term in (scale, bias) if term is not None]
    if terms and {dtype, *(str(term.dtype) for term in terms)} == {_NARROW}:
        value = value.astype(_NARROW).astype("float32")
    if scale is not None:
        value = value * scale.astype("float32")
    return (value if bias is None else value + bias.astype("float32")).astype(dtype)


@operator("LayerNormalization", schedule="norm")
def layer_normalization(
    x: te.Tensor,
    scale: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Over ``axis`` and all after it; also each row's mean and inverse deviation."""
    rows = _trailing_rows(x, axis, scale, bias)
    return _normalised(rows, x, scale, bias, epsilon, lambda term, i: read(term, i))


@composition("tilewright::AxisNormalization")
def axis_normalization(
    graph: Graph, x: Value, scale: Value, bias: Value | None = None, *, axis: int, epsilon: float
) -> Any:
    """Layer norm over a single axis; scale and bias have an element for each of its positions."""
    apart = graph.call("Reshape", x, np.array(in_three_axes(x.shape, axis)))
    terms = [None if term is None else graph.call("Reshape", term, np.array([-1])) for term in (scale, bias)]
    normalised = graph.call("tilewright::ChannelNormalization", apart, *terms, epsilon=epsilon)
    return graph.call("Reshape", normalised, np.array(x.shape))


@operator("tilewright::ChannelNormalization", schedule="norm")
def channel_normalization(
    x: te.Tensor, scale: te.Tensor, bias: te.Tensor | None = None, *, epsilon: float
) -> te.Tensor:
    """Layer norm of [batch, channel, place] over the channels."""
    require_per_channel(x, scale=scale, bias=bias)
    return _normalised(Rows.of(x, (1,)), x, scale, bias, epsilon, lambda term, i: term[i[1]])[0]


def _normalised(
    rows: Rows,
    x: te.Tensor,
    scale: te.Tensor,
    bias: te.Tensor | None,
    epsilon: float,
    of_element: Callable[[te.Tensor, tuple[Any, ...]], Any],
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The rows, each one's mean and inverse deviation. Scale and bias are those ``of_element``."""

    def affine(value: Any, i: tuple[Any, ...]) -> Any:
        return _affine(value, of_element(scale, i), None if bias is None else of_element(bias, i), result_dtype(x))

    narrow = {result_dtype(one) for one in (x, scale, bias) if one is not None} == {_NARROW}
    if narrow and _pays_in_fp16(rows, epsilon):
        return _normalised_in_fp16(rows, x, epsilon, affine)
    mean, rest, variance = centred(rows, x)
    inverse = inverse_deviation(rows, variance, epsilon)
    result = te.compute(rows.shape, lambda *i: affine(rest[i] * inverse[rows.row(i)], i), "layernorm")
    return result, mean, inverse


def _pays_in_fp16(rows: Rows, epsilon: float) -> bool:
    elements = prod(rows.shape)
    if elements <= _FEW_ELEMENTS and rows.elements <= _SHORT_ROW:
        return False
    has_own_factors = rows.elements <= _MOST_ELEMENTS and elements > _FEW_FOR_OWN_FACTORS
    return epsilon >= (_LEAST_EPSILON if has_own_factors else _COARSE_EPSILON)


def _normalised_in_fp16(
    rows: Rows, x: te.Tensor, epsilon: float, affine: Callable[[Any, tuple[Any, ...]], Any]
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """In fp16 what has as many elements as x, each value rounded once; sums and statistics in float32.

    What is subtracted first is the mean as x can hold it, which leaves differences that are exact where they are small.
    Its remainder is subtracted with the next factor. Nothing that x can hold is nearer to the mean than that, so
    squares around it are at least twice those of the remainder, whatever the mean was rounded to.
    """
    share = 1 / max(rows.elements, 1)
    total = rows.reduce("row_sum", SUM, "float32", lambda i: x[i].astype("float32"))
    mean = te.compute(rows.kept, lambda *i: total[i] * literal(share, "float32"), "row_mean")
    centre = te.compute(rows.kept, lambda *i: (total[i] * literal(share, "float32")).astype(_NARROW), "centre")
    brought = _all_alike if epsilon >= _COARSE_EPSILON else _by_own_factors
    near = brought(rows, x, total, centre, epsilon)

    def normalised(*i: Any) -> Any:
        row = rows.row(i)
        offset, times = (
            (one[row] * literal(by, "float32")).astype(_NARROW).astype("float32")
            for one, by in ((near.remainders, near.remainder), (near.factors, near.factor))
        )
        return affine((near.rest[i].astype("float32") - offset) * times, i)

    return te.compute(rows.shape, normalised, "layernorm"), mean, near.inverse


@dataclass(frozen=True)
class _Near:
    """Rows brought near zero, in fp16; what is left to subtract of each row, and then to multiply it with, by numbers
    that are the same for all rows; and the inverse deviation of what the rows were.
    """

    rest: te.Tensor
    remainders: te.Tensor
    factors: te.Tensor
    inverse: te.Tensor
    remainder: float = 1.0
    factor: float = 1.0


def _all_alike(rows: Rows, x: te.Tensor, total: te.Tensor, centre: te.Tensor, epsilon: float) -> _Near:
    """All rows made smaller alike, beside an epsilon that lets no tiny row be normalised: few steps for each row."""
    count = max(rows.elements, 1)

    def smaller(*i: Any) -> Any:
        middle = centre[rows.row(i)].astype("float32")
        return (x[i].astype("float32") * literal(_SMALLER, "float32") + middle * -_SMALLER).astype(_NARROW)

    rest = te.compute(rows.shape, smaller, "centred")
    squares = _sum_of_squares(rows, rest, "bfloat16")
    remainders = te.compute(rows.kept, lambda *i: _beyond(rows, total, centre, i), "remainders")

    def by_count(*i: Any) -> Any:
        around_centre = squares[i] * literal(count / _SMALLER**2, "float32")
        return tirx.rsqrt(around_centre + literal(epsilon * count**2, "float32") - remainders[i] * remainders[i])

    factors = te.compute(rows.kept, by_count, "factor")
    inverse = te.compute(rows.kept, lambda *i: factors[i] * literal(count, "float32"), "inverse_deviation")
    return _Near(rest, remainders, factors, inverse, _SMALLER / count, count / _SMALLER)


def _by_own_factors(rows: Rows, x: te.Tensor, total: te.Tensor, centre: te.Tensor, epsilon: float) -> _Near:
    """Each row brought to where fp16 holds its squares by a factor of its own, which its greatest magnitude decides:
    numbers of fp16 that differ, differ by more than a few thousandths of that.
    """
    count, share, own = rows.elements, 1 / rows.elements, _own_factors(rows, x)

    def near(*i: Any) -> Any:
        middle, factor = (one[rows.row(i)].astype("float32") for one in (centre, own))
        return ((x[i].astype("float32") - middle) * factor).astype(_NARROW)

    rest = te.compute(rows.shape, near, "centred")
    squares = _sum_of_squares(rows, rest, _NARROW)
    part = te.compute(rows.kept, lambda *i: own[i].astype("float32") * literal(share, "float32"), "own_share")
    remainders = te.compute(rows.kept, lambda *i: _beyond(rows, total, centre, i) * part[i], "remainders")

    def around_mean(*i: Any) -> Any:
        hidden = part[i] * part[i] * literal(epsilon * count**2, "float32")
        return squares[i] * literal(share, "float32") + hidden - remainders[i] * remainders[i]

    variance = te.compute(rows.kept, around_mean, "variance")
    factors = te.compute(
        rows.kept, lambda *i: tirx.rsqrt(tirx.max(variance[i], literal(_LEAST_SQUARE, "float32"))), "factor"
    )
    inverse = te.compute(rows.kept, lambda *i: tirx.rsqrt(variance[i]) * own[i].astype("float32"), "inverse_deviation")
    return _Near(rest, remainders, factors, inverse)


def _beyond(rows: Rows, total: te.Tensor, centre: te.Tensor, i: tuple[Any, ...]) -> Any:
    """What a row's elements are beyond as many of its centre: nothing for a row of one value."""
    return total[i] + centre[i].astype("float32") * literal(-max(rows.elements, 1), "float32")


def _own_factors(rows: Rows, x: te.Tensor) -> te.Tensor:
    """For each row the fp16 number that makes its greatest magnitude as great as sums of squares leave room for.

    A difference is at most twice as large.
    """
    most = 2 ** int(np.log2(_GREATEST / ceil_div(rows.elements, _PLACES)) / 2 - 1)
    largest = _by_place(rows, x, MAX, _NARROW, lambda element: tirx.abs(element))

    def factor(*i: Any) -> Any:
        least = tirx.max(largest[i].astype("float32"), literal(most / _MOST_FACTOR, "float32"))
        return (literal(most, "float32") / least).astype(_NARROW)

    return te.compute(rows.kept, factor, "own_factor")


def _sum_of_squares(rows: Rows, x: te.Tensor, dtype: str) -> te.Tensor:
    """Of every row. What is summed first may be of ``dtype``: no terms of it cancel out, and it holds the squares."""

    def square(element: Any) -> Any:
        return element.astype("float32") * element.astype("float32")

    return _by_place(rows, x, SUM, "float32", square, {"tw.sum": dtype})


def _by_place(
    rows: Rows,
    x: te.Tensor,
    combine: Combine,
    dtype: str,
    element: Callable[[Any], Any],
    attributes: dict[str, str] | None = None,
) -> te.Tensor:
    """All elements of each row as one; where rows are of whole blocks first those at each place of a block.

    ``attributes`` are of the stage that does so.
    """
    last = rows.shape[-1]
    if rows.axes != (len(rows.shape) - 1,) or last % _PLACES or last < _LONG * _PLACES:
        return rows.reduce("row_of_all", combine, dtype, lambda i: element(x[i]))
    blocks = te.reduce_axis((0, last // _PLACES), "blocks")
    places = te.compute(
        (*rows.kept[:-1], _PLACES),
        lambda *i: combine.reducer(element(x[(*i[:-1], blocks * _PLACES + i[-1])]), axis=blocks),
        "of_place",
        attrs=attributes or {},
    )
    return Rows(shape_of(places), rows.axes).reduce("row_of_places", combine, dtype, lambda i: places[i])


@operator("RMSNormalization", schedule="norm")
def rms_normalization(
    x: te.Tensor, scale: te.Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> te.Tensor:
    rows = _trailing_rows(x, axis, scale, None)
    squares = row_mean(rows, lambda i: x[i].astype("float32") * x[i].astype("float32"))
    inverse = inverse_deviation(rows, squares, epsilon)
    dtype = result_dtype(x)
    return te.compute(
        rows.shape,
        lambda *i: _affine(x[i].astype("float32") * inverse[rows.row(i)], read(scale, i), None, dtype),
        "rmsnorm",
    )


def _trailing_rows(x: te.Tensor, axis: int, scale: te.Tensor, bias: te.Tensor | None) -> Rows:
    rank = len(shape_of(x))
    for name, tensor in (("scale", scale), ("bias", bias)):
        if tensor is not None and broadcast_shape(x=x, **{name: tensor}) != shape_of(x):
            raise refusals.wrong_shape(f"{name} must broadcast to x", x=x, **{name: tensor})
    return Rows.of(x, range(normalised_axis(axis, rank), rank))


def require_per_channel(x: Any, **vectors: Any) -> None:
    channels = shape_of(x)[1:2]
    if not channels:
        raise refusals.wrong_shape("x must be [batch, channels, ...]", x=x)
    for name, vector in vectors.items():
        if vector is not None and shape_of(vector) != channels:
            raise refusals.wrong_shape(f"{name} must have one element for each channel", x=x, **{name: vector})


@operator("InstanceNormalization", schedule="norm")
def instance_normalization(x: te.Tensor, scale: te.Tensor, bias: te.Tensor, *, epsilon: float = 1e-5) -> te.Tensor:
    require_per_channel(x, scale=scale, bias=bias)
    rows = Rows.of(x, spatial_axes(x))
    _, rest, variance = centred(rows, x)
    inverse = inverse_deviation(rows, variance, epsilon)
    dtype = result_dtype(x)
    return te.compute(
        rows.shape,
        lambda *i: _affine(rest[i] * inverse[rows.row(i)], scale[i[1]], bias[i[1]], dtype),
        "instancenorm",
    )


@composition("GroupNormalization")
def group_normalization(
    graph: Graph,
    x: Value,
    scale: Value,
    bias: Value,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    """``scale`` and ``bias`` have an element for each channel, before opset 21 for each group."""
    shape = shape_of(x)
    if len(shape) < 2 or num_groups < 1 or shape[1] % num_groups:
        raise refusals.wrong_shape(f"the channels of x must be a multiple of num_groups={num_groups}", x=x)
    width = shape[1] // num_groups
    grouped = [shape[0], num_groups, width, int(np.prod(shape[2:], dtype=np.int64))]
    terms = []
    for name, vector in (("scale", scale), ("bias", bias)):
        if shape_of(vector) not in ((shape[1],), (num_groups,)):
            raise refusals.wrong_shape(f"{name} must have one element for each channel or group", x=x, **{name: vector})
        columns = width if shape_of(vector) == (shape[1],) else 1
        terms.append(graph.call("Reshape", vector, np.array([num_groups, columns])))
    normalised = graph.call(
        "tilewright::GroupedNormalization", graph.call("Reshape", x, np.array(grouped)), *terms, epsilon=epsilon
    )
    return graph.call("Reshape", normalised, np.array(shape))


@operator("tilewright::GroupedNormalization", schedule="norm")
def grouped_normalization(x: te.Tensor, scale: te.Tensor, bias: te.Tensor, *, epsilon: float) -> te.Tensor:
    """x is [batch, group, channel, place]; scale and bias are [group, channel], or [group, 1]."""
    rows = Rows.of(x, (2, 3))
    _, rest, variance = centred(rows, x)
    inverse = inverse_deviation(rows, variance, epsilon)
    dtype = result_dtype(x)
    return te.compute(
        rows.shape,
        lambda *i: _affine(rest[i] * inverse[rows.row(i)], read(scale, i[1:3]), read(bias, i[1:3]), dtype),
        "groupnorm",
    )


@operator("MeanVarianceNormalization", schedule="norm")
def mean_variance_normalization(x: te.Tensor, *, axes: tuple[int, ...] = (0, 2, 3)) -> te.Tensor:
    rows = Rows.of(x, axes)
    _, rest, variance = centred(rows, x)
    deviation = te.compute(rows.kept, lambda *i: tirx.sqrt(variance[i]) + literal(1e-9, "float32"), "deviation")
    return te.compute(rows.shape, lambda *i: (rest[i] / deviation[rows.row(i)]).astype(result_dtype(x)), "meanvariance")


@composition("LpNormalization")
def lp_normalization(graph: Graph, x: Value, *, axis: int = -1, p: int = 2) -> Any:
    """A row of zeros stays zeros."""
    return along_last(graph, x, axis, lambda rows, own: graph.call("tilewright::LpNormalization", rows, axis=own, p=p))


@operator("tilewright::LpNormalization", schedule="norm")
def lp_normalization_of(x: te.Tensor, *, axis: int, p: int) -> te.Tensor:
    if p not in (1, 2):
        raise refusals.wrong_value("must be 1 or 2", "p", p)
    rows = Rows.of(x, [normalised_axis(axis, len(shape_of(x)))])
    norm = lp_norm(p)
    total = rows.reduce("row_sum", SUM, "float32", lambda i: norm.before(x[i].astype("float32")))
    divisor = te.compute(
        rows.kept, lambda *i: tirx.Select(total[i] == 0.0, literal(1, "float32"), norm.after(total[i])), "row_norm"
    )
    dtype = result_dtype(x)
    return te.compute(rows.shape, lambda *i: (x[i].astype("float32") / divisor[rows.row(i)]).astype(dtype), "lpnorm")


@operator("LRN", schedule="pooling")
def local_response_normalization(
    x: te.Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> te.Tensor:
    """By the squares of the ``size`` channels around each one."""
    shape = shape_of(x)
    if size < 1 or len(shape) < 2:
        raise refusals.wrong_value("must be at least 1", "size", size)
    before, after = (min(count, shape[1]) for count in ((size - 1) // 2, size // 2))
    near = te.reduce_axis((0, before + 1 + after), "near")

    def square(*i: Any) -> Any:
        channel = i[1] + near - before
        value = x[(i[0], channel, *i[2:])].astype("float32")
        return tirx.if_then_else(tirx.all(channel >= 0, channel < shape[1]), value * value, 0.0)

    squares = te.compute(shape, lambda *i: te.sum(square(*i), axis=near), "squares")

    def normalised(*i: Any) -> Any:
        base = literal(bias, "float32") + literal(alpha / size, "float32") * squares[i]
        return (x[i].astype("float32") * tirx.pow(base, literal(-beta, "float32"))).astype(result_dtype(x))

    return te.compute(shape, normalised, "lrn")
