"""The fixpipe against scalar arithmetic in Python, and the operands each rule refuses."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from compiler.isa.dtypes import DTYPES
from compiler.isa.model import Row
from compiler.isa.table.fixpipe import ROWS
from tests.isa.table.copy_machine import (
    TW1,
    Machine,
    bound,
    form_name,
    forms,
    k0_of,
    l0c,
    nz,
    refused,
    same_bits,
    strided,
    up,
    zero_extended,
)

BY_NAME = {row.mnemonic: row for row in ROWS}
SHAPES = [(1, 1), (16, 16), (5, 17), (33, 40)]
Mods = dict[str, str]
Check = Callable[[Machine, Row, Mods], None]


def _accumulator(machine: Machine, mods: Mods, m: int, n: int) -> np.ndarray:
    """An L0C block with a pitch, of values on both sides of zero and of every rounding."""
    kind = mods["accumulator_dtype"]
    values = (machine.rng.standard_normal((m, n)) * 100).astype(DTYPES[kind].numpy)
    values.flat[0] = 2.5 if kind == "fp32" else -(2**31) + 1
    machine.poke("l0c", 1024, kind, l0c(m, n, up(m, 16) + 16), values)
    return values


def _converted(value: float, dtype: str, relu: bool, zero_point: int) -> float:
    """One element, fp32 in: the activation, then one rounding with saturation for integers, and the zero point."""
    if relu and value <= 0:
        value = 0.0
    if DTYPES[dtype].is_float:
        return value + zero_point if zero_point else value
    limits = np.iinfo(DTYPES[dtype].numpy)
    steps = round(value) if math.isfinite(value) else 0
    return float(min(max(steps + zero_point, int(limits.min)), int(limits.max)))


def _expected(values: np.ndarray, mods: Mods, scale: np.ndarray | None, zero_point: int) -> np.ndarray:
    dtype, relu = mods["dtype"], mods.get("activation") == "relu"
    if dtype == "int32":
        return np.where(values < 0, 0, values) if relu else values
    scaled = values.astype(np.float32)
    if scale is not None:
        scaled = (scaled.astype(np.float64) * np.float64(scale)).astype(np.float32)  # exact, then rounded once
    flat = [_converted(float(v), dtype, relu, zero_point) for v in scaled.flat]
    with np.errstate(over="ignore"):
        return np.array(flat, np.float32).reshape(values.shape).astype(DTYPES[dtype].numpy)


def _fixed(machine: Machine, row: Row, mods: Mods, scale: str = "") -> None:
    dtype = mods["dtype"]
    for (m, n), zero_point in zip(SHAPES, (0, 3, -128, 255), strict=True):
        values = _accumulator(machine, mods, m, n)
        scales = machine.rng.standard_normal(n).astype(np.float32)
        slots: dict[str, float] = {"dst": 64, "src": 1024}
        if scale == "vector":
            machine.poke("fb", 64, "fp32", np.arange(n), scales)
            slots["scale"] = 64
        slots |= {"m": m, "n": n, "src_pitch": up(m, 16) + 16, "dst_stride": (n if mods["layout"] == "nd" else m) + 3}
        if scale == "scalar":
            slots["scale"] = 0.3
        zero_point = zero_point if scale else 0
        slots |= {"zero_point": zero_point} if scale else {}
        machine.run(row, mods, **slots)
        factor = {"": None, "scalar": np.full(n, 0.3, np.float32), "vector": scales}[scale]
        expected = _expected(values, mods, factor, zero_point)
        if mods["layout"] == "nd":
            found = machine.peek(mods["target"], 64, dtype, strided((m, n), (n + 3, 1)))
        else:
            expected = zero_extended(expected, m, up(n, k0_of(dtype)))
            found = machine.peek(mods["target"], 64, dtype, nz(*expected.shape, m + 3, dtype))
        assert same_bits(found, expected)


def fixadd(machine: Machine, row: Row, mods: Mods) -> None:
    dtype = mods["dtype"]
    for m, n in SHAPES:
        values, old = _accumulator(machine, mods, m, n), machine.small(dtype, m, n)
        place = strided((m, n), (n + 3, 1))
        machine.poke(mods["target"], 64, dtype, place, old)
        machine.run(row, mods, dst=64, src=1024, m=m, n=n, src_pitch=up(m, 16) + 16, dst_stride=n + 3)
        if dtype == "int32":
            expected = (old.astype(np.int64) + values).astype(np.int32)
        else:
            with np.errstate(over="ignore"):
                both = old.astype(np.float64) + values.astype(np.float32).astype(np.float64)
                expected = both.astype(np.float32).astype(DTYPES[dtype].numpy)
        assert same_bits(machine.peek(mods["target"], 64, dtype, place), expected)


CHECKS: dict[str, Check] = {
    "fix": _fixed,
    "fixscale": lambda machine, row, mods: _fixed(machine, row, mods, "scalar"),
    "fixquant": lambda machine, row, mods: _fixed(machine, row, mods, "vector"),
    "fixadd": fixadd,
}


def _is_legal(mods: Mods) -> bool:
    """The two combinations of modifiers that no operands make legal."""
    nz_off_core = mods.get("layout") == "nz" and mods["target"] in ("ddr", "llb")
    return not nz_off_core and (mods["dtype"], mods["accumulator_dtype"]) != ("int32", "fp32")


LEGAL = [(row, mods) for row, mods in forms(ROWS) if _is_legal(mods)]
BLOCK = {"dst": 0, "src": 0, "m": 8, "n": 40, "src_pitch": 16, "dst_stride": 40}


def _operands(row: Row) -> dict[str, float]:
    order = {"dst": 0, "src": 0} | ({"scale": 0} if row.mnemonic == "fixquant" else {}) | BLOCK
    return order | {"fixscale": {"scale": 1.0, "zero_point": 0}, "fixquant": {"zero_point": 0}}.get(row.mnemonic, {})


@pytest.mark.parametrize(("row", "mods"), LEGAL, ids=form_name)
def test_against_the_oracle(row: Row, mods: Mods) -> None:
    CHECKS[row.mnemonic](Machine(row.opcode), row, mods)


@pytest.mark.parametrize(("row", "mods"), [form for form in forms(ROWS) if form not in LEGAL], ids=form_name)
def test_modifiers_that_do_not_go_together(row: Row, mods: Mods) -> None:
    found = set(refused(bound(row, mods, _operands(row))))
    assert found
    assert found <= {"nz_stays_on_core", "int32_from_int32"}


@pytest.mark.parametrize("row", ROWS, ids=form_name)
def test_a_rule_refuses(row: Row) -> None:
    choice = {"target": "ddr", "layout": "nd", "dtype": "fp16", "accumulator_dtype": "fp32", "activation": "none"}
    mods = {m.name: choice[m.name] for m in row.modifiers}
    legal = _operands(row)

    def names(changed: dict[str, float] | None = None, chip: object = None, **modified: str) -> list[str]:
        chips = () if chip is None else (chip,)
        return refused(bound(row, mods | modified, legal | (changed or {}), *chips))

    seen = {"path_exists", "destination_strides_differ", "pitch_covers_rows"}
    assert names() == []
    assert names(chip=TW1) == ["path_exists"]
    assert names({"dst_stride": 39}) == ["destination_strides_differ"]
    assert names({"m": 17}) == ["pitch_covers_rows"]
    if row.mnemonic != "fixadd":
        assert names(layout="nz") == ["nz_stays_on_core"]
        assert "pitch_covers_rows" in names({"dst_stride": 7}, layout="nz", target="ub")
        seen.add("nz_stays_on_core")
    if row.mnemonic in ("fix", "fixadd"):
        assert names(dtype="int32") == ["int32_from_int32"]
        seen.add("int32_from_int32")
    assert {rule.__name__ for rule in row.rules} == seen


@pytest.mark.parametrize(("value", "expected"), [(math.nan, 0), (math.inf, 127), (-math.inf, -128), (2.5, 2), (3.5, 4)])
def test_integers_saturate_and_round_to_even(value: float, expected: int) -> None:
    machine = Machine(2)
    machine.poke("l0c", 0, "fp32", np.zeros((1, 1), np.int64), np.array([[value]], np.float32))
    mods = {"target": "ub", "layout": "nd", "dtype": "int8", "accumulator_dtype": "fp32", "activation": "none"}
    machine.run(BY_NAME["fixscale"], mods, dst=0, src=0, m=1, n=1, src_pitch=16, dst_stride=1, scale=1.0, zero_point=0)
    assert machine.peek("ub", 0, "int8", np.zeros(1, np.int64))[0] == expected


def test_relu_keeps_nan_and_makes_zero_positive() -> None:
    machine = Machine(2)
    values = np.array([[math.nan, -0.0, -1.0, 2.0]], np.float32)
    machine.poke("l0c", 0, "fp32", np.arange(4)[None], values)
    mods = {"target": "ub", "layout": "nd", "dtype": "fp32", "accumulator_dtype": "fp32", "activation": "relu"}
    machine.run(BY_NAME["fix"], mods, dst=0, src=0, m=1, n=4, src_pitch=16, dst_stride=4)
    found = machine.peek("ub", 0, "fp32", np.arange(4))
    assert np.isnan(found[0])
    assert found[1:].tobytes() == np.array([0.0, 0.0, 2.0], np.float32).tobytes()
