"""Files from anyone are read with limits; files for anyone appear whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from compiler.errors import InputError, Place, Problem


@contextmanager
def open_regular(path: str | os.PathLike[str], what: str) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file opened for reading, and its size; InputError for anything else."""
    shown = Place(os.fspath(path))
    # Without O_NONBLOCK, opening a pipe waits for a writer for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(Problem("TW1503", f"{what} must be a regular file", shown))
            yield file, status.st_size
    except IsADirectoryError as error:
        raise InputError(Problem("TW1503", f"{what} must be a regular file, not a directory", shown)) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(Problem("TW1502", f"cannot read {what}: {reason}", shown)) from error
    except ValueError as error:  # a NUL in the path
        raise InputError(Problem("TW1502", f"cannot read {what}: the path is not a file name", shown)) from error


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[BinaryIO], None], what: str, *, is_durable: bool = True
) -> None:
    """Write beside ``path`` and move into place, so that nobody ever sees half a file, whatever goes wrong.

    Where a link leads to a file, that one is written; what is no file, such as a pipe, is written to as it is. What is
    not durable may be lost or half there after the machine has lost power: nobody waits for the disk.
    """
    target = Path(path)
    temporary: Path | None = None
    try:
        if target.is_symlink() and (target.is_file() or not target.exists()):
            target = Path(os.path.realpath(target))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                write(file)
            return
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".tmp", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
        temporary = None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(Problem("TW1505", f"cannot write {what}: {reason}", Place(str(target)))) from error
    except ValueError as error:  # a NUL in the path
        raise InputError(Problem("TW1505", f"cannot write {what}: the path is not a file name")) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def refuse_unwritable(path: str, what: str) -> None:
    """Raise where a file is sure not to be written, as far as its folder tells."""
    folder = os.path.dirname(path) or "."  # noqa: PTH120 - what is no path is told of when it is written
    if not os.path.isdir(folder):  # noqa: PTH112
        reason = os.strerror(errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT)  # noqa: PTH110
    elif os.access(folder, os.W_OK | os.X_OK):
        return
    else:
        reason = os.strerror(errno.EACCES)
    raise InputError(Problem("TW1505", f"cannot write {what}: {reason}", Place(path)))


def write_text(path: str | os.PathLike[str], text: str, what: str) -> None:
    """A file of UTF-8, as :func:`write_atomically` writes it."""

    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    write_atomically(path, write, what)


def _umask() -> int:
    """The process's mask: it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
