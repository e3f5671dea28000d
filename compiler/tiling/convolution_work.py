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
    WO,
    N,
    Problem,
    Tile,
)
from compiler.tiling.search import Work

OUTPUTS_LAST, PLACES_LAST = (N, GROUP, DO, HO, WO, OUT), (OUT, N, GROUP, DO, HO, WO)  # orders of cores
HANDOVER_CYCLES = 20  # from queue to queue, of what a product or a chunk does
SLOTS = 2  # of a buffer that is filled again
SCALARS_PER_STEP, SCALARS_PER_CHUNK, SCALARS_PER_TILE = 24, 30, 60


def work_of(tile: Tile, problem: Problem, chip: Chip) -> Work:
    rounds, products = tile.rounds, tile.rounds * tile.products
    steps, chunks = tile.steps(problem), tile.chunks(problem)
    feature_map, weights = _map_load(tile, problem, chip, chunks), _weights_load(tile, problem, chip, chunks)
    cores, bandwidth = prod(tile.cores), _bandwidth(chip)
    map_cycles, weight_cycles = feature_map.cycles(chip, cores), weights.cycles(chip, cores)
    out = _Results.of(tile, problem, chip)
    cube = products * _product_cycles(tile, problem, chip, steps)
    near = _near_cycles(tile, problem, chip, steps)
    sharing = {"ddr": cores, "llb": min(cores, chip.cores_per_cluster)}  # who share the bandwidth
    mte2 = map_cycles + weight_cycles
    mte2 += out.side_bytes / min(_rate(chip, f"{out.sides_in}_ub"), bandwidth[out.sides_in] / sharing["llb"])
    loads = {"ddr": feature_map.ddr + weights.ddr, "llb": feature_map.llb + weights.llb}
    loads[out.sides_in] += sharing[out.sides_in] * out.side_bytes
    stores = sharing[out.result_in] * out.line_bytes
    # Work can begin with the first of all loads; from then on the cores' own work and the rest that is moved overlap.
    first_bytes = {
        "ddr": feature_map.ddr / feature_map.turns_far + weights.ddr / weights.turns_far,
        "llb": feature_map.llb / feature_map.turns + weights.llb / weights.turns,
    }
    first_loads = {memory: first_bytes[memory] / bandwidth[memory] for memory in bandwidth}
    store_cycles = stores / bandwidth[out.result_in]
    moved = {memory: loads[memory] + (stores if memory == out.result_in else 0.0) for memory in bandwidth}
    moved_cycles = max(moved[memory] / bandwidth[memory] for memory in bandwidth)
    first_queue = map_cycles / feature_map.turns + weight_cycles / weights.turns
    latency = max(chip.path[f"{load.memory}_l1"].latency_cycles for load in (feature_map, weights))
    if feature_map.shared or weights.shared:
        latency += chip.path["llb_l1"].latency_cycles + chip.sync.cross_flag_cycles
    first = latency + max(*first_loads.values(), first_queue)
    inside = max(cube, near, out.vector_cycles, out.fix_cycles, out.store_cycles)
    later = {memory: loads[memory] / bandwidth[memory] - first_loads[memory] for memory in bandwidth}
    later[out.result_in] += store_cycles * (1 - 1 / rounds)
    outside = max(*later.values(), mte2 - first_queue)
    # What the last tile made leaves in pieces, once all is computed.
    leave = max(store_cycles, out.store_cycles, out.vector_cycles, out.fix_cycles) / rounds
    leave += (out.fix_cycles + out.vector_cycles) / (rounds * tile.pieces)
    turns = rounds * (1 if "map" in tile.held else chunks)
    around = first + max(inside, outside + inside / turns) + leave - max(inside, mte2, moved_cycles)
    serial = float(HANDOVER_CYCLES * (products + rounds * chunks))
    if rounds > 1 and 2 * tile.l0c_bytes > chip.memory.l0c_bytes:
        serial += out.fix_cycles
    if out.side_bytes and rounds > 1 and tile.pieces > SLOTS:
        # What other inputs wait for, the next tile's operands do as well: they come behind them.
        serial += min(cube, out.vector_cycles) * (1 - 1 / tile.pieces)
    # What comes from afar once comes early: what is computed with it again is left for afterwards.
    for load in (feature_map, weights):
        early = load.ddr / bandwidth["ddr"] + inside * (1 - 1 / load.again)
        serial += max(0.0, early - max(inside, mte2, moved_cycles)) if load.again > 1 else 0.0
    return Work(
        cores=cores,
        cube_cycles=cube,
        vector_cycles=out.vector_cycles,
        mte1_cycles=near,
        mte2_cycles=mte2,
        mte3_cycles=out.store_cycles,
        fix_cycles=out.fix_cycles,
        ddr_bytes=moved["ddr"],
        llb_bytes=moved["llb"],
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

    memory: str  # where it lies
    shared: bool  # by cores of a cluster: then it comes by way of LLB
    ddr: float  # bytes of lines, over all cores
    llb: float  # bytes of the busiest cluster
    written: float  # bytes into L1 of a core, as long as they take
    turns: int  # loads of a core
    turns_far: int  # of these, those that bring something from where it lies

    @property
    def again(self) -> int:
        """How often all of it is loaded that came from afar once."""
        return self.turns // self.turns_far

    def cycles(self, chip: Chip, cores: int) -> float:
        """Of the queue of a core: one load after another, and the same ones in all cores of a cluster at the same time.

        Where these share a load, each brings a part of it, in turns in which others load from LLB.
        """
        if self.shared:
            return self.ddr / cores / _rate(chip, "ddr_llb") + self.written / _rate(chip, "llb_l1")
        moved = self.llb if self.memory == "llb" else self.ddr / ceil_div(cores, chip.cores_per_cluster)
        return max(self.written / _rate(chip, f"{self.memory}_l1"), moved / _bandwidth(chip)[self.memory])


def _bandwidth(chip: Chip) -> dict[str, float]:
    """Bytes per cycle, of all cores and of those of a cluster."""
    rates = chip.bandwidth
    return {"ddr": rates.ddr_bytes_per_kilocycle / 1000, "llb": rates.llb_bytes_per_kilocycle / 1000}


def _load(
    tile: Tile,
    problem: Problem,
    chip: Chip,
    name: str,
    parts: int,
    lines: float,
    written: float,
    turns: int,
    again: int,
    ragged: float,
) -> _Load:
    """``parts`` different ones, summed over the clusters, of ``lines`` bytes each; all of it comes ``again`` times.

    What cores share stays in LLB where there is room, and comes from DDR once.
    """
    cores, memory = prod(tile.cores), problem.memory_of(name)
    clusters, cores_of_cluster = ceil_div(cores, chip.cores_per_cluster), min(cores, chip.cores_per_cluster)
    if memory == "llb":
        return _Load(memory, False, 0.0, cores_of_cluster * lines * ragged, written * ragged, turns, turns)
    if parts == cores:
        return _Load(memory, False, parts * lines * ragged, 0.0, written * ragged, turns, turns)
    c1, chunk = problem.extents[C1], tile.chunk[0]
    kept = parts / clusters * lines / again * ceil_to(c1, chunk) / c1  # the last chunk takes as much as the others
    once = again if kept <= problem.llb_bytes else 1
    llb = parts / clusters * lines / once + cores_of_cluster * lines * ragged
    return _Load(memory, True, parts * lines / once, llb, written * ragged, turns, turns // once)


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
    again = 1 if "map" in tile.held else tile.trips[OUT]
    return _load(tile, problem, chip, "map", parts, lines, written, turns, again, ragged)


def _weights_load(tile: Tile, problem: Problem, chip: Chip, chunks: int) -> _Load:
    loads, held = tile.weight_loads(), "weights" in tile.held
    moved = loads * (tile.weight_bytes(problem, tile.chunk) if held else problem.blocks * BLOCK_BYTES * tile.outputs)
    _, parts = _parts_of_clusters(tile.cores, tile.places_last, chip.cores_per_cluster)
    turns = loads * (1 if held else chunks)
    again = loads // (tile.trips[GROUP] * tile.trips[OUT]) or 1
    return _load(tile, problem, chip, "weights", parts, moved, moved, turns, again, 1.0)


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
    result_in: str
    sides_in: str

    @staticmethod
    def of(tile: Tile, problem: Problem, chip: Chip) -> _Results:
        rounds = tile.rounds
        positions = tile.positions * tile.stacked
        elements = rounds * tile.images * positions * tile.outputs
        run = positions * problem.result_bytes
        lines = rounds * tile.images * tile.outputs * _lines(run, run, chip.transfer.ddr_line_bytes)
        heads = rounds * tile.pieces * problem.stages * (chip.vector.head_cycles + chip.vector.tail_cycles)
        through_ub, result_in = problem.slave_bytes > 0, problem.memory_of("result")
        taken = rounds * tile.images * positions * ceil_to(tile.outputs, FRACTAL) * 4
        return _Results(
            fix_cycles=taken / _rate(chip, "l0c_ub" if through_ub else f"l0c_{result_in}"),
            vector_cycles=elements * problem.vector_bytes / chip.vector.bytes_per_cycle + heads,
            store_cycles=lines / _rate(chip, f"ub_{result_in}") if through_ub else 0.0,
            line_bytes=lines,
            side_bytes=lines * problem.side_bytes / problem.result_bytes,
            result_in=result_in,
            sides_in=problem.memory_of("sides"),
        )


def _rate(chip: Chip, name: str) -> int:
    return chip.path[name].bytes_per_cycle
