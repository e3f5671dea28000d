"""The schedule template of convolutions: tiles of output rows and channels over the cores, the kernel in steps.

The product's axes are [n, group, do, ho, wo, o | kd, c1, kh, kw, c0]. A *product* is rows of whole width (where one
row is too long, a part of a row) and output channels of one group of one image, summed in L0C. A *tile* is several
products, one below the other, which leave the core together: their map is one box in L1. Feature map and weights come
to L1 in chunks of channel blocks, or stay there; steps are channel blocks with the whole kernel, rows of the kernel, or
single elements of it.

Consecutive cores are of one cluster, which reads what its cores share once. So cores are counted either with the output
channels last, and a cluster shares its rows of the map, or with the rows last, and it shares its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import gcd, prod
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
from compiler.tiling.cube import Master, Placed
from compiler.tiling.search import Work, analytical_cycles
from compiler.tiling.template import NoFeasibleTile, Tiled

N, GROUP, DO, HO, WO, OUT, KD, C1, KH, KW, C0 = range(11)
WINDOW_AXES = (N, GROUP, DO, HO, WO, KD, C1, KH, KW, C0)  # of the windows' matrix
PLACES = (N, DO, HO, WO)
MAP_FIRST, WEIGHTS_FIRST = (GROUP, N, DO, HO, WO, OUT), (GROUP, OUT, N, DO, HO, WO)  # orders of trips
OUTPUTS_LAST, PLACES_LAST = (N, GROUP, DO, HO, WO, OUT), (OUT, N, GROUP, DO, HO, WO)  # orders of cores
BLOCK_BYTES = 32
MOST_ROWS = 4095  # of one instruction
STEPS_AHEAD = 7  # of a chunk: what MTE1's queue holds, so that the loads of the next chunk are dispatched in time
HANDOVER_CYCLES = 20  # from queue to queue, of what a product or a chunk does
SCALARS_PER_STEP, SCALARS_PER_CHUNK, SCALARS_PER_TILE = 24, 30, 60


@dataclass(frozen=True)
class Problem:
    """A convolution as the choice of a tile sees it; ``extents`` are those of the product's axes."""

    extents: tuple[int, ...]
    windows: Windows
    map_shape: tuple[int, int]  # rows and columns
    channels: int  # of a group
    dtype: str
    slave_bytes: int  # of UB for each element of the result
    vector_bytes: int  # that the stages behind the product work on, for each element
    stages: int
    side_bytes: int  # that these read from afar, for each element
    result_bytes: int

    @property
    def kernel(self) -> tuple[int, int]:
        return self.extents[KH], self.extents[KW]

    @cached_property
    def blocks(self) -> int:
        """Of the whole kernel, each of 32 bytes along k."""
        return prod(self.extents[axis] for axis in (KD, C1, KH, KW))

    def box(self, rows: int, columns: int, kernel_rows: int) -> tuple[int, int]:
        """Rows and columns of the map that so many rows of the windows touch."""
        (stride_h, stride_w), (dilation_h, dilation_w) = self.windows.strides, self.windows.dilations
        height = (rows - 1) * stride_h + (kernel_rows - 1) * dilation_h + 1
        width = (columns - 1) * stride_w + (self.kernel[1] - 1) * dilation_w + 1
        whole = self.windows.axes.width and columns == self.extents[WO]
        return min(height, self.map_shape[0]), self.map_shape[1] if whole else min(width, self.map_shape[1])


@dataclass(frozen=True)
class Tile:
    """Output positions and channels of a product, products of a tile, and where all that goes."""

    rows: int
    columns: int
    outputs: int
    stacked: int  # products of a tile, along rows
    step: tuple[int, int, int]  # in channel blocks, kernel rows and columns
    chunk: tuple[int, int]  # in channel blocks and kernel rows
    trips: tuple[int, ...]  # of a core, along n, group, do, ho, wo, o
    cores: tuple[int, ...]  # along these
    places_last: bool  # which cores share a cluster: those of the same output channels, or those of the same rows
    held: frozenset[str]  # of "map" and "weights": what stays in L1, with all of its k, while the other goes by;
    # "rows": the map of all trips along rows does, so that what windows of two of them touch is loaded once

    @property
    def positions(self) -> int:
        return self.rows * self.columns

    @property
    def map_rows(self) -> int:
        """Rows of the result whose map is loaded at once."""
        return self.rows * self.stacked * (self.trips[HO] if "rows" in self.held else 1)

    def map_bytes(self, problem: Problem) -> int:
        whole = "map" in self.held
        blocks, kernel_rows = (problem.extents[C1] * problem.extents[KD], problem.kernel[0]) if whole else self.chunk
        height, width = problem.box(self.map_rows, self.columns, kernel_rows)
        k0 = DTYPES[problem.dtype].fractal_k
        return blocks * (height * width + (2 * k0 if width % k0 else 0)) * BLOCK_BYTES

    def weight_bytes(self, problem: Problem) -> int:
        if "weights" not in self.held:
            return prod(self.chunk) * problem.kernel[1] * self.outputs * BLOCK_BYTES
        outputs = self.outputs
        if "map" in self.held:  # those of all trips
            outputs *= self.trips[OUT] * self.trips[GROUP]
        return problem.blocks * outputs * BLOCK_BYTES

    def map_loads(self) -> int:
        loads = prod(self.trips) // (self.trips[OUT] if "map" in self.held else 1)
        return loads // (self.trips[HO] if "rows" in self.held else 1)

    def weight_loads(self) -> int:
        if "weights" not in self.held:
            return prod(self.trips)
        return 1 if "map" in self.held else self.trips[GROUP] * self.trips[OUT]

    def bytes_of(self, problem: Problem) -> dict[str, int]:
        """Of each memory, what one of each buffer takes, and a second one of those that are filled again."""
        m16, o16 = ceil_to(self.positions, FRACTAL), ceil_to(self.outputs, FRACTAL)
        blocks, chunks = prod(self.step), self.chunks(problem)
        again = 2 if prod(self.trips) > 1 else 1
        map_again = 2 if self.map_loads() > 1 or ("map" not in self.held and chunks > 1) else 1
        weights_again = 2 if self.weight_loads() > 1 or ("weights" not in self.held and chunks > 1) else 1
        return {
            "l1": map_again * self.map_bytes(problem) + weights_again * self.weight_bytes(problem),
            "l0a": 2 * m16 * blocks * BLOCK_BYTES,
            "l0b": 2 * o16 * blocks * BLOCK_BYTES,
            "l0c": m16 * o16 * 4,
            "ub": again * self.stacked * self.positions * o16 * problem.slave_bytes,
        }

    def chunks(self, problem: Problem) -> int:
        return problem.extents[KD] * ceil_div(problem.extents[C1], self.chunk[0]) * (problem.kernel[0] // self.chunk[1])

    def steps(self, problem: Problem) -> int:
        """Of one product."""
        steps = problem.extents[KD] * prod(e // s for e, s in zip(problem.kernel, self.step[1:], strict=True))
        full, rest = divmod(problem.extents[C1], self.chunk[0])
        return steps * (full * ceil_div(self.chunk[0], self.step[0]) + ceil_div(rest, self.step[0]))


@dataclass(frozen=True)
class ConvolutionSpace:
    """All tiles of a kernel that is led by a convolution."""

    func: Any
    name: str
    problem: Problem
    chip: Chip

    def tiles(self) -> list[Tile]:
        """Where none leaves room for a second buffer of each kind, those that fit as they are."""
        found = [tile for tile in _tiles(self.problem, self.chip, 2) if self._fits(tile, 1)]
        return found or [tile for tile in _tiles(self.problem, self.chip, 1) if self._fits(tile, 2)]

    def _fits(self, tile: Tile, times: int) -> bool:
        taken = tile.bytes_of(self.problem)
        return all(taken[name] <= self.chip.memory_bytes(name) * times for name in taken)

    def work(self, tile: Tile) -> Work:
        return work_of(tile, self.problem, self.chip)

    def taken(self, tile: Tile) -> dict[str, int]:
        return tile.bytes_of(self.problem)

    def apply(self, tile: Tile) -> Tiled:
        sch = cube.new_schedule(self.func)
        master = cube.masters(sch)[0]
        with cube.schedulable(self.name):
            apply(sch, master, sch.get_producers(master.block)[0], self.problem, tile, self.chip)
        return Tiled(sch.mod["main"], describe(self.problem, tile))


def space(func: Any, chip: Chip) -> ConvolutionSpace:
    """The ways to cut the convolution of a kernel into tiles, its slaves following it."""
    sch = cube.new_schedule(func)
    master = cube.masters(sch)[0]
    problem = problem_of(sch, master, sch.get_producers(master.block)[0], chip)
    return ConvolutionSpace(func, str(func.attrs.get("global_symbol", "convolution")), problem, chip)


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut by the tile that is the cheapest, or the cheapest of those that take less."""
    all_tiles = space(func, chip)
    ranked = sorted(all_tiles.tiles(), key=lambda tile: analytical_cycles(all_tiles.work(tile), chip))
    tile = cube.choose(ranked, all_tiles.problem, attempt)
    if tile is None:
        raise NoFeasibleTile(all_tiles.name, f"{attempt} tiles of a convolution")
    return all_tiles.apply(tile)


# ---- the problem -------------------------------------------------------------------------------------------------


def problem_of(sch: Any, master: Master, matrix: Any, chip: Chip) -> Problem:
    block = sch.get(matrix)
    loads: list[Any] = []
    structural_walk(block.body.value, (ir.TensorLoad, loads.append))
    if not loads:  # every window lies in the padding
        windows, shape, channels = Windows(Axes(1, None, 2), master.extents[KW], (1, 1), (1, 1), 0, True), (1, 1), 1
    else:
        windows = _windows(block, loads[0], master.extents)
        axes, extents = windows.axes, [int(extent) for extent in loads[0].source.shape]
        shape = (1 if axes.row is None else extents[axes.row], extents[axes.column])
        channels = extents[axes.channel] // master.extents[GROUP]
    result = sch.get(master.block).writes[0].source
    stages = [sch.get(stage) for stage in cube.followers(sch, master.block)]
    if cube.takes_itself_out(sch, master.block):
        stages = stages[1:]
    elements = prod(int(extent) for extent in result.shape)
    sides = {
        region.source
        for stage in stages
        for region in stage.reads
        if any(region.source.same_as(parameter) for parameter in sch.mod["main"].params)
        and prod(int(extent) for extent in region.source.shape) >= elements
    }
    return Problem(
        extents=master.extents,
        windows=windows,
        map_shape=shape,
        channels=channels,
        dtype=cube.isa_dtype(block.body.buffer),
        slave_bytes=cube.slave_bytes(sch, master.block, chip),
        # A change of the axes' order takes twice as long as a stage that only computes.
        vector_bytes=sum(DTYPES[cube.isa_dtype(s.writes[0].source)].itemsize for s in stages) + (2 if stages else 0),
        stages=len(stages),
        side_bytes=sum(DTYPES[cube.isa_dtype(side)].itemsize for side in sides),
        result_bytes=DTYPES[cube.isa_dtype(block.body.buffer)].itemsize,
    )


def _windows(block: Any, load: Any, extents: tuple[int, ...]) -> Windows:
    """Axes, strides, dilations and padding, as the indices of the map show them."""
    variables = [axis.var for axis in block.iter_vars]
    position = {axis: WINDOW_AXES.index(axis) for axis in WINDOW_AXES}
    channel = row = column = None
    strides, dilations, left = [1, 1], [1, 1], 0
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
                left = -rest if which == 1 else left
    if channel is None or column is None:
        raise TypeError("a convolution's map has channels and columns")
    # A negative padding leaves the first columns out: what is loaded are no whole rows.
    axes = Axes(channel, row, column, int(load.source.shape[column]) if left >= 0 else 0)
    return Windows(axes, extents[KW], (strides[0], strides[1]), (dilations[0], dilations[1]), max(left, 0), True)


# ---- the tiles ---------------------------------------------------------------------------------------------------


def _areas(problem: Problem, most: int) -> Iterator[tuple[int, int]]:
    """(rows, columns) of products of at most so many positions: rows of whole width, or parts of one row."""
    height, width = problem.extents[HO], problem.extents[WO]
    if width <= most:
        most_rows = min(height, most // width)
        rows = {ceil_div(height, ceil_div(height, r)) for r in range(1, most_rows + 1)}
        yield from ((r, width) for r in sorted(rows))
    if width > FRACTAL and width > most // 4:
        parts = range(2, ceil_div(width, FRACTAL) + 1)
        yield from ((1, c) for c in sorted({ceil_to(ceil_div(width, p), FRACTAL) for p in parts}) if c <= most)


def _output_sizes(problem: Problem) -> list[int]:
    """Channels of a tile; with several groups only even parts, since a tile's channels are those of one group."""
    outputs = problem.extents[OUT]
    fractals = ceil_div(outputs, FRACTAL)
    sizes = {ceil_div(fractals, parts) for parts in range(1, min(fractals, 16) + 1)} | {1}
    channels = {min(size * FRACTAL, outputs) for size in sizes}
    return sorted(n for n in channels if problem.extents[GROUP] == 1 or outputs % n == 0)


def _tiles(problem: Problem, chip: Chip, times: int) -> Iterator[Tile]:
    """Tiles with room for so many of what stands beside the cube."""
    memory = chip.memory
    most = min(MOST_ROWS, memory.l0c_bytes // (FRACTAL * 4), memory.l0a_bytes // times // BLOCK_BYTES)
    for rows, columns in _areas(problem, most):
        m16 = ceil_to(rows * columns, FRACTAL)
        for outputs in _output_sizes(problem):
            o16 = ceil_to(outputs, FRACTAL)
            if m16 * o16 * 4 > memory.l0c_bytes:
                break
            room = min(memory.l0a_bytes // (m16 * BLOCK_BYTES), memory.l0b_bytes // (o16 * BLOCK_BYTES)) // times
            step = _step(problem, room, columns < problem.extents[WO])
            if step is not None:
                yield from _spread(problem, chip, times, rows, columns, outputs, step)


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
    problem: Problem, chip: Chip, times: int, rows: int, columns: int, outputs: int, step: tuple[int, int, int]
) -> Iterator[Tile]:
    extents = problem.extents
    whole_chunk = (ceil_to(extents[C1], step[0]), problem.kernel[0])
    for stacked in _stacks(problem, rows, columns):
        tiles = (
            extents[N],
            extents[GROUP],
            extents[DO],
            ceil_div(extents[HO], rows * stacked),
            ceil_div(extents[WO], columns),
            ceil_div(extents[OUT], outputs),
        )
        for trips, cores in _grids(tiles, chip.cores):
            orders = (False, True) if cores[OUT] > 1 and prod(cores) > cores[OUT] else (False,)
            for held in _holdings(problem, trips, stacked):
                tile = Tile(rows, columns, outputs, stacked, step, whole_chunk, trips, cores, False, held)
                chunk = _chunk(tile, problem, chip.memory.l1_bytes * (1 if times == 2 else 2))
                if chunk is not None:
                    yield from (replace(tile, chunk=chunk, places_last=last) for last in orders)


def _stacks(problem: Problem, rows: int, columns: int) -> list[int]:
    """How many products a tile may have: more than one where that spares loads and stores little runs."""
    if columns < problem.extents[WO]:
        return [1]
    height = ceil_div(problem.extents[HO], rows)
    return sorted({1, *(ceil_div(height, ceil_div(height, size)) for size in (2, 4, 8, 16) if size <= height)})


def _holdings(problem: Problem, trips: tuple[int, ...], stacked: int) -> list[frozenset[str]]:
    """What may stay in L1: an operand that several trips read; the map of a tile of several products always does."""
    places, outputs = prod(trips[axis] for axis in PLACES), trips[OUT]
    overlap = (problem.kernel[0] - 1) * problem.windows.dilations[0] >= problem.windows.strides[0]
    found = []
    for map_held, rows_held, weights_held in product((False, True), repeat=3):
        if rows_held and not (map_held and overlap and trips[HO] > 1 and trips[WO] == 1):
            continue
        if map_held < (stacked > 1) or (map_held and outputs == 1 and stacked == 1 and not rows_held):
            continue
        if weights_held and places == 1 and stacked == 1:
            continue
        names = (("map", map_held), ("rows", rows_held), ("weights", weights_held))
        found.append(frozenset(name for name, held in names if held))
    return found


@lru_cache(maxsize=4096)
def _grids(tiles: tuple[int, ...], cores: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Trips of a core and numbers of cores along all axes, where the busiest core has nearly the least work."""
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for output_trips in {ceil_div(tiles[OUT], count) for count in range(1, min(tiles[OUT], cores) + 1)}:
        left_of_outputs = cores // ceil_div(tiles[OUT], output_trips)
        for row_trips in {ceil_div(tiles[HO], count) for count in range(1, min(tiles[HO], left_of_outputs) + 1)}:
            left = left_of_outputs // ceil_div(tiles[HO], row_trips)
            trips = [0, 0, 0, row_trips, 0, output_trips]
            for axis in (N, DO, GROUP, WO):
                trips[axis] = ceil_div(tiles[axis], min(tiles[axis], left))
                left //= ceil_div(tiles[axis], trips[axis])
            found[tuple(trips)] = tuple(ceil_div(tiles[axis], trips[axis]) for axis in range(6))
    fewest = min(prod(trips) for trips in found)
    return [(trips, grid) for trips, grid in found.items() if prod(trips) <= 2 * fewest]


def _chunk(tile: Tile, problem: Problem, room: int) -> tuple[int, int] | None:
    """Channel blocks with all kernel rows whose steps MTE1's queue holds; where that is too much, less."""
    c1, kernel_rows = problem.extents[C1], problem.kernel[0]
    if tile.held >= {"map", "weights"}:
        return tile.chunk if tile.bytes_of(problem)["l1"] <= room else None
    steps_of_block = prod(e // s for e, s in zip(problem.kernel, tile.step[1:], strict=True))
    blocks = tile.step[0] * max(1, STEPS_AHEAD // steps_of_block)
    while blocks >= tile.step[0]:
        blocks = min(blocks, ceil_to(ceil_div(c1, ceil_div(c1, blocks)), tile.step[0]))
        if replace(tile, chunk=(blocks, kernel_rows)).bytes_of(problem)["l1"] <= room:
            return blocks, kernel_rows
        blocks -= tile.step[0]
    if tile.step[0] > 1:
        return None
    fewer = (r for r in range(kernel_rows - 1, 0, -1) if kernel_rows % r == 0 and r % tile.step[1] == 0)
    return next(((1, r) for r in fewer if replace(tile, chunk=(1, r)).bytes_of(problem)["l1"] <= room), None)


# ---- the work of a tile ------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _parts_of_clusters(cores: tuple[int, ...], places_last: bool, cluster: int) -> tuple[int, int]:
    """How many different maps and weights the clusters need, summed over them."""
    order = PLACES_LAST if places_last else OUTPUTS_LAST
    maps: dict[int, set[tuple[int, ...]]] = {}
    weights: dict[int, set[tuple[int, ...]]] = {}
    for number, place in enumerate(product(*(range(cores[axis]) for axis in order))):
        at = dict(zip(order, place, strict=True))
        maps.setdefault(number // cluster, set()).add(tuple(at[axis] for axis in (GROUP, *PLACES)))
        weights.setdefault(number // cluster, set()).add((at[GROUP], at[OUT]))
    return sum(map(len, maps.values())), sum(map(len, weights.values()))


def work_of(tile: Tile, problem: Problem, chip: Chip) -> Work:
    extents, dtype = problem.extents, DTYPES[problem.dtype]
    rounds, cores = prod(tile.trips), prod(tile.cores)
    products = rounds * tile.stacked
    m, m16, o16 = tile.positions, ceil_to(tile.positions, FRACTAL), ceil_to(tile.outputs, FRACTAL)
    steps, chunks, overhead = tile.steps(problem), tile.chunks(problem), chip.cube.overhead_cycles
    k_bytes = problem.blocks * BLOCK_BYTES
    fractals = m16 * o16 // FRACTAL**2
    product_cycles = m16 * o16 * k_bytes / dtype.itemsize / chip.macs_per_cycle(problem.dtype)
    product_cycles += (steps + 1) * overhead + fractals
    a_loads, b_loads = near_loads(tile, problem)
    a_cycles, b_cycles = m16 * k_bytes / _rate(chip, "l1_l0a"), o16 * k_bytes / _rate(chip, "l1_l0b")
    line = chip.transfer.ddr_line_bytes
    # From afar: what cores of a cluster share comes by way of LLB.
    maps, weights = _parts_of_clusters(tile.cores, tile.places_last, chip.cores_per_cluster)
    map_shared, weights_shared = maps < cores, weights < cores
    height, width = problem.box(tile.map_rows, tile.columns, problem.kernel[0])
    whole_rows = width == problem.windows.axes.width
    run = (height * width if whole_rows else width) * dtype.itemsize
    # Runs of whole rows go on to the end of a block of 32 bytes where the map does.
    is_ragged = run % chip.block_bytes > 0 and (not whole_rows or height == problem.map_shape[0])
    ragged = 100 / chip.transfer.ragged_nz_percent if is_ragged else 1.0
    runs = problem.channels * extents[KD] * (1 if whole_rows else height)
    map_lines = tile.map_loads() * runs * _lines(run, problem.map_shape[1] * dtype.itemsize, line)
    if not map_shared:
        map_lines *= ragged
    weight_lines = tile.weight_loads() * (
        tile.weight_bytes(problem) if "weights" in tile.held else k_bytes * tile.outputs
    )
    map_written = tile.map_loads() * extents[KD] * extents[C1] * height * width * BLOCK_BYTES
    map_cycles = map_written * ragged / _rate(chip, "llb_l1" if map_shared else "ddr_l1")
    weight_cycles = weight_lines / _rate(chip, "llb_l1" if weights_shared else "ddr_l1")
    elements = rounds * tile.stacked * m * tile.outputs
    out_run = tile.rows * tile.stacked * tile.columns * problem.result_bytes
    out_lines = elements / (tile.rows * tile.stacked * tile.columns) * _lines(out_run, out_run, line)
    sides = out_lines * problem.side_bytes / problem.result_bytes
    ddr = maps * map_lines + weights * weight_lines + cores * (out_lines + sides)
    clusters = ceil_div(cores, chip.cores_per_cluster)
    llb = 0.0
    if map_shared:
        llb += maps / clusters * map_lines + min(cores, chip.cores_per_cluster) * map_lines * ragged
    if weights_shared:
        llb += weights / clusters * weight_lines + min(cores, chip.cores_per_cluster) * weight_lines
    staged = maps * map_lines * map_shared + weights * weight_lines * weights_shared
    mte2 = map_cycles + weight_cycles + sides / _rate(chip, "ddr_ub") + staged / cores / _rate(chip, "ddr_llb")
    through_ub = problem.slave_bytes > 0
    fix = elements / tile.outputs * o16 * 4 / _rate(chip, "l0c_ub" if through_ub else "l0c_ddr")
    mte3 = out_lines / _rate(chip, "ub_ddr") if through_ub else 0.0
    heads = chip.vector.head_cycles + chip.vector.tail_cycles
    vector = elements * problem.vector_bytes / chip.vector.bytes_per_cycle + rounds * problem.stages * heads
    cube_cycles = products * product_cycles
    mte1 = a_loads * a_cycles + b_loads * b_cycles
    shared = ddr * 1000 / chip.bandwidth.ddr_bytes_per_kilocycle
    latency = chip.path["ddr_l1"].latency_cycles * (2 if map_shared or weights_shared else 1)
    first_load = (
        latency
        + (
            maps * map_lines / tile.map_loads() / (1 if "map" in tile.held else chunks)
            + weights * weight_lines / tile.weight_loads() / (1 if "weights" in tile.held else chunks)
        )
        * 1000
        / chip.bandwidth.ddr_bytes_per_kilocycle
    )
    leave = (fix + vector) / rounds
    bound_by_ddr = shared >= max(cube_cycles, mte1, mte2, vector)
    if bound_by_ddr:
        first, last = float(latency), leave + tile.stacked * product_cycles / (1 if "map" in tile.held else chunks)
    else:
        first, last = (
            first_load,
            leave + max(mte3, cores * out_lines * 1000 / chip.bandwidth.ddr_bytes_per_kilocycle) / rounds,
        )
    serial = float(HANDOVER_CYCLES * (products + rounds * chunks))
    if rounds * tile.stacked > 1 and 2 * m16 * o16 * 4 > chip.memory.l0c_bytes:
        serial += fix
    if steps / chunks > STEPS_AHEAD and chunks * rounds > 1 and bound_by_ddr:
        serial += latency * chunks * rounds
    return Work(
        cores=cores,
        cube_cycles=cube_cycles,
        vector_cycles=vector,
        mte1_cycles=mte1,
        mte2_cycles=mte2,
        mte3_cycles=mte3,
        fix_cycles=fix,
        ddr_bytes=ddr,
        llb_bytes=llb,
        trips=rounds,
        turns=rounds * chunks,
        steps=products * steps,
        instructions=products * (steps * SCALARS_PER_STEP + chunks * SCALARS_PER_CHUNK) + rounds * SCALARS_PER_TILE,
        first_cycles=first,
        last_cycles=last,
        serial_cycles=serial,
    )


def near_loads(tile: Tile, problem: Problem) -> tuple[int, int]:
    """How often all of a product's windows, and all of its weights, come beside the cube."""
    products = prod(tile.trips) * tile.stacked
    if tile.steps(problem) > 1:
        return products, products
    if tile.stacked > 1:
        return products, products // tile.stacked
    return (products // tile.trips[OUT] if "map" in tile.held else products), products


@lru_cache(maxsize=4096)
def _lines(run: int, pitch: int, line: int) -> float:
    """Bytes of all lines that a run touches, on average over where it may begin: at a multiple of ``pitch``."""
    places = range(0, line, gcd(line, pitch))
    return line * sum(ceil_div(place + run, line) for place in places) / len(places)


def _rate(chip: Chip, name: str) -> int:
    return chip.path[name].bytes_per_cycle


def describe(problem: Problem, tile: Tile) -> str:
    extents = problem.extents
    image = f"{extents[N]}x{extents[GROUP] * extents[OUT]}x{extents[DO]}x{extents[HO]}x{extents[WO]}"
    held = " and ".join(sorted(tile.held - {"rows"}))
    return (
        f"{image} in tiles of {tile.rows * tile.stacked}x{tile.columns} and {tile.outputs} channels, "
        + (f"{tile.stacked} products each, " if tile.stacked > 1 else "")
        + f"steps of {'x'.join(map(str, tile.step))} of {extents[C1]}x{extents[KH]}x{extents[KW]} blocks"
        + (f", {held} held in L1" if held else "")
    )


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, master: Master, matrix: Any, problem: Problem, tile: Tile, chip: Chip) -> None:
    taken, slaves = cube.keep_result(sch, master.block, chip)
    order = WEIGHTS_FIRST if tile.held == {"weights"} else MAP_FIRST
    placed = _cut(sch, master, problem, tile, order)
    sch.set_scope(matrix, 0, cube.L0A)
    whole_rows = tile.columns == problem.extents[WO]
    # How wide a part of a row is in L1 differs at the edges; its rows have to lie where they are found all the same.
    axes = problem.windows.axes if whole_rows else replace(problem.windows.axes, width=0)
    windows = replace(problem.windows, axes=axes, whole_rows=whole_rows)
    once = tile.steps(problem) == 1
    at_map = placed.trips[order.index(DO if "rows" in tile.held else WO)] if "map" in tile.held else placed.chunk
    near_map = placed.trips[order.index(WO)] if once and "map" in tile.held and tile.stacked == 1 else placed.step
    sch.compute_at(matrix, near_map, preserve_unit_loops=True)
    cube.mark(sch, matrix, near_map, str(windows))
    if sch.get(matrix).reads:
        feature_map = sch.cache_read(matrix, 0, cube.L1)
        sch.compute_at(feature_map, at_map, preserve_unit_loops=True)
        cube.mark(sch, feature_map, at_map, map_mark(axes))
    at_weights, near_weights = placed.chunk, placed.step
    if "weights" in tile.held:
        at_weights = placed.core if "map" in tile.held else placed.trips[order.index(OUT)]
    if once and tile.held == {"weights"}:
        near_weights = at_weights
    elif once and tile.stacked > 1:
        near_weights = placed.trips[-1]
        at_weights = at_weights if "weights" in tile.held else near_weights
    cube.bring_operand(sch, master.block, 1, cube.L0B, at_weights, near_weights, WEIGHTS)
    cube.place_slaves(sch, taken, slaves, placed, chip)
    cube.start_sum(sch, master.block, placed)


def _cut(sch: Any, master: Master, problem: Problem, tile: Tile, order: Sequence[int]) -> Placed:
    """Cores, trips in an order, the products of a tile, chunks, steps, and what one instruction does."""
    loops = sch.get_loops(master.block)
    sizes = {HO: (tile.stacked, tile.rows), WO: (tile.columns,), OUT: (tile.outputs,)}
    kept = [sch.split(loops[axis], [None, tile.trips[axis], *sizes.get(axis, (1,))]) for axis in range(KD)]
    steps = {
        C1: (tile.chunk[0], tile.step[0]),
        KH: (tile.chunk[1], tile.step[1]),
        KW: (problem.kernel[1], tile.step[2]),
    }
    steps[C0] = (problem.extents[C0],) * 2
    reduced = []
    for axis in range(KD, C0 + 1):
        chunk, step = steps.get(axis, (1, 1))
        reduced.append(sch.split(loops[axis], [None, chunk // step, step]))
    cores = [kept[axis][0] for axis in (PLACES_LAST if tile.places_last else OUTPUTS_LAST)]
    trips = [kept[axis][1] for axis in order]
    inner = [parts[-1] for parts in (*kept, *reduced)]
    sch.reorder(*cores, *trips, kept[HO][2], *(parts[0] for parts in reduced), *(parts[1] for parts in reduced), *inner)
    core = sch.fuse(*cores)
    sch.bind(core, "blockIdx.x")
    first, last = reduced[0], reduced[-1]
    return Placed(core, trips, first[0], last[0], last[1], inner, product=kept[HO][2])
