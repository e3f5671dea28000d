"""The frame of an artifact: a fixed header, a table of sections, and the sections. Nothing here knows what they hold.

The header has :data:`HEADER_BYTES` bytes, little-endian: magic, container version, required flags, number of
sections, size of the file; :data:`MAX_SECTIONS` entries of kind, offset, size and sha256, the unused ones zero; the
sha256 of all that precedes it. Sections follow in the order of their kinds, each at the next multiple of
:data:`ALIGNMENT`, with zeros between them and nothing after the last: where each one lies follows from the sizes, so
none can overlap or hide bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from compiler.errors import CorruptError, IncompatibleError, InputError, InvalidError, Problem

# Like PNG's: a transfer that changes line ends or strips the eighth bit shows at once.
MAGIC = b"\x89TWM\r\n\x1a\n"
CONTAINER_VERSION = 1
ALIGNMENT = 64
MAX_SECTIONS = 8
MAX_FILE_BYTES = 4 << 30

MANIFEST, WEIGHTS, PROGRAMS, DEBUG, HOST = range(1, 6)
# kind -> (name, most bytes)
SECTIONS: dict[int, tuple[str, int]] = {
    MANIFEST: ("manifest", 16 << 20),
    WEIGHTS: ("weights", MAX_FILE_BYTES),
    PROGRAMS: ("programs", 64 << 20),
    DEBUG: ("debug", 64 << 20),
    HOST: ("host", 64 << 20),
}
REQUIRED = (MANIFEST, WEIGHTS, PROGRAMS)

HAS_HOST = 1  # the host section is there: code for the host, which a reader may refuse
KNOWN_FLAGS = HAS_HOST

_FIXED = struct.Struct("<8sIIQQ")
_ENTRY = struct.Struct("<QQQ32s")
_DIGEST_BYTES = 32
HEADER_BYTES = _FIXED.size + MAX_SECTIONS * _ENTRY.size + _DIGEST_BYTES


@dataclass(frozen=True)
class Section:
    """One entry of the section table."""

    kind: int
    offset: int
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return SECTIONS[self.kind][0]

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True)
class Header:
    """A header whose every field has been checked against the others and against the size of the file."""

    flags: int
    sections: tuple[Section, ...]
    sha256: str

    @property
    def file_size(self) -> int:
        return self.sections[-1].end


def aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def pack(contents: Mapping[int, bytes], flags: int = 0) -> bytes:
    """The file that holds these sections, by kind."""
    entries, body, end = [], [], HEADER_BYTES
    for kind, content in sorted(contents.items()):
        name, limit = SECTIONS[kind]
        if len(content) > limit:
            raise InvalidError(Problem("TW1501", f"section {name} has {len(content)} bytes; allowed: at most {limit}"))
        offset = aligned(end)
        body += [bytes(offset - end), content]
        end = offset + len(content)
        entries.append(_ENTRY.pack(kind, offset, len(content), hashlib.sha256(content).digest()))
    if end > MAX_FILE_BYTES:
        raise InvalidError(Problem("TW1501", f"the artifact has {end} bytes; allowed: at most {MAX_FILE_BYTES}"))
    header = _FIXED.pack(MAGIC, CONTAINER_VERSION, flags, len(entries), end) + b"".join(entries)
    header += bytes(HEADER_BYTES - _DIGEST_BYTES - len(header))
    return b"".join([header, hashlib.sha256(header).digest(), *body])


# ---- reading ------------------------------------------------------------------------------------------------


def read_header(head: bytes, file_size: int) -> Header:
    """The header in the first bytes of a file of this size. Nothing else of the file is needed to judge it."""
    if head[: len(MAGIC)] != MAGIC:
        raise CorruptError(Problem("TW1510", "not an artifact: the file does not begin with the magic bytes"))
    if len(head) < HEADER_BYTES:
        raise _corrupt("TW1511", f"the file has {file_size} bytes; an artifact's header alone has {HEADER_BYTES}")
    _, version, flags, count, stated = _FIXED.unpack_from(head)
    if version != CONTAINER_VERSION:
        text = f"the artifact has container version {version}; this build reads version {CONTAINER_VERSION}"
        raise IncompatibleError(Problem("TW1540", text, hint=REBUILD))
    fields, digest = head[: HEADER_BYTES - _DIGEST_BYTES], head[HEADER_BYTES - _DIGEST_BYTES : HEADER_BYTES]
    if hashlib.sha256(fields).digest() != digest:
        raise _corrupt("TW1512", "the header does not match its checksum")
    if flags & ~KNOWN_FLAGS:
        text = f"the artifact requires features {flags:#x}; this build knows {KNOWN_FLAGS:#x}"
        raise IncompatibleError(Problem("TW1541", text, hint=REBUILD))
    if stated != file_size:
        raise _corrupt("TW1513", f"the file has {file_size} bytes; its header says {stated}")
    header = Header(flags, _section_table(fields, count), digest.hex())
    if header.file_size != file_size:
        raise _corrupt("TW1513", f"the file has {file_size} bytes; its sections end at byte {header.file_size}")
    if (HOST in (s.kind for s in header.sections)) != bool(flags & HAS_HOST):
        raise _corrupt("TW1514", "the flags and the section table disagree about host kernels")
    return header


def _section_table(fields: bytes, count: int) -> tuple[Section, ...]:
    if not len(REQUIRED) <= count <= MAX_SECTIONS:
        text = f"the artifact has {count} sections; allowed: {len(REQUIRED)} to {MAX_SECTIONS}"
        raise _corrupt("TW1514", text)
    used = _FIXED.size + count * _ENTRY.size
    if any(fields[used:]):
        raise _corrupt("TW1514", "the unused entries of the section table are not zero")
    sections: list[Section] = []
    end, last = HEADER_BYTES, 0
    for kind, offset, size, digest in _ENTRY.iter_unpack(fields[_FIXED.size : used]):
        if kind not in SECTIONS:
            text = f"the artifact has a section of kind {kind}; this build knows {min(SECTIONS)} to {max(SECTIONS)}"
            raise IncompatibleError(Problem("TW1541", text, hint=REBUILD))
        name, limit = SECTIONS[kind]
        if kind <= last:
            raise _corrupt("TW1514", f"section {name} is out of order or there twice")
        if size > limit:
            raise _corrupt("TW1515", f"section {name} has {size} bytes; allowed: at most {limit}")
        if offset != aligned(end):
            raise _corrupt("TW1516", f"section {name} is at byte {offset}; allowed: {aligned(end)}, where it follows")
        sections.append(Section(kind, offset, size, digest.hex()))
        end, last = offset + size, kind
    missing = [SECTIONS[kind][0] for kind in REQUIRED if kind not in (s.kind for s in sections)]
    if missing:
        raise _corrupt("TW1514", f"the artifact lacks section {', '.join(missing)}")
    return tuple(sections)


def read_sections(header: Header, data: bytes) -> dict[int, memoryview]:
    """The sections of a whole file by kind, each held against its checksum, and all padding checked."""
    if len(data) != header.file_size:
        raise _corrupt("TW1513", f"the file has {len(data)} bytes; its sections end at byte {header.file_size}")
    view, found, end = memoryview(data), dict[int, memoryview](), HEADER_BYTES
    for section in header.sections:
        if any(view[end : section.offset]):
            raise _corrupt("TW1517", f"the padding before section {section.name} is not zero")
        content = view[section.offset : section.end]
        if hashlib.sha256(content).hexdigest() != section.sha256:
            raise _corrupt("TW1518", f"section {section.name} does not match its checksum")
        found[section.kind] = content
        end = section.end
    return found


REBUILD = "make the artifact again with this build of tilewright"
_DAMAGED = "the file is damaged or was changed after it was made: make it again"


def _corrupt(code: str, message: str) -> CorruptError:
    return CorruptError(Problem(code, message, hint=_DAMAGED))


def too_large(size: int) -> InputError:
    text = f"the file has {size} bytes; an artifact has at most {MAX_FILE_BYTES}"
    return InputError(Problem("TW1504", text))
