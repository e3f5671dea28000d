"""The scalar unit's arithmetic: 64-bit integers, wrapping, and fp32 kept as its bits in the low half of a register.

The functions are plain Python on integers (or fp32 for the float kinds); the simulator compiles the very same
functions. Every row takes three sources; those an instruction lacks are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import Queue
from compiler.isa.model import Dest, Float, Int, Operand, Row

INT64_MAX = 2**63 - 1


def _row(
    opcode: int, mnemonic: str, kind: str, operands: tuple[Operand, ...], function: Callable[..., Any], doc: str
) -> Row:
    return Row(opcode, mnemonic, Queue.S, doc, (Dest("d"), *operands), kind=kind, semantics=function)


def _int1(opcode: int, mnemonic: str, function: Callable[..., Any], doc: str) -> Row:
    return _row(opcode, mnemonic, "alu", (Int("a"),), function, doc)


def _int2(opcode: int, mnemonic: str, function: Callable[..., Any], doc: str) -> Row:
    return _row(opcode, mnemonic, "alu", (Int("a"), Int("b")), function, doc)


def _int3(opcode: int, mnemonic: str, function: Callable[..., Any], doc: str) -> Row:
    return _row(opcode, mnemonic, "alu", (Int("a"), Int("b"), Int("c")), function, doc)


def _float1(opcode: int, mnemonic: str, function: Callable[..., Any], doc: str) -> Row:
    return _row(opcode, mnemonic, "falu", (Float("a"),), function, doc)


def _float2(opcode: int, mnemonic: str, function: Callable[..., Any], doc: str) -> Row:
    return _row(opcode, mnemonic, "falu", (Float("a"), Float("b")), function, doc)


def _float_compare(opcode: int, mnemonic: str, function: Callable[..., Any], doc: str) -> Row:
    return _row(opcode, mnemonic, "fcmp", (Float("a"), Float("b")), function, doc)


# Division is defined everywhere: by zero gives zero, and so does the remainder. The lowest
# integer has no negative in 64 bits: -a may be the result, which wraps, but nothing may be worked out from it.
def _divide(a: int, b: int, c: int) -> int:
    return 0 if b == 0 else (-a if b == -1 else a // b)


def _remainder(a: int, b: int, c: int) -> int:
    return 0 if b == 0 or b == -1 else a % b


def _ceil_divide(a: int, b: int, c: int) -> int:
    return 0 if b == 0 else (-a if b == -1 else a // b + (1 if a % b != 0 else 0))


def _round_up(a: int, b: int, c: int) -> int:
    return a if b == 0 or b == -1 else (a // b + (1 if a % b != 0 else 0)) * b


def _logical_right(a: int, b: int, c: int) -> int:
    shift = b & 63
    return a if shift == 0 else (a >> shift) & (INT64_MAX >> (shift - 1))


# Both sides of a sum or product may be swapped by a compiler: of two NaN, the first one is the result.
def _add(a: Any, b: Any, c: Any) -> Any:
    return a + b if a == a else a + a


def _multiply(a: Any, b: Any, c: Any) -> Any:
    return a * b if a == a else a * a


def _to_int(a: Any, b: Any, c: Any) -> int:
    if not a == a:
        return 0
    if a >= 2.0**63:
        return INT64_MAX
    if a <= -(2.0**63):
        return -INT64_MAX - 1
    return int(a)


def _to_float(a: Any, b: Any, c: Any) -> Any:
    return np.float32(np.int64(a))  # from a Python integer numpy would round twice


ROWS = [
    _int1(0, "smov", lambda a, b, c: a, "d = a; an immediate, a register, or a register plus an offset"),
    _int2(1, "sadd", lambda a, b, c: a + b, "d = a + b"),
    _int2(2, "ssub", lambda a, b, c: a - b, "d = a - b"),
    _int2(3, "smul", lambda a, b, c: a * b, "d = a * b"),
    _int3(4, "smadd", lambda a, b, c: a * b + c, "d = a * b + c: one step of an affine address"),
    _int3(5, "smsub", lambda a, b, c: c - a * b, "d = c - a * b"),
    _int2(6, "sdiv", _divide, "d = floor(a / b); zero where b is zero"),
    _int2(7, "srem", _remainder, "d = a - floor(a / b) * b; zero where b is zero"),
    _int2(8, "sceil", _ceil_divide, "d = ceil(a / b); zero where b is zero"),
    _int2(9, "salign", _round_up, "d = a rounded up to a multiple of b"),
    _int2(10, "smin", lambda a, b, c: a if a < b else b, "d = min(a, b)"),
    _int2(11, "smax", lambda a, b, c: a if a > b else b, "d = max(a, b)"),
    _int1(12, "sneg", lambda a, b, c: -a, "d = -a"),
    _int1(13, "sabs", lambda a, b, c: -a if a < 0 else a, "d = |a|"),
    _int2(14, "sand", lambda a, b, c: a & b, "d = a and b, bit by bit"),
    _int2(15, "sor", lambda a, b, c: a | b, "d = a or b, bit by bit"),
    _int2(16, "sxor", lambda a, b, c: a ^ b, "d = a xor b, bit by bit"),
    _int1(17, "snot", lambda a, b, c: ~a, "d = not a, bit by bit"),
    _int2(18, "sshl", lambda a, b, c: a << (b & 63), "d = a shifted left by b mod 64"),
    _int2(19, "sshr", _logical_right, "d = a shifted right by b mod 64, zeros coming in"),
    _int2(20, "ssar", lambda a, b, c: a >> (b & 63), "d = a shifted right by b mod 64, the sign coming in"),
    _int2(21, "seq", lambda a, b, c: 1 if a == b else 0, "d = 1 where a equals b, else 0"),
    _int2(22, "sne", lambda a, b, c: 1 if a != b else 0, "d = 1 where a differs from b, else 0"),
    _int2(23, "slt", lambda a, b, c: 1 if a < b else 0, "d = 1 where a < b, else 0"),
    _int2(24, "sle", lambda a, b, c: 1 if a <= b else 0, "d = 1 where a <= b, else 0"),
    _int3(25, "ssel", lambda a, b, c: b if a != 0 else c, "d = b where a is not zero, else c"),
    _int3(26, "sclamp", lambda a, b, c: b if a < b else (c if a > c else a), "d = a limited to b..c"),
    _float1(64, "fmov", lambda a, b, c: a, "d = a, an fp32"),
    _float2(65, "fadd", _add, "d = a + b in fp32"),
    _float2(66, "fsub", lambda a, b, c: a - b, "d = a - b in fp32"),
    _float2(67, "fmul", _multiply, "d = a * b in fp32"),
    _float2(68, "fdiv", lambda a, b, c: a / b, "d = a / b in fp32"),
    _float2(69, "fmin", lambda a, b, c: a if a < b else b, "d = a where a < b, else b"),
    _float2(70, "fmax", lambda a, b, c: a if a > b else b, "d = a where a > b, else b"),
    _float1(71, "fneg", lambda a, b, c: -a, "d = -a in fp32"),
    _float1(72, "fabs", lambda a, b, c: np.abs(a), "d = |a| in fp32"),
    _float1(73, "fsqrt", lambda a, b, c: np.sqrt(a), "d = square root of a in fp32"),
    _float_compare(74, "feq", lambda a, b, c: 1 if a == b else 0, "d = 1 where a equals b, else 0"),
    _float_compare(75, "flt", lambda a, b, c: 1 if a < b else 0, "d = 1 where a < b, else 0"),
    _float_compare(76, "fle", lambda a, b, c: 1 if a <= b else 0, "d = 1 where a <= b, else 0"),
    _row(77, "ftoi", "fcmp", (Float("a"),), _to_int, "d = a cut to an integer; saturates, NaN gives zero"),
    _row(78, "itof", "itof", (Int("a"),), _to_float, "d = a as fp32, to nearest even"),
]
