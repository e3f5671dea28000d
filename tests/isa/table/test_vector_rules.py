"""What every vector row promises: its rules refuse what they say, it fits its encoding, and no data stops it."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
import pytest

from compiler.isa.execute import array_at
from compiler.isa.model import Args, Row
from compiler.isa.table import rows, rules
from tests.isa.table.vector_bench import CHIP, Bench, all_modifiers, bound, vector_rows

ROWS = [row for row in rows() if row.category.startswith("vector_")]
BY_NAME = {row.mnemonic: row for row in ROWS}
Values = dict[str, int]


def _legal(row: Row, wanted: Callable[[tuple[str, ...]], bool] = lambda mods: True) -> tuple[tuple[str, ...], Args]:
    """A legal instruction of the row on packed operands, of the highest rank that ``wanted`` lets through."""
    for mods in reversed(list(all_modifiers(row))):
        args = Bench(0).legal(row, mods, packed=True)
        if args is not None and wanted(mods):
            return mods, args
    raise AssertionError(f"{row.mnemonic}: no choice of modifiers is legal")


def _values(row: Row, mods: tuple[str, ...], args: Args) -> Values:
    names = [slot.name for slot in row.slots(mods)]
    bits = {slot.name for slot in row.slots(mods) if slot.kind == "float"}
    return {name: 0 if name in bits else getattr(args, name.replace(".", "_")) for name in names}


def _with_modifiers(row: Row, mods: tuple[str, ...], **choices: str) -> tuple[str, ...]:
    names = [modifier.name for modifier in row.modifiers]
    return tuple(choices.get(name, choice) for name, choice in zip(names, mods, strict=True))


def _by_role(row: Row, roles: tuple[str, ...]) -> list[str]:
    return [tensor.name for tensor in row.tensors if tensor.role in roles]


# For each rule: how to make a legal instruction of any row break it (new modifiers, new slot values).
Breaker = Callable[[Row, tuple[str, ...], Values], tuple[tuple[str, ...], Values]]


def _zero_stride(row: Row, mods: tuple[str, ...], values: Values) -> tuple[tuple[str, ...], Values]:
    return mods, {f"{_by_role(row, ('w', 'rw'))[0]}.s0": 0}


def _shifted_source(row: Row, mods: tuple[str, ...], values: Values) -> tuple[tuple[str, ...], Values]:
    return mods, {_by_role(row, ("r",))[-1]: values[_by_role(row, ("w", "rw"))[0]] + 8}


def _source_in_place(row: Row, mods: tuple[str, ...], values: Values) -> tuple[tuple[str, ...], Values]:
    return mods, {_by_role(row, ("r",))[-1]: values[_by_role(row, ("w", "rw"))[0]]}


def _one_place_for_two(row: Row, mods: tuple[str, ...], values: Values) -> tuple[tuple[str, ...], Values]:
    first, second = _by_role(row, ("w", "rw"))
    return mods, {second: values[first]}


def _slots(**chosen: int) -> Breaker:
    return lambda row, mods, values: (mods, chosen)


def _modifiers(**choices: str) -> Breaker:
    return lambda row, mods, values: (_with_modifiers(row, mods, **choices), {})


BREAKERS: dict[Callable[[Any], bool], list[Breaker]] = {
    rules.destination_strides_differ: [_zero_stride],
    rules.sources_overlap_wholly_or_not: [_shifted_source],
    rules.sources_apart_from_destinations: [_source_in_place],
    rules.destinations_apart: [_one_place_for_two],
    rules.inner_extent_fills_blocks: [_slots(n0=33)],
    rules.inner_extent_is_multiple_of_2: [_slots(n0=33)],
    rules.inner_extent_is_multiple_of_4: [_slots(n0=34)],
    rules.inner_extent_is_multiple_of_32: [_slots(n0=48)],
    rules.axis_is_in_the_rank: [_modifiers(axis="n1", rank="1d"), _modifiers(axis="n2", rank="2d")],
    rules.conversion_exists: [
        _modifiers(src="fp16", to="fp16"),
        _modifiers(src="fp32", to="int64"),
        _modifiers(src="int64", to="bool"),
        _modifiers(src="int8", to="int64"),
    ],
    rules.rounding_has_a_use: [
        _modifiers(src="fp32", to="fp16", round="floor"),
        _modifiers(src="int32", to="int8", round="ceil"),
        _modifiers(src="int32", to="fp32", round="away"),
        _modifiers(src="fp32", to="bool", round="trunc"),
    ],
    rules.destination_is_narrower: [_modifiers(src="int16", to="int16"), _modifiers(src="int16", to="int32")],
    rules.reflected_padding_fits: [
        lambda row, mods, values: (_with_modifiers(row, mods, mode="reflect"), {"top": values["n1"]}),
        lambda row, mods, values: (_with_modifiers(row, mods, mode="reflect"), {"right": values["n0"]}),
    ],
    rules.k_is_at_most_n0: [lambda row, mods, values: (mods, {"k": values["n0"] + 1})],
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mnemonic)
def test_each_rule_refuses_what_it_forbids(row: Row) -> None:
    for rule in row.rules:
        assert (rule.__doc__ or "").strip(), f"{row.mnemonic}: {rule.__name__} has no message"
        for breaker in BREAKERS[rule]:
            mods, args = _legal(row)
            values = _values(row, mods, args)
            broken_mods, changed = breaker(row, mods, values)
            slots = {slot.name for slot in row.slots(broken_mods)}
            merged = {name: value for name, value in (values | changed).items() if name in slots}
            assert not rule(bound(row, broken_mods, merged)), (row.mnemonic, rule.__name__, broken_mods, changed)


@pytest.mark.parametrize("name", ["vadd", "vexp", "vmuls", "vcumsum", "vsel", "vtri", "vsort"])
def test_element_by_element_rows_work_in_place(name: str) -> None:
    row = BY_NAME[name]
    mods, args = _legal(row)
    values = _values(row, mods, args)
    assert all(rule(bound(row, mods, values | {"a": values["dst"]})) for rule in row.rules)


def test_sources_may_share_their_place_and_repeat_elements() -> None:
    row = BY_NAME["vadd"]
    mods, args = _legal(row)
    values = _values(row, mods, args)
    changed = {"a": values["b"], "a.s0": 0, "a.s1": 0, "a.s2": 0}
    assert all(rule(bound(row, mods, values | changed)) for rule in row.rules)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mnemonic)
def test_a_row_fits_its_encoding(row: Row) -> None:
    for mods in all_modifiers(row):
        slots = row.slots(mods)
        assert len(slots) <= 24
        assert len({slot.name for slot in slots}) == len(slots)
    assert sum(modifier.bits for modifier in row.modifiers) <= 24
    assert row.semantics is not None and row.timing is not None and row.doc


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mnemonic)
def test_any_bytes_run_and_give_the_same_result_twice(row: Row) -> None:
    """NaN, infinities, the extreme integers and bool bytes above one are data like any other."""
    for mods in all_modifiers(row):
        bench = Bench(row.opcode)
        args = bench.legal(row, mods)
        if args is None:
            continue
        before = bench.ub.copy()
        bench.run(args)
        once = bench.ub.copy()
        bench.ub[:] = before
        bench.run(args)
        assert np.array_equal(once, bench.ub), (row.mnemonic, mods)


@pytest.mark.parametrize("row", vector_rows("vector_unary", "vector_binary", "vector_scalar"), ids=lambda r: r.mnemonic)
def test_a_result_does_not_depend_on_where_its_operands_lie(row: Row) -> None:
    """One row of 300 values, packed, against the same values with gaps between them."""
    for mods in all_modifiers(row):
        if mods[-1] != "1d":
            continue
        results = []
        for stride in (1, 3):
            bench = Bench(1)
            values = bench.values(row, mods, (1, 1, 300), {}, packed=True)
            for i, tensor in enumerate(row.tensors):
                values |= {f"{tensor.name}.s0": stride, tensor.name: i * 8192}
            args = bound(row, mods, values)
            for view in args.views:
                data = np.random.default_rng(5).integers(0, 256, 300 * view.dtype.itemsize, np.uint8)
                array_at(bench.ub, view)[...] = data.view(view.dtype.numpy)
            bench.run(args)
            results.append(array_at(bench.ub, args.views[0]).tobytes())
        assert results[0] == results[1], (row.mnemonic, mods)


# ---- timing -----------------------------------------------------------------------------------------------


def _cycles(name: str, mods: tuple[str, ...], shape: tuple[int, ...], **chosen: int) -> int:
    row = BY_NAME[name]
    values = Bench(0).values(row, mods, shape, chosen, packed=True)
    for i, tensor in enumerate(row.tensors):
        # Bank groups apart for reads, and banks apart for reads and writes.
        values[tensor.name] = i * 65536 + i * 256 if i * 65536 < CHIP.memory.ub_bytes else 128
    assert row.timing is not None
    return row.timing(bound(row, mods, values)).cycles


@pytest.mark.parametrize(
    ("name", "mods", "slope"),
    [
        ("vmuls", ("fp32", "1d"), 1),
        ("vabs", ("fp32", "1d"), 1),
        ("vexp", ("fp32", "1d"), 2),
        ("vsqrt", ("fp32", "1d"), 2),
        ("vrsqrt", ("fp32", "1d"), 1),
        ("vdivs", ("fp32", "1d"), 4),
        ("vrsum", ("fp32", "1d"), 7),
        ("vcmpsgt", ("fp32", "1d"), 2),
        ("vconv", ("fp32", "fp16", "rne", "1d"), 2),
        ("vnonzero", ("int32", "1d"), 14),
    ],
)
def test_cycles_are_a_head_a_slope_per_repeat_and_a_tail(name: str, mods: tuple[str, ...], slope: int) -> None:
    elements = 4096
    repeats = ceil(elements * 4 / CHIP.vector.bytes_per_cycle)
    expected = CHIP.vector.head_cycles + slope * repeats + CHIP.vector.tail_cycles
    assert _cycles(name, mods, (1, 1, elements)) == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mnemonic)
def test_one_element_has_a_time(row: Row) -> None:
    for mods in all_modifiers(row):
        bench = Bench(0)
        args = bound(row, mods, bench.values(row, mods, (1, 1, 1), {"k": 1}, packed=True))
        assert row.timing is not None
        assert row.timing(args).cycles > CHIP.vector.head_cycles + CHIP.vector.tail_cycles
