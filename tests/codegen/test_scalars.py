"""Scalar statements against Python's and numpy's own arithmetic."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

from compiler.codegen import generate
from compiler.errors import UnsupportedError
from compiler.target import load_chip
from tests.codegen.kernels import linked, run

COUNT = 24
TINY = load_chip("tiny")


def _truncated(a: int, b: int) -> int:
    return 0 if b == 0 else int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


BINARY: list[tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = [
    (lambda a, b: a + b, lambda a, b: a + b),
    (lambda a, b: a - b, lambda a, b: a - b),
    (lambda a, b: a * b, lambda a, b: a * b),
    (tirx.floordiv, lambda a, b: a // b if b else 0),
    (tirx.floormod, lambda a, b: a % b if b else 0),
    (tirx.truncdiv, _truncated),
    (tirx.truncmod, lambda a, b: a - _truncated(a, b) * b if b else 0),
    (tirx.min, min),
    (tirx.max, max),
    (lambda a, b: a & b, lambda a, b: a & b),
    (lambda a, b: a | b, lambda a, b: a | b),
    (lambda a, b: a ^ b, lambda a, b: a ^ b),
    (lambda a, b: a >> (b & 31), lambda a, b: a >> (b & 31)),
    (lambda a, b: tirx.Cast("int32", a < b), lambda a, b: int(a < b)),
    (lambda a, b: tirx.Cast("int32", a >= b), lambda a, b: int(a >= b)),
    (lambda a, b: tirx.Select(tirx.all(a > b, b > 3), a, b), lambda a, b: a if a > b and b > 3 else b),
    (lambda a, b: tirx.if_then_else(tirx.any(a > b, b > 3), a, b), lambda a, b: a if a > b or b > 3 else b),
    (lambda a, b: tirx.if_then_else(tirx.Not(tirx.EQ(a, b)), a, b), lambda a, b: a if a != b else b),
]


def _wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


class _Expressions:
    """Random expressions over two loaded values and a loop's counter, with what they must give."""

    def __init__(self, seed: int, leaves: list[tuple[Any, Callable[[int, int, int], int]]]) -> None:
        self.random, self.leaves = random.Random(seed), leaves

    def make(self, depth: int) -> tuple[Any, Callable[[int, int, int], int]]:
        if depth == 0 or self.random.random() < 0.15:
            if self.random.random() < 0.3:
                constant = self.random.choice([0, 1, -1, 3, 7, 64, -5, 2**31 - 1, -(2**31)])
                return tirx.IntImm("int32", constant), lambda i, x, y: constant
            return self.random.choice(self.leaves)
        made, meant = self.random.choice(BINARY)
        (a, mean_a), (b, mean_b) = self.make(depth - 1), self.make(depth - 1)
        if isinstance(b, tirx.IntImm) and b.value == 0:
            made, meant = BINARY[0]  # TIR refuses to divide by a constant zero
        return made(a, b), lambda i, x, y: _wrapped(meant(mean_a(i, x, y), mean_b(i, x, y)))


@pytest.mark.parametrize("seed", range(12))
def test_integer_arithmetic_wraps_as_int32_does(seed: int) -> None:
    x, y, out = (tirx.decl_buffer((COUNT,), "int32", name) for name in ("x", "y", "out"))
    i = tirx.Var("i", "int32")
    leaves = [
        (i, lambda i, x, y: i),
        (tirx.BufferLoad(x, [i]), lambda i, x, y: x),
        (tirx.BufferLoad(y, [i]), lambda i, x, y: y),
    ]
    expression, meaning = _Expressions(seed, leaves).make(4)
    body = tirx.For(i, 0, COUNT, tirx.ForKind.SERIAL, tirx.BufferStore(out, expression, [i]))
    func = tirx.PrimFunc([x, y, out], body)
    data = np.random.default_rng(seed)
    inputs = {
        name: data.choice([-(2**31), -9, -1, 0, 1, 2, 5, 2**31 - 1, 12345], COUNT).astype(np.int32) for name in "xy"
    }
    result = run(linked([(func, ("x", "y", "out"))], TINY, {"x": "input", "y": "input", "out": "output"}), TINY, inputs)
    expected = [
        _wrapped(meaning(n, int(a), int(b))) for n, (a, b) in enumerate(zip(inputs["x"], inputs["y"], strict=True))
    ]
    np.testing.assert_array_equal(result.outputs["out"], np.array(expected, np.int32))


def test_floats() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(x: T.Buffer((8,), "float32"), h: T.Buffer((8,), "float16"), out: T.Buffer((8,), "float32")) -> None:
        for i in range(8):
            out[i] = T.if_then_else(
                x[i] > T.float32(0.0),
                T.sqrt(x[i]) / T.float32(3.0),
                T.max(T.abs(x[i]), T.Cast("float32", h[i])) - T.Cast("float32", T.Cast("int32", x[i])),
            )

    x = np.array([-3.7, 2.5, 0.0, -0.2, 9.0, -100.9, 1e-3, 7.0], np.float32)
    h = np.array([4.5, 0, 1, -1, 2, 3, 1, 65504], np.float16)
    roles = {"x": "input", "h": "input", "out": "output"}
    result = run(linked([(func, ("x", "h", "out"))], TINY, roles), TINY, {"x": x, "h": h})
    with np.errstate(invalid="ignore"):
        root = np.sqrt(x) / np.float32(3)
    expected = np.where(x > 0, root, np.maximum(np.abs(x), h.astype(np.float32)) - np.trunc(x))
    np.testing.assert_array_equal(result.outputs["out"], expected)


def test_narrow_types_are_read_and_written_as_they_are() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(
        a: T.Buffer((6,), "uint8"), b: T.Buffer((6,), "int8"), out: T.Buffer((6,), "uint8"), m: T.Buffer((6,), "bool")
    ) -> None:
        for i in range(6):
            out[i] = T.truncdiv(a[i] + T.Cast("uint8", 200), T.Cast("uint8", 3))
            m[i] = b[i] < T.int8(0)

    a, b = np.array([0, 1, 55, 56, 57, 255], np.uint8), np.array([-128, -1, 0, 1, 127, -3], np.int8)
    roles = {"a": "input", "b": "input", "out": "output", "m": "output"}
    result = run(linked([(func, ("a", "b", "out", "m"))], TINY, roles), TINY, {"a": a, "b": b})
    np.testing.assert_array_equal(result.outputs["out"], (a + np.uint8(200)) // 3)
    np.testing.assert_array_equal(result.outputs["m"], (b < 0).astype(np.uint8))


def test_a_load_under_a_false_condition_does_not_happen() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(x: T.Buffer((4,), "int32"), out: T.Buffer((6,), "int32")) -> None:
        for i in range(6):
            out[i] = T.if_then_else(1 <= i and i < 5, x[i - 1], -7)

    x = np.array([3, 1, 4, 1], np.int32)
    result = run(linked([(func, ("x", "out"))], TINY, {"x": "input", "out": "output"}), TINY, {"x": x})
    np.testing.assert_array_equal(result.outputs["out"], [-7, 3, 1, 4, 1, -7])


def test_what_the_scalar_unit_lacks_is_refused() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(x: T.Buffer((4,), "float32")) -> None:
        x[0] = T.exp(x[1])

    with pytest.raises(UnsupportedError, match=r"TW2602.*exp"):
        generate(func, TINY)
