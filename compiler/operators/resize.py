"""Resize and Upsample: where each output element lies in the input is known at compile time.

Every axis is done on its own: floats by a product with the matrix of its weights, integers, and floats of large maps
whose neighbours are all equally far apart, neighbour by neighbour. Nearest neighbours of all axes are picked at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.isa.layout import FRACTAL
from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, normalised_axis, shape_of
from compiler.operators.columns import pays, picked_columns
from compiler.operators.graph import Graph, Value
from compiler.operators.interpolation import stretches_of
from compiler.operators.left_products import left_product
from compiler.operators.registry import composition, operator
from compiler.operators.repetition import repeated
from compiler.operators.runs import Positions, count_of_nests, pick, require_listable
from compiler.operators.signature import Constant

MAX_NESTS = 48  # more of them, and picking by a table makes the smaller program
MAX_TERMS = 64  # of a sum that is written out, with antialiasing
# Of the input of one product along an axis: rather than multiply more zeros, the cube makes parts of the result one by
# one. The vector unit leaves zeros out, but is slow with results that lie apart or are read by a table: 8 maps of 600 x
# 600 out of 300 x 300 take 3,139k cycles of tw1 so, and 181k as products; 3 of 360 x 640 out of 1080 x 1920, which lie
# in rows, 94k and 279k. As in every product, a zero times an infinity is not a number.
MAX_PRODUCT_EXTENT = 256
# Of maps of which one product takes all axes: as many products for each element of the result. Its matrix is read, too,
# which pays with so many maps for each element of one, or of the matrix, where maps fill whole blocks. In fp16 on tw1
# 1,024 maps of 4x4 out of 2x2 take 0.8k cycles, not 1.8k, 64 of 8x8 out of 4x4 0.5k, not 1.1k, and 128 of 16x16 out of
# 8x8 on tw2 0.8k, not 1.2k; but 128 of 60x60 out of 6x6 would take 14.2k, not 9.1k, 256 of 14x14 out of 7x7 2.9k, not
# 2.4k.
MAX_MAP_ELEMS = 64
MAPS_PER_ELEM, MATRIX_PER_MAP = 8, 256


# Of a result along an axis: where it begins and ends, and where its neighbours do.
Band = tuple[int, int, int, int]


@dataclass(frozen=True)
class Sampling:
    """How coordinates and weights are computed; the names are those of the ONNX attributes."""

    mode: str
    coordinate_transformation_mode: str
    nearest_mode: str = "round_prefer_floor"
    antialias: bool = False
    exclude_outside: bool = False
    cubic_coeff_a: float = -0.75
    extrapolation_value: float = 0.0


@dataclass(frozen=True)
class AxisSize:
    given: int
    wanted: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    def coordinates(self, mode: str) -> Positions:
        """The place in the input of each output element."""
        out = np.arange(self.wanted, dtype=np.float64)
        length = self.given * self.scale
        last = self.given - 1
        start, end = self.roi
        if mode == "half_pixel" or (mode == "pytorch_half_pixel" and length != 1):
            return (out + 0.5) / self.scale - 0.5
        if mode == "pytorch_half_pixel":
            return out * 0
        if mode == "half_pixel_symmetric":
            return self.given / 2 * (1 - self.wanted / length) + (out + 0.5) / self.scale - 0.5
        if mode == "asymmetric":
            return out / self.scale
        if mode == "align_corners":
            return out * 0 if length == 1 else out * last / (length - 1)
        if mode == "tf_crop_and_resize":
            step = 0.5 * (end - start) * last if length == 1 else (end - start) * last / (length - 1)
            return start * last + (out * 0 + step if length == 1 else out * step)
        raise refusals.wrong_value("unknown mode", "coordinate_transformation_mode", mode)

    def nearest(self, sampling: Sampling) -> Positions:
        return _rounded(self.coordinates(sampling.coordinate_transformation_mode), sampling.nearest_mode).clip(
            0, self.given - 1
        )

    def tables(self, sampling: Sampling) -> tuple[Positions, Positions, Positions]:
        """For each output element: its neighbours, their weights, and what is added (the value outside)."""
        place = self.coordinates(sampling.coordinate_transformation_mode)
        if sampling.mode == "nearest":
            neighbours = _rounded(place, sampling.nearest_mode)[:, None]
            weights = np.ones(neighbours.shape)
        else:
            neighbours, weights = _kernel(place, self.scale, sampling)
        if sampling.exclude_outside:
            weights = np.where((neighbours >= 0) & (neighbours < self.given), weights, 0.0)
            weights = weights / weights.sum(axis=1, keepdims=True)
        added = np.zeros(self.wanted)
        if sampling.coordinate_transformation_mode == "tf_crop_and_resize":
            outside = (place < 0) | (place > self.given - 1)
            weights = np.where(outside[:, None], 0.0, weights)
            added = np.where(outside, sampling.extrapolation_value, 0.0)
        return (
            neighbours.clip(0, self.given - 1).astype(np.int32),
            weights.astype(np.float32),
            added.astype(np.float32),
        )


@composition("Resize")
def resize(
    graph: Graph,
    x: Value,
    roi: Constant | None = None,
    scales: Constant | None = None,
    sizes: Constant | None = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    antialias: bool = False,
    axes: tuple[int, ...] | None = None,
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    opset: int = 19,
) -> Any:
    if opset < 11:  # Resize-10 had only scales, and the coordinates of Upsample
        return upsample(graph, x, roi if scales is None else scales, mode=mode)
    rank = len(shape_of(x))
    on = list(range(rank)) if axes is None else [normalised_axis(axis, rank) for axis in axes]
    regions = _regions(roi, on) if coordinate_transformation_mode == "tf_crop_and_resize" else {}
    wanted = _sizes(shape_of(x), on, scales, sizes, keep_aspect_ratio_policy)
    whole = (0.0, 1.0)
    axis_sizes = {
        axis: AxisSize(shape_of(x)[axis], extent, scale, regions.get(axis, whole))
        for axis, (extent, scale) in wanted.items()
    }
    sampling = Sampling(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        antialias,
        exclude_outside,
        cubic_coeff_a,
        extrapolation_value,
    )
    return _resized(graph, x, axis_sizes, sampling)


@composition("Upsample")
def upsample(graph: Graph, x: Value, scales: Constant | None = None, *, mode: str = "nearest") -> Any:
    shape = shape_of(x)
    wanted = _sizes(shape, list(range(len(shape))), scales, None, "stretch")
    sizes = {axis: AxisSize(shape[axis], extent, scale) for axis, (extent, scale) in wanted.items()}
    return _resized(graph, x, sizes, Sampling(mode, "asymmetric", "floor"))


@operator("tilewright::Pick", schedule="movement")
def pick_elements(x: te.Tensor, *positions: Constant) -> te.Tensor | tirx.PrimFunc:
    """``out[i, j, ...] = x[positions[0][i], positions[1][j], ...]``"""
    return pick(x, positions)


def _resized(graph: Graph, x: Value, sizes: dict[int, AxisSize], sampling: Sampling) -> Any:
    if sampling.mode not in ("nearest", "linear", "bilinear", "trilinear", "cubic"):
        raise refusals.wrong_value("must be nearest, linear or cubic", "mode", sampling.mode)
    if sampling.mode == "nearest" and sampling.coordinate_transformation_mode != "tf_crop_and_resize":
        return _picked(graph, x, sizes, sampling)
    dtype = dtype_of(x)
    tables = {axis: size.tables(sampling) for axis, size in sizes.items()}
    changed = [axis for axis, table in tables.items() if not _is_identity(sizes[axis], *table)]
    if not changed:
        return graph.call("Identity", x)
    changed.sort(key=lambda axis: sizes[axis].scale)  # what shrinks comes first: less is left for the others
    bands = {axis: _bands(tables[axis][0]) for axis in changed}
    in_rows = all(len(bands[axis]) > 1 and len(stretches_of(*tables[axis])[1]) == 1 for axis in changed)
    if dtype in ("float16", "bfloat16", "float32") and not in_rows:
        made = math.prod(len(tables[axis][0]) for axis in changed)
        if _is_small_map(shape_of(x), changed, made) and not any(tables[axis][2].any() for axis in changed):
            return _map_multiplied(graph, x, [tables[axis] for axis in sorted(changed)])
        for axis in changed:
            x = _by_bands(graph, x, tables[axis], axis, bands[axis])
        return x
    between = dtype if sampling.mode == "nearest" else "float32"
    for axis in changed:
        kind = dtype if axis == changed[-1] else between
        is_short = tables[axis][0].shape[1] <= MAX_TERMS
        patterned = is_short and len(stretches_of(*tables[axis])[1]) <= MAX_NESTS
        name = "tilewright::Interpolate" if patterned else "tilewright::InterpolateByTable"
        x = graph.call(name, x, *(graph.constant(table) for table in tables[axis]), axis=axis, dtype=kind)
    return x


def _bands(neighbours: Positions) -> list[Band]:
    """As few equal parts of the result as read few enough neighbours each, if single elements do."""
    if not len(neighbours):
        return [(0, 0, 0, 1)]
    first, last = neighbours.min(axis=1), neighbours.max(axis=1) + 1
    most = max(MAX_PRODUCT_EXTENT, int((last - first).max()))
    for count in range(1, len(neighbours) + 1):
        ends = [len(neighbours) * at // count for at in range(count + 1)]
        found = [(a, b, int(first[a:b].min()), int(last[a:b].max())) for a, b in pairwise(ends)]
        if all(high - low <= most for _, _, low, high in found):
            break
    return found


def _by_bands(
    graph: Graph, x: Value, tables: tuple[Positions, Positions, Positions], axis: int, bands: Sequence[Band]
) -> Value:
    made, (neighbours, weights, added) = [], tables
    for begin, end, low, high in bands:
        part = x
        if (low, high) != (0, shape_of(x)[axis]):
            part = graph.call("Slice", x, np.array([low]), np.array([high]), np.array([axis]))
        own = slice(begin, end)
        made.append(_multiplied(graph, part, neighbours[own] - low, weights[own], added[own], axis))
    return made[0] if len(made) == 1 else graph.call("Concat", *made, axis=axis)


def _is_small_map(shape: tuple[int, ...], changed: Sequence[int], made: int) -> bool:
    """Whether several axes change, they are the last ones, and the cube had better make all of a map at once."""
    first = len(shape) - len(changed)
    if len(changed) < 2 or sorted(changed) != [*range(first, len(shape))]:
        return False
    maps, elems = math.prod(shape[:first]), math.prod(shape[first:])
    few = elems * MAPS_PER_ELEM <= maps or (elems % FRACTAL == 0 and elems * made <= maps * MATRIX_PER_MAP)
    return elems <= MAX_MAP_ELEMS and few


def _map_multiplied(graph: Graph, x: Value, tables: Sequence[tuple[Positions, Positions, Positions]]) -> Value:
    """The last axes as one product of maps: one of axis after axis would be of a few elements for each map."""
    shape, dtype = shape_of(x), dtype_of(x)
    first = len(shape) - len(tables)
    matrix = np.ones((1, 1), np.float32)
    for given, (neighbours, weights, _) in zip(shape[first:], tables, strict=True):
        matrix = np.kron(matrix, _matrix(neighbours, weights, given))
    rows = graph.call("Reshape", x, np.array([math.prod(shape[:first]), matrix.shape[1]]), allowzero=True)
    product = graph.call("MatMul", rows, graph.constant(np.ascontiguousarray(matrix.T).astype(dtype)))
    result = (*shape[:first], *(len(neighbours) for neighbours, _, _ in tables))
    made: Value = graph.call("Reshape", product, np.array(result), allowzero=True)
    return made


def _matrix(neighbours: Positions, weights: Positions, given: int) -> Positions:
    matrix = np.zeros((len(neighbours), given), np.float32)
    np.add.at(matrix, (np.arange(len(neighbours))[:, None], neighbours), weights)
    return matrix


def _multiplied(
    graph: Graph, x: Value, neighbours: Positions, weights: Positions, added: Positions, axis: int
) -> Value:
    """One axis as a product, whose results leave in whole rows; those of an axis but the last stay where they are."""
    shape, dtype = shape_of(x), dtype_of(x)
    wanted, given = len(neighbours), shape[axis]
    matrix = _matrix(neighbours, weights, given)
    result = (*shape[:axis], wanted, *shape[axis + 1 :])
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    if inner == 1:
        rows = graph.call("Reshape", x, np.array([outer, given]), allowzero=True)
        x = graph.call("MatMul", rows, graph.constant(np.ascontiguousarray(matrix.T).astype(dtype)))
    else:
        apart = [given, inner] if outer == 1 else [outer, given, inner]
        columns = graph.call("Reshape", x, np.array(apart), allowzero=True)
        x = left_product(graph, matrix.astype(dtype), columns)
    x = graph.call("Reshape", x, np.array(result), allowzero=True)
    if added.any():
        column = added.astype(dtype).reshape(-1, *(1 for _ in shape[axis + 1 :]))
        x = graph.call("Add", x, graph.constant(column))
    return x


def _picked(graph: Graph, x: Value, sizes: dict[int, AxisSize], sampling: Sampling) -> Any:
    lists: list[Positions] = [np.arange(extent, dtype=np.int32) for extent in shape_of(x)]
    for axis, size in sizes.items():
        lists[axis] = size.nearest(sampling).astype(np.int32)
    times = [max(1, len(positions) // max(1, extent)) for positions, extent in zip(lists, shape_of(x), strict=True)]
    if all(
        np.array_equal(positions, np.repeat(np.arange(extent), count))
        for positions, extent, count in zip(lists, shape_of(x), times, strict=True)
    ):
        return repeated(graph, x, [1] * len(times), times)
    if pays((*(len(positions) for positions in lists[:-1]), shape_of(x)[-1]), lists[-1], len(lists[-1])):
        columns, lists[-1] = graph.constant(lists[-1]), np.arange(shape_of(x)[-1], dtype=np.int32)
        return picked_columns(graph, _picked_by(graph, x, lists), columns)
    return _picked_by(graph, x, lists)


def _picked_by(graph: Graph, x: Value, lists: Sequence[Positions]) -> Any:
    if all(np.array_equal(positions, np.arange(n)) for positions, n in zip(lists, shape_of(x), strict=True)):
        return x
    if count_of_nests(lists) <= MAX_NESTS:
        return graph.call("tilewright::Pick", x, *(graph.constant(positions) for positions in lists))
    for axis, positions in enumerate(lists):
        if not np.array_equal(positions, np.arange(shape_of(x)[axis])):
            x = graph.call("Gather", x, graph.constant(positions), axis=axis)
    return x


def _sizes(
    shape: Sequence[int],
    axes: Sequence[int],
    scales: np.ndarray[Any, Any] | None,
    sizes: np.ndarray[Any, Any] | None,
    policy: str,
) -> dict[int, tuple[int, float]]:
    """The extent and the scale of each resized axis."""
    given = sizes if sizes is not None and sizes.size else scales
    if given is None or given.size != len(axes):
        raise refusals.wrong_value(f"one of scales and sizes must have {len(axes)} elements", "scales", given)
    if given is scales:
        if not (np.isfinite(given) & (given > 0)).all():
            raise refusals.wrong_value("must be positive", "scales", given.ravel().tolist())
        # In float32, as every other implementation: 10 * 0.7 is 7 there and less in float64.
        with np.errstate(over="ignore"):
            extents = np.floor(np.array([shape[a] for a in axes], np.float32) * given.ravel().astype(np.float32))
        return {
            axis: (_listable(extent), float(scale))
            for axis, extent, scale in zip(axes, extents, given.ravel(), strict=True)
        }
    if min(given.ravel().tolist(), default=0) < 0 or any(shape[axis] == 0 for axis in axes):
        raise refusals.wrong_value(f"must not be negative, for axes that have elements ({shape})", "sizes", given)
    ratios = [int(size) / shape[axis] for axis, size in zip(axes, given.ravel(), strict=True)]
    if policy == "stretch":
        return {axis: (_listable(n), r) for axis, n, r in zip(axes, given.ravel(), ratios, strict=True)}
    if policy not in ("not_larger", "not_smaller"):
        raise refusals.wrong_value("must be stretch, not_larger or not_smaller", "keep_aspect_ratio_policy", policy)
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return {axis: (_listable(np.floor(ratio * shape[axis] + 0.5)), ratio) for axis in axes}


def _listable(extent: Any) -> int:
    """An extent that somebody asked for, small enough for tables of its positions."""
    whole = int(min(extent, np.iinfo(np.int64).max))
    require_listable(whole)
    return whole


def _regions(roi: np.ndarray[Any, Any] | None, axes: Sequence[int]) -> dict[int, tuple[float, float]]:
    if roi is None or roi.size != 2 * len(axes):
        raise refusals.wrong_value(f"tf_crop_and_resize needs {2 * len(axes)} numbers", "roi", roi)
    starts, ends = np.split(roi.ravel().astype(np.float64), 2)
    return {axis: (float(start), float(end)) for axis, start, end in zip(axes, starts, ends, strict=True)}


def _rounded(place: Positions, mode: str) -> Positions:
    rounding: dict[str, Callable[[Positions], Positions]] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if mode not in rounding:
        raise refusals.wrong_value(f"must be one of {', '.join(rounding)}", "nearest_mode", mode)
    # A coordinate that is a whole number but for the rounding of the scale is that number.
    near = np.rint(place * 2) / 2
    return rounding[mode](np.where(abs(place - near) < 1e-6, near, place)).astype(np.int64)


def _kernel(place: Positions, scale: float, sampling: Sampling) -> tuple[Positions, Positions]:
    """The neighbours of each place and their weights; antialiasing widens the kernel by what the axis shrinks."""
    cubic = sampling.mode == "cubic"
    squeezed = min(scale, 1.0) if sampling.antialias else 1.0
    first = int(np.floor(-(2 if cubic else 1) / squeezed)) + 1
    require_listable((2 - 2 * first) * max(1, len(place)))
    offsets = np.arange(first, 2 - first)
    base = np.floor(place)
    distance = abs(offsets - (place - base)[:, None]) * squeezed
    weights = _cubic(distance, sampling.cubic_coeff_a) if cubic else np.clip(1 - distance, 0, 1)
    if sampling.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return (base[:, None] + offsets).astype(np.int64), weights


def _cubic(x: Positions, a: float) -> Positions:
    inner = (a + 2) * x**3 - (a + 3) * x**2 + 1
    outer = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))


def _is_identity(size: AxisSize, neighbours: Positions, weights: Positions, added: Positions) -> bool:
    if size.given != size.wanted or added.any():
        return False
    own = np.where(neighbours == np.arange(size.wanted)[:, None], weights, 0.0).sum(axis=1)
    return bool((own == 1.0).all() and (abs(weights).sum(axis=1) == 1.0).all())
