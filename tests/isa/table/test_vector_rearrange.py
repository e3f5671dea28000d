"""Reductions, scans, conversions and moves against index arithmetic and exact sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.isa.dtypes import DTYPES, FLOATS
from compiler.isa.model import Row
from compiler.isa.table.vector_numerics import fold, int_to_float
from tests.isa.table.vector_bench import Oracle, check, limits, vector_rows


def _blocks(p: Any, a: Any) -> Any:
    return np.stack(np.split(a, a.shape[-1] // p.dtype_of("@dtype").fractal_k, axis=-1), axis=-2)


REDUCE: dict[str, Oracle] = {
    "vrsum": lambda p, a: a.sum(-1),
    "vrmax": lambda p, a: a.max(-1),
    "vrmin": lambda p, a: a.min(-1),
    "vrprod": lambda p, a: a.prod(-1),
    "vrsqsum": lambda p, a: (a**2).sum(-1),
    "vrabssum": lambda p, a: abs(a).sum(-1),
    "vrabsmax": lambda p, a: abs(a).max(-1),
    "vrargmax": lambda p, a: np.argmax(a == a.max(-1, keepdims=True), -1),
    "vrargmin": lambda p, a: np.argmax(a == a.min(-1, keepdims=True), -1),
    "vrany": lambda p, a: a.sum(-1) > 0,
    "vrall": lambda p, a: (~a).sum(-1) == 0,
    "vrcount": lambda p, a: np.count_nonzero(a, -1),
    "vrfirst": lambda p, a: np.where(a, np.arange(p.n0), p.n0).min(-1),
    "vdot": lambda p, a, b: np.einsum("...i,...i->...", a, b),
    "vrsqdiff": lambda p, a, b: ((a - b) ** 2).sum(-1),
    "vcsum": lambda p, a: a.sum(-2),
    "vcmax": lambda p, a: a.max(-2),
    "vcmin": lambda p, a: a.min(-2),
    "vcprod": lambda p, a: a.prod(-2),
    "vcsqsum": lambda p, a: (a**2).sum(-2),
    "vcabsmax": lambda p, a: abs(a).max(-2),
    "vcargmax": lambda p, a: np.argmax(a == a.max(-2, keepdims=True), -2),
    "vcargmin": lambda p, a: np.argmax(a == a.min(-2, keepdims=True), -2),
    "vcany": lambda p, a: a.sum(-2) > 0,
    "vcall": lambda p, a: (~a).sum(-2) == 0,
    "vccount": lambda p, a: np.count_nonzero(a, -2),
    "vgsum": lambda p, a: _blocks(p, a).sum(-1),
    "vgmax": lambda p, a: _blocks(p, a).max(-1),
    "vgmin": lambda p, a: _blocks(p, a).min(-1),
    "vpairsum": lambda p, a: a.reshape(*p.shape, 2).sum(-1),
    "vpairmax": lambda p, a: a.reshape(*p.shape, 2).max(-1),
    "vpairmin": lambda p, a: a.reshape(*p.shape, 2).min(-1),
}


def _scan(combine: np.ufunc, identity: Any) -> Oracle:
    def oracle(p: Any, a: Any) -> Any:
        first = identity(p) if callable(identity) else identity
        result = np.empty_like(a)
        running = np.full(a.shape[:-1], first, a.dtype)
        for i in range(p.n0) if p.order == "fwd" else reversed(range(p.n0)):
            after = combine(running, a[..., i])
            result[..., i] = running if p.form == "excl" else after
            running = after
        return result

    return oracle


def _least(p: Any) -> Any:
    return -np.inf if p.dtype in FLOATS else limits(p.dtype)[0]


def _greatest(p: Any) -> Any:
    return np.inf if p.dtype in FLOATS else limits(p.dtype)[1]


SCAN: dict[str, Oracle] = {
    "vcumsum": _scan(np.add, 0),
    "vcumprod": _scan(np.multiply, 1),
    "vcummax": _scan(np.maximum, _least),
    "vcummin": _scan(np.minimum, _greatest),
}


def _rounded(how: str, a: float) -> int:
    down = int(np.floor(a))
    fraction = a - down
    if how == "trunc":
        return down + (a < 0 and fraction > 0)
    if how == "away":
        return down + (fraction > 0.5 or (fraction == 0.5 and a > 0))
    return {"rne": round(a), "floor": down, "ceil": down + (fraction > 0)}[how]


def _converted(p: Any, a: Any) -> Any:
    if p.to == "bool":
        return a != 0
    if p.to in FLOATS or p.src == "bool":
        return a
    if p.src in FLOATS:
        a = np.vectorize(lambda x: _rounded(p.round, float(x)), otypes=[np.int64])(a)
    return np.clip(a, *limits(p.to))


CAST: dict[str, Oracle] = {
    "vconv": _converted,
    "vnarrow": lambda p, a: a % 2 ** (8 * DTYPES[p.to].itemsize),
}


def _by_index(index: Any) -> Oracle:
    """``dst[i, j, k] = a[index(p, i, j, k)]``, or zero where the index is nothing."""

    def oracle(p: Any, a: Any) -> Any:
        result = np.zeros(p.views[0].shape, a.dtype)
        for place in np.ndindex(*result.shape):
            source = index(p, *place)
            result[place] = 0 if source is None else a[source]
        return result

    return oracle


def _along_rows(index: Any) -> Oracle:
    return _by_index(lambda p, *place: (*place[:-1], index(p, place[-1])))


def _slid(p: Any, *place: int) -> Any:
    source = place[-1] - p.distance
    return (*place[:-1], source) if 0 <= source < p.n0 else None


def _flipped(p: Any, *place: int) -> Any:
    axis = len(place) - 1 - int(p.axis[1])
    return tuple(p.shape[i] - 1 - at if i == axis else at for i, at in enumerate(place))


def _permuted(p: Any, *place: int) -> Any:
    source = [0, 0, 0]
    for at, axis in zip(place, p.order, strict=True):
        source[int(axis)] = at
    return tuple(source)


def _padded(p: Any, a: Any) -> Any:
    result = np.full(p.views[0].shape, p.fill, a.dtype)
    result[..., p.top : p.top + p.n1, p.left : p.left + p.n0] = a
    return result


def _edge(mode: str, at: int, count: int) -> int:
    if mode == "edge":
        return min(max(at, 0), count - 1)
    return at % count if mode == "wrap" else count - 1 - abs(count - 1 - abs(at))


def _triangle(p: Any, a: Any) -> Any:
    keep = np.tril if p.part == "lower" else np.triu
    return np.where(keep(np.ones((p.n1, p.n0), bool), p.diagonal), a, np.float32(p.other))


MOVE: dict[str, Oracle] = {
    "vdup": lambda p: p.scalar,
    "vdupi": lambda p: p.scalar != 0 if p.dtype == "bool" else p.scalar,
    "viota": lambda p: (
        p.start + np.tensordot((p.plane_step, p.row_step, p.step)[-len(p.shape) :], np.indices(p.shape), 1)
    ),
    "vramp": lambda p: p.start + np.arange(p.n0) * p.step,
    "vcopy": lambda p, a: a,
    "vbrcb": lambda p, a: np.repeat(a, p.dtype_of("@dtype").fractal_k).reshape(p.views[0].shape),
    "vrepeat": _along_rows(lambda p, i: i % p.period),
    "vstretch": _along_rows(lambda p, i: i // p.times),
    "vtrans": _by_index(lambda p, *place: (*place[:-2], place[-1], place[-2])),
    "vpermute": _by_index(_permuted),
    "vinterleave": lambda p, a, b: np.where(np.arange(2 * p.n0) % 2, np.repeat(b, 2, -1), np.repeat(a, 2, -1)),
    "vdeinterleave": lambda p, a: tuple(np.moveaxis(a.reshape(*p.shape, 2), -1, 0)),
    "vflip": _by_index(_flipped),
    "vrot": _along_rows(lambda p, i: (i + p.distance) % p.n0),
    "vslide": _by_index(_slid),
    "vtri": _triangle,
    "vpad": _padded,
    "vpadi": _padded,
    "vpadedge": _by_index(
        lambda p, *place: (
            *place[:-2],
            _edge(p.mode, place[-2] - p.top, p.n1),
            _edge(p.mode, place[-1] - p.left, p.n0),
        )
    ),
}
COMPUTED = REDUCE | SCAN | CAST
ROWS = vector_rows("vector_reduce", "vector_scan", "vector_cast", "vector_move")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mnemonic)
def test_results_equal_the_definition(row: Row) -> None:
    oracle = (COMPUTED | MOVE)[row.mnemonic]
    check(row, oracle, exact=row.mnemonic in MOVE and row.mnemonic != "vramp")


@pytest.mark.parametrize("distance", [-30, -21, -1, 0, 21, 500])
@pytest.mark.parametrize("mnemonic", ["vrot", "vslide"])
def test_distances_may_exceed_the_row(mnemonic: str, distance: int) -> None:
    check(next(r for r in ROWS if r.mnemonic == mnemonic), MOVE[mnemonic], True, {"distance": distance})


@pytest.mark.parametrize("diagonal", [-9, -2, 0, 3, 30])
def test_triangles_start_at_any_diagonal(diagonal: int) -> None:
    check(next(r for r in ROWS if r.mnemonic == "vtri"), _triangle, True, {"diagonal": diagonal})


@pytest.mark.parametrize("length", [*range(1, 18), 100, 127, 128, 129])
@pytest.mark.parametrize("axis", [-1, -2])
def test_fold_is_the_stated_tree(length: int, axis: int) -> None:
    """Each element of the upper part meets the one a power of two before it, until one is left."""
    rng = np.random.default_rng(length)
    a = rng.normal(size=(3, length)).astype(np.float32)
    expected = []
    for row in a:
        values = list(row)
        while len(values) > 1:
            half = 1
            while 2 * half < len(values):
                half *= 2
            values = [v + values[i + half] if i + half < len(values) else v for i, v in enumerate(values[:half])]
        expected.append(values[0])
    folded = fold(np.add, a if axis == -1 else a.T, axis)
    np.testing.assert_array_equal(folded, np.array(expected, np.float32))


def test_integers_become_bfloat16_in_one_rounding() -> None:
    """2^24 + 2^16 + 1 lies just above the middle of two neighbours; by way of fp32 it would lie on it."""
    rng = np.random.default_rng(0)
    random = rng.integers(-(2**31), 2**31, 20000)
    close = (rng.integers(1, 127, 20000) * 2 + 1 << rng.integers(17, 23, 20000)) + rng.integers(-1, 2, 20000)
    values = np.concatenate((random, close, [2**24 + 2**16 + 1, 0, 1, -1, 2**31 - 1, -(2**31)])).astype(np.int32)
    as_bf16 = int_to_float(values, "bf16").astype(DTYPES["bf16"].numpy).astype(np.float64)
    exponent = np.floor(np.log2(np.maximum(abs(values.astype(np.float64)), 1)))
    step = 2.0 ** np.maximum(exponent - 7, -20)
    np.testing.assert_array_equal(as_bf16, np.rint(values / step) * step)


def test_the_rounding_oracle_can_fail() -> None:
    assert [_rounded(how, 2.5) for how in ("rne", "floor", "ceil", "trunc", "away")] == [2, 2, 3, 2, 3]
    assert [_rounded(how, -2.5) for how in ("rne", "floor", "ceil", "trunc", "away")] == [-2, -3, -2, -2, -3]
