"""The manifest: every key is needed, typed and limited; nothing unknown passes; what contradicts itself is found."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler.artifact import canonical, container, read_program, to_bytes
from compiler.artifact.container import DEBUG, MANIFEST, PROGRAMS, WEIGHTS
from compiler.artifact.reader import read_frame
from compiler.errors import CorruptError, IncompatibleError
from compiler.target import Chip
from tests.artifact.programs import chip, program

Tables = dict[str, Any]
Path = tuple[str | int, ...]


def stored() -> bytes:
    return to_bytes(
        program(),
        chip(),
        options={"level": 2, "fast": True},
        source_text=b"x",
        constants={"a": np.ones(256, np.float32)},
    )


CONTENTS = {kind: bytes(content) for kind, content in read_frame(stored()).contents.items()}
TABLES = {kind: canonical.loads(CONTENTS[kind]) for kind in (MANIFEST, DEBUG)}


def rebuilt(tables: Tables, kind: int = MANIFEST, **others: bytes) -> bytes:
    """The artifact with other tables and right checksums."""
    sections = {container.SECTIONS[k][0]: k for k in container.SECTIONS}
    return container.pack(
        CONTENTS | {sections[name]: content for name, content in others.items()} | {kind: canonical.dumps(tables)}
    )


def changed(path: Path, value: Any, kind: int = MANIFEST) -> bytes:
    tables = copy.deepcopy(TABLES[kind])
    table = tables
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    return rebuilt(tables, kind)


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from paths(each, (*path, key))


def at(path: Path, tables: Any) -> Any:
    for key in path:
        tables = tables[key]
    return tables


def named(path: Path) -> str:
    return ".".join(map(str, path))


NULLABLE = {("source", "sha256"), ("segments", 0, "chip")}
PATHS = [p for p in paths(TABLES[MANIFEST]) if p[:2] != ("chip", "tables")]


@pytest.mark.parametrize("path", PATHS, ids=named)
def test_every_key_has_its_type(path: Path) -> None:
    old = at(path, TABLES[MANIFEST])
    for value in (None, True, 7, "x", [], {}, [[]], {"x": 1}):
        if type(value) is type(old) or (value is None and path in NULLABLE):
            continue
        if path[0] == "options" and type(value) in (bool, int, str):
            continue
        with pytest.raises((CorruptError, IncompatibleError)):
            read_program(changed(path, value))


@pytest.mark.parametrize(
    "path", [p for p in PATHS if isinstance(at(p, TABLES[MANIFEST]), dict) and p != ("options",)], ids=named
)
def test_every_key_is_needed_and_no_other_passes(path: Path) -> None:
    for key in at(path, TABLES[MANIFEST]):
        tables = copy.deepcopy(TABLES[MANIFEST])
        del at(path, tables)[key]
        with pytest.raises(CorruptError, match=f"lacks {key}"):
            read_program(rebuilt(tables))
    with pytest.raises(CorruptError, match="has the unknown key 'more'"):
        read_program(changed((*path, "more"), 1))


def test_the_top_level_is_as_strict() -> None:
    for key in TABLES[MANIFEST]:
        tables = {k: v for k, v in TABLES[MANIFEST].items() if k != key}
        with pytest.raises(CorruptError, match=f"manifest lacks {key}"):
            read_program(rebuilt(tables))
    with pytest.raises(CorruptError, match="manifest has the unknown key 'more'"):
        read_program(changed(("more",), 1))
    for other in ([], "x", 1, None):
        with pytest.raises(CorruptError, match=r"manifest is .*; allowed: an object"):
            read_program(rebuilt(other))  # type: ignore[arg-type]


HUGE = 10**18
SEGMENT = ("segments", 0)
BUFFER = TABLES[MANIFEST]["segments"][0]["buffers"][0]
VALUES: list[tuple[Path, Any, str]] = [
    (("source", "name"), "a/b", "allowed: a file name without directories"),
    (("source", "name"), "/etc/passwd", "allowed: a file name without directories"),
    (("source", "name"), "x" * 5000, "has 5000 characters; allowed: at most 4096"),
    (("source", "sha256"), "0" * 63, "allowed: 64 hexadecimal digits"),
    (("source", "sha256"), "A" * 64, "allowed: 64 hexadecimal digits"),
    (("chip", "name"), "tw1", "chip.name is 'tw1'; chip.tables says tiny"),
    (("chip", "content_hash"), "0" * 64, "chip.content_hash is .*; chip.tables says"),
    (("chip", "tables", "clusters"), 0, "chip.tables: clusters must be 1 to 1024"),
    (("chip", "tables", "clusters"), HUGE, "chip.tables: clusters must be 1 to 1024"),
    (("chip", "tables", "memory", "ddr_bytes"), HUGE, "chip.tables: memory.ddr_bytes must be"),
    (("chip", "tables", "surprise"), {}, "chip.tables: surprise is not a key of a chip file"),
    (("chip", "tables", "path", "ddr_ub"), None, r"chip.tables: \[path.ddr_ub\] must be a table"),
    ((*SEGMENT, "cores"), 0, r"cores is 0; allowed: 1 to 1024"),
    ((*SEGMENT, "cores"), 3, "the program is for 3 cores; chip tiny has 2"),
    ((*SEGMENT, "cores"), None, "2 entries for an unknown number of cores"),
    ((*SEGMENT, "chip"), "tw1", "the program is for chip `tw1`, not `tiny`"),
    ((*SEGMENT, "entries"), [0], "1 entries for 2 cores"),
    ((*SEGMENT, "entries"), [0, 7], "core 1 starts at instruction 7"),
    ((*SEGMENT, "entries"), [0, -1], r"entries\[1\] is -1; allowed: 0 to"),
    ((*SEGMENT, "entries"), [0] * 2000, r"entries has 2000 items; allowed: at most 1024"),
    ((*SEGMENT, "instructions"), 6, "the segments use 6 of section programs, which has 7"),
    ((*SEGMENT, "instructions"), HUGE, r"instructions is 1000000000000000000; allowed: 0 to 1048576"),
    ((*SEGMENT, "tiling", 0), ["trips"], r"tiling\[0\] is an array; allowed: a name and a value"),
    ((*SEGMENT, "tiling", 0, 1), 2**63, r"tiling\[0\]\[1\] is 9223372036854775808"),
    ((*SEGMENT, "tiling"), [], "index is 0; the program has 0 tiling words"),
    ((*SEGMENT, "tiling"), [["w", 1]] * 70_000, r"tiling has 70000 items; allowed: at most 65536"),
    ((*SEGMENT, "tiling", 0, 0), "a", "2 buffers or tiling words are called `a`"),
    (("options", "level"), 2**70, "20 digits"),
    (("options", "level"), [1], "options.'level' is an array"),
    (("options",), {str(i): i for i in range(2000)}, "allowed: an object of at most 1024 keys"),
    ((*SEGMENT, "buffers", 0, "memory"), "hbm", r"buffers\[0\].memory is 'hbm'; allowed: ddr, llb"),
    ((*SEGMENT, "buffers", 0, "memory"), "ub", r"buffers\[0\].memory is ub; allowed for an input: ddr, llb"),
    ((*SEGMENT, "buffers", 0, "dtype"), "fp64", r"buffers\[0\].dtype is 'fp64'; allowed: fp16"),
    ((*SEGMENT, "buffers", 0, "role"), "weight", r"buffers\[0\].role is 'weight'; allowed: input"),
    ((*SEGMENT, "buffers", 0, "offset"), -1, r"buffers\[0\].offset is -1; allowed: 0 to"),
    ((*SEGMENT, "buffers", 0, "offset"), HUGE, r"buffers\[0\].offset is 1000000000000000000; allowed: 0 to"),
    ((*SEGMENT, "buffers", 0, "offset"), 67108864, "ends at byte 67109888 of ddr, which has 67108864 bytes"),
    ((*SEGMENT, "buffers", 3, "offset"), 8192 - 2047, r"buffers\[3\] ends at byte 8193 of ub, which has 8192 bytes"),
    ((*SEGMENT, "buffers", 0, "size_bytes"), 1023, r"buffers\[0\].size_bytes is 1023; allowed: 1024 or more"),
    ((*SEGMENT, "buffers", 0, "size_bytes"), 0, r"buffers\[0\].size_bytes is 0; allowed: 1 to"),
    ((*SEGMENT, "buffers", 0, "size_bytes"), HUGE, r"buffers\[0\].size_bytes is 1000000000000000000; allowed: 1 to"),
    ((*SEGMENT, "buffers", 0, "shape"), [0], r"buffers\[0\].shape\[0\] is 0; allowed: 1 to"),
    ((*SEGMENT, "buffers", 0, "shape"), [2**40] * 32, r"buffers\[0\].size_bytes is 1024; allowed: \d+ or more"),
    ((*SEGMENT, "buffers", 0, "shape"), [1] * 33, r"buffers\[0\].shape has 33 items; allowed: at most 32"),
    ((*SEGMENT, "buffers", 1, "name"), "a", r"buffers\[1\].name is 'a', which is there already"),
    ((*SEGMENT, "buffers"), [BUFFER] * 70_000, r"buffers has 70000 items; allowed: at most 65536"),
    (("constants", 0, "offset"), 64, r"constants\[0\].offset is 64; allowed: 0"),
    (("constants", 0, "size_bytes"), 512, r"constants\[0\].size_bytes is 512; allowed: 1024"),
    (("constants", 0, "shape"), [128], r"constants\[0\].size_bytes is 1024; allowed: 512"),
    (("constants", 0, "shape"), [2, 128], r"constants\[0\] is fp32 \[2, 128\]; its buffer is fp32 \[256\]"),
    (("constants", 0, "dtype"), "int32", r"constants\[0\] is int32 \[256\]; its buffer is fp32 \[256\]"),
    (("constants", 0, "name"), "c", r"constants\[0\].name is 'c', which is no input"),
    (("constants",), [], "constants end at byte 0 of the weights, which have 1024 bytes"),
    (("constants",), TABLES[MANIFEST]["constants"] * 2, r"constants\[1\].offset is 0; allowed: 1024"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "message"), VALUES, ids=[f"{named(p)}-{i}" for i, (p, _, _) in enumerate(VALUES)]
)
def test_values_have_limits(path: Path, value: Any, message: str) -> None:
    with pytest.raises(CorruptError, match=message):
        read_program(changed(path, value))


def test_buffers_of_the_program_must_hold_what_it_touches() -> None:
    """A manifest that was swapped under a program is found by the verifier."""
    text = TABLES[MANIFEST]
    assert text["segments"][0]["instructions"] == 7
    other = to_bytes(program(), chip())
    swapped = container.pack(CONTENTS | {PROGRAMS: bytes(read_frame(other).contents[PROGRAMS])[:-8]})
    with pytest.raises(CorruptError):
        read_program(swapped)


def test_weights_must_be_as_long_as_the_constants() -> None:
    for weights in (b"", bytes(1023), bytes(1025)):
        with pytest.raises(CorruptError, match="constants end at byte 1024 of the weights"):
            read_program(container.pack(CONTENTS | {WEIGHTS: weights}))


# ---- debug ------------------------------------------------------------------------------------------------------

DEBUG_VALUES: list[tuple[Path, Any, str]] = [
    ((0, "line_steps"), [1, 6], "gives lines to 6 instructions; the program has 7"),
    ((0, "line_steps"), [1, 8], "gives lines to 8 instructions; the program has 7"),
    ((0, "line_steps"), [1, 2**31 - 1], "gives lines to 2147483647 instructions"),
    ((0, "line_steps"), [1, HUGE], r"debug\[0\].line_steps\[1\] is 1000000000000000000"),
    ((0, "line_steps"), [1, 0, 1, 7], "gives lines to"),
    ((0, "line_steps"), [1, -1, 1, 8], "gives lines to"),
    ((0, "line_steps"), [1], "has 1 items; allowed: pairs"),
    ((0, "line_steps"), [-1, 7], "leads to line -7 to -1; allowed: 0 to 2147483647"),
    ((0, "line_steps"), [2**31 - 1, 7], "allowed: 0 to 2147483647"),
    ((0, "line_steps"), {}, r"debug\[0\].line_steps is an object; allowed: an array"),
    ((0, "labels"), [["x", 8]], r"debug\[0\].labels\[0\]\[1\] is 8; allowed: 0 to 7"),
    ((0, "labels"), [["x"]], r"debug\[0\].labels\[0\] is an array; allowed: a name and an instruction"),
    ((0, "labels"), [[1, 1]], r"debug\[0\].labels\[0\]\[0\] is 1; allowed: a string"),
    ((0, "listing"), [1], r"debug\[0\].listing\[0\] is 1; allowed: a string"),
    ((0, "listing"), ["only one"], r"debug\[0\].line_steps leads to line \d+; the listing has 1"),
    ((0, "more"), 1, r"debug\[0\] has the unknown key 'more'"),
]


@pytest.mark.parametrize(("path", "value", "message"), DEBUG_VALUES, ids=[str(i) for i in range(len(DEBUG_VALUES))])
def test_debug_information_is_checked_too(path: Path, value: Any, message: str) -> None:
    with pytest.raises(CorruptError, match=message):
        read_program(changed(path, value, DEBUG))


# ---- compatibility ----------------------------------------------------------------------------------------------


def test_another_instruction_table_is_incompatible_and_both_hashes_are_named() -> None:
    ours = TABLES[MANIFEST]["isa_table_hash"]
    with pytest.raises(IncompatibleError) as caught:
        read_program(changed(("isa_table_hash",), "0" * 64))
    assert "0" * 56 in str(caught.value)
    assert ours in str(caught.value)
    assert "make the artifact again" in str(caught.value)


def test_another_abi_is_incompatible_whatever_else_it_says() -> None:
    tables = {"abi_version": 3, "something": "new"}
    with pytest.raises(IncompatibleError, match="for ABI version 3; this build has 2"):
        read_program(rebuilt(tables))


def test_another_version_of_the_compiler_is_no_obstacle() -> None:
    assert read_program(changed(("compiler_version",), "99.9")).manifest["compiler_version"] == "99.9"


def test_a_chip_of_one_s_own_travels_with_the_artifact() -> None:
    tables = json.loads(json.dumps(chip().to_dict()))
    tables["name"], tables["vector"]["head_cycles"] = "mine", 99
    own = Chip.from_dict(tables)
    artifact = read_program(to_bytes(replace(program(), chip="mine"), own))
    assert artifact.chip == own
    assert artifact.chip.vector.head_cycles == 99
