"""The loops of :mod:`compiler.isa.convert`: integer and fp32 arithmetic on bit patterns, in forms that vectorise."""

from __future__ import annotations

import numpy as np

from compiler.isa.jit import kernel

_SIGN = np.uint32(0x8000)
_HALF_EXPONENT = np.uint32(0x7C00)
_FLOAT_INFINITY = np.uint32(0x7F800000)
_REBIAS = np.float32(2.0**112)  # an fp16 significand and exponent, moved into fp32's place, is too small by this
_SMALLEST_NORMAL = np.uint32(0x38800000)  # 2^-14
_OVERFLOW = np.uint32(0x477FF000)  # 65520, the first value that rounds to infinity
_ROUND_TO_INTEGER = np.float32(2.0**23)


@kernel
def widen(half, wide):  # type: ignore[no-untyped-def]
    """fp16 bits to fp32 bits. The multiplication is exact and makes subnormals normal."""
    for i in range(len(half)):
        wide[i] = (np.uint32(half[i]) & np.uint32(0x7FFF)) << np.uint32(13)
    value = wide.view(np.float32)
    for i in range(len(half)):
        value[i] = value[i] * _REBIAS
    for i in range(len(half)):
        bits = np.uint32(half[i])
        special = _FLOAT_INFINITY if bits & _HALF_EXPONENT == _HALF_EXPONENT else np.uint32(0)
        wide[i] |= special | (bits & _SIGN) << np.uint32(16)


@kernel
def narrow(wide, half):  # type: ignore[no-untyped-def]
    """fp32 bits to fp16 bits, to nearest even; NaN keeps the upper bits of its payload."""
    for i in range(len(wide)):
        magnitude = wide[i] & np.uint32(0x7FFFFFFF)
        odd = (magnitude >> np.uint32(13)) & np.uint32(1)
        result = (magnitude + np.uint32(0xC8000FFF) + odd) >> np.uint32(13)
        if magnitude >= _OVERFLOW:
            result = _HALF_EXPONENT
        if magnitude > _FLOAT_INFINITY:
            payload = (magnitude >> np.uint32(13)) & np.uint32(0x3FF)
            result = _HALF_EXPONENT | (payload if payload != 0 else np.uint32(1))
        half[i] = np.uint16((wide[i] >> np.uint32(16)) & _SIGN | result)
    value = wide.view(np.float32)
    for i in range(len(wide)):
        if wide[i] & np.uint32(0x7FFFFFFF) < _SMALLEST_NORMAL:
            # A subnormal is a multiple of 2^-24: adding 2^23 leaves the rounded multiple in the low bits.
            scaled = np.abs(value[i]) * np.float32(2.0**24) + _ROUND_TO_INTEGER
            multiple = np.uint32(scaled - _ROUND_TO_INTEGER)
            half[i] = np.uint16((wide[i] >> np.uint32(16)) & _SIGN | multiple)
