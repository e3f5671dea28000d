"""What a product of matrices is to the choice of a tile, and what a tile is: how much of it, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.epilogue import NO_EPILOGUE, Epilogue, epilogue_of
from compiler.tiling.grids import Grid
from compiler.tiling.masters import Master, last_variable
from compiler.tiling.scaled_sums import scale_bytes
from compiler.tiling.started_sums import bias_bytes
from compiler.tir.near import common_parameters, memory_of_parameter, room_bytes
from compiler.tir.products import operands_of

NO_LIMIT = 1 << 62
TABLE_BYTES = 4  # of what the sum of one column begins with


@dataclass(frozen=True)
class Problem:
    """A product as the choice of a tile sees it."""

    batch: tuple[int, ...]
    batch_of: tuple[str, ...]  # of each: "" where both operands have the axis, else the one that does
    m: int
    n: int
    k: int
    dtype: str
    slave_bytes: int  # of UB per element of a tile: the stages behind the product
    epilogue: Epilogue = NO_EPILOGUE  # and what they do
    transposed_a: bool = False
    transposed_b: bool = False
    result_bytes: int = 4
    has_columns: bool = True  # of the result
    near: frozenset[str] = frozenset()  # of "a", "b" and "c", what lies in LLB
    common: frozenset[str] = frozenset()  # of "a" and "b", what other clusters load, too
    room_bytes: int = NO_LIMIT  # of LLB, for what cores share
    bias_bytes: int = 0  # of an element of what sums begin with, in L1; none where that is zero
    scale_bytes: int = 0  # of the scale of a column; none where there is one for all

    @cached_property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    @cached_property
    def k0(self) -> int:
        return DTYPES[self.dtype].fractal_k

    def fit_tables(self, columns: int, chip: Chip) -> bool:
        """Whether what so many columns begin with, and their scales, have room beside the cube."""
        begins = columns * TABLE_BYTES if self.bias_bytes else 0
        return begins <= chip.memory.bt_bytes and columns * self.scale_bytes <= chip.memory.fb_bytes

    @property
    def ub_bytes(self) -> int:
        """Of UB per element of what goes through it."""
        return self.slave_bytes or self.result_bytes


def problem_of(sch: Any, master: Master, chip: Chip) -> Problem:
    block = sch.get(master.block)
    a, b = operands_of(block)
    extents = dict(zip((axis.var for axis in block.iter_vars), master.extents, strict=True))
    along = {role: [block.iter_vars[i].var for i in master.axes(role)] for role in ("m", "n", "k")}
    batch = master.batch_axes()
    ends = cube.followers(sch, master.block)
    result = sch.get(ends[-1] if ends else master.block).writes[0].source
    func = sch.mod["main"]
    places = {"a": a.source, "b": b.source, "c": result}
    return Problem(
        batch=tuple(master.extents[axis] for axis in batch),
        batch_of=tuple(master.roles[axis].removeprefix("batch").removeprefix(" of ") for axis in batch),
        m=prod(extents[v] for v in along["m"]),
        n=prod(extents[v] for v in along["n"]),
        k=prod(extents[v] for v in along["k"]),
        dtype=cube.isa_dtype(a.source),
        slave_bytes=cube.slave_bytes(sch, master.block, chip),
        epilogue=epilogue_of(sch, master),
        transposed_a=last_variable(a) in along["m"],
        transposed_b=last_variable(b) in along["k"] and bool(along["n"]),
        result_bytes=DTYPES[cube.isa_dtype(result)].itemsize,
        has_columns=bool(along["n"]),
        near=frozenset(name for name, buffer in places.items() if memory_of_parameter(func, buffer) == "llb"),
        common=frozenset(name for name, buffer in places.items() if buffer in common_parameters(func, chip)),
        room_bytes=room_bytes(func, chip),
        bias_bytes=bias_bytes(sch, master.block),
        scale_bytes=scale_bytes(sch, master.block),
    )


@dataclass(frozen=True)
class Tile:
    """Elements of one tile, chunk and step; how many tiles each core does along batch, m and n; what stays in L1."""

    m: int
    n: int
    step: int
    steps: int
    batch_trips: tuple[int, ...]
    m_trips: int
    n_trips: int
    held: str  # "a", "b" or "": an operand that is in L1 with all of its k
    grid: Grid
    columns: int = 0  # of the tile that go through UB at once; none where it does not
    pieces: int = 0  # chunks of what is held that stay in L1; all where none are given

    @property
    def rounds(self) -> int:
        """Tiles of a core."""
        return prod(self.batch_trips) * self.m_trips * self.n_trips

    def bytes_of(self, problem: Problem) -> dict[str, int]:
        """What one of each buffer takes."""
        k0 = problem.k0
        m16, n16 = ceil_to(self.m, FRACTAL), ceil_to(self.n, FRACTAL)
        return {
            "l1": sum(self.l1_bytes(problem)) + self.passing_bytes(problem) + self.begin_bytes(problem),
            "l0a": m16 * ceil_to(self.step, k0) * problem.itemsize,
            "l0b": n16 * ceil_to(self.step, k0) * problem.itemsize,
            "l0c": m16 * n16 * 4,
            "ub": self.m * ceil_to(self.columns, k0) * problem.ub_bytes,
            "bt": n16 * TABLE_BYTES if problem.bias_bytes else 0,
            "fb": n16 * problem.scale_bytes,
        }

    @property
    def chunk(self) -> int:
        return self.step * self.steps

    @property
    def is_held_in_part(self) -> bool:
        return self.pieces > 0

    def l1_bytes(self, problem: Problem) -> tuple[int, int]:
        """Of a and b: a chunk; of what is held all of k, or the pieces of it that stay."""
        depth = self.pieces * self.chunk or ceil_to(problem.k, self.step)
        a = self._a_bytes(problem, depth if self.held == "a" else self.chunk)
        return a, self._b_bytes(problem, depth if self.held == "b" else self.chunk)

    def _a_bytes(self, problem: Problem, depth: int) -> int:
        k0 = problem.k0
        elements = depth * ceil_to(self.m, k0) if problem.transposed_a else self.m * ceil_to(depth, k0)
        return elements * problem.itemsize

    def _b_bytes(self, problem: Problem, depth: int) -> int:
        k0 = problem.k0
        elements = self.n * ceil_to(depth, k0) if problem.transposed_b else depth * ceil_to(self.n, k0)
        return elements * problem.itemsize

    def begin_bytes(self, problem: Problem) -> int:
        """Of what all sums of a core begin with, and of their scales."""
        return self.n_trips * self.n * (problem.bias_bytes + problem.scale_bytes)

    def passing_bytes(self, problem: Problem) -> int:
        """Of a chunk of what is held in part."""
        if not self.is_held_in_part:
            return 0
        return self._a_bytes(problem, self.chunk) if self.held == "a" else self._b_bytes(problem, self.chunk)


def describe(problem: Problem, tile: Tile) -> str:
    batch = "x".join(map(str, problem.batch))
    grid = tile.grid
    held = f", {tile.held} held in L1" if tile.held else ""
    if tile.is_held_in_part:
        held += f" by {tile.pieces} of {ceil_div(problem.k, tile.chunk)} chunks"
    return (
        f"{batch + ' of ' if batch else ''}{problem.m}x{problem.n}x{problem.k} in tiles of {tile.m}x{tile.n}, "
        f"k by {tile.chunk} and {tile.step}, {grid.groups[0]}x{grid.groups[1]} groups of "
        f"{grid.cores[0]}x{grid.cores[1]} cores" + held
    )
