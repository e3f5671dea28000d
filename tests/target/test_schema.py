"""Every rule of the schema refuses something: the cases are enumerated from the schema's own tables."""

from __future__ import annotations

import copy
import datetime
from typing import Any

import pytest

from compiler.target import Chip, load_chip
from compiler.target.check import MAX_UNKNOWN_KEYS, Fault, faults
from compiler.target.schema import KEYS, PATH_KEYS, PATHS, RULES, Key

REMOVED = object()
PATH_KEY_NAMES = [f"path.{name}.{key.name}" for name in PATHS for key in PATH_KEYS]
# Every key under its full name; those of a path stand for that path's.
ALL_KEYS = {key.name: key for key in KEYS} | {
    f"path.{name}.{key.name}": key for name in ("ddr_l1", "l0c_ub") for key in PATH_KEYS
}

# One machine per rule that breaks it: what differs from tw2.
BROKEN: dict[str, dict[str, object]] = {
    "core_count": {"clusters": 1024},
    "vector_blocks": {"vector.bytes_per_cycle": 250},
    "group_is_block": {"vector.banks.group_shift": 4},
    "groups_within_bank": {"vector.banks.bank_shift": 8, "vector.banks.banks": 768},
    "banks_cover_ub": {"vector.banks.banks": 2},
    "no_empty_bank": {"vector.banks.banks": 4},
    "ub_in_bank_rows": {"memory.ub_bytes": 196096},
    "line_in_blocks": {"transfer.ddr_line_bytes": 16},
    "bt_exists": {"memory.bt_bytes": 0},
    "fb_exists": {"memory.fb_bytes": 0},
}
IMPLIED = {"groups_within_bank": {"ub_in_bank_rows"}}  # rules that cannot hold where this one does not


def changed(changes: dict[str, object], chip: str = "tw2") -> dict[str, Any]:
    tables = copy.deepcopy(load_chip(chip).to_dict())
    for name, value in changes.items():
        table = tables
        *parents, leaf = name.split(".")
        for parent in parents:
            table = table[parent]
        if value is REMOVED:
            del table[leaf]
        else:
            table[leaf] = value
    return tables


def faults_of(changes: dict[str, object], chip: str = "tw2") -> list[Fault]:
    return list(faults(changed(changes, chip)))


def refused(key: Key) -> list[tuple[str, object]]:
    """Values that the row of a key must refuse, each with the code of the refusal."""
    if key.pattern:
        cases: list[tuple[str, object]] = [("TW1112", 1), ("TW1112", ["a"]), ("TW1113", "x" * (key.high + 1))]
        return [*cases, ("TW1113", "a\x1b[2J")]
    others: tuple[object, ...] = (True, 1.0, float("nan"), "1", [1], {}, datetime.date(2025, 1, 1))
    cases = [("TW1112", value) for value in others]
    cases += [("TW1113", value) for value in (key.low - 1, key.high + 1, 10**30, -(10**30), 1 << 900)]
    if key.power_of_two:
        cases.append(("TW1114", next(n for n in range(max(3, key.low), key.high) if n & (n - 1))))
    if key.multiple_of > 1:
        cases.append(("TW1114", key.low + key.multiple_of + 1))
    return cases


@pytest.mark.parametrize("name", ALL_KEYS)
def test_a_key_refuses_what_its_row_does_not_allow(name: str) -> None:
    key = ALL_KEYS[name]
    for code, value in refused(key):
        (fault,) = faults_of({name: value})
        assert (fault.code, fault.near) == (code, name)
        assert name in fault.message and key.allowed in fault.message
        assert len(fault.message) < 300 and fault.message.isprintable()


@pytest.mark.parametrize("name", ALL_KEYS)
def test_a_key_allows_the_ends_of_its_range(name: str) -> None:
    key = ALL_KEYS[name]
    ends: tuple[object, ...] = ("a", "a" * key.high) if key.pattern else (key.low, key.high)
    for value in ends:
        assert all(fault.code == "TW1115" for fault in faults_of({name: value}))


@pytest.mark.parametrize("name", ALL_KEYS)
def test_a_missing_key_is_named_with_what_it_may_be(name: str) -> None:
    (fault,) = faults_of({name: REMOVED})
    assert fault.code == "TW1111"
    assert f"{name} is missing" in fault.message and ALL_KEYS[name].allowed in fault.message


TABLES = sorted({key.name.rpartition(".")[0] for key in KEYS} - {""} | {"path", "path.ddr_l1"})


@pytest.mark.parametrize("name", TABLES)
def test_a_table_may_be_neither_missing_nor_something_else(name: str) -> None:
    for value, code in ((REMOVED, "TW1111"), (3, "TW1112"), ([{}], "TW1112")):
        (fault,) = faults_of({name: value})
        assert fault.code == code and f"[{name}]" in fault.message


def test_every_rule_between_keys_has_a_machine_that_breaks_it() -> None:
    assert set(BROKEN) == {item.name for item in RULES}


@pytest.mark.parametrize("item", RULES, ids=lambda item: item.name)
def test_a_rule_between_keys_refuses(item: Any) -> None:
    found = faults_of(BROKEN[item.name])
    others = {other.text for other in RULES if other.name in IMPLIED.get(item.name, set())}
    assert {fault.code for fault in found} == {"TW1115"}
    assert {fault.message.partition("; here ")[0] for fault in found} == {item.text} | others
    (fault,) = (fault for fault in found if fault.message.startswith(item.text))
    assert fault.near == item.keys[0]
    assert all(f"{name} = " in fault.message for name in item.keys)


def test_a_rule_waits_for_the_keys_it_names() -> None:
    assert [fault.code for fault in faults_of({"block_bytes": 33})] == ["TW1114"]


@pytest.mark.parametrize("row", PATHS.values(), ids=lambda row: row.name)
def test_only_a_required_path_may_not_be_missing(row: Any) -> None:
    found = faults_of({f"path.{row.name}": REMOVED}, "tiny")
    assert [fault.code for fault in found] == (["TW1111"] if row.required else [])


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("clock_mzh", "clock_mhz"),
        ("l1_bytes", "memory.l1_bytes"),
        ("memory.l1_byte", "memory.l1_bytes"),
        ("vector.bank", "vector.banks"),
        ("vector.banks.group", "vector.banks.groups"),
        ("path.l0c_l2", "path.l0c_l1"),
        ("path.ddr_l1.latency", "path.ddr_l1.latency_cycles"),
    ],
)
def test_an_unknown_key_is_met_with_a_suggestion(key: str, suggestion: str) -> None:
    (fault,) = faults_of({key: 1})
    assert (fault.code, fault.hint) == ("TW1110", f"did you mean {suggestion}?")
    assert fault.message.startswith(f"{key} is not a key")


def test_a_flood_of_unknown_keys_is_counted() -> None:
    found = faults_of({f"memory.stranger{number}": 0 for number in range(MAX_UNKNOWN_KEYS + 7)})
    assert len(found) == MAX_UNKNOWN_KEYS + 1
    assert found[-1].message.startswith("7 more unknown keys")


def test_the_schema_and_the_dataclasses_hold_the_same_keys() -> None:
    def names(table: dict[str, Any], prefix: str = "") -> set[str]:
        inner = [names(item, f"{prefix}{name}.") if isinstance(item, dict) else {prefix + name}
                 for name, item in table.items()]  # fmt: skip
        return set().union(*inner)

    tables = load_chip("tiny").to_dict()
    assert names(tables) == {key.name for key in KEYS} | set(PATH_KEY_NAMES)
    assert Chip.from_dict(tables) == load_chip("tiny")


def test_every_row_is_explained() -> None:
    assert all(key.doc and key.low <= key.high for key in (*KEYS, *PATH_KEYS))
    assert all(item.text for item in RULES)
    assert len({key.name for key in KEYS}) == len(KEYS)
