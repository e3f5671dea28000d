"""Arrays from and to .npy files. A file may come from anyone: its header is judged before the rest is read."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from io import BytesIO
from math import prod
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np

from compiler.artifact.files import open_regular, write_atomically
from compiler.errors import InputError, InvalidError, Place, Problem
from compiler.isa.dtypes import DTYPES
from compiler.isa.program import Buffer

MAX_HEADER_BYTES = 4096
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True)
class Expected:
    """What an array in a file has to be: ``type_name`` is how its type is called where it is wanted."""

    name: str
    type_name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def read(path: str | os.PathLike[str], buffer: Buffer) -> np.ndarray:
    """The array in a file, if it is exactly what the buffer holds."""
    return read_expected(path, Expected(buffer.name, buffer.dtype, DTYPES[buffer.dtype].numpy, buffer.shape))


def read_expected(path: str | os.PathLike[str], expected: Expected) -> np.ndarray:
    """The array in a file, if it is exactly what is expected."""
    place = Place(os.fspath(path))
    with open_regular(path, "an array") as (file, size):
        head = file.read(MAX_HEADER_BYTES)
        shape, fortran_order, dtype, offset = _header(head, place)
        as_stored = _stored_type(dtype, expected, place)
        if shape != expected.shape:
            text = f"input {expected.name} has shape {list(expected.shape)}; the array has {_listed(shape)}"
            raise InvalidError(Problem("TW1553", text, place))
        promised = offset + prod(shape) * as_stored.itemsize
        if size != promised:
            raise InputError(Problem("TW1554", f"the file has {size} bytes; its header promises {promised}", place))
        content = head[offset:] + file.read(promised - len(head) + 1 if promised > len(head) else 0)
    if len(content) != promised - offset:
        raise InputError(Problem("TW1554", "the file changed while it was read", place))
    array = np.frombuffer(content, as_stored)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _header(head: bytes, place: Place) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """(shape, whether columns come first, type, bytes before the data)."""
    stream = BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        if version not in _READERS:
            raise ValueError(f"format version {version[0]}.{version[1]} is not one of 1.0 and 2.0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's remarks about headers that Python 2 wrote
            shape, fortran_order, dtype = _READERS[version](stream, max_header_size=MAX_HEADER_BYTES)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, TokenError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InputError(Problem("TW1551", f"not an array in .npy format: {reason}", place)) from error
    return shape, fortran_order, dtype, stream.tell()


def _stored_type(dtype: np.dtype, expected: Expected, place: Place) -> np.dtype:
    """The expected type, if the file's can be taken for it: .npy files cannot name bf16, and know bool by itself."""
    is_bf16 = expected.dtype == DTYPES["bf16"].numpy
    raw = is_bf16 and dtype in (np.dtype("V2"), np.dtype("<u2"))
    if dtype == expected.dtype or raw or (expected.type_name == "bool" and dtype.kind in "bu" and dtype.itemsize == 1):
        return expected.dtype
    text = f"input {expected.name} has type {expected.type_name}; the array has {str(dtype)[:60]}"
    hint = f"{expected.type_name} is stored as uint16, the bits of each element" if is_bf16 else ""
    raise InvalidError(Problem("TW1552", text, place, hint))


def _listed(shape: tuple[int, ...]) -> str:
    return str(list(shape[:8]))[:-1] + (", ...]" if len(shape) > 8 else "]")


def write(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write an output; bf16 as the bits of its elements."""
    plain = array.view(np.uint16) if array.dtype == DTYPES["bf16"].numpy else array

    def save(file: BinaryIO) -> None:
        np.lib.format.write_array(file, np.ascontiguousarray(plain).reshape(plain.shape), (1, 0), allow_pickle=False)

    write_atomically(path, save, "the array")
