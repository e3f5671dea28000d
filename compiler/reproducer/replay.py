"""Reads a bundle, whoever wrote it, and repeats its command in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from compiler.artifact.files import open_regular
from compiler.errors import InputError, Place, Problem, UsageError
from compiler.reproducer.bundle import FORMAT, INDEX, REPORT

MAX_FILES, MAX_INDEX_BYTES, MAX_BYTES = 256, 16 << 20, 4 << 30
OPS, OP_TEST = "--ops", "op-test"  # an option and a verb that run a file or package of operators
_FILE = re.compile(r"files/\d{1,3}/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*")


# What reading a zip file can raise, whatever its bytes are.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(KeyError, NotImplementedError, OverflowError, RuntimeError, ValueError),
)


@dataclass(frozen=True)
class Recorded:
    """What a bundle says of the failure, and its command."""

    arguments: tuple[str, ...]
    error: str
    where: tuple[str, ...]
    notes: tuple[str, ...]
    versions: dict[str, str]

    @property
    def is_code(self) -> bool:
        """Whether replaying may run code that the bundle brings along, or that it names."""
        return any(
            word in (OPS, OP_TEST) or word.startswith(f"{OPS}=") or word.endswith(".py") for word in self.arguments
        )


def unpack(path: str, folder: Path) -> Recorded:
    """Write the files of a bundle below ``folder``; nothing that the bundle holds decides a path outside of it."""
    with open_regular(path, "the reproducer") as (file, _):
        try:
            with zipfile.ZipFile(file) as archive:
                recorded = _recorded(path, archive)
                _extract(path, archive, folder)
        except _DAMAGED as error:
            raise _refused(path, f"it is damaged, or cannot be unpacked: {error}") from error
    return recorded


def _recorded(path: str, archive: zipfile.ZipFile) -> Recorded:
    if INDEX not in archive.namelist() or archive.getinfo(INDEX).file_size > MAX_INDEX_BYTES:
        raise _refused(path, f"it holds no {INDEX}")
    try:
        index = json.loads(archive.read(INDEX))
        if index["format"] != FORMAT:
            raise _refused(path, f"it has format {index['format']}; this build reads {FORMAT}")
        texts = {key: tuple(map(_text, index[key])) for key in ("arguments", "where", "notes")}
        versions = {_text(name): _text(version) for name, version in index["versions"].items()}
        recorded = Recorded(**texts, error=_text(index["error"]), versions=versions)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _refused(path, f"its {INDEX} is not as it must be: {error}") from error
    for word in recorded.arguments:
        _check_word(path, word)
    return recorded


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _check_word(path: str, word: str) -> None:
    """A word may be a path, or hold one behind an equals sign or a one-letter option."""
    for part in (word, *word.split("="), word[2:] if word.startswith("-") else ""):
        if PurePosixPath(part).is_absolute() or ".." in PurePosixPath(part).parts:
            raise _refused(path, f"its command names a path outside of it: {word!r}")


def _extract(path: str, archive: zipfile.ZipFile, folder: Path) -> None:
    entries = [entry for entry in archive.infolist() if entry.filename not in (INDEX, REPORT)]
    if len(entries) > MAX_FILES or sum(entry.file_size for entry in entries) > MAX_BYTES:
        raise _refused(path, f"it holds more than {MAX_FILES} files or {MAX_BYTES} bytes")
    (folder / "out").mkdir()
    for entry in entries:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refused(path, "it is compressed in an unexpected way")
        if not _FILE.fullmatch(entry.filename):
            raise _refused(path, f"it holds a file of an unexpected name, {entry.filename[:80]!r}")
        target = folder / entry.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(entry) as packed, target.open("xb") as file:
            left = entry.file_size  # of a header that lies no more is written than it says
            while left and (chunk := packed.read(min(left, 1 << 20))):
                file.write(chunk)
                left -= len(chunk)


def _refused(path: str, why: str) -> InputError:
    return InputError(Problem("TW0050", f"not a bundle that can be replayed: {why}", Place(path)))


def refuse_code(path: str, recorded: Recorded) -> None:
    if recorded.is_code:
        text = f"{path} brings Python code along, which replaying runs"
        raise UsageError(Problem("TW0051", text, hint="--trust runs it: only for bundles of people you trust"))


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """In ``folder``, with a cache of kernels that is empty: what is cached here must not hide the failure."""
    before, cache = Path.cwd(), os.environ.get("TILEWRIGHT_CACHE")
    os.chdir(folder)
    os.environ["TILEWRIGHT_CACHE"] = str(folder / "cache")
    try:
        yield
    finally:
        os.chdir(before)
        if cache is None:
            del os.environ["TILEWRIGHT_CACHE"]
        else:
            os.environ["TILEWRIGHT_CACHE"] = cache
