"""What a tile of a matrix product makes every queue do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

from compiler.codegen.sharing import LEAST_ROUNDS, LEAST_SLOTS
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling.grids import Readers, readers
from compiler.tiling.matmul_problem import Problem, Tile
from compiler.tiling.pieces import rows_may_be_cut
from compiler.tiling.search import Work

HELD_UP = 0.7  # of the time of all reads from DDR, for which cores are held up though they take turns (measured)
SLOTS = 2  # of UB, for groups of columns
AHEAD = 2  # pieces that are brought to LLB before they are loaded
SCALAR_STEP = 24  # instructions that the scalar unit runs for one step, those for addresses and flags included


def work_of(tile: Tile, problem: Problem, chip: Chip) -> Work:
    """What the busiest core does, where its cluster reads from DDR once what several of its cores need."""
    m16, n16, k = ceil_to(tile.m, FRACTAL), ceil_to(tile.n, FRACTAL), ceil_to(problem.k, problem.k0)
    steps, chunks = ceil_div(problem.k, tile.step), ceil_div(problem.k, tile.chunk)
    rounds, through_ub = tile.rounds, tile.columns > 0
    product = m16 * n16 * k / chip.macs_per_cycle(problem.dtype) + steps * chip.cube.overhead_cycles
    near = steps * sum(
        max(chip.path[path].issue_cycles, width * tile.step * problem.itemsize / rate(chip, path))
        for path, width in (("l1_l0a", m16), ("l1_l0b", n16))
    )
    lines = _line_shares(tile, problem, chip)
    loads = _loads(tile, problem, chip, lines, product)

    results = tile.m * tile.n
    c_near = "c" in problem.near
    out_path = f"{'ub' if through_ub else 'l0c'}_{'llb' if c_near else 'ddr'}"
    stored = results * problem.result_bytes * lines["c"]
    out = stored / rate(chip, out_path)
    taken_out = m16 * n16 * 4 / rate(chip, "l0c_ub") if through_ub else out
    vector = results * max(0, problem.slave_bytes - problem.result_bytes) / chip.vector.bytes_per_cycle
    groups = ceil_div(tile.n, tile.columns) if through_ub else 1
    left, ddr_rate = tile.grid.count * stored, ddr_bytes_per_cycle(chip)
    ddr = loads.ddr_bytes + (0.0 if c_near else rounds * left)
    llb = loads.llb_bytes + (rounds * min(tile.grid.count, chip.cores_per_cluster) * stored if c_near else 0.0)

    last = max((taken_out + vector + out) / groups if through_ub else out, 0.0 if c_near else left / ddr_rate)
    last += chip.path[out_path].latency_cycles + product / chunks
    # Without room for a second result the cube waits until the first is out, and UB holds the last groups of it only.
    alone = 2 * m16 * n16 * 4 > chip.memory.l0c_bytes
    leaving = max(taken_out, vector * max(0, groups - SLOTS) / groups)
    serial = (rounds - 1) * (leaving + chip.path["l1_l0a"].latency_cycles) if alone else 0.0
    beside = rounds * max(product, near)
    busiest = max(ddr / ddr_rate, loads.cycles, beside)
    whole = max(loads.cycles + last, loads.first_cycles + beside + serial + last, ddr / ddr_rate)
    ends = whole - busiest - serial
    return Work(
        cores=tile.grid.count,
        cube_cycles=rounds * product,
        vector_cycles=rounds * vector,
        mte1_cycles=rounds * near,
        mte2_cycles=loads.cycles,
        mte3_cycles=rounds * out if through_ub else 0.0,
        fix_cycles=rounds * taken_out,
        ddr_bytes=ddr,
        llb_bytes=llb,
        trips=rounds,
        turns=rounds * chunks,
        steps=rounds * steps,
        instructions=rounds * (steps * SCALAR_STEP + chunks * 2 * SCALAR_STEP + groups * SCALAR_STEP),
        first_cycles=max(0.0, ends - last) + chip.path["ddr_l1"].latency_cycles,
        last_cycles=max(0.0, min(ends, last)),
        serial_cycles=serial,
        loads=loads.count,
        shared=loads.shared,
        sharers=loads.sharers,
        rows=tile.m,
        columns=tile.n,
    )


@dataclass(frozen=True)
class _Loads:
    """What operands take on their way from afar."""

    cycles: float  # of MTE2
    first_cycles: float  # that the cube waits for operands: for the first, and for what is held beside them
    ddr_bytes: float
    llb_bytes: float
    count: float  # of both operands
    shared: float  # of these, pieces that the cores of a cluster bring to LLB for each other
    sharers: float


def _loads(tile: Tile, problem: Problem, chip: Chip, lines: Mapping[str, float], product: float) -> _Loads:
    """Cores that share a load wait for each other's parts, so that all use DDR at once and then all LLB. What fits the
    kernel's room in LLB stays there; else slots are used in turn, and without room for these each core loads alone.
    What is held comes in piece by piece beside the first round of the other operand.
    """
    chunks, rounds = ceil_div(problem.k, tile.chunk), tile.rounds
    passing = 1 - tile.pieces / chunks if tile.is_held_in_part else 0.0  # the share of what is held that comes from LLB
    only = {
        name: prod(t for t, of in zip(tile.batch_trips, problem.batch_of, strict=True) if of == name) for name in "ab"
    }
    again = {"a": only["b"] * tile.n_trips, "b": only["a"] * tile.m_trips}
    elements = {"a": tile.m * problem.k, "b": tile.n * problem.k}
    of_both = dict(zip("ab", readers(tile.grid, problem.batch_of, chip.cores_per_cluster), strict=True))
    room = min(problem.room_bytes, chip.memory.llb_bytes)
    cluster = min(tile.grid.count, chip.cores_per_cluster)
    clusters = ceil_div(tile.grid.count, chip.cores_per_cluster)
    ddr_rate = ddr_bytes_per_cycle(chip)
    llb_rate = min(rate(chip, "llb_l1"), chip.bandwidth.llb_bytes_per_kilocycle / 1000 / cluster)
    resident = sum(
        readers_of.blocks / clusters * rounds / again[name] * elements[name] * problem.itemsize
        for name, readers_of in of_both.items()
        if readers_of.shared and name not in problem.near
    )
    if tile.held:
        resident += cluster * passing * elements[tile.held] * problem.itemsize
    slots = LEAST_SLOTS * 2
    if resident > room:
        piece = sum(
            readers_of.blocks / clusters * elements[name] / chunks * problem.itemsize
            for name, readers_of in of_both.items()
            if readers_of.shared and name not in problem.near
        )
        slots = int(room // piece) if piece else slots
    if slots < LEAST_SLOTS:
        of_both = {name: Readers(tile.grid.count, shared=False) for name in of_both}
    slowness = _slowness(tile, problem, chip)
    cycles, once_cycles = dict.fromkeys("ab", 0.0), dict.fromkeys("ab", 0.0)
    ddr = llb = fill = relay = count = shared = 0.0
    sharers = 1.0
    for name, readers_of in of_both.items():
        once = rounds // again[name]
        loads = once if tile.held == name else rounds
        each = elements[name] * problem.itemsize * lines[name]
        slow = each * slowness[name]
        of_all = readers_of.blocks * each / (chip.alike if name in problem.common else 1)
        count += loads * chunks
        if name in problem.near:
            llb += cluster * loads * each
            once_cycles[name] = max(chunks * chip.path["llb_l1"].issue_cycles, slow / llb_rate)
            cycles[name] = loads * once_cycles[name]
            fill += once_cycles[name] / chunks
            continue
        if not readers_of.shared:
            ddr += loads * of_all
            once_cycles[name] = max(
                chunks * chip.path["ddr_l1"].issue_cycles,
                slow / rate(chip, "ddr_l1"),
                of_all / ddr_rate,
            )
            cycles[name] = loads * once_cycles[name]
            fill += once_cycles[name] / chunks
            if tile.held == name and passing:
                llb += cluster * (rounds + once) * passing * each
                told = chip.path["ddr_llb"].latency_cycles + chip.sync.cross_flag_cycles
                cycles[name] += rounds * passing * slow / llb_rate + once * passing * chunks * told
            continue
        brought = once if resident <= room else loads
        ddr += brought * of_all
        llb += cluster * loads * each + readers_of.blocks / clusters * brought * each
        shared += brought * chunks
        sharers = max(sharers, tile.grid.count / readers_of.blocks)
        relay = relay_cycles(chip)
        told = chip.path["ddr_llb"].issue_cycles + 2 * cluster * chip.sync.flag_cycles
        part = readers_of.blocks / tile.grid.count * each / rate(chip, "ddr_llb")
        far = of_all / ddr_rate
        load = max(chunks * chip.path["llb_l1"].issue_cycles, slow / llb_rate)
        if slots >= LEAST_SLOTS * 2 and _take_turns(tile.grid.count // readers_of.blocks, brought * chunks):
            bring = max(part, HELD_UP * far) + chunks * told
            cycles[name] = max(brought * bring + loads * load, brought * far)
        else:
            bring = max(part, far) + chunks * told
            cycles[name] = brought * bring + loads * load
        cycles[name] = max(cycles[name], brought * chunks * relay / AHEAD)
        once_cycles[name] = max(bring, load, far)
        fill += (max(bring, far) + load) / chunks
    first = fill + chip.path["ddr_l1"].latency_cycles + chip.path["l1_l0a"].latency_cycles + relay
    if tile.held and comes_in_pieces(tile, problem, chip):
        first += rounds // again[tile.held] * max(0.0, sum(once_cycles.values()) - product)
    elif tile.held:
        first += rounds // again[tile.held] * once_cycles[tile.held] * (chunks - 1) / chunks
    return _Loads(sum(cycles.values()), first, ddr, llb, count, shared, sharers)


def comes_in_pieces(tile: Tile, problem: Problem, chip: Chip) -> bool:
    """Whether what is held is loaded chunk by chunk, as `SpreadLoads` has it."""
    depth = tile.chunk
    cuts_rows = problem.transposed_b if tile.held == "b" else not problem.transposed_a
    size = problem.itemsize
    return depth >= problem.k or not cuts_rows or rows_may_be_cut(depth * size, problem.k * size, chip)


def _take_turns(sharers: int, pieces: int) -> bool:
    """Whether some cores of a group bring pieces while the others load: each part of it brings several."""
    return any(sharers % parts == 0 for parts in range(2, pieces // LEAST_ROUNDS + 1))


def ddr_bytes_per_cycle(chip: Chip) -> float:
    return chip.bandwidth.ddr_bytes_per_kilocycle / 1000


def _line_shares(tile: Tile, problem: Problem, chip: Chip) -> dict[str, float]:
    """What each byte of a, b and c that is wanted costs DDR: the lines that rows touch."""
    size = problem.itemsize
    of = {**_rows(tile, problem), "c": (tile.columns or tile.n, problem.n)}
    sizes = {"a": size, "b": size, "c": problem.result_bytes}
    line = chip.transfer.ddr_line_bytes
    return {name: line_share(run * sizes[name], pitch * sizes[name], line) for name, (run, pitch) in of.items()}


def _rows(tile: Tile, problem: Problem) -> dict[str, tuple[int, int]]:
    """Of a and b: how much of a row in DDR a load has, and how long that row is."""
    of_k, of_m, of_n = (min(tile.chunk, problem.k), problem.k), (tile.m, problem.m), (tile.n, problem.n)
    return {"a": of_m if problem.transposed_a else of_k, "b": of_k if problem.transposed_b else of_n}


def _slowness(tile: Tile, problem: Problem, chip: Chip) -> dict[str, float]:
    """How much longer a core waits for a and b whose rows end in the middle of a block of elements: that halves the
    rate at which they come to it, but not what DDR moves.
    """
    rows, block = _rows(tile, problem), chip.block_bytes // problem.itemsize
    if not any(run % block or pitch % block for run, pitch in rows.values()):
        return {"a": 1.0, "b": 1.0}
    own = {"a": tile.m * tile.m_trips if problem.transposed_a else problem.k}
    own["b"] = problem.k if problem.transposed_b else tile.n * tile.n_trips
    slower = 100 / chip.transfer.ragged_nz_percent - 1
    return {name: _ragged(run, pitch, min(own[name], pitch), block, slower) for name, (run, pitch) in rows.items()}


def _ragged(run: int, pitch: int, own: int, block: int, slower: float) -> float:
    """How much longer the loads of the last core along a row take than those of a core that has ``own`` elements of it,
    in runs of which those are slower that are no whole blocks.
    """
    if run % block:
        return 1 + slower
    last = pitch - (ceil_div(pitch, own) - 1) * own
    return max(1.0, (last + slower * (last % run)) / own) if pitch % block else 1.0


def line_share(run: int, pitch: int, line: int) -> float:
    if run >= pitch:
        return 1.0
    start = gcd(run, pitch, line)
    return (run + line - start) / run


def relay_cycles(chip: Chip) -> int:
    """From when a core begins to bring a piece to LLB until another may load it."""
    return chip.path["ddr_llb"].latency_cycles + chip.sync.cross_flag_cycles + chip.path["llb_l1"].latency_cycles


def rate(chip: Chip, name: str) -> int:
    return chip.path[name].bytes_per_cycle
