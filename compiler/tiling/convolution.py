"""The schedule template of convolutions: tiles of output rows and channels over the cores, the kernel in steps.

The product's axes are [n, group, do, ho, wo, o | kd, c1, kh, kw, c0]. A tile is rows of whole width and output channels
of one group of one image; where one row is too long it is a part of a row. Feature map and weights come to L1 in chunks
of channel blocks; steps are channel blocks with the whole kernel, rows of the kernel, or single elements of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import ir
from tvm.sym import detect_linear_equation
from tvm_ffi import structural_walk

from compiler.emission.cube.weights import WEIGHTS
from compiler.emission.cube.windows import Axes, Windows, map_mark
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.cube import Cut, Master
from compiler.tiling.matmul import NOT_HIDDEN, SHARES, TRIP_CYCLES, rate
from compiler.tiling.template import NoFeasibleTile, Tiled

N, GROUP, DO, HO, WO, OUT, KD, C1, KH, KW, C0 = range(11)
WINDOW_AXES = (N, GROUP, DO, HO, WO, KD, C1, KH, KW, C0)  # of the windows' matrix
BLOCK_BYTES = 32
MOST_ROWS = 4095  # of one instruction


@dataclass(frozen=True)
class Problem:
    """A convolution as the choice of a tile sees it; ``extents`` are those of the product's axes."""

    extents: tuple[int, ...]
    windows: Windows
    map_columns: int
    dtype: str
    slave_bytes: int
    result_bytes: int

    @property
    def kernel(self) -> tuple[int, int]:
        return self.extents[KH], self.extents[KW]

    def box(self, rows: int, columns: int, kernel_rows: int) -> tuple[int, int]:
        """Rows and columns of the map that so many rows of the windows touch."""
        (stride_h, stride_w), (dilation_h, dilation_w) = self.windows.strides, self.windows.dilations
        height = (rows - 1) * stride_h + (kernel_rows - 1) * dilation_h + 1
        width = (columns - 1) * stride_w + (self.kernel[1] - 1) * dilation_w + 1
        return height, min(width, self.map_columns)


@dataclass(frozen=True)
class Tile:
    """Output positions and channels of a tile; a step in channel blocks, kernel rows and columns."""

    rows: int
    columns: int
    outputs: int
    step: tuple[int, int, int]
    chunk: tuple[int, int]  # in channel blocks and kernel rows
    trips: tuple[int, ...]  # of a core, along n, group, do, ho, wo, o
    held: str  # "map", "weights" or "": what stays in L1 while the other goes by

    def bytes_of(self, problem: Problem) -> dict[str, int]:
        m16, o16 = ceil_to(self.rows * self.columns, FRACTAL), ceil_to(self.outputs, FRACTAL)
        blocks = prod(self.step)
        blocks_of_c, kernel_rows = self.chunk
        height, width = problem.box(self.rows, self.columns, kernel_rows)
        feature_map = blocks_of_c * height * width * BLOCK_BYTES
        weights = blocks_of_c * kernel_rows * problem.kernel[1] * self.outputs * BLOCK_BYTES
        return {
            "l1": feature_map + weights,
            "l0a": m16 * blocks * BLOCK_BYTES,
            "l0b": o16 * blocks * BLOCK_BYTES,
            "l0c": m16 * o16 * 4,
            "ub": self.rows * self.columns * ceil_to(self.outputs, FRACTAL) * problem.slave_bytes,
        }


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut the convolution of a kernel into tiles, and bring its slaves to them."""
    name = str(func.attrs.get("global_symbol", "convolution"))
    sch = cube.new_schedule(func)
    master = cube.masters(sch)[0]
    matrix = sch.get_producers(master.block)[0]
    problem = problem_of(sch, master, matrix, chip)
    tile = cube.choose(candidates(problem, chip), problem, attempt)
    if tile is None:
        raise NoFeasibleTile(name, f"{attempt} tiles of a convolution")
    with cube.schedulable(name):
        apply(sch, master, matrix, problem, tile, chip)
    return Tiled(sch.mod["main"], describe(problem, tile))


# ---- the problem -------------------------------------------------------------------------------------------------


def problem_of(sch: Any, master: Master, matrix: Any, chip: Chip) -> Problem:
    block = sch.get(matrix)
    loads: list[Any] = []
    structural_walk(block.body.value, (ir.TensorLoad, loads.append))
    if not loads:  # every window lies in the padding
        one = Windows(Axes(1, None, 2), master.extents[KW], (1, 1), (1, 1), 0, True)
        windows, columns = one, 1
    else:
        windows, columns = _windows(block, loads[0], master.extents)
    return Problem(
        extents=master.extents,
        windows=windows,
        map_columns=columns,
        dtype=cube.isa_dtype(block.body.buffer),
        slave_bytes=cube.slave_bytes(sch, master.block, chip),
        result_bytes=DTYPES[cube.isa_dtype(block.body.buffer)].itemsize,
    )


def _windows(block: Any, load: Any, extents: tuple[int, ...]) -> tuple[Windows, int]:
    """Axes, strides, dilations and padding, as the indices of the map show them, and the map's columns."""
    variables = [axis.var for axis in block.iter_vars]
    position = {axis: WINDOW_AXES.index(axis) for axis in WINDOW_AXES}
    channel = row = column = None
    strides, dilations, pad_left = [1, 1], [1, 1], 0
    for axis, index in enumerate(load.indices):
        linear = list(detect_linear_equation(index, variables)) or [*(0 for _ in variables), index]
        *factors, rest = (int(factor) for factor in linear)
        if factors[position[C0]]:
            channel = axis
        for which, (output, kernel) in enumerate(((HO, KH), (WO, KW))):
            if factors[position[output]] or factors[position[kernel]]:
                row, column = (axis, column) if which == 0 else (row, axis)
                strides[which] = factors[position[output]] or 1
                dilations[which] = factors[position[kernel]] or 1
                pad_left = max(-rest, 0) if which == 1 else pad_left
    if channel is None or column is None:
        raise TypeError("a convolution's map has channels and columns")
    axes = Axes(channel, row, column)
    windows = Windows(axes, extents[KW], (strides[0], strides[1]), (dilations[0], dilations[1]), pad_left, True)
    return windows, int(load.source.shape[column])


# ---- the choice --------------------------------------------------------------------------------------------------


def candidates(problem: Problem, chip: Chip) -> list[Tile]:
    """All tiles worth a try that fit the chip, the cheapest first."""
    for share in SHARES:
        found = [tile for tile in _tiles(problem, chip, share) if _fits(tile, problem, chip, share)]
        if found:
            return sorted(found, key=lambda tile: (cost(tile, problem, chip), -tile.rows * tile.columns * tile.outputs))
    return []


def _fits(tile: Tile, problem: Problem, chip: Chip, share: float) -> bool:
    return all(taken <= chip.memory_bytes(name) * share for name, taken in tile.bytes_of(problem).items())


def _areas(problem: Problem, most: int) -> Iterator[tuple[int, int]]:
    """(rows, columns) of tiles of at most so many positions: rows of whole width, or parts of one row."""
    height, width = problem.extents[HO], problem.extents[WO]
    if width <= most:
        most_rows = min(height, most // width)
        rows = {ceil_div(height, ceil_div(height, r)) for r in range(1, most_rows + 1)}
        yield from ((r, width) for r in sorted(rows))
    if width > FRACTAL:
        parts = range(2, ceil_div(width, FRACTAL) + 1)
        yield from ((1, c) for c in sorted({ceil_to(ceil_div(width, p), FRACTAL) for p in parts}) if c <= most)


def _output_sizes(problem: Problem) -> list[int]:
    """Channels of a tile; with several groups only even parts, since a tile's channels are those of one group."""
    outputs = problem.extents[OUT]
    fractals = ceil_div(outputs, FRACTAL)
    sizes = {ceil_div(fractals, parts) for parts in range(1, min(fractals, 16) + 1)} | {1}
    channels = {min(size * FRACTAL, outputs) for size in sizes}
    return sorted(n for n in channels if problem.extents[GROUP] == 1 or outputs % n == 0)


def _tiles(problem: Problem, chip: Chip, share: float) -> Iterator[Tile]:
    memory = chip.memory
    most = min(MOST_ROWS, int(memory.l0c_bytes * share) // (FRACTAL * 4), int(memory.l0a_bytes * share) // BLOCK_BYTES)
    for rows, columns in _areas(problem, most):
        m16 = ceil_to(rows * columns, FRACTAL)
        for outputs in _output_sizes(problem):
            o16 = ceil_to(outputs, FRACTAL)
            if m16 * o16 * 4 > memory.l0c_bytes * share:
                break
            blocks = int(
                min(memory.l0a_bytes * share // (m16 * BLOCK_BYTES), memory.l0b_bytes * share // (o16 * BLOCK_BYTES))
            )
            step = _step(problem, blocks, columns < problem.extents[WO])
            if step is None:
                continue
            chunk = _chunk(problem, int(memory.l1_bytes * share), rows, columns, outputs, step)
            if chunk is not None:
                yield from _spread(problem, chip, rows, columns, outputs, step, chunk)


def _chunk(
    problem: Problem, room: int, rows: int, columns: int, outputs: int, step: tuple[int, int, int]
) -> tuple[int, int] | None:
    """The most channel blocks with all kernel rows that fit L1; or one block with some of its kernel rows."""
    blocks, kernel_rows = problem.extents[C1], problem.kernel[0]

    def taken(chunk: tuple[int, int]) -> int:
        return Tile(rows, columns, outputs, step, chunk, (), "").bytes_of(problem)["l1"]

    most = min(room // taken((1, kernel_rows)), blocks)
    if most >= step[0]:
        even = ceil_div(blocks, ceil_div(blocks, most))
        return min(ceil_to(even, step[0]), most // step[0] * step[0]), kernel_rows
    if step[0] > 1:
        return None
    fewer = (r for r in range(kernel_rows - 1, 0, -1) if kernel_rows % r == 0 and r % step[1] == 0)
    return next(((1, r) for r in fewer if taken((1, r)) <= room), None)


def _step(problem: Problem, blocks: int, part_of_row: bool) -> tuple[int, int, int] | None:
    """The largest part of channel blocks, kernel rows and columns that ``blocks`` hold, even over the whole.

    For a part of a row it is one row of the kernel at most.
    """
    rows_of_kernel, columns_of_kernel = problem.kernel
    c1 = problem.extents[C1]
    if part_of_row and rows_of_kernel > 1:
        blocks = min(blocks, columns_of_kernel)
    if blocks >= rows_of_kernel * columns_of_kernel:
        most = min(blocks // (rows_of_kernel * columns_of_kernel), c1)
        return ceil_div(c1, ceil_div(c1, most)), rows_of_kernel, columns_of_kernel
    if blocks >= columns_of_kernel:
        return 1, _divisor(rows_of_kernel, blocks // columns_of_kernel), columns_of_kernel
    return (1, 1, _divisor(columns_of_kernel, blocks)) if blocks else None


def _divisor(extent: int, most: int) -> int:
    return max(size for size in range(1, min(extent, most) + 1) if extent % size == 0)


def _spread(
    problem: Problem,
    chip: Chip,
    rows: int,
    columns: int,
    outputs: int,
    step: tuple[int, int, int],
    chunk: tuple[int, int],
) -> Iterator[Tile]:
    extents = problem.extents
    row_tiles, output_tiles = ceil_div(extents[HO], rows), ceil_div(extents[OUT], outputs)
    column_tiles = ceil_div(extents[WO], columns)
    seen = set()
    whole = chunk[0] >= extents[C1] and chunk[1] == extents[KH] and extents[KD] == 1
    for output_cores in range(1, min(output_tiles, chip.cores) + 1):
        for row_cores in range(1, min(row_tiles, chip.cores // output_cores) + 1):
            left = chip.cores // (output_cores * row_cores)
            trips = [0] * 6
            trips[3], trips[5] = ceil_div(row_tiles, row_cores), ceil_div(output_tiles, output_cores)
            for axis, tiles in ((N, extents[N]), (DO, extents[DO]), (GROUP, extents[GROUP]), (WO, column_tiles)):
                trips[axis] = ceil_div(tiles, min(tiles, left))
                left //= ceil_div(tiles, trips[axis])
            if tuple(trips) in seen:
                continue
            seen.add(tuple(trips))
            for held in ("", "map", "weights") if whole else ("",):
                yield Tile(rows, columns, outputs, step, chunk, tuple(trips), held)


def cost(tile: Tile, problem: Problem, chip: Chip) -> float:
    """Cycles of the busiest core: whatever is busiest of cube, copies and shared DDR, and what nothing hides."""
    extents, size = problem.extents, DTYPES[problem.dtype].itemsize
    m, rounds = tile.rows * tile.columns, prod(tile.trips)
    m16, o16 = ceil_to(m, FRACTAL), ceil_to(tile.outputs, FRACTAL)
    blocks = prod(extents[axis] for axis in (KD, C1, KH, KW))
    steps = (
        extents[KD]
        * ceil_div(extents[C1], tile.step[0])
        * ceil_div(blocks, extents[KD] * extents[C1] * prod(tile.step[1:]))
    )
    k_bytes = blocks * BLOCK_BYTES
    product = m16 * o16 * k_bytes / size / chip.macs_per_cycle(problem.dtype) + steps * chip.cube.overhead_cycles
    height, width = problem.box(tile.rows, tile.columns, tile.chunk[1])
    height *= problem.kernel[0] // tile.chunk[1]
    maps = rounds // (tile.trips[5] if tile.held == "map" else 1)
    weights = rounds // (tile.trips[0] * tile.trips[2] * tile.trips[3] * tile.trips[4] if tile.held == "weights" else 1)
    moved = maps * height * width * extents[C1] * extents[KD] * BLOCK_BYTES + weights * k_bytes * tile.outputs
    totals: tuple[int, ...] = (extents[N], extents[GROUP], extents[DO], ceil_div(extents[HO], tile.rows))
    totals += (ceil_div(extents[WO], tile.columns), ceil_div(extents[OUT], tile.outputs))
    cores = prod(ceil_div(total, trips) for total, trips in zip(totals, tile.trips, strict=True))
    shared = chip.bandwidth.ddr_bytes_per_kilocycle / 1000 / cores
    load = moved / min(rate(chip, "ddr_l1"), shared)
    near = rounds * k_bytes * max(m16 / rate(chip, "l1_l0a"), o16 / rate(chip, "l1_l0b"))
    out = rounds * m * tile.outputs * problem.result_bytes / min(rate(chip, "ub_ddr"), shared)
    vector = 2 * rounds * m * tile.outputs * problem.slave_bytes / chip.vector.bytes_per_cycle
    parts = (rounds * product, load, near, out + vector)
    return max(parts) + NOT_HIDDEN * sum(parts) + TRIP_CYCLES * rounds


def describe(problem: Problem, tile: Tile) -> str:
    extents = problem.extents
    image = f"{extents[N]}x{extents[GROUP] * extents[OUT]}x{extents[DO]}x{extents[HO]}x{extents[WO]}"
    return (
        f"{image} in tiles of {tile.rows}x{tile.columns} and {tile.outputs} channels, "
        f"steps of {'x'.join(map(str, tile.step))} of {extents[C1]}x{extents[KH]}x{extents[KW]} blocks"
        + (f", {tile.held} held in L1" if tile.held else "")
    )


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, master: Master, matrix: Any, problem: Problem, tile: Tile, chip: Chip) -> None:
    taken, slaves = cube.keep_result(sch, master.block, chip)
    inner = (1, 1, 1, tile.rows, tile.columns, tile.outputs)
    cuts = [Cut(trips, size) for trips, size in zip(tile.trips, inner, strict=True)]
    kernel = problem.kernel
    cuts += [Cut(1, 1), *(Cut(size // of, of) for size, of in zip(tile.chunk, tile.step, strict=False))]
    cuts += [Cut(kernel[1] // tile.step[2], tile.step[2]), Cut(1, problem.extents[C0])]
    order = [GROUP, OUT, N, DO, HO, WO] if tile.held == "weights" else [GROUP, N, DO, HO, WO, OUT]
    placed = cube.cut_master(sch, master, cuts, order)
    outputs = placed.trips[order.index(OUT)]
    sch.set_scope(matrix, 0, cube.L0A)
    sch.compute_at(matrix, placed.step, preserve_unit_loops=True)
    whole_rows = tile.columns == problem.extents[WO]
    # How wide a part of a row is in L1 differs at the edges; its rows have to lie where they are found all the same.
    axes = replace(problem.windows.axes, rows_apart=not whole_rows)
    windows = replace(problem.windows, axes=axes, whole_rows=whole_rows)
    cube.mark(sch, matrix, placed.step, str(windows))
    at_map = placed.trips[order.index(WO)] if tile.held == "map" else placed.chunk
    if sch.get(matrix).reads:
        feature_map = sch.cache_read(matrix, 0, cube.L1)
        sch.compute_at(feature_map, at_map, preserve_unit_loops=True)
        cube.mark(sch, feature_map, at_map, map_mark(axes))
    at_weights = outputs if tile.held == "weights" else placed.chunk
    cube.bring_operand(sch, master.block, 1, cube.L0B, at_weights, placed.step, WEIGHTS)
    cube.place_slaves(sch, taken, slaves, placed, chip)
    cube.start_sum(sch, master.block, placed)
