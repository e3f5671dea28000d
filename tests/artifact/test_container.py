"""The frame of an artifact: every field of the header is checked, and each mistake is called by its name."""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

import pytest

from compiler.artifact import container, model_to_bytes, read_artifact, read_program, to_bytes
from compiler.artifact.container import (
    DEBUG,
    HAS_HOST,
    HEADER_BYTES,
    HOST,
    MANIFEST,
    MAX_FILE_BYTES,
    MAX_SECTIONS,
    PROGRAMS,
    WEIGHTS,
    pack,
    read_header,
    read_sections,
)
from compiler.errors import CorruptError, IncompatibleError, InputError, InvalidError, TilewrightError
from tests.artifact import models
from tests.artifact.programs import chip, program

ENTRY_BYTES = 56
FIXED_BYTES = 32
CONTENTS = {MANIFEST: b"{}", WEIGHTS: b"", PROGRAMS: bytes(range(70)), DEBUG: b"x"}


def signed(head: bytes) -> bytes:
    """A header with the checksum that it should have."""
    return head[: HEADER_BYTES - 32] + hashlib.sha256(head[: HEADER_BYTES - 32]).digest()


def with_field(data: bytes, offset: int, kind: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(f"<{kind}", changed, offset, value)
    return signed(bytes(changed[:HEADER_BYTES])) + bytes(changed[HEADER_BYTES:])


def entry(section: int, field: str) -> int:
    """Where a field of the section table lies."""
    return FIXED_BYTES + section * ENTRY_BYTES + {"kind": 0, "offset": 8, "size": 16, "sha256": 24}[field]


def read(data: bytes) -> dict[int, bytes]:
    header = read_header(data[:HEADER_BYTES], len(data))
    return {kind: bytes(content) for kind, content in read_sections(header, data).items()}


def test_sections_come_back() -> None:
    assert read(pack(CONTENTS)) == CONTENTS


def test_the_layout_is_the_documented_one() -> None:
    data = pack(CONTENTS)
    assert data[:8] == b"\x89TWM\r\n\x1a\n"
    assert struct.unpack_from("<IIQQ", data, 8) == (1, 0, 4, len(data))
    offsets = [struct.unpack_from("<QQQ", data, entry(i, "kind")) for i in range(4)]
    assert offsets == [(1, 512, 2), (2, 576, 0), (3, 576, 70), (4, 704, 1)]
    assert data[entry(2, "sha256") : entry(3, "kind")] == hashlib.sha256(CONTENTS[PROGRAMS]).digest()
    assert HEADER_BYTES == 512 == FIXED_BYTES + MAX_SECTIONS * ENTRY_BYTES + 32


FIELDS = [
    ("the magic", 0, "B", 0x88, CorruptError, "does not begin with the magic"),
    ("a newer version", 8, "I", 2, IncompatibleError, "container version 2; this build reads version 1"),
    ("version zero", 8, "I", 0, IncompatibleError, "container version 0; this build reads version 1"),
    ("an unknown required flag", 12, "I", 4, IncompatibleError, "requires features 0x4; this build knows 0x1"),
    ("a flag without its section", 12, "I", HAS_HOST, CorruptError, "disagree about host kernels"),
    ("no sections", 16, "Q", 0, CorruptError, "has 0 sections; allowed: 3 to 8"),
    ("too few sections", 16, "Q", 3, CorruptError, "unused entries of the section table are not zero"),
    ("a section more", 16, "Q", 5, IncompatibleError, "a section of kind 0"),
    ("very many sections", 16, "Q", 2**63, CorruptError, "has 9223372036854775808 sections"),
    ("another file size", 24, "Q", 1, CorruptError, "its header says 1"),
    ("a huge file size", 24, "Q", 2**64 - 1, CorruptError, "its header says 18446744073709551615"),
    ("an unknown section", entry(3, "kind"), "Q", 77, IncompatibleError, "a section of kind 77"),
    ("a section twice", entry(1, "kind"), "Q", MANIFEST, CorruptError, "manifest is out of order or there twice"),
    ("another order", entry(0, "kind"), "Q", WEIGHTS, CorruptError, "out of order or there twice"),
    ("an overlap", entry(2, "offset"), "Q", 512, CorruptError, "programs is at byte 512; allowed: 576"),
    ("a hole", entry(3, "offset"), "Q", 768, CorruptError, "debug is at byte 768; allowed: 704"),
    ("an offset that is not aligned", entry(3, "offset"), "Q", 703, CorruptError, "allowed: 704"),
    ("a huge offset", entry(3, "offset"), "Q", 2**64 - 1, CorruptError, "debug is at byte 18446744073709551615"),
    ("a huge size", entry(3, "size"), "Q", 2**64 - 1, CorruptError, "debug has 18446744073709551615 bytes; allowed"),
    ("a size beyond the file", entry(3, "size"), "Q", 2, CorruptError, "its sections end at byte 706"),
    ("a size that cuts the file", entry(3, "size"), "Q", 0, CorruptError, "its sections end at byte 704"),
    ("a checksum", entry(2, "sha256"), "B", 0xFF, CorruptError, "programs does not match its checksum"),
    ("an unused entry", entry(7, "sha256"), "Q", 1, CorruptError, "unused entries of the section table are not zero"),
]


@pytest.mark.parametrize(
    ("offset", "kind", "value", "error", "message"), [f[1:] for f in FIELDS], ids=[f[0] for f in FIELDS]
)
def test_every_field_is_checked(offset: int, kind: str, value: int, error: type[TilewrightError], message: str) -> None:
    data = pack(CONTENTS)
    assert struct.unpack_from(f"<{kind}", data, offset) != (value,)
    with pytest.raises(error, match=message):
        read(with_field(data, offset, kind, value))


@pytest.mark.parametrize("kind", [MANIFEST, WEIGHTS, PROGRAMS])
def test_the_sections_that_must_be_there(kind: int) -> None:
    contents = {MANIFEST: b"", WEIGHTS: b"", PROGRAMS: b"", DEBUG: b""}
    del contents[kind]
    with pytest.raises(CorruptError, match=f"lacks section {container.SECTIONS[kind][0]}"):
        read(pack(contents))


def test_a_header_that_was_changed_without_its_checksum() -> None:
    data = bytearray(pack(CONTENTS))
    data[entry(0, "size")] ^= 1
    with pytest.raises(CorruptError, match="the header does not match its checksum"):
        read(bytes(data))


def test_padding_must_be_zero() -> None:
    data = bytearray(pack(CONTENTS))
    data[640 + 10] = 1  # after the 70 bytes at 576
    with pytest.raises(CorruptError, match="the padding before section debug is not zero"):
        read(bytes(data))


def test_nothing_may_follow_the_last_section() -> None:
    data = pack(CONTENTS)
    longer = with_field(data + b"\0", 24, "Q", len(data) + 1)
    with pytest.raises(CorruptError, match="its sections end at byte 705"):
        read(longer)


def test_sizes_have_limits_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack(CONTENTS)
    monkeypatch.setitem(container.SECTIONS, PROGRAMS, ("programs", 69))
    with pytest.raises(InvalidError, match="programs has 70 bytes; allowed: at most 69"):
        pack(CONTENTS)
    with pytest.raises(CorruptError, match="programs has 70 bytes; allowed: at most 69"):
        read(data)


# ---- files ----------------------------------------------------------------------------------------------------


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.twm"
    with path.open("wb") as file:
        file.write(pack(CONTENTS))
        file.truncate(MAX_FILE_BYTES + 1)  # sparse
    with pytest.raises(InputError, match=f"has {MAX_FILE_BYTES + 1} bytes; an artifact has at most {MAX_FILE_BYTES}"):
        read_program(path)


def test_a_file_that_grew_is_refused_by_its_header_alone(tmp_path: Path) -> None:
    path = tmp_path / "grown.twm"
    with path.open("wb") as file:
        file.write(to_bytes(program(), chip()))
        file.truncate(3 << 30)
    with pytest.raises(CorruptError, match="the file has 3221225472 bytes; its header says"):
        read_program(path)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"\x89TWM\r\n\x1a", b"PK\x03\x04" + bytes(600), b"\x89TWM\n\x1a\n" + bytes(600)]
)
def test_what_is_no_artifact_is_told_so(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.twm"
    path.write_bytes(content)
    with pytest.raises(CorruptError, match=r"other\.twm: error\[TW1510\]: not an artifact"):
        read_program(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, message in (
        (tmp_path / "none.twm", "cannot read an artifact: No such file"),
        (tmp_path, "must be a regular file, not a directory"),
        (fifo, "must be a regular file"),
        (Path("/dev/null"), "must be a regular file"),
        ("a\0b", "the path is not a file name"),
    ):
        with pytest.raises(InputError, match=message):
            read_program(path)


# ---- host kernels -----------------------------------------------------------------------------------------------


def test_host_kernels_are_refused_unless_allowed() -> None:
    data = model_to_bytes(models.model("{}"))
    header = read_header(data[:HEADER_BYTES], len(data))
    contents = {kind: bytes(content) for kind, content in read_sections(header, data).items()}
    with pytest.raises(InputError, match="holds host kernels, which are code that would run on this machine"):
        read_artifact(data)
    assert [s.name for s in read_artifact(data, allow_host=True).sections][-1] == "host"
    with pytest.raises(CorruptError, match="disagree about host kernels"):
        read_artifact(pack(contents), allow_host=True)
    without = {kind: content for kind, content in contents.items() if kind != HOST}
    with pytest.raises(CorruptError, match="segments and the section table disagree about host kernels"):
        read_artifact(pack(without), allow_host=True)
