"""The cube against exact integer arithmetic and fp64, and its layouts against index arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.isa import layout
from compiler.isa.dtypes import CUBE_TYPES, DTYPES
from compiler.isa.model import Args, Row
from compiler.isa.table.cube import ROWS
from tests.isa.table.copy_machine import (
    TW2,
    Machine,
    bound,
    form_name,
    forms,
    k0_of,
    l0a,
    l0b,
    l0c,
    nz,
    same_bits,
    up,
    zero_extended,
)

BY_NAME = {row.mnemonic: row for row in ROWS}
SHAPES = [(1, 1, 1), (16, 16, 32), (5, 17, 33), (31, 9, 100), (64, 48, 64)]  # m, n, k
Mods = dict[str, str]
Check = Callable[[Machine, Row, Mods, str], None]


def accumulator_of(dtype: str) -> str:
    return "int32" if dtype == "int8" else "fp32"


def _product(machine: Machine, row: Row, mods: Mods, dtype: str, accumulates: bool, biased: bool, batch: int) -> None:
    kind = accumulator_of(dtype)
    for m, n, k in SHAPES:
        a, b = machine.small(dtype, batch, m, k), machine.small(dtype, batch, k, n)
        c, bias = machine.small(kind, batch, m, n), machine.small(kind, n)
        a_size = up(m, 16) * up(k, k0_of(dtype))
        b_size = up(k, k0_of(dtype)) * up(n, 16)
        c_size = up(m, 16) * up(n, 16)
        for i in range(batch):
            machine.poke("l0a", 512, dtype, i * a_size + l0a(m, k, k, dtype), a[i])
            machine.poke("l0b", 1024, dtype, i * b_size + l0b(k, n, n, dtype), b[i])
            machine.poke("l0c", 2048, kind, i * c_size + l0c(m, n, up(m, 16)), c[i])
        machine.poke("bt", 64, kind, np.arange(n), bias)
        slots: dict[str, float] = {"c": 2048, "a": 512, "b": 1024}
        slots |= {"bias": 64} if biased else {}
        slots |= {"batch": batch} if "batch" in row.slots((dtype,))[3].name else {}
        machine.run(row, mods, **slots, m=m, n=n, k=k)
        for i in range(batch):
            exact = np.einsum("mk,kn->mn", a[i].astype(np.int64), b[i].astype(np.int64))
            exact += c[i].astype(np.int64) * accumulates + bias.astype(np.int64) * biased
            expected = zero_extended(exact.astype(DTYPES[kind].numpy), up(m, 16), up(n, 16))
            found = machine.peek("l0c", 2048, kind, i * c_size + l0c(*expected.shape, up(m, 16)))
            assert same_bits(found, expected)


def _check(accumulates: bool = False, biased: bool = False, batch: int = 1) -> Check:
    return lambda machine, row, mods, dtype: _product(machine, row, mods, dtype, accumulates, biased, batch)


def mfill(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    for m, n, _ in SHAPES:
        machine.run(row, mods, c=2048, m=m, n=n, value=-3.5)
        filled = np.full((m, n), -3.5 if dtype == "fp32" else -3, DTYPES[dtype].numpy)
        expected = zero_extended(filled, up(m, 16), up(n, 16))
        assert same_bits(machine.peek("l0c", 2048, dtype, l0c(*expected.shape, up(m, 16))), expected)


def mbias(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    for m, n, _ in SHAPES:
        bias = machine.noise(dtype, 1, n)
        machine.poke("bt", 64, dtype, np.arange(n)[None], bias)
        machine.run(row, mods, c=2048, bias=64, m=m, n=n)
        expected = zero_extended(np.repeat(bias, m, axis=0), up(m, 16), up(n, 16))
        assert same_bits(machine.peek("l0c", 2048, dtype, l0c(*expected.shape, up(m, 16))), expected)


CHECKS: dict[str, Check] = {
    "mad": _check(),
    "madacc": _check(accumulates=True),
    "madbias": _check(biased=True),
    "bmad": _check(batch=3),
    "bmadacc": _check(accumulates=True, batch=3),
    "mfill": mfill,
    "mbias": mbias,
}


@pytest.mark.parametrize(("row", "mods"), forms(ROWS), ids=form_name)
def test_against_the_oracle(row: Row, mods: Mods) -> None:
    CHECKS[row.mnemonic](Machine(row.opcode), row, mods, mods["dtype"])


def test_the_cube_has_no_rules_of_its_own() -> None:
    assert not any(row.rules for row in ROWS)


def _run(machine: Machine, name: str, dtype: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    (m, k), n, kind = a.shape, b.shape[1], accumulator_of(dtype)
    machine.poke("l0a", 0, dtype, l0a(m, k, k, dtype), a)
    machine.poke("l0b", 0, dtype, l0b(k, n, n, dtype), b)
    machine.run(BY_NAME[name], {"dtype": dtype}, c=0, a=0, b=0, m=m, n=n, k=k)
    return machine.peek("l0c", 0, kind, l0c(m, n, up(m, 16)))


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize(("m", "n", "k"), [(33, 17, 129), (96, 64, 160), (1, 50, 250)])
def test_floats_are_summed_in_fp32(dtype: str, m: int, n: int, k: int) -> None:
    machine, kind = Machine(7), DTYPES[dtype].numpy
    a = machine.rng.standard_normal((m, k)).astype(kind)
    b = machine.rng.standard_normal((k, n)).astype(kind)
    found = _run(machine, "mad", dtype, a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound_on_error = k * 2.0**-24 * (abs(a.astype(np.float64)) @ abs(b.astype(np.float64)))
    assert np.all(abs(found - exact) <= bound_on_error)


@pytest.mark.parametrize("k", [1023, 1024, 4093])
@pytest.mark.parametrize("left", [-128, 127])
def test_int8_sums_are_exact_at_the_extremes(k: int, left: int) -> None:
    a, b = np.full((3, k), left, np.int8), np.full((k, 2), 127, np.int8)
    found = _run(Machine(3), "mad", "int8", a, b)
    assert np.array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


def test_special_values_follow_ieee() -> None:
    a = np.array([[np.inf, 1.0], [np.nan, 1.0], [65504.0, 65504.0]], np.float16)
    found = _run(Machine(3), "mad", "fp16", a, np.array([[1.0], [1.0]], np.float16))
    assert found[0, 0] == np.inf
    assert np.isnan(found[1, 0])
    assert found[2, 0] == 2 * 65504.0


def test_int32_accumulation_wraps() -> None:
    machine = Machine(3)
    machine.poke("l0c", 0, "int32", l0c(1, 1, 16), np.array([[2**31 - 1]], np.int32))
    assert _run(machine, "madacc", "int8", np.ones((1, 1), np.int8), np.ones((1, 1), np.int8))[0, 0] == -(2**31)


def _timed(name: str, dtype: str, **slots: float) -> int:
    row = BY_NAME[name]
    args: Args = bound(row, {"dtype": dtype}, slots)
    assert row.timing is not None
    return row.timing(args).cycles


@pytest.mark.parametrize(("dtype", "body"), [("fp16", 512), ("bf16", 512), ("fp32", 2048), ("int8", 256)])
def test_whole_fractals_at_the_rate_of_the_type(dtype: str, body: int) -> None:
    overhead = TW2.cube.overhead_cycles
    assert _timed("mad", dtype, c=0, a=0, b=0, m=127, n=127, k=128) == overhead + body
    assert _timed("bmad", dtype, c=0, a=0, b=0, batch=4, m=127, n=127, k=128) == overhead + 4 * body


@pytest.mark.parametrize("dtype", CUBE_TYPES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (5, 7), (17, 33), (64, 32), (31, 100)])
def test_layouts_round_trip_and_lie_where_they_should(dtype: str, rows: int, cols: int) -> None:
    matrix, k0 = Machine(rows).noise(dtype, rows, cols), k0_of(dtype)
    blocks = layout.nd_to_nz(matrix, k0)
    assert same_bits(layout.nz_to_nd(blocks, cols), matrix)
    assert same_bits(np.ascontiguousarray(blocks).reshape(-1)[nz(rows, cols, rows, dtype)], matrix)
    for there, back, place in (
        (layout.matrix_to_l0a, layout.l0a_to_matrix, l0a(rows, cols, cols, dtype)),
        (layout.matrix_to_l0b, layout.l0b_to_matrix, l0b(rows, cols, cols, dtype)),
    ):
        fractals = there(matrix, k0)
        assert same_bits(back(fractals, rows, cols), matrix)
        assert same_bits(np.ascontiguousarray(fractals).reshape(-1)[place], matrix)
    assert same_bits(layout.l0c_to_matrix(layout.matrix_to_l0c(matrix), rows, cols), matrix)
