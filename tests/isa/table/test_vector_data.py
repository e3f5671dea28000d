"""Rows that address by data, sort, pool or draw random numbers, against loops over elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.isa.execute import array_at
from compiler.isa.model import Row
from tests.isa.table.vector_bench import Bench, Oracle, bits_of, bound, check, vector_rows


def _gathered(p: Any, table: Any, index: Any) -> Any:
    result = np.zeros((*index.shape, *table.shape[1:]), table.dtype)
    for place in np.ndindex(*index.shape):
        if 0 <= index[place] < len(table):
            result[place] = table[index[place]]
    return result


def _gathered_lanes(p: Any, table: Any, index: Any) -> Any:
    result = np.zeros(index.shape, table.dtype)
    for place in np.ndindex(*index.shape):
        if 0 <= index[place] < table.shape[-1]:
            result[place] = table[(*place[:-1], index[place])]
    return result


def _scattered(combine: Any) -> Oracle:
    def oracle(p: Any, dst: Any, a: Any, index: Any) -> Any:
        for place in np.ndindex(*index.shape):
            if 0 <= index[place] < len(dst):
                dst[index[place]] = combine(dst[index[place]], a[place])
        return dst

    return oracle


def _last(old: Any, new: Any) -> Any:
    return new


def _rows_of(p: Any, a: Any) -> Any:
    return a.reshape(-1, a.shape[-1])


def _compressed(p: Any, a: Any, mask: Any) -> Any:
    result = np.zeros((a.size // p.n0, p.n0), a.dtype)
    for line, values, chosen in zip(result, _rows_of(p, a), _rows_of(p, mask), strict=True):
        line[: chosen.sum()] = values[chosen]
    return result.reshape(p.shape), mask.sum(-1)


def _expanded(p: Any, a: Any, mask: Any) -> Any:
    result = np.zeros((a.size // p.n0, p.n0), a.dtype)
    for line, values, chosen in zip(result, _rows_of(p, a), _rows_of(p, mask), strict=True):
        line[chosen] = values[: chosen.sum()]
    return result.reshape(p.shape)


def _positions(p: Any, mask: Any) -> Any:
    result = np.full((mask.size // p.n0, p.n0), -1)
    for line, chosen in zip(result, _rows_of(p, mask), strict=True):
        line[: chosen.sum()] = np.flatnonzero(chosen)
    return result.reshape(p.shape), mask.sum(-1)


def _one_hot(p: Any, index: Any) -> Any:
    result = np.zeros(p.shape, int)
    for place in np.ndindex(*index.shape):
        if 0 <= index[place] < p.n0:
            result[(*place, index[place])] = 1
    return result


def _histogram(p: Any, dst: Any, a: Any) -> Any:
    return dst + np.array([(a == value).sum() for value in range(p.bins)])


GATHER: dict[str, Oracle] = {
    "vgather": _gathered,
    "vgatherlane": _gathered_lanes,
    "vgatherrow": _gathered,
    "vscatter": _scattered(_last),
    "vscatteradd": _scattered(lambda old, new: old + new),
    "vscattermax": _scattered(max),
    "vscattermin": _scattered(min),
    "vscatterrow": _scattered(_last),
    "vscatteraddrow": _scattered(lambda old, new: old + new),
    "vcompress": _compressed,
    "vexpand": _expanded,
    "vnonzero": _positions,
    "vonehot": _one_hot,
    "vlut": lambda p, table, a: table[a % 256],
    "vhist": _histogram,
}


def _ordered(p: Any, row: Any) -> list[int]:
    """Positions in sorted order, by Python's stable sort."""
    return sorted(range(len(row)), key=lambda i: row[i] if p.order == "asc" else -row[i])


def _sorted_rows(p: Any, a: Any, index: Any, group: int, keep: int) -> Any:
    values, indices = [], []
    for row, labels in zip(a.reshape(-1, group), index.reshape(-1, group), strict=True):
        order = _ordered(p, list(row))[:keep]
        values.append(row[order])
        indices.append(labels[order])
    shape = (*p.shape[:-1], p.n0 * keep // group)
    return np.array(values).reshape(shape), np.array(indices).reshape(shape)


def _positions_in_row(p: Any) -> Any:
    return np.broadcast_to(np.arange(p.n0), p.shape)


def _whole_rows(p: Any, a: Any, index: Any) -> Any:
    return _sorted_rows(p, a, index, p.n0, p.n0)


SORT: dict[str, Oracle] = {
    "vsort": lambda p, a: _whole_rows(p, a, _positions_in_row(p)),
    "vsortpairs": _whole_rows,
    "vsort32": lambda p, a, index: _sorted_rows(p, a, index, 32, 32),
    "vmrgsort2": _whole_rows,
    "vmrgsort4": _whole_rows,
    "vtopk": lambda p, a: _sorted_rows(p, a, _positions_in_row(p), p.n0, p.k),
}


def _windows(combine: Any) -> Oracle:
    """``dst[y, x] = combine([kernel_h, kernel_w, c])``, the other operands given to every window."""

    def oracle(p: Any, a: Any, *others: Any) -> Any:
        result = np.empty(p.shape, a.dtype)
        for y in range(p.n2):
            for x in range(p.n1):
                rows = y * p.stride_h + np.arange(p.kernel_h) * p.dilation_h
                columns = x * p.stride_w + np.arange(p.kernel_w) * p.dilation_w
                result[y, x] = combine(a[np.ix_(rows, columns)], *others)
        return result

    return oracle


def _bilinear(p: Any, a: Any) -> Any:
    result = np.zeros(p.shape)
    for y, x in np.ndindex(p.n2, p.n1):
        v = min(max(y * p.scale_h + p.offset_h, 0), p.source_h - 1)
        u = min(max(x * p.scale_w + p.offset_w, 0), p.source_w - 1)
        for row in range(p.source_h):
            for column in range(p.source_w):
                result[y, x] += max(0, 1 - abs(v - row)) * max(0, 1 - abs(u - column)) * a[row, column]
    return result


POOL: dict[str, Oracle] = {
    "vmaxpool": _windows(lambda w: w.max((0, 1))),
    "vminpool": _windows(lambda w: w.min((0, 1))),
    "vsumpool": _windows(lambda w: w.sum((0, 1))),
    "vavgpool": _windows(lambda w: w.mean((0, 1))),
    "vdwconv": _windows(lambda w, weights: (w * weights).sum((0, 1))),
    "vupsample": lambda p, a: a.repeat(p.times_h, 0).repeat(p.times_w, 1)[: p.n2, : p.n1],
    "vbilinear": _bilinear,
}


def _hash(p: Any, lane: int = 0) -> list[int]:
    """splitmix64 in unbounded integers."""
    mask, values = 2**64 - 1, []
    for i in range(int(np.prod(p.shape))):
        x = p.seed % 2**32 << 32 | (p.counter + i) % 2**32
        x = x * 0x9E3779B97F4A7C15 + lane * 0xD1B54A32D192ED03 & mask
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        values.append(x ^ x >> 31)
    return values


def _uniform(p: Any, bits: int, lane: int = 0) -> Any:
    return np.array([(x >> 64 - bits) / 2**bits for x in _hash(p, lane)]).reshape(p.shape)


RANDOM: dict[str, Oracle] = {
    "vrand": lambda p: _uniform(p, {"fp32": 24, "fp16": 11, "bf16": 8}[p.dtype]),
    "vrandi": lambda p: np.array([p.low + ((x >> 32) * (p.high - p.low) >> 32) for x in _hash(p)]).reshape(p.shape),
    "vrandn": lambda p: np.sqrt(-2 * np.log(1 - _uniform(p, 24))) * np.cos(2 * np.pi * _uniform(p, 24, 1)),
    "vdropout": lambda p, a: np.where(_uniform(p, 24) < p.keep, a / p.keep, 0),
}
ORACLES = GATHER | SORT | POOL | RANDOM
ROWS = vector_rows("vector_gather", "vector_sort", "vector_pool", "vector_random")
BY_NAME = {row.mnemonic: row for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mnemonic)
def test_results_equal_the_definition(row: Row) -> None:
    check(row, ORACLES[row.mnemonic])


@pytest.mark.parametrize("seed", [-1, 2**31 - 1])
@pytest.mark.parametrize("mnemonic", RANDOM)
def test_any_seed_and_counter_work(mnemonic: str, seed: int) -> None:
    check(BY_NAME[mnemonic], RANDOM[mnemonic], chosen={"seed": seed, "counter": -5})


def test_an_empty_range_of_random_integers_is_its_lower_end() -> None:
    check(BY_NAME["vrandi"], lambda p: 9, chosen={"low": 9, "high": 9})


def _one_row(mnemonic: str, mods: tuple[str, ...], values: Any, **chosen: int) -> list[Any]:
    """What a 1-D instruction makes of one row of values, its tensors packed behind each other."""
    bench, row = Bench(0), BY_NAME[mnemonic]
    values = np.asarray(values)
    args = bound(row, mods, bench.values(row, mods, (1, 1, values.size), chosen, packed=True))
    array_at(bench.ub, args.view("a"))[...] = values
    bench.run(args)
    return [array_at(bench.ub, view).tolist() for view in args.views if "w" in view.role]


@pytest.mark.parametrize(
    ("order", "positions"), [("asc", [2, 4, 0, 3, 5, 1]), ("desc", [5, 0, 3, 4, 2, 1])], ids=["asc", "desc"]
)
def test_sorting_is_stable_and_puts_nan_last(order: str, positions: list[int]) -> None:
    values = [1.0, np.nan, -np.inf, 1.0, 0.0, np.inf]
    assert _one_row("vsort", ("fp32", order, "1d"), values)[1] == positions


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_sorting_downwards_knows_the_lowest_integer(dtype: str) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    assert _one_row("vsort", (dtype, "desc", "1d"), [low, high, 5])[0] == [high, 5, low]


def test_random_numbers_are_uniform_and_depend_on_the_position_only() -> None:
    row, bench = BY_NAME["vrand"], Bench(0)
    whole = bound(row, ("fp32", "1d"), bench.values(row, ("fp32", "1d"), (1, 1, 20000), {}, packed=True))
    bench.run(whole)
    drawn = array_at(bench.ub, whole.view("dst")).copy()
    assert 0 <= drawn.min() and drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01 and abs(drawn.var() - 1 / 12) < 0.003
    chosen = {"counter": whole.counter + 5000}
    tile = bound(row, ("fp32", "2d"), bench.values(row, ("fp32", "2d"), (1, 10, 100), chosen, packed=True))
    bench.run(tile)
    np.testing.assert_array_equal(array_at(bench.ub, tile.view("dst")).reshape(-1), drawn[5000:6000])


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_random_numbers_stay_below_one_in_narrow_types(dtype: str) -> None:
    row, bench = BY_NAME["vrand"], Bench(0)
    args = bound(row, (dtype, "1d"), bench.values(row, (dtype, "1d"), (1, 1, 40000), {}, packed=True))
    bench.run(args)
    assert array_at(bench.ub, args.view("dst")).astype(np.float64).max() < 1


def test_dropout_keeps_nothing_or_everything_at_the_ends() -> None:
    values = [1.0, -2.0, 3.0]
    assert _one_row("vdropout", ("fp32", "1d"), values, keep=bits_of(1)) == [values]
    assert _one_row("vdropout", ("fp32", "1d"), values, keep=bits_of(0)) == [[0, 0, 0]]
