"""Random kernels in loop form: affine nests with guards, choices, reductions and buffers that are written twice."""

from __future__ import annotations

import random
from typing import Any

from tvm import ir, tirx

CORES = 3


def random_kernel(seed: int) -> Any:
    return _Kernel(random.Random(seed)).function()


class _Kernel:
    """``variables`` are (variable, least value, one past the greatest), from the outside in."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.dtype = source.choice(["int32", "float32"])
        self.row = tirx.decl_buffer((400,), self.dtype, "row")
        self.matrix = tirx.decl_buffer((20, 25), self.dtype, "matrix")
        self.out = tirx.decl_buffer((14, 15, 16), self.dtype, "out")
        self.sums = tirx.decl_buffer((14,), self.dtype, "sums")
        self.local = tirx.decl_buffer((16,), self.dtype, "local", scope="local.ub")
        self.loops = 0

    def function(self) -> Any:
        core, fill = tirx.Var("core", "int32"), tirx.Var("fill", "int32")
        variables = [(core, 0, CORES)]
        filled = tirx.BufferStore(self.local, tirx.BufferLoad(self.row, [fill + core]), [fill])
        parts = [
            tirx.AllocBuffer(self.local),
            tirx.For(fill, 0, 16, tirx.ForKind.SERIAL, filled),
            self._statement(variables, 0),
            self._statement(variables, 0),
        ]
        axis = tirx.IterVar(ir.Range(0, CORES), core, tirx.IterVar.ThreadIndex, "blockIdx.x")
        body = tirx.AttrStmt(axis, "thread_extent", tirx.const(CORES, "int32"), tirx.SeqStmt(parts))
        function = tirx.PrimFunc([self.row, self.matrix, self.out, self.sums], body)
        return function.with_attr("tirx.noalias", True)

    def _statement(self, variables: list[Any], depth: int) -> Any:
        draw = self.random.random()
        if depth < 2 or (depth < 5 and draw < 0.45):
            return self._loop(variables, depth)
        if depth < 6 and draw < 0.7:
            otherwise = self._statement(variables, depth + 1) if self.random.random() < 0.3 else None
            return tirx.IfThenElse(self._condition(variables), self._statement(variables, depth + 1), otherwise)
        if depth < 6 and draw < 0.85:
            return tirx.SeqStmt([self._statement(variables, depth + 1) for _ in range(self.random.choice([2, 2, 3]))])
        return self._store(variables)

    def _loop(self, variables: list[Any], depth: int) -> Any:
        self.loops += 1
        var = tirx.Var(f"v{self.loops}", "int32")
        start, trips = self.random.choice([0, 0, 0, 0, 1, 2]), self.random.choice([1, 2, 3, 5, 7, 11, 13, 14])
        extent = tirx.const(trips, "int32")
        if self.random.random() < 0.2:
            extent = tirx.min(extent, self.random.choice(variables)[0] * self.random.choice([1, 2]) + 1)
        body = self._statement([*variables, (var, start, start + trips)], depth + 1)
        step = self.random.choice([None, None, None, None, 2])
        return tirx.For(var, start, extent, tirx.ForKind.SERIAL, body, step=step)

    def _index(self, variables: list[Any], size: int) -> Any:
        fitting = [var for var, _, end in variables if end <= size]
        if fitting and self.random.random() < 0.7:
            return self.random.choice(fitting)
        first, second = self.random.choice(variables)[0], self.random.choice(variables)[0]
        place = first * self.random.choice([1, 2, 3]) + second * self.random.choice([0, 1]) + self.random.randrange(3)
        return tirx.floormod(place, size)

    def _condition(self, variables: list[Any], depth: int = 0) -> Any:
        draw = self.random.random()
        if depth < 2 and draw < 0.3:
            joined = tirx.And if draw < 0.2 else tirx.Or
            return joined(self._condition(variables, depth + 1), self._condition(variables, depth + 1))
        if depth < 2 and draw < 0.35:
            return tirx.Not(self._condition(variables, depth + 1))
        value: Any = tirx.const(self.random.randrange(-6, 7), "int32")
        for var, _, _ in self.random.sample(variables, min(len(variables), self.random.choice([1, 1, 2, 3]))):
            value = value + var * self.random.choice([-2, -1, 1, 1, 2, 3])
        if self.random.random() < 0.15:
            value = tirx.floordiv(value, self.random.choice([2, 3]))
        compare = self.random.choice([tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE, tirx.LT, tirx.GE])
        condition = compare(value, tirx.const(self.random.randrange(-3, 12), "int32"))
        return tirx.likely(condition) if self.random.random() < 0.1 else condition

    def _value(self, variables: list[Any], depth: int = 0) -> Any:
        draw = self.random.random()
        if depth < 2 and draw < 0.2:
            choose = tirx.if_then_else if draw < 0.15 else tirx.Select
            branches = [self._value(variables, depth + 1) for _ in range(2)]
            return choose(self._condition(variables, 1), *branches)
        if depth < 3 and draw < 0.35:
            return self._value(variables, depth + 1) + self._value(variables, depth + 1)
        if draw < 0.45:
            return tirx.const(self.random.randrange(3), self.dtype)
        if draw < 0.55:
            return self.random.choice(variables)[0].astype(self.dtype)
        if draw < 0.7:
            return tirx.BufferLoad(self.matrix, [self._index(variables, 20), self._index(variables, 25)])
        return tirx.BufferLoad(self.row, [self._index(variables, 400)])

    def _store(self, variables: list[Any]) -> Any:
        draw = self.random.random()
        buffer = self.out if draw < 0.55 else self.sums if draw < 0.9 else self.local
        place = [self._index(variables, int(size)) for size in buffer.shape]
        value = self._value(variables)
        if 0.4 < draw < 0.55:
            value = tirx.BufferLoad(buffer, place) + value
        elif 0.55 < draw < 0.8:
            # Integers add up to the same in any order; long sums of floats need not.
            combine = self.random.choice([tirx.Add, tirx.Max]) if self.dtype == "int32" else tirx.Max
            value = combine(tirx.BufferLoad(buffer, place), value)
        elif draw > 0.95:
            buffer, value = self.out, tirx.BufferLoad(self.local, place)
            place = [self._index(variables, int(size)) for size in buffer.shape]
        return tirx.BufferStore(buffer, value, place)
