"""From a file to a chip. A chip file may come from anyone: it is bounded, read once, and refused with every reason."""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from compiler.errors import Diagnostics, InputError, InvalidError, Place, Problem, UsageError
from compiler.target.check import faults
from compiler.target.chip import Chip

SHIPPED = Path(__file__).parent / "chips"
MAX_FILE_BYTES = 1 << 20
# tomllib's time grows with the square of the parts of a dotted key, and a key cannot span lines.
MAX_LINE_CHARS = 256
MAX_PROBLEMS = 300
_SHOWN_CHARS = 120


def chip_names() -> tuple[str, ...]:
    """The chips that ship with the project."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def load_chip(name_or_path: str | os.PathLike[str]) -> Chip:
    """A shipped chip by its name, or a chip file by its path (it has a separator or ends in ``.toml``)."""
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, os.PathLike) or text.endswith(".toml") or "/" in text or os.sep in text:
        return parse_chip(_read(text), file=_printable(text))
    if text not in chip_names():
        close = difflib.get_close_matches(text[:64], chip_names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        hint += f"chips: {', '.join(chip_names())}; or the path of a .toml file"
        raise UsageError(Problem("TW1106", f"no chip is called {_printable(text)!r}", hint=hint))
    return _shipped(text)


@lru_cache
def _shipped(name: str) -> Chip:
    return parse_chip(_read(str(SHIPPED / f"{name}.toml")), file=f"{name}.toml")


def parse_chip(content: str | bytes, file: str = "<chip>") -> Chip:
    """The chip that ``content`` describes; ``file`` is what errors call it."""
    text = content if isinstance(content, str) else _decode(content, file)
    lines = text.split("\n")
    tables = _parse(text, lines, file)
    places = _Places(file, lines)
    problems = Diagnostics(limit=MAX_PROBLEMS)
    for fault in faults(tables):
        problems.add(fault.code, fault.message, places.of(fault.near), fault.hint)
    problems.raise_if_any(InvalidError)
    return Chip.from_dict(tables)


def _read(path: str) -> bytes:
    shown = Place(_printable(path))
    # Without O_NONBLOCK, opening a pipe waits for a writer for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise InputError(Problem("TW1102", "a chip file must be a regular file", shown))
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(Problem("TW1102", "a chip file must be a regular file", shown))
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        hint = f"shipped chips, by name: {', '.join(chip_names())}"
        raise InputError(Problem("TW1101", f"cannot read the chip file: {reason}", shown, hint)) from error
    except ValueError as error:  # a NUL or a lone surrogate in the path
        raise InputError(Problem("TW1101", "cannot read the chip file: the path is not a file name", shown)) from error
    if len(content) > MAX_FILE_BYTES:
        raise InputError(Problem("TW1103", f"a chip file may have at most {MAX_FILE_BYTES} bytes", shown))
    return content


def _decode(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        message = f"the file is not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}"
        raise InvalidError(Problem("TW1104", message, Place(file, line, column))) from error


def _parse(text: str, lines: list[str], file: str) -> dict[str, Any]:
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE_CHARS:
            message = f"a line has {len(line)} characters; at most {MAX_LINE_CHARS} are allowed"
            raise InvalidError(Problem("TW1107", message, Place(file, number)))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, place = _syntax_error(str(error), lines, file)
        hint = "save the file without a byte-order mark" if text.startswith("\ufeff") else ""
        raise InvalidError(Problem("TW1105", message, place, hint)) from error
    except RecursionError as error:
        raise InvalidError(Problem("TW1105", "arrays or tables are nested too deeply", Place(file))) from error


def _syntax_error(text: str, lines: list[str], file: str) -> tuple[str, Place]:
    reason, where = text, None
    if match := re.fullmatch(r"(.*) \((?:at line (\d+), column (\d+)|at end of document)\)", text, re.DOTALL):
        reason = match[1]
        where = (int(match[2]), int(match[3])) if match[2] else (len(lines), len(lines[-1]) + 1)
    message = f"not valid TOML: {_printable(reason)}"
    return message, _place(file, lines, *where) if where else Place(file)


def _place(file: str, lines: list[str], line: int, column: int, width: int = 1) -> Place:
    source = "".join(char if char.isprintable() else " " for char in lines[line - 1])
    return Place(file, line, column, width, source if len(source) <= _SHOWN_CHARS else "")


def _printable(text: str) -> str:
    """Text from outside in a message: it may neither steer a terminal nor fill it."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return shown if len(shown) <= 2 * _SHOWN_CHARS else f"{shown[: 2 * _SHOWN_CHARS]}..."


_HEADER = re.compile(r"\s*\[{1,2}([^\]#]+)\]")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")


class _Places:
    """Where each key stands. tomllib does not tell, so lines are matched; at worst an error points at the table."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self.file, self.lines = file, lines
        self.found: dict[str, tuple[int, int, int]] = {}
        section = ""
        for number, line in enumerate(lines, 1):
            if match := _HEADER.match(line):
                section = _plain_name(match[1])
                name = section
            elif match := _KEY.match(line):
                name = f"{section}.{_plain_name(match[1])}" if section else _plain_name(match[1])
            else:
                continue
            self.found.setdefault(name, (number, match.start(1) + 1, len(match[1])))

    def of(self, name: str) -> Place:
        if name in self.found:
            return _place(self.file, self.lines, *self.found[name])
        parent, _, leaf = name.rpartition(".")
        if parent not in self.found:
            return self.of(parent) if parent else Place(self.file)
        number, column, width = self.found[parent]
        if match := re.search(rf"[{{,]\s*({re.escape(leaf)})\s*=", self.lines[number - 1]):  # an inline table
            column, width = match.start(1) + 1, len(leaf)
        return _place(self.file, self.lines, number, column, width)


def _plain_name(written: str) -> str:
    return ".".join(part.strip(" \t\"'") for part in written.split("."))
