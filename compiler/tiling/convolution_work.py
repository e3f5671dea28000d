"""What a tile of a convolution makes the machine do."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import NamedTuple

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling.convolution_tiles import (
    BLOCK_BYTES,
    C1,
    DO,
    GROUP,
    HO,
    KD,
    OUT,
    PLACES,
    STEPS_AHEAD,
    WO,
    N,
    Problem,
    Tile,
)
from compiler.tiling.search import Work

OUTPUTS_LAST, PLACES_LAST = (N, GROUP, DO, HO, WO, OUT), (OUT, N, GROUP, DO, HO, WO)  # orders of cores
HANDOVER_CYCLES = 20  # from queue to queue, of what a product or a chunk does
SCALARS_PER_STEP, SCALARS_PER_CHUNK, SCALARS_PER_TILE = 24, 30, 60


def work_of(tile: Tile, problem: Problem, chip: Chip) -> Work:
    rounds, products = tile.rounds, tile.rounds * tile.products
    steps, chunks = tile.steps(problem), tile.chunks(problem)
    feature_map, weights = _map_load(tile, problem, chip, chunks), _weights_load(tile, problem, chip, chunks)
    map_cycles, weight_cycles = feature_map.cycles(chip), weights.cycles(chip)
    out = _Results.of(tile, problem, chip)
    cube = products * _product_cycles(tile, problem, chip, steps)
    near = _near_cycles(tile, problem, chip, steps)
    cores, per_kilocycle = prod(tile.cores), chip.bandwidth.ddr_bytes_per_kilocycle / 1000
    mte2 = map_cycles + weight_cycles + out.side_bytes / _rate(chip, "ddr_ub")
    mte2 += (feature_map.staged + weights.staged) / cores / _rate(chip, "ddr_llb")
    loads = (feature_map.ddr + weights.ddr + cores * out.side_bytes) / per_kilocycle
    stores = cores * out.line_bytes / per_kilocycle
    # Work can begin with the first of all loads; from then on the cores' own work and the rest that DDR moves overlap.
    first_loads = (feature_map.ddr / feature_map.turns + weights.ddr / weights.turns) / per_kilocycle
    first_queue = map_cycles / feature_map.turns + weight_cycles / weights.turns
    latency = chip.path["ddr_l1"].latency_cycles
    if feature_map.staged or weights.staged:
        latency += chip.path["llb_l1"].latency_cycles + chip.sync.cross_flag_cycles
    first = latency + max(first_loads, first_queue)
    inside = max(cube, near, out.vector_cycles, out.fix_cycles, out.store_cycles)
    outside = max(loads - first_loads + stores * (1 - 1 / rounds), mte2 - first_queue)
    # What the last tile made leaves in pieces, once all is computed.
    leave = max(stores, out.store_cycles, out.vector_cycles, out.fix_cycles) / rounds
    leave += (out.fix_cycles + out.vector_cycles) / (rounds * tile.pieces)
    turns = rounds * (1 if "map" in tile.held else chunks)
    around = first + max(inside, outside + inside / turns) + leave - max(inside, mte2, loads + stores)
    serial = float(HANDOVER_CYCLES * (products + rounds * chunks))
    if rounds > 1 and 2 * tile.l0c_bytes > chip.memory.l0c_bytes:
        serial += out.fix_cycles
    if steps * tile.products > STEPS_AHEAD * chunks and chunks * rounds > 1 and outside > inside:
        serial += latency * rounds  # the first chunk of a round is dispatched behind the work of the last one
    return Work(
        cores=cores,
        cube_cycles=cube,
        vector_cycles=out.vector_cycles,
        mte1_cycles=near,
        mte2_cycles=mte2,
        mte3_cycles=out.store_cycles,
        fix_cycles=out.fix_cycles,
        ddr_bytes=(loads + stores) * per_kilocycle,
        llb_bytes=feature_map.llb + weights.llb,
        trips=rounds,
        turns=rounds * chunks,
        steps=products * steps,
        instructions=products * (steps * SCALARS_PER_STEP + chunks * SCALARS_PER_CHUNK) + rounds * SCALARS_PER_TILE,
        first_cycles=min(first, around),
        last_cycles=max(0.0, around - first),
        serial_cycles=serial,
    )


# ---- beside the cube ---------------------------------------------------------------------------------------------


def _product_cycles(tile: Tile, problem: Problem, chip: Chip, steps: int) -> float:
    rows, columns = ceil_to(tile.positions, FRACTAL), ceil_to(tile.outputs, FRACTAL)
    k = problem.blocks * BLOCK_BYTES / DTYPES[problem.dtype].itemsize
    return rows * columns * k / chip.macs_per_cycle(problem.dtype) + steps * chip.cube.overhead_cycles


def _near_cycles(tile: Tile, problem: Problem, chip: Chip, steps: int) -> float:
    """Of MTE1: windows come for every product, weights for all of a tile; for more where one step has all of k."""
    windows, weights = tile.rounds * tile.products, tile.rounds
    if steps == 1:
        if "map" in tile.held and tile.products == 1:
            windows //= tile.trips[OUT]
        if tile.held == {"weights"}:
            weights = tile.trips[GROUP] * tile.trips[OUT]
    k_bytes = problem.blocks * BLOCK_BYTES
    a = windows * ceil_to(tile.positions, FRACTAL) * k_bytes / _rate(chip, "l1_l0a")
    return a + weights * ceil_to(tile.outputs, FRACTAL) * k_bytes / _rate(chip, "l1_l0b")


# ---- from afar ---------------------------------------------------------------------------------------------------


class _Load(NamedTuple):
    """How one operand comes into the cores."""

    shared: bool  # by cores of a cluster: then it comes by way of LLB
    ddr: float  # bytes of lines, over all cores
    llb: float  # bytes of the busiest cluster
    written: float  # bytes into L1 of a core, as long as they take
    turns: int  # loads of a core

    @property
    def staged(self) -> float:
        return self.ddr if self.shared else 0.0

    def cycles(self, chip: Chip) -> float:
        return self.written / _rate(chip, "llb_l1" if self.shared else "ddr_l1")


def _load(tile: Tile, chip: Chip, parts: int, lines: float, written: float, turns: int, ragged: float) -> _Load:
    """``parts`` different ones, summed over the clusters, of ``lines`` bytes each."""
    cores = prod(tile.cores)
    shared = parts < cores
    clusters, cores_of_cluster = ceil_div(cores, chip.cores_per_cluster), min(cores, chip.cores_per_cluster)
    llb = parts / clusters * lines + cores_of_cluster * lines * ragged if shared else 0.0
    return _Load(shared, parts * lines * (1.0 if shared else ragged), llb, written * ragged, turns)


def _map_load(tile: Tile, problem: Problem, chip: Chip, chunks: int) -> _Load:
    extents, size = problem.extents, DTYPES[problem.dtype].itemsize
    loads = tile.map_loads()
    height, width = problem.box(tile.map_rows, tile.columns, problem.kernel[0])
    whole_rows = width == problem.windows.axes.width
    run = (height * width if whole_rows else width) * size
    # Runs of whole rows go on to the end of a block of 32 bytes where the map does.
    is_ragged = run % chip.block_bytes > 0 and (not whole_rows or height == problem.map_shape[0])
    if whole_rows and height == problem.map_shape[0]:  # channels lie one behind the other, and so do their runs
        loaded = min(problem.channels, tile.chunk[0] * DTYPES[problem.dtype].fractal_k)
        runs = extents[KD] * ceil_div(problem.channels, loaded)
        lines = runs * _lines(loaded * run, loaded * run, chip.transfer.ddr_line_bytes)
    else:
        runs = problem.channels * extents[KD] * (1 if whole_rows else height)
        lines = runs * _lines(run, problem.map_shape[1] * size, chip.transfer.ddr_line_bytes)
    lines *= loads * tile.images
    written = loads * tile.images * extents[KD] * extents[C1] * height * width * BLOCK_BYTES
    turns = loads * (1 if "map" in tile.held else chunks)
    parts, _ = _parts_of_clusters(tile.cores, tile.places_last, chip.cores_per_cluster)
    ragged = 100 / chip.transfer.ragged_nz_percent if is_ragged else 1.0
    return _load(tile, chip, parts, lines, written, turns, ragged)


def _weights_load(tile: Tile, problem: Problem, chip: Chip, chunks: int) -> _Load:
    loads, held = tile.weight_loads(), "weights" in tile.held
    moved = loads * (tile.weight_bytes(problem, tile.chunk) if held else problem.blocks * BLOCK_BYTES * tile.outputs)
    _, parts = _parts_of_clusters(tile.cores, tile.places_last, chip.cores_per_cluster)
    return _load(tile, chip, parts, moved, moved, loads * (1 if held else chunks), 1.0)


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


@lru_cache(maxsize=4096)
def _lines(run: int, pitch: int, line: int) -> float:
    """Bytes of all lines that a run touches, on average over where it may begin: at a multiple of ``pitch``."""
    places = range(0, line, gcd(line, pitch))
    return line * sum(ceil_div(place + run, line) for place in places) / len(places)


# ---- on the way out ----------------------------------------------------------------------------------------------


class _Results(NamedTuple):
    """What becomes of the sums of one core."""

    fix_cycles: float
    vector_cycles: float
    store_cycles: float  # of MTE3
    line_bytes: float
    side_bytes: float  # lines of other inputs of the stages

    @staticmethod
    def of(tile: Tile, problem: Problem, chip: Chip) -> _Results:
        rounds = tile.rounds
        positions = tile.positions * tile.stacked
        elements = rounds * tile.images * positions * tile.outputs
        run = positions * problem.result_bytes
        lines = rounds * tile.images * tile.outputs * _lines(run, run, chip.transfer.ddr_line_bytes)
        heads = rounds * tile.pieces * problem.stages * (chip.vector.head_cycles + chip.vector.tail_cycles)
        through_ub = problem.slave_bytes > 0
        taken = rounds * tile.images * positions * ceil_to(tile.outputs, FRACTAL) * 4
        return _Results(
            fix_cycles=taken / _rate(chip, "l0c_ub" if through_ub else "l0c_ddr"),
            vector_cycles=elements * problem.vector_bytes / chip.vector.bytes_per_cycle + heads,
            store_cycles=lines / _rate(chip, "ub_ddr") if through_ub else 0.0,
            line_bytes=lines,
            side_bytes=lines * problem.side_bytes / problem.result_bytes,
        )


def _rate(chip: Chip, name: str) -> int:
    return chip.path[name].bytes_per_cycle
