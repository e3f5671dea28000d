"""One vector instruction on a UB full of noise: operands placed at random, results against an oracle in double."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from compiler.isa.dtypes import DTYPES
from compiler.isa.execute import array_at, execute
from compiler.isa.model import Args, Instr, Row, Tensor, View, alignment_bytes, bind, touched_bytes
from compiler.isa.table import rows
from compiler.target import load_chip

CHIP = load_chip("tw2")
SHAPES = ((2, 5, 21), (2, 4, 64))  # n2, n1, n0; the second one for rows that want whole blocks, groups or runs
Oracle = Callable[..., Any]

# Slot values that make a sensible instruction, by name; other floats are drawn at random.
INTS = {
    "scalar": 5, "low": -3, "high": 9, "scale": 3, "offset": -7, "zero_point": 3, "start": -4, "step": 3,
    "row_step": 100, "plane_step": -1000, "period": 6, "times": 3, "distance": 4, "diagonal": 1, "fill": -2,
    "top": 2, "bottom": 1, "left": 0, "right": 3, "table_elems": 23, "table_rows": 4, "bins": 50, "k": 4,
    "kernel_h": 3, "kernel_w": 2, "stride_h": 2, "stride_w": 1, "dilation_h": 1, "dilation_w": 3,
    "times_h": 2, "times_w": 3, "source_h": 3, "source_w": 4, "seed": 42, "counter": 7,
}  # fmt: skip
FLOATS = {
    "low": -0.8, "high": 1.1, "scale": 0.37, "keep": 0.6, "scale_h": 0.5, "offset_h": -0.25, "scale_w": 0.7,
    "offset_w": 0.1,
}  # fmt: skip


def vector_rows(*categories: str) -> list[Row]:
    return [row for row in rows() if row.category in categories]


def all_modifiers(row: Row) -> Iterator[tuple[str, ...]]:
    return product(*(modifier.choices for modifier in row.modifiers))


def bits_of(value: float) -> int:
    return int(np.float32(value).view(np.int32))


def bound(row: Row, mods: tuple[str, ...], values: Mapping[str, int]) -> Args:
    in_order = [values[slot.name] for slot in row.slots(mods)]
    return bind(Instr(row, mods, tuple(in_order)), in_order, CHIP)


class Bench:
    """A UB of noise, and a way to place a row's operands in it."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.ub = self.rng.integers(0, 256, CHIP.memory.ub_bytes, np.uint8)

    def values(
        self, row: Row, mods: tuple[str, ...], shape: tuple[int, ...], chosen: Mapping[str, int], packed: bool = False
    ) -> dict[str, int]:
        """A value for every slot: tensors apart from each other, ragged strides unless ``packed``."""
        values: dict[str, int] = {}
        for slot in row.slots(mods):
            if slot.kind == "float":
                values[slot.name] = bits_of(FLOATS.get(slot.name, self.rng.normal()))
            elif slot.name in ("n2", "n1", "n0"):
                values[slot.name] = shape[("n2", "n1", "n0").index(slot.name)]
            else:
                values[slot.name] = INTS.get(slot.name, 1)
        values.update(chosen)
        args = bound(row, mods, values)
        for tensor, view in zip(row.tensors, args.views, strict=True):
            stride = 1
            for slot, count in zip(tensor.slots(row.rank(mods))[:0:-1], view.shape[::-1], strict=False):
                gap = 0 if packed else int(self.rng.integers(0, 4)) * (stride > 1)
                repeats = tensor.role == "r" and not packed and self.rng.random() < 0.15
                values[slot.name] = 0 if repeats else stride
                stride = stride * count + gap
        address = 0
        args = bound(row, mods, values)
        for tensor, view in zip(row.tensors, args.views, strict=True):
            unit = alignment_bytes(tensor, args)
            address = -(-address // unit) * unit + (0 if packed else unit * int(self.rng.integers(0, 5)))
            values[tensor.name] = address
            address += view.extent_bytes
        assert address <= self.ub.size
        return values

    def legal(
        self, row: Row, mods: tuple[str, ...], chosen: Mapping[str, int] | None = None, packed: bool = False
    ) -> Args | None:
        """The row on the first shape that its rules accept, or nothing."""
        for shape in SHAPES:
            args = bound(row, mods, self.values(row, mods, shape, chosen or {}, packed))
            if all(rule(args) for rule in row.rules):
                return args
        return None

    def fill(self, args: Args) -> None:
        """Give the sources values of a size that a type can hold the results of, and indices that hit and miss."""
        for tensor, view in zip(args.row.tensors, args.views, strict=True):
            if "r" in tensor.role:
                array_at(self.ub, view)[...] = self._data(args, tensor.name, view)

    def _data(self, args: Args, name: str, view: View) -> Any:
        if name == "index":
            limit = getattr(args, "table_elems", getattr(args, "table_rows", args.n0))
            return self.rng.integers(-2, limit + 2, view.shape)
        if name == "scale":
            return self.rng.uniform(0.01, 0.1, view.shape)
        if name == "zero_point":
            return self.rng.integers(-5, 6, view.shape)
        if view.dtype.is_float:
            return (self.rng.normal(size=view.shape) * 2).astype(view.dtype.numpy)
        if view.dtype.name == "bool":
            return self.rng.choice(np.array([0, 0, 1, 2, 255], np.uint8), view.shape)
        limits = np.iinfo(view.dtype.numpy)
        if self.rng.random() < 0.5:
            return self.rng.integers(limits.min, limits.max, view.shape, view.dtype.numpy, endpoint=True)
        return self.rng.integers(max(limits.min, -9), 10, view.shape, view.dtype.numpy)

    def read(self, row: Row, tensor: Tensor, view: View) -> Any:
        """A tensor as the oracle sees it: double, int64 or truth values; a move sees a bool's byte, not its truth."""
        stored = array_at(self.ub, view)
        if view.dtype.name == "bool" and (tensor.dtype == "bool" or not row.raw):
            return stored != 0
        return stored.astype(np.float64 if view.dtype.is_float else np.int64)

    def run(self, args: Args) -> None:
        execute(args, {"ub": self.ub})


# Relative error: fp32 arithmetic in a few steps, and one step of the narrow types that a tie may take either way.
_RELATIVE = {"fp32": 4e-6, "fp16": 1e-3, "bf16": 8e-3}
_ABSOLUTE = 4e-6


def assert_stored(view: View, stored: np.ndarray, expected: Any, exact: bool, about: object) -> None:
    """``expected`` in double or int64, brought to the view's type: integers wrap."""
    expected = np.broadcast_to(np.asarray(expected), view.shape)
    if not view.dtype.is_float:
        whole = expected.astype(np.int64).astype(view.dtype.numpy)
        np.testing.assert_array_equal(stored, whole, err_msg=str(about))
        return
    with np.errstate(all="ignore"):
        wanted = expected.astype(np.float64).astype(view.dtype.numpy).astype(np.float64)
        got = stored.astype(np.float64)
    rtol, atol = (0.0, 0.0) if exact else (_RELATIVE[view.dtype.name], _ABSOLUTE)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, equal_nan=True, err_msg=str(about))


def check(row: Row, oracle: Oracle, exact: bool = False, chosen: Mapping[str, int] | None = None) -> None:
    """Every legal choice of modifiers: results equal the oracle's, and no byte outside the destinations changes."""
    bench, ran = Bench(row.opcode), 0
    for mods in all_modifiers(row):
        args = bench.legal(row, mods, chosen)
        if args is None:
            continue
        ran += 1
        bench.fill(args)
        read = [(t, v) for t, v in zip(row.tensors, args.views, strict=True) if "r" in t.role]
        inputs = [bench.read(row, tensor, view) for tensor, view in read]
        before = bench.ub.copy()
        bench.run(args)
        with np.errstate(all="ignore"):
            expected = oracle(args, *inputs)
        targets = [view for view in args.views if "w" in view.role]
        for view, value in zip(targets, expected if isinstance(expected, tuple) else (expected,), strict=True):
            stored = array_at(bench.ub, view).copy()
            assert_stored(view, stored, value, exact, (row.mnemonic, mods))
        elsewhere = np.ones(bench.ub.size, bool)
        for view in targets:
            elsewhere[touched_bytes(view)] = False
        assert np.array_equal(before[elsewhere], bench.ub[elsewhere]), (row.mnemonic, mods)
    assert ran, f"{row.mnemonic}: no choice of modifiers is legal"


def f32(value: Any) -> Any:
    return np.asarray(value, np.float32)


def limits(dtype: str) -> tuple[int, int]:
    info = np.iinfo(DTYPES[dtype].numpy)
    return int(info.min), int(info.max)
