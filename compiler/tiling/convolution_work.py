"""What the tiles of a convolution make the machine do: of all of them at once, since a search makes tens of thousands.

Each number is an array with one element for each tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL
from compiler.target import Chip
from compiler.tiling.arrays import most, quotient, rounded
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
from compiler.tiling.pieces import which_pay
from compiler.tiling.search import Work, works_in

OUTPUTS_LAST, PLACES_LAST = (N, GROUP, DO, HO, WO, OUT), (OUT, N, GROUP, DO, HO, WO)  # orders of cores
HANDOVER_CYCLES = 20  # from queue to queue, of what a product or a chunk does
SLOTS = 2  # of a buffer that is filled again
SCALARS_PER_STEP, SCALARS_PER_CHUNK, SCALARS_PER_TILE, SCALARS_PER_KERNEL_ROW = 24, 30, 60, 12


def work_of(tile: Tile, problem: Problem, chip: Chip) -> Work:
    return works_in(works_of([tile], problem, chip))[0]


def works_of(tiles: Sequence[Tile], problem: Problem, chip: Chip) -> Work:
    """Of all tiles; each number is an array."""
    of = Columns(tiles, problem)
    rounds, products = of.rounds, of.rounds * of.products
    steps, chunks = of.steps, of.chunks
    cores, bandwidth = of.used_cores, _bandwidth(chip)
    out = _Results.of(of, problem, chip)
    sides_in_ddr = 0.0 if problem.epilogue.sides_near else cores * out.side_bytes
    stored_in_ddr = 0.0 if problem.memory_of("result") == "llb" else cores * out.line_bytes
    feature_map, weights = _as_shared(of, problem, chip, sides_in_ddr + stored_in_ddr)
    map_cycles, weight_cycles = feature_map.cycles(chip, cores), weights.cycles(chip, cores)
    cube = products * _product_cycles(of, problem, chip)
    near = _near_cycles(of, problem, chip)
    sharing = {"ddr": cores, "llb": np.minimum(cores, chip.cores_per_cluster)}  # who share the bandwidth
    mte2 = map_cycles + weight_cycles
    mte2 = mte2 + out.side_bytes / np.minimum(
        _rate(chip, f"{out.sides_in}_ub"), bandwidth[out.sides_in] / sharing["llb"]
    )
    loads = {"ddr": feature_map.ddr + weights.ddr, "llb": feature_map.llb + weights.llb}
    loads[out.sides_in] = loads[out.sides_in] + sharing[out.sides_in] * out.side_bytes
    stores = sharing[out.result_in] * out.line_bytes
    # Work can begin with the first of all loads; from then on the cores' own work and the rest that is moved overlap.
    first_bytes = {
        "ddr": feature_map.ddr / feature_map.turns_far + weights.ddr / weights.turns_far,
        "llb": feature_map.llb / feature_map.turns + weights.llb / weights.turns,
    }
    first_loads = {memory: first_bytes[memory] / bandwidth[memory] for memory in bandwidth}
    store_cycles = stores / bandwidth[out.result_in]
    moved = {memory: loads[memory] + (stores if memory == out.result_in else 0.0) for memory in bandwidth}
    moved_cycles = most(*(moved[memory] / bandwidth[memory] for memory in bandwidth))
    first_queue = map_cycles / feature_map.turns + weight_cycles / weights.turns
    latency = max(chip.path[f"{load.memory}_l1"].latency_cycles for load in (feature_map, weights))
    is_shared = feature_map.shared | weights.shared
    if is_shared.any():
        latency = latency + is_shared * (chip.path["llb_l1"].latency_cycles + chip.sync.cross_flag_cycles)
    first = latency + most(*first_loads.values(), first_queue)
    inside = most(cube, near, out.vector_cycles, out.fix_cycles, out.store_cycles)
    later = {memory: loads[memory] / bandwidth[memory] - first_loads[memory] for memory in bandwidth}
    later[out.result_in] = later[out.result_in] + store_cycles * (1 - 1 / rounds)
    outside = most(*later.values(), mte2 - first_queue)
    # What the last tile made leaves in pieces, once all is computed.
    leave = most(store_cycles, out.store_cycles, out.vector_cycles, out.fix_cycles) / rounds
    leave = leave + (out.fix_cycles + out.vector_cycles) / (rounds * of.pieces)
    turns = rounds * np.where(of.holds_map, 1, chunks)
    busiest = most(inside, mte2, moved_cycles)
    around = first + most(inside, outside + inside / turns) + leave - busiest
    serial = (HANDOVER_CYCLES * (products + rounds * chunks)).astype(np.float64)
    waits = (rounds > 1) & (2 * of.l0c_bytes > chip.memory.l0c_bytes)
    serial = serial + np.where(waits, out.fix_cycles, 0.0)
    # What other inputs wait for, the next tile's operands do as well: they come behind them.
    behind = (out.side_bytes > 0) & (rounds > 1) & (of.pieces > SLOTS)
    serial = serial + np.where(behind, np.minimum(cube, out.vector_cycles) * (1 - 1 / of.pieces), 0.0)
    # What comes from afar once comes early: what is computed with it again is left for afterwards.
    for load in (feature_map, weights):
        early = load.ddr / bandwidth["ddr"] + inside * (1 - 1 / load.again)
        serial = serial + np.where(load.again > 1, np.maximum(0.0, early - busiest), 0.0)
    scalars = SCALARS_PER_STEP + of.overlaid * problem.kernel[0] * SCALARS_PER_KERNEL_ROW
    columns: dict[str, Any] = dict(
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
        instructions=products * (steps * scalars + chunks * SCALARS_PER_CHUNK) + rounds * SCALARS_PER_TILE,
        first_cycles=np.minimum(first, around),
        last_cycles=np.maximum(0.0, around - first),
        serial_cycles=serial,
        loads=feature_map.turns + weights.turns,
        shared=sum(load.shared * load.turns_far for load in (feature_map, weights)),
        sharers=most(*(np.where(load.shared, cores / load.parts, 1.0) for load in (feature_map, weights))),
        rows=of.positions,
        columns=of.outputs,
    )
    return Work(**columns)


class Columns:
    """What `Tile` says of one tile, of many: the same names, and all of it arrays."""

    def __init__(self, tiles: Sequence[Tile], problem: Problem) -> None:
        self.tiles, self.problem = tiles, problem
        numbers = np.array(
            [
                (
                    *(t.rows, t.columns, t.outputs, t.stacked, t.images, t.leaving, *t.step, *t.chunk),
                    *("map" in t.held, "rows" in t.held, "weights" in t.held, *t.trips, *t.cores),
                    *(t.overlaid, t.abreast),
                )
                for t in tiles
            ],
            np.int64,
        ).T
        self.rows, self.columns, self.outputs, self.stacked, self.images, self.leaving = numbers[:6]
        self.step, self.chunk, self.trips, self.cores = numbers[6:9], numbers[9:11], numbers[14:20], numbers[20:26]
        self.holds_map, self.holds_rows, self.holds_weights = numbers[11:14].astype(bool)
        self.overlaid, self.abreast = numbers[26].astype(bool), numbers[27]

    @cached_property
    def positions(self) -> np.ndarray:
        return self.abreast * self.rows * self.columns

    @cached_property
    def made_columns(self) -> np.ndarray:
        return np.where(self.overlaid, rounded(self.columns, FRACTAL), self.columns)

    @cached_property
    def made_rows(self) -> np.ndarray:
        return rounded(self.abreast * self.rows * self.made_columns, FRACTAL)

    @cached_property
    def rounds(self) -> np.ndarray:
        return self.trips.prod(axis=0)

    @cached_property
    def used_cores(self) -> np.ndarray:
        return self.cores.prod(axis=0)

    @cached_property
    def products(self) -> np.ndarray:
        return self.stacked * self.images

    @cached_property
    def pieces(self) -> np.ndarray:
        return quotient(self.outputs, self.leaving)

    @cached_property
    def map_rows(self) -> np.ndarray:
        return self.rows * self.stacked * np.where(self.holds_rows, self.trips[HO], 1)

    @cached_property
    def map_loads(self) -> np.ndarray:
        loads = self.rounds // np.where(self.holds_map, self.trips[OUT], 1)
        return np.asarray(loads // np.where(self.holds_rows, self.trips[HO], 1))

    @cached_property
    def weight_loads(self) -> np.ndarray:
        of_tiles = np.where(self.holds_map, 1, self.trips[GROUP] * self.trips[OUT])
        return np.where(self.holds_weights, of_tiles, self.rounds)

    @cached_property
    def held_weight_bytes(self) -> np.ndarray:
        """Of weights that stay in L1; where the map does, too, those of all trips."""
        trips = np.where(self.holds_map, self.trips[OUT] * self.trips[GROUP], 1)
        return np.asarray(self.problem.blocks * self.outputs * trips * BLOCK_BYTES)

    @cached_property
    def l0c_bytes(self) -> np.ndarray:
        return self.products * self.made_rows * rounded(self.outputs, FRACTAL) * 4

    @cached_property
    def chunks(self) -> np.ndarray:
        blocks = quotient(self.problem.extents[C1], self.chunk[0])
        return np.asarray(self.problem.extents[KD] * blocks * (self.problem.kernel[0] // self.chunk[1]))

    @cached_property
    def steps(self) -> np.ndarray:
        (rows, columns), (blocks, step_rows, step_columns) = self.problem.kernel, self.step
        steps = self.problem.extents[KD] * (rows // step_rows) * (columns // step_columns)
        full, rest = np.divmod(self.problem.extents[C1], self.chunk[0])
        return np.asarray(steps * (full * quotient(self.chunk[0], blocks) + quotient(rest, blocks)))

    @cached_property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the map that is loaded at once, with all rows of the kernel."""
        problem = self.problem
        height, width = (
            (extent - 1) * stride + (kernel - 1) * dilation + 1
            for extent, stride, kernel, dilation in zip(
                (self.map_rows, self.columns),
                problem.windows.strides,
                problem.kernel,
                problem.windows.dilations,
                strict=True,
            )
        )
        whole = (self.columns == problem.extents[WO]) & bool(problem.windows.axes.width)
        width = np.where(whole, problem.map_shape[1], np.minimum(width, problem.map_shape[1]))
        return np.minimum(height, problem.map_shape[0]), width


# ---- beside the cube ---------------------------------------------------------------------------------------------


def _product_cycles(of: Columns, problem: Problem, chip: Chip) -> np.ndarray:
    rows, columns = of.made_rows, rounded(of.outputs, FRACTAL)
    k = (problem.blocks + problem.bias_blocks) * BLOCK_BYTES / DTYPES[problem.dtype].itemsize
    steps = of.steps * np.where(of.overlaid, problem.kernel[0], 1) + problem.bias_blocks
    return np.asarray(rows * columns * k / chip.macs_per_cycle(problem.dtype) + steps * chip.cube.overhead_cycles)


def _near_cycles(of: Columns, problem: Problem, chip: Chip) -> np.ndarray:
    """Of MTE1: windows come for every product, weights for all of a tile; for more where one step has all of k."""
    once, alone = of.steps == 1, of.holds_weights & ~of.holds_map & ~of.holds_rows
    again = np.where(once & of.holds_map & (of.products == 1), of.trips[OUT], 1)
    windows = of.rounds * of.products // again
    weights = np.where(once & alone, of.trips[GROUP] * of.trips[OUT], of.rounds)
    k_bytes, kernel_rows = problem.blocks * BLOCK_BYTES, problem.kernel[0]
    overlaid = problem.overlaid_rows(of.rows) * of.made_columns / kernel_rows
    a = windows * np.where(of.overlaid, overlaid, of.made_rows) * k_bytes / _rate(chip, "l1_l0a")
    ones = of.rounds * of.products * of.made_rows * problem.bias_blocks * BLOCK_BYTES
    a = a + ones / _rate(chip, "l1_l0a")
    return np.asarray(a + weights * rounded(of.outputs, FRACTAL) * k_bytes / _rate(chip, "l1_l0b"))


def weights_come_first(tile: Tile, problem: Problem, chip: Chip) -> bool:
    """Whether all weights of a core's one tile go beside the cube before its map comes to L1.

    They are there while what makes the map is awaited, when MTE1 has nothing else to do. It pays where MTE1 has more to
    do than the cube, and where weights come in less time than the map is awaited for and all else of the tile takes.
    """
    if not tile.may_have_weights_first(problem, chip):
        return False
    of = Columns([tile], problem)
    cube, near = of.products * _product_cycles(of, problem, chip), _near_cycles(of, problem, chip)
    if near[0] <= cube[0]:
        return False
    out, (feature_map, weights) = _Results.of(of, problem, chip), _as_shared(of, problem, chip, 0.0)
    awaited = chip.sync.cross_flag_cycles + chip.path[f"{feature_map.memory}_l1"].latency_cycles
    leaves = out.fix_cycles + out.vector_cycles + out.store_cycles
    others = awaited + feature_map.cycles(chip, of.used_cores) + near + cube + leaves
    return bool(weights.cycles(chip, of.used_cores)[0] <= others[0])


# ---- from afar ---------------------------------------------------------------------------------------------------


class _Load(NamedTuple):
    """How one operand comes into the cores."""

    memory: str  # where it lies
    shared: np.ndarray  # by cores of a cluster: then it comes by way of LLB
    brought: np.ndarray  # bytes of lines, to all cores
    ddr: np.ndarray  # of these, what DDR moves for this chip
    llb: np.ndarray  # bytes of the busiest cluster
    written: np.ndarray  # bytes into L1 of a core, as long as they take
    turns: np.ndarray  # loads of a core
    turns_far: np.ndarray  # of these, those that bring something from where it lies
    parts: np.ndarray  # different ones, summed over the clusters

    def queue_cycles(self, chip: Chip, cores: np.ndarray) -> np.ndarray:
        """Of the queue of a core, if nothing holds it up."""
        alone = self.written / _rate(chip, f"{self.memory}_l1")
        flags = 2 * self.turns_far * cores / self.parts * chip.sync.flag_cycles
        together = self.brought / cores / _rate(chip, "ddr_llb") + self.written / _rate(chip, "llb_l1") + flags
        return np.asarray(np.where(self.shared, together, alone))

    @property
    def again(self) -> np.ndarray:
        """How often all of it is loaded that came from afar once."""
        return np.asarray(self.turns // self.turns_far)

    def cycles(self, chip: Chip, cores: np.ndarray) -> np.ndarray:
        """Of the queue of a core: one load after another, and the same ones in all cores of a cluster at the same time.

        Where these share a load, each brings a part of it, in turns in which others load from LLB.
        """
        moved = self.llb if self.memory == "llb" else self.ddr / quotient(cores, chip.cores_per_cluster)
        alone = np.maximum(self.written / _rate(chip, f"{self.memory}_l1"), moved / _bandwidth(chip)[self.memory])
        if not self.shared.any():
            return alone
        together = self.brought / cores / _rate(chip, "ddr_llb") + self.written / _rate(chip, "llb_l1")
        return np.where(self.shared, together, alone)


def _bandwidth(chip: Chip) -> dict[str, float]:
    """Bytes per cycle, of all cores and of those of a cluster."""
    rates = chip.bandwidth
    return {"ddr": rates.ddr_bytes_per_kilocycle / 1000, "llb": rates.llb_bytes_per_kilocycle / 1000}


def _load(
    of: Columns,
    problem: Problem,
    chip: Chip,
    name: str,
    parts: np.ndarray,
    lines: np.ndarray,
    written: np.ndarray,
    turns: np.ndarray,
    again: np.ndarray,
    ragged: np.ndarray | float,
    sharing: np.ndarray | bool,
) -> _Load:
    """``parts`` different ones, summed over the clusters, of ``lines`` bytes each; all of it comes ``again`` times.

    What cores share, where they do, stays in LLB if there is room, and comes from DDR once.
    """
    cores, memory = of.used_cores, problem.memory_of(name)
    clusters, cores_of_cluster = quotient(cores, chip.cores_per_cluster), np.minimum(cores, chip.cores_per_cluster)
    written = written * ragged
    of_cluster = cores_of_cluster * lines * ragged
    if memory == "llb":
        none = np.zeros(len(cores))
        return _Load(memory, none.astype(bool), none, none, of_cluster, written, turns, turns, parts)
    alike = chip.alike if name in problem.common else 1
    shared = np.asarray((parts != cores) & sharing)
    c1 = problem.extents[C1]
    kept = parts / clusters * lines / again * _last_too(c1, of.chunk[0]) / c1
    once = np.where(shared & (kept <= problem.llb_bytes), again, 1)
    brought = np.where(shared, parts * lines / once, cores * lines * ragged)
    llb = np.where(shared, parts / clusters * lines / once + of_cluster, 0.0)
    return _Load(memory, shared, brought, brought / alike, llb, written, turns, turns // once, parts)


def _last_too(extent: int, chunk: np.ndarray) -> np.ndarray:
    """The last chunk takes as much as the others."""
    return quotient(extent, chunk) * chunk


def _as_shared(of: Columns, problem: Problem, chip: Chip, other_ddr: Any) -> tuple[_Load, _Load]:
    """Map and weights as `ShareLoads` leaves them: what pays by the greatest of DDR's and a queue's cycles comes to LLB
    once, what saves DDR the most first; the other only beside it, or where they pay together.
    """
    cores, arrival = of.used_cores, chip.path["ddr_llb"].latency_cycles + chip.sync.cross_flag_cycles
    of_map = [map_load(of, problem, chip, sharing=sharing) for sharing in (False, True)]
    of_weights = [_weights_load(of, problem, chip, sharing=sharing) for sharing in (False, True)]

    def cycles(*loads: _Load) -> np.ndarray:
        far = (sum(load.ddr for load in loads) + other_ddr) / _bandwidth(chip)["ddr"]
        queue = sum(load.queue_cycles(chip, cores) for load in loads)
        return np.asarray(np.maximum(far, queue) + arrival * (loads[0].shared | loads[1].shared))

    alone, both = cycles(of_map[0], of_weights[0]), cycles(of_map[1], of_weights[1])
    map_first = of_map[0].ddr - of_map[1].ddr >= of_weights[0].ddr - of_weights[1].ddr
    one = np.where(map_first, cycles(of_map[1], of_weights[0]), cycles(of_map[0], of_weights[1]))
    map_pays, weights_pay = which_pay(alone, one, both, map_first, chip)
    return (
        map_load(of, problem, chip, sharing=map_pays),
        _weights_load(of, problem, chip, sharing=weights_pay),
    )


def map_load(of: Columns, problem: Problem, chip: Chip, *, sharing: np.ndarray | bool = True) -> _Load:
    extents, size = problem.extents, DTYPES[problem.dtype].itemsize
    loads, (height, width), line = of.map_loads, of.box, chip.transfer.ddr_line_bytes
    images = of.images * of.abreast
    whole_rows, slower = width == problem.windows.axes.width, 100 / chip.transfer.ragged_nz_percent
    whole_channels = whole_rows & (height == problem.map_shape[0])
    run = np.where(whole_rows, height * width, width) * size
    # Runs of whole rows go on to the end of a block of 32 bytes: in LLB those of whole channels, too, where that is
    # faster. Otherwise these lie one behind the other, and so do their runs.
    filled = np.where(whole_rows, rounded(run, chip.block_bytes), run)
    runs = problem.channels * extents[KD] * np.where(whole_rows, 1, height)
    apart = np.where(whole_channels, run, problem.map_shape[1] * size)
    lines = runs * _lines(filled, apart, line)
    loaded = np.minimum(problem.channels, of.chunk[0] * DTYPES[problem.dtype].fractal_k)
    together = extents[KD] * quotient(problem.channels, loaded) * _lines(loaded * run, loaded * run, line)
    goes_on = whole_rows & ~whole_channels
    if problem.memory_of("map") == "llb":
        goes_on = whole_rows & (filled > run) & (~whole_channels | (lines < slower * together))
    is_ragged = (run % chip.block_bytes > 0) & ~goes_on
    lines = np.where(whole_channels & ~goes_on, together, lines) * (loads * images)
    written = loads * images * extents[KD] * extents[C1] * height * width * BLOCK_BYTES
    turns = loads * np.where(of.holds_map, 1, of.chunks)
    parts, _ = _parts_of_clusters(of, chip)
    again = np.where(of.holds_map, 1, of.trips[OUT])
    ragged = np.where(is_ragged, slower, 1.0)
    return _load(of, problem, chip, "map", parts, lines, written, turns, again, ragged, sharing)


def _weights_load(of: Columns, problem: Problem, chip: Chip, *, sharing: np.ndarray | bool) -> _Load:
    loads, passing_bytes = of.weight_loads, problem.blocks * BLOCK_BYTES * of.outputs
    moved = loads * np.where(of.holds_weights, of.held_weight_bytes, passing_bytes)
    _, parts = _parts_of_clusters(of, chip)
    turns = loads * np.where(of.holds_weights, 1, of.chunks)
    again = np.maximum(1, loads // (of.trips[GROUP] * of.trips[OUT]))
    return _load(of, problem, chip, "weights", parts, moved, moved, turns, again, 1.0, sharing)


def _parts_of_clusters(of: Columns, chip: Chip) -> np.ndarray:
    """[map or weights, tile]: how many different ones the clusters need, summed over them."""
    return np.array([_parts(tile.cores, tile.places_last, chip.cores_per_cluster) for tile in of.tiles]).T


@lru_cache(maxsize=4096)
def _parts(cores: tuple[int, ...], places_last: bool, cluster: int) -> tuple[int, int]:
    order = PLACES_LAST if places_last else OUTPUTS_LAST
    maps: dict[int, set[tuple[int, ...]]] = {}
    weights: dict[int, set[tuple[int, ...]]] = {}
    for number, place in enumerate(product(*(range(cores[axis]) for axis in order))):
        at = dict(zip(order, place, strict=True))
        maps.setdefault(number // cluster, set()).add(tuple(at[axis] for axis in (GROUP, *PLACES)))
        weights.setdefault(number // cluster, set()).add((at[GROUP], at[OUT]))
    return sum(map(len, maps.values())), sum(map(len, weights.values()))


def _lines(run: np.ndarray, pitch: np.ndarray | int, line: int) -> np.ndarray:
    """Bytes of all lines that a run touches, on average over where it may begin: at a multiple of ``pitch``.

    From the last of these places in a line a run touches one more line for each such distance that it goes on.
    """
    distance = np.gcd(pitch, line)
    places = line // distance
    return np.asarray(line * (places + quotient(run, distance) - 1) / places)


# ---- on the way out ----------------------------------------------------------------------------------------------


class _Results(NamedTuple):
    """What becomes of the sums of one core."""

    fix_cycles: np.ndarray
    vector_cycles: np.ndarray
    store_cycles: np.ndarray  # of MTE3
    line_bytes: np.ndarray
    side_bytes: np.ndarray  # lines of other inputs of the stages
    result_in: str
    sides_in: str

    @staticmethod
    def of(of: Columns, problem: Problem, chip: Chip) -> _Results:
        images = of.rounds * of.images * of.abreast
        positions = of.rows * of.columns * of.stacked
        elements = images * positions * of.outputs
        run = positions * problem.result_bytes
        lines = images * of.outputs * _lines(run, run, chip.transfer.ddr_line_bytes)
        through_ub, result_in = problem.slave_bytes > 0, problem.memory_of("result")
        taken = images * of.stacked * of.rows * of.made_columns * rounded(of.outputs, FRACTAL) * 4
        return _Results(
            fix_cycles=taken / _rate(chip, "l0c_ub" if through_ub else f"l0c_{result_in}"),
            vector_cycles=problem.epilogue.vector_cycles(elements, of.rounds * of.pieces, chip),
            store_cycles=lines / _rate(chip, f"ub_{result_in}") if through_ub else np.zeros(len(lines)),
            line_bytes=lines,
            side_bytes=lines * problem.epilogue.side_bytes / max(1, problem.result_bytes),
            result_in=result_in,
            sides_in="llb" if problem.epilogue.sides_near else "ddr",
        )


def _rate(chip: Chip, name: str) -> int:
    return chip.path[name].bytes_per_cycle
