"""JSON that has one spelling only, and limits that hold before it is parsed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from compiler.artifact import canonical
from compiler.artifact.canonical import MAX_DEPTH, MAX_VALUES, NotCanonical, dumps, loads

VALUES: list[Any] = [
    {}, [], "", 0, -1, 2**63 - 1, -(2**63), True, False, None,
    {"b": [1, {"a": "x"}], "a": "\u00fc\n\"\\\u2028\ud800\U0001f600"}, ["[[[[", "]", "{", "\\", "1" * 50],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert dumps(value).isascii()


@pytest.mark.parametrize(
    "text",
    [
        b' {"a":1}', b'{"a":1} ', b'{"a": 1}', b'{"b":1,"a":2}', b'{"a":1,"a":1}', b'{"a":1,"a":2}', b'"\\u0041"',
        b'"\\/"', b"-0", b'"\\ud83d\\uDE00"', b"[1\n]",
    ],
    ids=repr,
)  # fmt: skip
def test_other_spellings_are_refused(text: bytes) -> None:
    with pytest.raises(NotCanonical, match="not the canonical spelling"):
        loads(text)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'"', b'"\\', b"[1,]", b"01", b"+1", b"0x1", b"'a'", b"nul", b'{"a"}', b"[1]]", b'"\\q"', b'"\n"'],
    ids=repr,
)  # fmt: skip
def test_what_is_no_json(text: bytes) -> None:
    with pytest.raises(NotCanonical, match="not JSON"):
        loads(text)


@pytest.mark.parametrize("text", [b"1.0", b"1e5", b"NaN", b"-Infinity", b"[1E400]"], ids=repr)
def test_only_integers_are_numbers(text: bytes) -> None:
    with pytest.raises(NotCanonical, match="is not an integer"):
        loads(text)


def test_bytes_that_are_not_ascii() -> None:
    with pytest.raises(NotCanonical, match="byte 1 is not ASCII"):
        loads('"ü"'.encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), f"nested {MAX_DEPTH + 1} deep"),
        (b"[" * 1_000_000, "nested 1000000 deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested 100000 deep"),
        (b"[" + b"1," * MAX_VALUES + b"1]", f"{MAX_VALUES + 1} values"),
        (b"[" + b"[]," * MAX_VALUES + b"1]", f"{2 * MAX_VALUES + 1} values"),
        (b"[" + b"9" * 1_000_000 + b"]", "20 digits"),
        (b"1" * 20, "20 digits"),
    ],
    ids=["deep", "very deep", "deep objects", "many", "many arrays", "a million digits", "twenty digits"],
)
def test_limits_hold_before_parsing(text: bytes, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical.json, "loads", None)
    with pytest.raises(NotCanonical, match=message):
        loads(text)


def test_limits_take_time_in_proportion() -> None:
    begin = time.process_time()
    escaped = b'\\"' * (4 << 20)
    for text in (
        b'"' + b"\\" * (4 << 20),
        b'"\\"' * (1 << 20),
        b"\\" * (4 << 20),
        b'"' + escaped,
        b'"' + escaped + b"\\",
    ):
        with pytest.raises(NotCanonical):
            loads(text)
    assert time.process_time() - begin < 5
