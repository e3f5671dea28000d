"""Random kernels in instruction form over few buffers: loops, branches and extents that depend on data.

With ``local`` buffers, blocks have some of their own, which are loaded first and then used as the others are. In
``fixed`` ones nothing depends on data: one run is as all others. Some have loops in a row, which load, work on and
store buffers of their own.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from tvm import tirx

WORDS, SOURCE, CORES = 64, 256, 2
OUT_PER_CORE = 256
ARGUMENTS = ("source", "control", "out")
ROLES = {"source": "input", "control": "input", "out": "inout"}
_LENGTHS = (1, 4, 8, 8, 16)

Loops = list[tuple[Any, int]]  # variables and how often they turn at most


def inputs(seed: int) -> dict[str, np.ndarray]:
    data = np.random.default_rng(seed)
    return {
        "source": data.random(SOURCE, np.float32),
        "control": data.integers(0, 50, WORDS).astype(np.int32),
        "out": np.zeros(CORES * OUT_PER_CORE, np.float32),
    }


def random_kernel(seed: int, *, local: bool = False, fixed: bool = False, most: int = 8) -> Any:
    return _Maker(seed, local, fixed, most).kernel()


def loops_in_a_row(seed: int) -> Any:
    return _Maker(seed, local=True, fixed=True, most=4).kernel(in_a_row=True)


def _int(value: Any) -> Any:
    return tirx.IntImm("int32", value) if isinstance(value, int) else value


def call(name: str, *slots: Any) -> Any:
    return tirx.Evaluate(tirx.call_extern("void", f"tw.{name}", *map(_int, slots)))


def at(buffer: Any, index: Any) -> Any:
    return tirx.address_of(tirx.BufferLoad(buffer, [_int(index)]))


class _Maker:
    def __init__(self, seed: int, local: bool, fixed: bool, most: int) -> None:
        self.random, self.local, self.fixed, self.most = random.Random(seed), local, fixed, most
        self.source = tirx.decl_buffer((SOURCE,), "float32", "source")
        self.control = tirx.decl_buffer((WORDS,), "int32", "control")
        self.out = tirx.decl_buffer((CORES * OUT_PER_CORE,), "float32", "out")
        count = self.random.choice((2, 3, 4))
        self.tiles = [tirx.decl_buffer((WORDS,), "float32", f"ub{n}", scope="local.ub") for n in range(count)]
        self.words = tirx.decl_buffer((WORDS,), "int32", "words", scope="local.ub")
        self.near = tirx.decl_buffer((WORDS,), "float32", "near", scope="shared.l1")
        self.core = tirx.Var("bx", "int32")

    def kernel(self, *, in_a_row: bool = False) -> Any:
        """Fills all buffers, does something at random, and stores what came of it."""
        allocations = [tirx.AllocBuffer(buffer) for buffer in (*self.tiles, self.words, self.near)]
        fills = [self._load(tile, 0, self.random.randrange(128), WORDS) for tile in self.tiles]
        fills.append(call("ld.ddr.l1.fp32.1d", at(self.near, 0), 1, at(self.source, 0), 1, WORDS))
        fills.append(call("ld.ddr.ub.int32.1d", at(self.words, 0), 1, at(self.control, 0), 1, WORDS))
        middle = [self._statement([], 0) for _ in range(self.random.randint(2, self.most))] if not in_a_row else []
        middle += self._row([]) if in_a_row else []
        ends = [self._store(tile, 0, n * WORDS, WORDS) for n, tile in enumerate(self.tiles)]
        body = tirx.SeqStmt([*allocations, *fills, *middle, *ends])
        axis = tirx.IterVar((0, CORES), self.core, tirx.IterVar.ThreadIndex, "blockIdx.x")
        return tirx.PrimFunc(
            [self.source, self.control, self.out], tirx.AttrStmt(axis, "thread_extent", _int(CORES), body)
        )

    def _load(self, tile: Any, to: Any, start: Any, length: int) -> Any:
        return call("ld.ddr.ub.fp32.1d", at(tile, to), 1, at(self.source, start), 1, length)

    def _store(self, tile: Any, start: Any, to: Any, length: int) -> Any:
        target = at(self.out, self.core * OUT_PER_CORE + to)
        return call("st.ddr.fp32.1d", target, 1, at(tile, start), 1, length)

    def _index(self, loops: Loops, length: int, limit: int = WORDS) -> Any:
        """Where ``length`` elements are inside, whatever the loops' variables are."""
        room, index = limit - length, _int(0)
        for variable, trips in loops:
            step = self.random.choice((1, 2, 4, 8, 8, 16, length))
            if self.random.random() < 0.6 and trips > 1 and step * (trips - 1) <= room:
                room -= step * (trips - 1)
                index = index + variable * step
        return index + min(self.random.choice((0, 0, 8, 16, self.random.randint(0, room))), room)

    def _word(self, loops: Loops) -> Any:
        return tirx.BufferLoad(self.words, [self._index(loops, 1)])

    def _block(self, loops: Loops, depth: int) -> Any:
        outer = list(self.tiles)
        statements = self._locals(loops) if self.local else []
        statements += [self._statement(loops, depth) for _ in range(self.random.randint(1, 5))]
        self.tiles = outer
        return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)

    def _locals(self, loops: Loops) -> list[Any]:
        """Buffers of a block, more likely to be used than those around it, and what fills them."""
        buffers = [
            tirx.decl_buffer((WORDS,), "float32", f"local{self.random.getrandbits(32)}", scope="local.ub")
            for _ in range(self.random.choice((0, 1, 1, 2, 3)))
        ]
        fills = [self._load(tile, 0, self._index(loops, WORDS, SOURCE), WORDS) for tile in buffers]
        self.tiles += buffers * 2
        return [*map(tirx.AllocBuffer, buffers), *fills]

    def _statement(self, loops: Loops, depth: int) -> Any:
        kinds = [self._loads, self._vector, self._stores, self._through_l1, self._scalar, self._gathered, self._words]
        weights = [4, 4, 3, 2, 1, 1, 1]
        if self.fixed:
            kinds, weights = kinds[:-2], weights[:-2]
        if depth < 3:
            kinds, weights = [*kinds, self._loop, self._branch], [*weights, 4, 2]
        (kind,) = self.random.choices(kinds, weights)
        return kind(loops, depth)

    def _loads(self, loops: Loops, depth: int) -> Any:
        length = self.random.choice(_LENGTHS)
        start = self._index(loops, length, SOURCE)
        return self._load(self.random.choice(self.tiles), self._index(loops, length), start, length)

    def _vector(self, loops: Loops, depth: int) -> Any:
        length = self.random.choice(_LENGTHS)
        target = self.random.choice(self.tiles)
        other = self.random.choice([tile for tile in self.tiles if not tile.same_as(target)])
        to, start = self._index(loops, length), self._index(loops, length)
        if self.random.random() < 0.5:
            half = tirx.FloatImm("float32", 1.5)
            return call("vadds.fp32.1d", at(target, to), 1, at(other, start), 1, half, length)
        return call("vadd.fp32.1d", at(target, to), 1, at(target, to), 1, at(other, start), 1, length)

    def _stores(self, loops: Loops, depth: int) -> Any:
        length = self.random.choice(_LENGTHS)
        to = self._index(loops, length, OUT_PER_CORE)
        return self._store(self.random.choice(self.tiles), self._index(loops, length), to, length)

    def _through_l1(self, loops: Loops, depth: int) -> Any:
        tile = self.random.choice(self.tiles)
        if self.random.random() < 0.5:
            return call("st.l1.fp32.1d", at(self.near, 0), 1, at(tile, 0), 1, WORDS)
        return call("l1ub.fp32.1d", at(tile, self._index(loops, 8)), 1, at(self.near, 0), 1, 8)

    def _scalar(self, loops: Loops, depth: int) -> Any:
        a, b = (tirx.BufferLoad(self.random.choice(self.tiles), [self._index(loops, 1)]) for _ in range(2))
        return tirx.BufferStore(self.random.choice(self.tiles), a + b, [self._index(loops, 1)])

    def _gathered(self, loops: Loops, depth: int) -> Any:
        to = tirx.floormod(self._word(loops), WORDS - 8)
        return self._load(self.random.choice(self.tiles), to, 0, 8)

    def _words(self, loops: Loops, depth: int) -> Any:
        return call("ld.ddr.ub.int32.1d", at(self.words, 0), 1, at(self.control, 8), 1, 8)

    def _loop(self, loops: Loops, depth: int) -> Any:
        trips = self.random.randint(1, 4)
        variable = tirx.Var(f"i{self.random.getrandbits(32)}", "int32")
        extents = [_int(trips), _int(trips), tirx.Min(_int(trips), self.core + 1)]
        if not self.fixed:
            extents.append(tirx.Min(_int(trips), self._word(loops) - 9))
        extent = self.random.choice(extents)
        body = self._block([*loops, (variable, trips)], depth + 1)
        return tirx.For(variable, 0, extent, tirx.ForKind.SERIAL, body)

    def _row(self, loops: Loops) -> list[Any]:
        """Loops one after another, some statements between them; now and then, all of that in another loop."""
        found: list[Any] = []
        for _ in range(self.random.randint(2, 5)):
            variable, trips = tirx.Var(f"r{self.random.getrandbits(32)}", "int32"), self.random.randint(2, 6)
            found.append(tirx.For(variable, 0, trips, tirx.ForKind.SERIAL, self._turn([*loops, (variable, trips)])))
            if self.random.random() < 0.3:
                found.append(self._vector(loops, 3))
        if not loops and self.random.random() < 0.4:
            variable = tirx.Var(f"o{self.random.getrandbits(32)}", "int32")
            return [tirx.For(variable, 0, 2, tirx.ForKind.SERIAL, tirx.SeqStmt(self._row([(variable, 2)])))]
        return found

    def _turn(self, loops: Loops) -> Any:
        """What is loaded, or held already, is worked on, and the result stored or held."""
        x, y = (
            tirx.decl_buffer((WORDS,), "float32", f"{n}{self.random.getrandbits(32)}", scope="local.ub") for n in "xy"
        )
        statements = [tirx.AllocBuffer(x), tirx.AllocBuffer(y)]
        held, target = self.random.choice(self.tiles), self.random.choice([y, y, self.random.choice(self.tiles)])
        source = self.random.choice([x, x, held])
        if source is x:
            statements.append(self._load(x, 0, self._index(loops, WORDS, SOURCE), WORDS))
        half = tirx.FloatImm("float32", 1.5)
        statements.append(call("vadds.fp32.1d", at(target, 0), 1, at(source, 0), 1, half, WORDS))
        if target is y:
            statements.append(self._store(y, 0, self._index(loops, WORDS, OUT_PER_CORE), WORDS))
        return tirx.SeqStmt(statements)

    def _branch(self, loops: Loops, depth: int) -> Any:
        if self.fixed:
            condition = (loops[-1][0] if loops else self.core) < 1
        else:
            condition = loops[-1][0] < 1 if loops and self.random.random() < 0.4 else self._word(loops) < 25
        otherwise = self._block(loops, depth + 1) if self.random.random() < 0.5 else None
        return tirx.IfThenElse(condition, self._block(loops, depth + 1), otherwise)
