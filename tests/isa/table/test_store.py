"""Every store against index arithmetic on noise or small integers, and the operands each rule refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.isa.dtypes import DTYPES
from compiler.isa.model import Row
from compiler.isa.table.store import ROWS
from tests.isa.table.copy_machine import (
    TW2,
    Machine,
    bound,
    form_name,
    forms,
    k0_of,
    nz,
    refused,
    same_bits,
    strided,
    up,
    zero_extended,
)

BY_NAME = {row.mnemonic: row for row in ROWS}
SHAPES = [(1, 1, 1), (3, 5, 7), (2, 9, 33)]
Mods = dict[str, str]
Check = Callable[[Machine, Row, Mods, str], None]


def _place(rank: int, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, float]]:
    """Strides of a source with gaps and of a padded destination, and the slots that say so."""
    _, n1, n0 = shape
    src, dst = ((n0 * 2 + 1) * n1 + 3, n0 * 2 + 1, 2)[-rank:], ((n0 + 4) * n1, n0 + 4, 1)[-rank:]
    axes = range(rank)[::-1]
    slots: dict[str, float] = {"dst": 64} | {f"dst_s{a}": s for a, s in zip(axes, dst, strict=True)}
    slots |= {"src": 96} | {f"src_s{a}": s for a, s in zip(axes, src, strict=True)}
    return src, dst, slots | {f"n{a}": n for a, n in zip(axes, shape[-rank:], strict=True)}


def _copy(source: str, target: str = "") -> Check:
    def check(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
        rank = int(mods["rank"][0])
        for shape in SHAPES:
            src, dst, slots = _place(rank, shape)
            values = machine.noise(dtype, *shape[-rank:])
            machine.poke(source, 96, dtype, strided(values.shape, src), values)
            machine.run(row, mods, **slots)
            assert same_bits(machine.peek(mods.get("target", target), 64, dtype, strided(values.shape, dst)), values)

    return check


def _accumulate(combine: Callable[[float, float], float]) -> Check:
    def check(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
        rank = int(mods["rank"][0])
        for shape in SHAPES:
            src, dst, slots = _place(rank, shape)
            old, new = machine.small(dtype, *shape[-rank:]), machine.small(dtype, *shape[-rank:])
            machine.poke("ub", 96, dtype, strided(new.shape, src), new)
            machine.poke(mods["target"], 64, dtype, strided(old.shape, dst), old)
            machine.run(row, mods, **slots)
            pairs = zip(old.astype(np.int64).flat, new.astype(np.int64).flat, strict=True)
            expected = np.array([combine(int(a), int(b)) for a, b in pairs]).reshape(old.shape).astype(old.dtype)
            assert same_bits(machine.peek(mods["target"], 64, dtype, strided(old.shape, dst)), expected)

    return check


def stnz(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    for rows, cols in [(1, 1), (5, 7), (17, 33), (16, 64)]:
        values, wide = machine.noise(dtype, rows, cols), up(cols, k0_of(dtype))
        machine.poke("ub", 96, dtype, strided(values.shape, (cols + 3, 1)), values)
        machine.run(row, mods, dst=64, src=96, rows=rows, cols=cols, src_stride=cols + 3, dst_pitch=rows + 1)
        found = machine.peek("l1", 64, dtype, nz(rows, wide, rows + 1, dtype))
        assert same_bits(found, zero_extended(values, rows, wide))


def stscatter(machine: Machine, row: Row, mods: Mods, dtype: str) -> None:
    for rows, cols, table_rows in [(1, 1, 1), (7, 33, 11), (20, 8, 3)]:
        table, values = machine.noise(dtype, table_rows, cols), machine.noise(dtype, rows, cols)
        index = machine.rng.integers(-2, table_rows + 2, rows).astype(np.int32)
        place = strided(table.shape, (cols + 1, 1))
        machine.poke(mods["target"], 64, dtype, place, table)
        machine.poke("ub", 0, dtype, strided(values.shape, (cols + 2, 1)), values)
        machine.poke("ub", 32768, "int32", np.arange(rows), index)
        machine.run(row, mods, dst=64, src=0, index=32768, rows=rows, cols=cols, src_stride=cols + 2,
                    table_rows=table_rows, table_stride=cols + 1)  # fmt: skip
        for at, value in zip(index, values, strict=True):
            if 0 <= at < table_rows:
                table[at] = value
        assert same_bits(machine.peek(mods["target"], 64, dtype, place), table)


CHECKS: dict[str, Check] = {
    "st": _copy("ub"),
    "stnz": stnz,
    "stadd": _accumulate(lambda a, b: a + b),
    "stmax": _accumulate(max),
    "stmin": _accumulate(min),
    "stscatter": stscatter,
    "mvlb": _copy("llb", "ddr"),
}


@pytest.mark.parametrize(("row", "mods"), forms(ROWS), ids=form_name)
def test_against_the_oracle(row: Row, mods: Mods) -> None:
    with np.errstate(invalid="ignore"):  # a negative sum becomes unsigned by wrapping
        CHECKS[row.mnemonic](Machine(row.opcode), row, mods, mods["dtype"])


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_an_accumulating_store_rounds_the_fp32_sum_once(dtype: str) -> None:
    machine, kind = Machine(1), DTYPES[dtype].numpy
    old = machine.rng.standard_normal(999).astype(kind)
    new = machine.rng.standard_normal(999).astype(kind)
    machine.poke("ub", 0, dtype, np.arange(999), new)
    machine.poke("ddr", 0, dtype, np.arange(999), old)
    mods = {"target": "ddr", "dtype": dtype, "rank": "1d"}
    machine.run(BY_NAME["stadd"], mods, dst=0, dst_s0=1, src=0, src_s0=1, n0=999)
    expected = (old.astype(np.float64) + new.astype(np.float64)).astype(np.float32).astype(kind)
    assert same_bits(machine.peek("ddr", 0, dtype, np.arange(999)), expected)


LINE = {"dst": 0, "dst_s0": 1, "src": 0, "src_s0": 1, "n0": 2}
NZ = {"dst": 0, "src": 0, "rows": 8, "cols": 40, "src_stride": 40, "dst_pitch": 8}
SCATTER = {"dst": 0, "src": 0, "index": 4096, "rows": 4, "cols": 8, "src_stride": 8, "table_rows": 9, "table_stride": 8}
REFUSED: list[tuple[str, str, dict[str, float], dict[str, float], str]] = [
    # row, modifiers, legal operands, what makes them illegal, the rule
    ("st", "ddr.fp16.1d", LINE, {"dst_s0": 0}, "destination_strides_differ"),
    ("stadd", "ddr.fp16.1d", LINE, {"dst_s0": 0}, "destination_strides_differ"),
    ("stmax", "ddr.fp16.1d", LINE, {"dst_s0": 0}, "destination_strides_differ"),
    ("stmin", "ddr.fp16.1d", LINE, {"dst_s0": 0}, "destination_strides_differ"),
    ("mvlb", "fp16.1d", LINE, {"dst_s0": 0}, "destination_strides_differ"),
    ("stnz", "fp16", NZ, {"dst_pitch": 7}, "pitch_covers_rows"),
    ("stscatter", "ddr.fp16", SCATTER, {"table_stride": 7}, "destination_strides_differ"),
]


@pytest.mark.parametrize(("mnemonic", "mods", "legal", "change", "rule"), REFUSED)
def test_a_rule_refuses(mnemonic: str, mods: str, legal: dict[str, float], change: dict[str, float], rule: str) -> None:
    row = BY_NAME[mnemonic]
    chosen = dict(zip((m.name for m in row.modifiers), mods.split("."), strict=True))
    assert refused(bound(row, chosen, legal)) == []
    assert refused(bound(row, chosen, legal | change)) == [rule]


def test_a_path_must_exist() -> None:
    tables = TW2.to_dict()
    del tables["path"]["ub_l1"]
    args = bound(BY_NAME["stnz"], {"dtype": "fp16"}, NZ, TW2.from_dict(tables))
    assert refused(args) == ["path_exists"]


def test_every_rule_is_seen_to_refuse() -> None:
    tested = {(name, rule) for name, *_, rule in REFUSED}
    for row in ROWS:
        for rule in row.rules:
            assert rule.__name__ == "path_exists" or (row.mnemonic, rule.__name__) in tested


def test_a_scattered_row_moves_its_own_lines() -> None:
    row = BY_NAME["stscatter"]
    assert row.timing is not None
    timing = row.timing(bound(row, {"target": "ddr", "dtype": "fp16"}, SCATTER))
    assert timing.line_bytes == 4 * TW2.transfer.ddr_line_bytes
    assert timing.moved_bytes == 4 * 8 * 2
