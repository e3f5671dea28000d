"""Element types and the memories that hold them: their names, codes and sizes, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    name: str
    itemsize: int
    numpy: np.dtype
    is_float: bool

    @property
    def fractal_k(self) -> int:
        """Elements of one 32-byte fractal row: the cube's k0."""
        return 32 // self.itemsize


def _dtype(name: str, scalar: type, is_float: bool) -> DType:
    as_numpy = np.dtype(scalar)
    return DType(name, as_numpy.itemsize, as_numpy, is_float)


# bool is stored as one byte, zero or one; int64 exists for scalars and index moves only.
DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        _dtype("fp16", np.float16, True),
        _dtype("bf16", ml_dtypes.bfloat16, True),
        _dtype("fp32", np.float32, True),
        _dtype("int8", np.int8, False),
        _dtype("uint8", np.uint8, False),
        _dtype("int16", np.int16, False),
        _dtype("int32", np.int32, False),
        _dtype("bool", np.uint8, False),
        _dtype("int64", np.int64, False),
    )
}
FLOATS = ("fp16", "bf16", "fp32")
INTS = ("int8", "uint8", "int16", "int32")
NUMBERS = FLOATS + INTS
CUBE_TYPES = (*FLOATS, "int8")


class Queue(IntEnum):
    """The in-order queues of a core, in encoding order."""

    S = 0
    V = 1
    M = 2
    MTE1 = 3
    MTE2 = 4
    MTE3 = 5
    FIX = 6


# An instruction of these queues starts only after the one before it has written its result; in the others
# the next one may start while the last is still in flight, and `pipe_barrier` orders them.
INTERLOCKED = frozenset({Queue.S, Queue.V, Queue.M})

MEMORIES = ("ddr", "llb", "l1", "l0a", "l0b", "l0c", "ub", "bt", "fb")
SHARED_MEMORIES = frozenset({"ddr", "llb"})
# Start addresses of an operand must be multiples of these.
ALIGNMENT_BYTES = {"ddr": 1, "llb": 1, "l1": 32, "l0a": 512, "l0b": 512, "l0c": 1024, "ub": 1, "bt": 64, "fb": 64}
