"""Constants in a manifest: where in the weights each lies, and which buffer it is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from compiler.artifact.segments import MAX_ADDRESS, shape
from compiler.artifact.typed import SchemaFault, choice, integer, record, text
from compiler.isa.dtypes import DTYPES

MAX_CONSTANTS = 1 << 16
CONSTANT_ALIGNMENT = 64
_ISA_NAMES = {d.numpy: d.name for d in reversed(DTYPES.values())} | {np.dtype(np.bool_): "bool"}


@dataclass(frozen=True)
class Constant:
    """What a buffer holds unless the caller says otherwise: bytes ``offset`` from the start of the weights.

    It is stored once, however many segments read it.
    """

    name: str
    offset: int
    size_bytes: int
    dtype: str
    shape: tuple[int, ...]


def lay_out(arrays: Mapping[str, np.ndarray], dtypes: Mapping[str, str]) -> tuple[tuple[Constant, ...], bytes]:
    """The constants in their order, and the weights that hold them. ``dtypes`` by buffer say what bytes mean."""
    placed: list[Constant] = []
    chunks: list[bytes] = []
    end = 0
    for name, array in arrays.items():
        offset = _aligned(end)
        chunks += [bytes(offset - end), array.tobytes()]
        end = offset + array.nbytes
        dtype = dtypes.get(name) or _ISA_NAMES.get(array.dtype, str(array.dtype))
        placed.append(Constant(name, offset, array.nbytes, dtype, array.shape))
    return tuple(placed), b"".join(chunks)


def build(constant: Constant) -> dict[str, Any]:
    return {
        "name": constant.name,
        "offset": constant.offset,
        "size_bytes": constant.size_bytes,
        "dtype": constant.dtype,
        "shape": list(constant.shape),
    }


def read(value: object, where: str) -> Constant:
    table = record(value, where, ("name", "offset", "size_bytes", "dtype", "shape"))
    constant = Constant(
        text(table["name"], f"{where}.name"),
        integer(table["offset"], f"{where}.offset", 0, MAX_ADDRESS),
        integer(table["size_bytes"], f"{where}.size_bytes", 1, MAX_ADDRESS),
        choice(table["dtype"], f"{where}.dtype", DTYPES),
        shape(table["shape"], f"{where}.shape"),
    )
    wanted = prod(constant.shape) * DTYPES[constant.dtype].itemsize
    if constant.size_bytes != wanted:
        raise SchemaFault(f"{where}.size_bytes is {constant.size_bytes}; allowed: {wanted}, as its shape needs")
    return constant


def check_layout(constants: Iterable[Constant], weights_bytes: int) -> None:
    """In order, without holes, covering the whole section."""
    end = 0
    for index, constant in enumerate(constants):
        expected = _aligned(end)
        if constant.offset != expected:
            raise SchemaFault(f"constants[{index}].offset is {constant.offset}; allowed: {expected}, where it follows")
        end = constant.offset + constant.size_bytes
    if end != weights_bytes:
        raise SchemaFault(f"constants end at byte {end} of the weights, which have {weights_bytes} bytes")


def _aligned(offset: int) -> int:
    return -(-offset // CONSTANT_ALIGNMENT) * CONSTANT_ALIGNMENT
