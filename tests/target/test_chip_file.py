"""A chip file may be anything: missing, a pipe, another encoding, broken, hostile. Each has its error; none hangs."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from compiler.errors import InputError, InvalidError, TilewrightError, UsageError
from compiler.target import Chip, chip_names, load_chip
from compiler.target.chip_file import MAX_FILE_BYTES, MAX_LINE_CHARS, SHIPPED, parse_chip

TW2 = (SHIPPED / "tw2.toml").read_text(encoding="utf-8")


def refused(content: str | bytes, kind: type[TilewrightError] = InvalidError) -> TilewrightError:
    with pytest.raises(kind) as caught:
        parse_chip(content, file="mine.toml")
    return caught.value


def test_a_chip_is_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(TW2, encoding="utf-8")
    (tmp_path / "no_suffix").write_text(TW2, encoding="utf-8")
    (tmp_path / "link.toml").symlink_to(tmp_path / "mine.toml")
    monkeypatch.chdir(tmp_path)
    for path in ("mine.toml", "./no_suffix", "link.toml", str(tmp_path / "mine.toml"), Path("no_suffix")):
        assert load_chip(path) == load_chip("tw2")


@pytest.mark.parametrize(("name", "hint"), [("tw3", "did you mean tw"), ("gpu", "chips: tiny"), ("", "chips:")])
def test_an_unknown_name_lists_the_known_ones(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_chip(name)
    (problem,) = caught.value.problems
    assert problem.code == "TW1106" and hint in problem.hint and "tiny, tw1, tw2" in problem.hint


def test_what_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    (tmp_path / "big.toml").touch()
    os.truncate(tmp_path / "big.toml", MAX_FILE_BYTES + 1)
    cases = {
        str(tmp_path / "missing.toml"): "TW1101",
        str(tmp_path / "loop.toml"): "TW1101",
        f"{tmp_path}/a\0b.toml": "TW1101",
        f"{tmp_path}/\ud83d.toml": "TW1101",
        str(tmp_path): "TW1102",
        str(tmp_path / "pipe.toml"): "TW1102",
        "/dev/zero": "TW1102",
        str(tmp_path / "big.toml"): "TW1103",
    }
    for path, code in cases.items():
        with pytest.raises(InputError) as caught:
            load_chip(path)
        assert [problem.code for problem in caught.value.problems] == [code]
        assert str(caught.value).replace("\n", "").isprintable()


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    lines = (MAX_FILE_BYTES - len(TW2.encode())) // 128
    padding = ("#" * 127 + "\n") * lines
    rest = MAX_FILE_BYTES - len(TW2.encode()) - len(padding)
    (tmp_path / "full.toml").write_text(TW2 + padding + "\n" * rest, encoding="utf-8")
    assert load_chip(tmp_path / "full.toml") == load_chip("tw2")


def test_a_syntax_error_shows_the_place() -> None:
    error = refused(TW2.replace("depth = 32", "depth = = 32"))
    line = TW2[: TW2.index("depth = 32")].count("\n") + 1
    assert str(error) == (
        f"mine.toml:{line}:9: error[TW1105]: not valid TOML: Invalid value\n    depth = = 32\n            ^"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'name = "\xff"', "not UTF-8: byte 0xff at offset 8"),
        ("\ufeff" + TW2, "byte-order mark"),
        ("a = 1\na = 2\n", "mine.toml:2:6: error[TW1105]: not valid TOML: Cannot overwrite a value"),
        ("x = [", "not valid TOML"),
        ("x = '", "not valid TOML"),
        ("x = \x1b[2J", "not valid TOML"),
        ("x=" + ("[" * 200 + "\n") * 500, "nested too deeply"),
        ("x=" + "{a=" * 70 + "\n", "not valid TOML"),
        (f"a{'.a' * MAX_LINE_CHARS} = 1", "mine.toml:1: error[TW1107]: a line has 517 characters; at most 256"),
        ("", "table [memory] is missing"),
    ],
)
def test_a_file_that_is_no_chip_file_is_refused(content: str | bytes, words: str) -> None:
    text = str(refused(content))
    assert words in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_all_errors_come_at_once_in_the_order_of_the_file() -> None:
    text = (
        TW2.replace("clusters = 1\n", "clusters = 1030\n")
        .replace("event_ids = 8 ", "event_idz = 8 ")
        .replace("l1_bytes = 524288", "l1_bytes = 524289")
        .replace("depth = 32", f"depth = {10**30}")
        .replace("\nhead_cycles = 10", "\nhead_cycles = true")
        .replace("banks = 3", "banks = 2")
        .replace("ddr_ub = { bytes_per_cycle = 58", "ddr_ub = { bytes_per_cycle = -58")
        .replace("l0c_l1 =", "l0c_l2 =")
    )
    problems = refused(text).problems
    assert [(problem.code, problem.message.split()[0]) for problem in problems] == [
        ("TW1111", "event_ids"),
        ("TW1113", "clusters"),
        ("TW1110", "event_idz"),
        ("TW1114", "memory.l1_bytes"),
        ("TW1113", "queues.depth"),
        ("TW1112", "vector.head_cycles"),
        ("TW1115", "banks"),
        ("TW1113", "path.ddr_ub.bytes_per_cycle"),
        ("TW1110", "path.l0c_l2"),
    ]
    for problem in problems[1:]:  # a key that is missing at the top of the file has no line of its own
        assert problem.place is not None
        source = text.split("\n")[problem.place.line - 1]
        pointed = source[problem.place.column - 1 : problem.place.column - 1 + problem.place.width]
        assert pointed in problem.message or pointed == "banks"
        assert problem.place.source == source


def test_a_missing_key_points_at_its_table() -> None:
    (problem,) = refused(TW2.replace("depth = 32", "")).problems
    assert problem.place is not None and problem.place.source.startswith("[queues]")


JUNK = b"\0 \xff \n \r [ ] { \" ' . = # - 0x 1e9 \xc2\x9b".split(b" ")
VALUES = (rb"0 -1 3 0x%s %s true nan 1e999 '\u001b' [] {} 1979-05-27" % (b"f" * 200, b"9" * 40)).split()


@pytest.mark.parametrize("name", chip_names())
def test_mutated_files_give_a_chip_or_an_error_and_nothing_else(name: str) -> None:
    original = (SHIPPED / f"{name}.toml").read_bytes()
    numbers = [match.span() for match in re.finditer(rb"\b\d+\b", original)]
    choice = random.Random(f"chip files, {name}")
    codes = set()
    for round_ in range(300):
        content = bytearray(original)
        for _ in range(choice.randint(1, 3)):
            if round_ % 2:  # broken TOML, mostly
                start = choice.randrange(len(content))
                end = start + choice.choice([0, 1, 1, choice.randint(1, 200)])
                content[start:end] = choice.choice([bytes([choice.randrange(256)]), choice.choice(JUNK)])
            else:  # another value
                start, end = choice.choice(numbers)
                content[start:end] = choice.choice(VALUES)
        try:
            assert isinstance(parse_chip(bytes(content), file="fuzz.toml"), Chip)
        except InvalidError as error:
            codes |= {problem.code for problem in error.problems}
            assert all(char.isprintable() or char == "\n" for char in str(error))
    assert codes >= {"TW1104", "TW1105", "TW1110", "TW1112", "TW1113"}  # the mutations reach every layer
