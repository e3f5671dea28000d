"""The one way from a model to the files beside it.

A path in a model is text from a stranger. It is walked from the model's own folder, one component at a time, each step
relative to the folder already open and never through a link; what is opened is checked on the descriptor and read from
that same descriptor, so that no exchange of files in between changes what is read.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from compiler.errors import InputError, Place, Problem
from compiler.frontend.naming import quoted

_KEYS = ("location", "offset", "length", "checksum")
_MAX_COMPONENTS = 32
_MAX_DIGITS = 19
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Without O_NONBLOCK, opening a pipe waits for a writer for ever.
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True)
class Location:
    """Where a tensor's bytes are said to be."""

    path: str
    offset: int
    length: int | None

    @staticmethod
    def parse(entries: list[tuple[str, str]]) -> Location:
        """Raises ValueError, with what is wrong, unless ``entries`` say it in full and in order."""
        values: dict[str, str] = {}
        for key, value in entries:
            if key not in _KEYS:
                raise ValueError(f"unknown key {quoted(key)}; known: {', '.join(_KEYS)}")
            if key in values:
                raise ValueError(f"key {key!r} is given twice")
            values[key] = value
        if not values.get("location"):
            raise ValueError("there is no location")
        length = _count("length", values["length"]) if "length" in values else None
        return Location(_relative(values["location"]), _count("offset", values.get("offset", "0")), length)


class ExternalFiles:
    """The folder of a model, held open while its tensors are read; a context manager."""

    def __init__(self, folder: str, limit_bytes: int) -> None:
        self._shown = folder
        self._limit_bytes = limit_bytes
        self._stack = ExitStack()
        self._root: int | None = None
        self._open: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> ExternalFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._root = None
        self._open.clear()

    def read(self, location: Location, size_bytes: int) -> np.ndarray:
        """``size_bytes`` bytes of a tensor; InputError when the file is refused or does not hold them."""
        if location.length is not None and location.length != size_bytes:
            raise self._refused("TW2014", location, f"length is {location.length}, the tensor has {size_bytes} bytes")
        descriptor, file_bytes = self._opened(location)
        if location.offset > file_bytes or size_bytes > file_bytes - location.offset:
            text = f"bytes {location.offset} to {location.offset + size_bytes} are past its end at {file_bytes}"
            raise self._refused("TW2014", location, text)
        data = np.empty(size_bytes, np.uint8)
        view, at = memoryview(data.data), 0
        while at < size_bytes:
            got = os.preadv(descriptor, [view[at:]], location.offset + at)
            if got == 0:
                raise self._refused("TW2014", location, "it became shorter while it was read")
            at += got
        return data

    def _opened(self, location: Location) -> tuple[int, int]:
        if location.path not in self._open:
            try:
                self._open[location.path] = self._walk(location)
            except FileNotFoundError as error:
                raise self._refused("TW2012", location, "there is no such file") from error
            except NotADirectoryError as error:
                raise self._refused("TW2013", location, "a folder on the way is a link, or is no folder") from error
            except OSError as error:
                reason = error.strerror or type(error).__name__
                if error.errno == errno.ELOOP:  # what O_NOFOLLOW answers to a link
                    reason = "links are not followed"
                raise self._refused("TW2013", location, reason) from error
        return self._open[location.path]

    def _walk(self, location: Location) -> tuple[int, int]:
        if self._root is None:
            # The caller named this folder, so a link on the way to it is the caller's own.
            self._root = self._closing(os.open(self._shown or ".", _DIRECTORY & ~getattr(os, "O_NOFOLLOW", 0)))
        folder = self._root
        *folders, name = location.path.split("/")
        for component in folders:
            folder = self._closing(os.open(component, _DIRECTORY, dir_fd=folder))
        descriptor = self._closing(os.open(name, _FILE, dir_fd=folder))
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise self._refused("TW2013", location, "it is not a regular file")
        if status.st_nlink != 1:
            raise self._refused("TW2013", location, "the file has more than one name (hard links)")
        if status.st_size > self._limit_bytes:
            raise self._refused("TW2013", location, f"it has {status.st_size} bytes, limit {self._limit_bytes}")
        return descriptor, status.st_size

    def _closing(self, descriptor: int) -> int:
        self._stack.callback(os.close, descriptor)
        return descriptor

    def _refused(self, code: str, location: Location, text: str) -> InputError:
        hint = "copy the data, not a link to it, into the folder of the model" if code == "TW2013" else ""
        shown = f"external data {quoted(location.path)}: {text}"
        return InputError(Problem(code, shown, Place(self._shown), hint))


def _relative(text: str) -> str:
    """A path below the model's folder, normalised; ValueError for any that could lead elsewhere."""
    if "\0" in text or "\\" in text:
        raise ValueError(f"location {quoted(text)} is not a portable path")
    if text.startswith("/") or (len(text) > 1 and text[1] == ":"):
        raise ValueError(f"location {quoted(text)} is absolute; it must be below the folder of the model")
    components = [component for component in text.split("/") if component not in ("", ".")]
    if ".." in components:
        raise ValueError(f"location {quoted(text)} leaves the folder of the model")
    if not components or len(components) > _MAX_COMPONENTS:
        raise ValueError(f"location {quoted(text)} names no file")
    return "/".join(components)


def _count(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS:
        raise ValueError(f"{key} must be a non-negative number of bytes, not {quoted(text)}")
    return int(text)
