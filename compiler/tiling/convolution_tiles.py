"""The tiles of a convolution: products of rows and channels, what of them stays in L1, and how cores share the rest.

A *product* is rows of whole width (where one row is too long, a part of a row) and output channels of one group of one
image, summed in L0C, or all rows of several images that are *abreast* (:mod:`compiler.tiling.images_abreast`). A *tile*
is several products which leave the core together: one below the other, whose map is one box in L1, or where one has
whole images, those of several others. Weights beside the cube meet all of them. Feature map and weights come to L1 in
chunks of channel blocks, or stay there; steps are channel blocks with the whole kernel, rows of the kernel, or single
elements of it. Windows of a tile may be *overlaid* (:mod:`compiler.tiling.overlaid`): beside the cube each row of the
map stands once for all rows of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from compiler.emission.cube.windows import Windows
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling.epilogue import Epilogue

N, GROUP, DO, HO, WO, OUT, KD, C1, KH, KW, C0 = range(11)  # axes of the product
PLACES = (N, DO, HO, WO)
BLOCK_BYTES = 32
MOST_ROWS = 4095  # of one instruction
MOST_COLUMNS = 255  # of the kernel, that one instruction is told of: a part of a row is told of its step's alone
LEAST_PIECES = 4  # of a core's results, so that vector unit, stores and fixpipe work side by side
STEPS_AHEAD = 7  # of a chunk: what MTE1's queue holds, so that the loads of the next chunk are dispatched in time


@dataclass(frozen=True)
class Problem:
    """A convolution as the choice of a tile sees it; ``extents`` are those of the product's axes."""

    extents: tuple[int, ...]
    windows: Windows
    map_shape: tuple[int, int]  # rows and columns
    channels: int  # of a group
    dtype: str
    slave_bytes: int  # of UB for each element of the result
    epilogue: Epilogue  # the stages behind the product
    result_bytes: int
    bias_bytes: int  # of an element of what sums begin with; none where that is zero
    llb_bytes: int  # that the kernel may take
    scale_bytes: int = 0  # of the scale of a column; none where there is one for all
    bias_blocks: int = 0  # along k, of a product that sums begin with where there is no table of it
    near: frozenset[str] = frozenset()  # of "map", "weights" and "result", what lies in LLB
    common: frozenset[str] = frozenset()  # and what other clusters load, too
    awaited: bool = False  # whether a kernel before makes the map

    @cached_property
    def kernel(self) -> tuple[int, int]:
        return self.extents[KH], self.extents[KW]

    @cached_property
    def blocks(self) -> int:
        """Of the whole kernel, each of 32 bytes along k."""
        return prod(self.extents[axis] for axis in (KD, C1, KH, KW))

    @property
    def images(self) -> int:
        """Those that are abreast are counted by the axis of depth."""
        return self.extents[DO if self.windows.axes.image_rows else N]

    @property
    def is_single(self) -> bool:
        """Whether windows are single elements, side by side."""
        alone = self.kernel == (1, 1) and self.windows.strides == (1, 1) and self.windows.pad_left == 0
        return alone and self.map_shape == (self.extents[HO], self.extents[WO])

    def overlaid_rows(self, rows: int) -> int:
        """Rows of the map that so many rows of windows and all rows of the kernel touch, one below the other."""
        return rows + (self.kernel[0] - 1) * self.windows.dilations[0]

    def fit_tables(self, outputs: int, chip: Chip) -> bool:
        """Whether what sums of so many channels begin with, and their scales, have room beside the cube."""
        begins, memory = 0 if self.bias_blocks else outputs * self.bias_bytes, chip.memory
        return begins <= memory.bt_bytes and outputs * self.scale_bytes <= memory.fb_bytes

    def memory_of(self, name: str) -> str:
        return "llb" if name in self.near else "ddr"

    def box(self, rows: int, columns: int, kernel_rows: int) -> tuple[int, int]:
        """Rows and columns of the map that so many rows of the windows touch."""
        (stride_h, stride_w), (dilation_h, dilation_w) = self.windows.strides, self.windows.dilations
        height = (rows - 1) * stride_h + (kernel_rows - 1) * dilation_h + 1
        width = (columns - 1) * stride_w + (self.kernel[1] - 1) * dilation_w + 1
        whole = self.windows.axes.width and columns == self.extents[WO]
        return min(height, self.map_shape[0]), self.map_shape[1] if whole else min(width, self.map_shape[1])


class _Sizes(NamedTuple):
    """A tile as plain numbers: a search makes tens of thousands."""

    rows: int
    columns: int
    outputs: int
    stacked: int  # products of a tile, along rows
    step: tuple[int, int, int]  # in channel blocks, kernel rows and columns
    chunk: tuple[int, int]  # in channel blocks and kernel rows
    trips: tuple[int, ...]  # of a core, along n, group, do, ho, wo, o
    cores: tuple[int, ...]  # along these
    places_last: bool  # which cores share a cluster: those of the same output channels, or those of the same rows
    leaving: int  # output channels that go through UB at a time
    held: frozenset[str]  # of "map" and "weights": what stays in L1, with all of its k, while the other goes by;
    # "rows": the map of all trips along rows does, so that what windows of two of them touch is loaded once
    images: int = 1  # products of a tile whose products are whole images
    abreast: int = 1  # images of a product
    overlaid: bool = False  # whether kernel rows share what stands beside the cube


class Tile(_Sizes):
    """Output positions and channels of a product, products of a tile, and where all that goes."""

    @cached_property
    def positions(self) -> int:
        return self.abreast * self.rows * self.columns

    @property
    def made_columns(self) -> int:
        """Columns that the cube makes: overlaid rows begin with whole fractals."""
        return ceil_to(self.columns, FRACTAL) if self.overlaid else self.columns

    @cached_property
    def made_rows(self) -> int:
        """Of the product in L0C."""
        return ceil_to(self.abreast * self.rows * self.made_columns, FRACTAL)

    @cached_property
    def rounds(self) -> int:
        """Of a core."""
        return prod(self.trips)

    @property
    def products(self) -> int:
        """Of a tile."""
        return self.stacked * self.images

    @property
    def pieces(self) -> int:
        """In which a tile's results leave."""
        return ceil_div(self.outputs, self.leaving)

    @property
    def map_rows(self) -> int:
        """Rows of the result whose map is loaded at once."""
        return self.rows * self.stacked * (self.trips[HO] if "rows" in self.held else 1)

    def map_bytes(self, problem: Problem, chunk: tuple[int, int]) -> int:
        whole = "map" in self.held
        blocks, kernel_rows = (problem.extents[C1] * problem.extents[KD], problem.kernel[0]) if whole else chunk
        height, width = problem.box(self.map_rows, self.columns, kernel_rows)
        k0 = DTYPES[problem.dtype].fractal_k
        columns = self.abreast * height * width + (2 * k0 if width % k0 and self.abreast == 1 else 0)
        return self.images * blocks * columns * BLOCK_BYTES

    def weight_bytes(self, problem: Problem, chunk: tuple[int, int]) -> int:
        if "weights" not in self.held:
            return prod(chunk) * problem.kernel[1] * self.outputs * BLOCK_BYTES
        outputs = self.outputs
        if "map" in self.held:  # those of all trips
            outputs *= self.trips[OUT] * self.trips[GROUP]
        return problem.blocks * outputs * BLOCK_BYTES

    def may_have_weights_first(self, problem: Problem, chip: Chip) -> bool:
        """Whether a core has one tile, of a map that is awaited, and room for all of its weights beside the cube."""
        if not problem.awaited or self.rounds > 1 or self.overlaid:
            return False
        near = ceil_to(self.outputs, FRACTAL) * (problem.blocks + problem.bias_blocks) * BLOCK_BYTES
        far = self.l1_bytes(problem, self.chunk) + problem.blocks * self.outputs * BLOCK_BYTES
        return near <= chip.memory.l0b_bytes and far <= chip.memory.l1_bytes

    def map_loads(self) -> int:
        loads = self.rounds // (self.trips[OUT] if "map" in self.held else 1)
        return loads // (self.trips[HO] if "rows" in self.held else 1)

    def weight_loads(self) -> int:
        if "weights" not in self.held:
            return self.rounds
        return 1 if "map" in self.held else self.trips[GROUP] * self.trips[OUT]

    def bytes_of(self, problem: Problem) -> dict[str, int]:
        """Of each memory, what one of each buffer takes, and a second one of those that are filled again."""
        o16, blocks = ceil_to(self.outputs, FRACTAL), prod(self.step)
        return {
            "l1": self.l1_bytes(problem, self.chunk),
            "l0a": 2 * (self.windows_bytes(problem) + self.made_rows * problem.bias_blocks * BLOCK_BYTES),
            "l0b": 2 * o16 * (blocks + problem.bias_blocks) * BLOCK_BYTES,
            "l0c": self.l0c_bytes,
            "ub": self.ub_bytes(problem, self.leaving),
        }

    def windows_bytes(self, problem: Problem) -> int:
        """Of a step, beside the cube."""
        if not self.overlaid:
            return self.made_rows * prod(self.step) * BLOCK_BYTES
        blocks, _, kernel_columns = self.step
        return problem.overlaid_rows(self.rows) * self.made_columns * blocks * kernel_columns * BLOCK_BYTES

    def l1_bytes(self, problem: Problem, chunk: tuple[int, int]) -> int:
        """With chunks of that size."""
        in_chunks = self.chunks_of(problem, chunk) > 1
        map_again = 2 if self.map_loads() > 1 or ("map" not in self.held and in_chunks) else 1
        weights_again = 2 if self.weight_loads() > 1 or ("weights" not in self.held and in_chunks) else 1
        tables = self.trips[GROUP] * self.trips[OUT] * self.outputs * (problem.bias_bytes + problem.scale_bytes)
        return map_again * self.map_bytes(problem, chunk) + weights_again * self.weight_bytes(problem, chunk) + tables

    def bias_stays(self, problem: Problem, chip: Chip) -> bool:
        """Whether what sums begin with stays beside the cube: one for all trips, or there is room for those of all."""
        trips = self.trips[GROUP] * self.trips[OUT]
        of_trip = problem.bias_blocks * ceil_to(self.outputs, FRACTAL) * BLOCK_BYTES
        others = self.bytes_of(problem)["l0b"] - 2 * of_trip
        return trips == 1 or (0 < of_trip and others + trips * of_trip <= chip.memory.l0b_bytes)

    @property
    def l0c_bytes(self) -> int:
        return self.products * self.made_rows * ceil_to(self.outputs, FRACTAL) * 4

    def ub_bytes(self, problem: Problem, leaving: int) -> int:
        """With so many channels that leave at a time."""
        again = 2 if self.rounds * ceil_div(self.outputs, leaving) > 1 else 1
        positions = self.products * self.abreast * self.rows * self.made_columns
        return again * positions * ceil_to(leaving, FRACTAL) * problem.slave_bytes

    def chunks(self, problem: Problem) -> int:
        return self.chunks_of(problem, self.chunk)

    @staticmethod
    def chunks_of(problem: Problem, chunk: tuple[int, int]) -> int:
        return problem.extents[KD] * ceil_div(problem.extents[C1], chunk[0]) * (problem.kernel[0] // chunk[1])

    def steps(self, problem: Problem) -> int:
        """Of one product."""
        (rows, columns), (_, step_rows, step_columns) = problem.kernel, self.step
        steps = problem.extents[KD] * (rows // step_rows) * (columns // step_columns)
        full, rest = divmod(problem.extents[C1], self.chunk[0])
        return steps * (full * ceil_div(self.chunk[0], self.step[0]) + ceil_div(rest, self.step[0]))


def _areas(problem: Problem, most: int, *, in_chain: bool) -> Iterator[tuple[int, int, int]]:
    """(rows, columns, images) of products of at most so many positions: rows of whole width, parts of one row, or all
    rows of several images.
    """
    height, width = problem.extents[HO], problem.extents[WO]
    may_be_whole = problem.kernel[1] <= MOST_COLUMNS
    if width <= most and may_be_whole:
        most_rows = min(height, most // width)
        rows = {ceil_div(height, ceil_div(height, r)) for r in range(1, most_rows + 1)}
        yield from ((r, width, 1) for r in sorted(rows))
    if (width > FRACTAL and width > most // 4) or not may_be_whole:
        parts = range(2, ceil_div(width, FRACTAL) + 1)
        columns = {ceil_to(ceil_div(width, p), FRACTAL) for p in parts}
        # More columns than a row has are a part of it, too.
        columns |= set() if may_be_whole else {ceil_to(width + 1, FRACTAL)}
        yield from ((1, c, 1) for c in sorted(columns) if c <= most)
    if problem.windows.axes.image_rows and may_be_whole and not in_chain:
        images, most_images = problem.extents[DO], most // (height * width)
        counts = {ceil_div(images, ceil_div(images, count)) for count in range(2, min(images, most_images) + 1)}
        yield from ((height, width, count) for count in sorted(counts))


def output_sizes(problem: Problem) -> list[int]:
    """Channels of a tile; with several groups only even parts, since a tile's channels are those of one group."""
    outputs = problem.extents[OUT]
    fractals = ceil_div(outputs, FRACTAL)
    sizes = {ceil_div(fractals, parts) for parts in range(1, min(fractals, 16) + 1)} | {1}
    channels = {min(size * FRACTAL, outputs) for size in sizes}
    return sorted(n for n in channels if problem.extents[GROUP] == 1 or outputs % n == 0)


def overlaid_tiles(problem: Problem, chip: Chip, sizes: Iterable[int]) -> Iterator[Tile]:
    """Tiles of overlaid windows that fit with room for two of what stands beside the cube, with so many channels.

    Rows of the map are as far apart as those of the result. Several products of a tile have as many rows each.
    """
    memory, (height, width) = chip.memory, (problem.extents[HO], problem.extents[WO])
    if problem.kernel[0] == 1 or height == 1 or problem.windows.strides[0] != 1:
        return
    l0a, l0b, l0c = (size // 2 for size in (memory.l0a_bytes, memory.l0b_bytes, memory.l0c_bytes))
    made = ceil_to(width, FRACTAL)
    for outputs in sizes:
        o16, (kernel_rows, kernel_columns) = ceil_to(outputs, FRACTAL), problem.kernel
        for columns in {kernel_columns, 1}:
            step = (1, kernel_rows, columns)
            weights = o16 * (prod(step) + problem.bias_blocks) * BLOCK_BYTES
            if weights > l0b or not problem.fit_tables(outputs, chip):
                continue
            for rows in sorted({ceil_div(height, parts) for parts in range(1, height + 1)}):
                a = problem.overlaid_rows(rows) * columns + rows * problem.bias_blocks
                fits = a * made * BLOCK_BYTES <= l0a and rows * made * o16 * 4 <= l0c
                if fits and max(rows * made, problem.overlaid_rows(rows) * made) <= MOST_ROWS:
                    yield from _spread(problem, chip, 2, (rows, width, 1), outputs, step, False, True)


def overlaying_pays(problem: Problem, outputs: int, chip: Chip) -> bool:
    """Whether the cube multiplies windows by so many channels, those behind the last column, too, in less time than
    they take to come for each row of the kernel.
    """
    macs = FRACTAL * ceil_to(outputs, FRACTAL) * DTYPES[problem.dtype].fractal_k
    of_cube = macs / chip.macs_per_cycle(problem.dtype)
    brought = FRACTAL * BLOCK_BYTES / chip.path["l1_l0a"].bytes_per_cycle
    width = problem.extents[WO]
    return of_cube * ceil_to(width, FRACTAL) < brought * width


def tiles_of(problem: Problem, chip: Chip, times: int, *, in_chain: bool = False) -> Iterator[Tile]:
    """Tiles that fit, with room for so many of what stands beside the cube; only what a kernel of several convolutions
    may have, if that is asked for: tiles of one product, of which a core makes all channels, and without the map of
    all trips along rows.

    With room for one only, the other memories need not hold twice what is filled again.
    """
    memory = chip.memory
    l0a = memory.l0a_bytes // times // BLOCK_BYTES
    most = min(MOST_ROWS, memory.l0c_bytes // (FRACTAL * 4), l0a // (1 + problem.bias_blocks))
    for rows, columns, images in _areas(problem, most, in_chain=in_chain):
        m16 = ceil_to(images * rows * columns, FRACTAL)
        for outputs in output_sizes(problem):
            o16 = ceil_to(outputs, FRACTAL)
            if m16 * o16 * 4 > memory.l0c_bytes or not problem.fit_tables(outputs, chip):
                break
            room = min(memory.l0a_bytes // (m16 * BLOCK_BYTES), memory.l0b_bytes // (o16 * BLOCK_BYTES)) // times
            step = _step(problem, room - problem.bias_blocks, columns < problem.extents[WO])
            if step is not None:
                yield from _spread(problem, chip, times, (rows, columns, images), outputs, step, in_chain)


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
    return (1, 1, _divisor(columns_of_kernel, blocks)) if blocks > 0 else None


def _divisor(extent: int, most: int) -> int:
    return max(size for size in range(1, min(extent, most) + 1) if extent % size == 0)


def _spread(
    problem: Problem,
    chip: Chip,
    times: int,
    area: tuple[int, int, int],
    outputs: int,
    step: tuple[int, int, int],
    in_chain: bool,
    overlaid: bool = False,
) -> Iterator[Tile]:
    rows, columns, abreast = area
    extents, memory, rooms = problem.extents, chip.memory, 1 if times == 2 else 2
    whole_chunk = (ceil_to(extents[C1], step[0]), problem.kernel[0])
    ragged = overlaid and extents[HO] % rows > 0
    for stacked, images in [(1, 1)] if in_chain or ragged else _stacks(problem, *area):
        tiles = (
            ceil_div(extents[N], images),
            extents[GROUP],
            ceil_div(extents[DO], images * abreast),
            ceil_div(extents[HO], rows * stacked),
            ceil_div(extents[WO], columns),
            ceil_div(extents[OUT], outputs),
        )
        begins = rows, columns, outputs, stacked, step
        for trips, cores in (_grids_of_places if in_chain else _grids)(tiles, chip.cores):
            # Else either order puts the same into a cluster.
            both = chip.clusters > 1 and 1 < cores[OUT] < prod(cores) and not in_chain
            orders = (False, True) if both else (False,)
            plain = Tile(*begins, whole_chunk, trips, cores, False, outputs, frozenset(), images, abreast, overlaid)
            leaving = _leaving(plain, problem, memory.ub_bytes)
            if plain.l0c_bytes > memory.l0c_bytes * rooms or plain.ub_bytes(problem, leaving) > memory.ub_bytes * rooms:
                continue
            for held in _holdings(problem, trips):
                if in_chain and "rows" in held:
                    continue
                tile = Tile(*begins, whole_chunk, trips, cores, False, leaving, held, images, abreast, overlaid)
                for chunk in _chunks(tile, problem, memory.l1_bytes * rooms):
                    for last in orders:
                        yield Tile(*begins, chunk, trips, cores, last, leaving, held, images, abreast, overlaid)


def _stacks(problem: Problem, rows: int, columns: int, abreast: int) -> list[tuple[int, int]]:
    """How many products a tile may have, one below the other, or in as many images.

    Weights that came beside the cube meet them all, and the map of those below one another is one.
    """
    if columns < problem.extents[WO]:
        return [(1, 1)]
    height = ceil_div(problem.extents[HO], rows)
    if height == 1 and (problem.extents[DO] == 1 or problem.windows.axes.image_rows):
        of_products = ceil_div(problem.images, abreast)
        return [(1, images) for images in _even_parts(of_products, (2, 4, 8, 16, 32))]
    return [(stacked, 1) for stacked in _even_parts(height, (2, 4, 8))]


def _even_parts(extent: int, sizes: Sequence[int]) -> list[int]:
    """One, and those sizes that fit, each as small as makes as many parts."""
    return sorted({1, *(ceil_div(extent, ceil_div(extent, size)) for size in sizes if size <= extent)})


def _holdings(problem: Problem, trips: tuple[int, ...]) -> list[frozenset[str]]:
    """What may stay in L1: an operand that several trips read."""
    places, outputs = prod(trips[axis] for axis in PLACES), trips[OUT]
    overlap = (problem.kernel[0] - 1) * problem.windows.dilations[0] >= problem.windows.strides[0]
    found = []
    for map_held, rows_held, weights_held in product((False, True), repeat=3):
        if rows_held and not (map_held and overlap and trips[HO] > 1 and trips[WO] == 1):
            continue
        if (map_held and outputs == 1 and not rows_held) or (weights_held and places == 1):
            continue
        names = (("map", map_held), ("rows", rows_held), ("weights", weights_held))
        found.append(frozenset(name for name, held in names if held))
    return found


@lru_cache(maxsize=4096)
def _grids(tiles: tuple[int, ...], cores: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Trips of a core and numbers of cores along all axes, where the busiest core has nearly the least work.

    With several groups, all cores have as many tiles of a group's channels: behind those are the next group's.
    """
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for output_trips in {ceil_div(tiles[OUT], count) for count in range(1, min(tiles[OUT], cores) + 1)}:
        if tiles[GROUP] > 1 and tiles[OUT] % output_trips:
            continue
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


@lru_cache(maxsize=4096)
def _grids_of_places(tiles: tuple[int, ...], cores: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The same where each core makes all channels of its places."""
    found = _grids((*(1 if axis in (GROUP, OUT) else count for axis, count in enumerate(tiles)),), cores)
    return [
        (tuple(tiles[axis] if axis in (GROUP, OUT) else count for axis, count in enumerate(trips)), grid)
        for trips, grid in found
    ]


def _leaving(tile: Tile, problem: Problem, room: int) -> int:
    """Channels that leave at a time: so few that UB holds them twice, and that stores begin before all is computed.

    Only even parts of the tile: a stage behind it would take the rest from the next tile.
    """
    most = max(FRACTAL, ceil_div(tile.outputs, ceil_div(LEAST_PIECES, tile.rounds)))
    sizes = [size for size in range(FRACTAL, tile.outputs, FRACTAL) if tile.outputs % size == 0]
    for size in reversed(sizes):
        if size <= most and tile.ub_bytes(problem, size) <= room:
            return size
    return sizes[0] if sizes and most < tile.outputs else tile.outputs


def _chunks(tile: Tile, problem: Problem, room: int) -> Iterator[tuple[int, int]]:
    """The most that comes at once, and the least: where a core has little to do, it begins sooner."""
    most = _chunk(tile, problem, room)
    if most is None:
        return
    yield most
    in_chunks = not tile.held >= {"map", "weights"} and tile.rounds <= LEAST_PIECES
    if in_chunks and most[0] > tile.step[0]:
        yield tile.step[0], problem.kernel[0]


def _chunk(tile: Tile, problem: Problem, room: int) -> tuple[int, int] | None:
    """Channel blocks with all kernel rows whose steps MTE1's queue holds; where that is too much, less."""
    c1, kernel_rows = problem.extents[C1], problem.kernel[0]
    if tile.held >= {"map", "weights"}:
        return tile.chunk if tile.l1_bytes(problem, tile.chunk) <= room else None
    steps_of_block = prod(e // s for e, s in zip(problem.kernel, tile.step[1:], strict=True))
    blocks = tile.step[0] * max(1, STEPS_AHEAD // (steps_of_block * tile.products))
    while blocks >= tile.step[0]:
        blocks = min(blocks, ceil_to(ceil_div(c1, ceil_div(c1, blocks)), tile.step[0]))
        if tile.l1_bytes(problem, (blocks, kernel_rows)) <= room:
            return blocks, kernel_rows
        blocks -= tile.step[0]
    if tile.step[0] > 1:
        return None
    fewer = (r for r in range(kernel_rows - 1, 0, -1) if kernel_rows % r == 0 and r % tile.step[1] == 0)
    return next(((1, r) for r in fewer if tile.l1_bytes(problem, (1, r)) <= room), None)
