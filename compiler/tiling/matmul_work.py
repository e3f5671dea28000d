"""What the tiles of a matrix product make every queue do: of all of them at once, since a search makes thousands.

Each number is an array with one element for each tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from compiler.codegen.sharing import LEAST_ROUNDS, LEAST_SLOTS
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.target import Chip
from compiler.target.chip import Path_
from compiler.tiling.arrays import most, quotient, rounded
from compiler.tiling.grids import readers
from compiler.tiling.matmul_problem import Problem, Tile
from compiler.tiling.pieces import rows_may_be_cut, which_pay
from compiler.tiling.search import Work, works_in

HELD_UP = 0.7  # of the time of all reads from DDR, for which cores are held up though they take turns (measured)
SLOTS = 2  # of UB, for groups of columns
AHEAD = 2  # pieces that are brought to LLB before they are loaded
SCALAR_STEP = 24  # instructions that the scalar unit runs for one step, those for addresses and flags included


def work_of(tile: Tile, problem: Problem, chip: Chip) -> Work:
    """What the busiest core does, where its cluster reads from DDR once what several of its cores need."""
    return works_in(works_of([tile], problem, chip))[0]


def works_of(tiles: Sequence[Tile], problem: Problem, chip: Chip) -> Work:
    """Of all tiles; each number is an array."""
    of = _Columns(tiles, problem)
    rounds, steps, chunks = of.rounds, quotient(problem.k, of.step), of.chunks
    m16, n16, k = rounded(of.m, FRACTAL), rounded(of.n, FRACTAL), ceil_to(problem.k, problem.k0)
    product = m16 * n16 * k / chip.macs_per_cycle(problem.dtype) + steps * chip.cube.overhead_cycles
    near = np.zeros(len(tiles))
    for path, width in (("l1_l0a", m16), ("l1_l0b", n16)):
        of_path = chip.path[path]
        near += steps * np.maximum(of_path.issue_cycles, width * of.step * problem.itemsize / of_path.bytes_per_cycle)
    out = _Way.of(of, problem, chip)
    loads = _Loads.of(of, problem, chip, product, rounds * out.ddr_bytes)
    far = ddr_bytes_per_cycle(chip)
    ddr, llb = loads.ddr_bytes + rounds * out.ddr_bytes, loads.llb_bytes + rounds * out.llb_bytes
    last = out.last_cycles + product / chunks
    # Without room for a second result the cube waits until the first is out, and UB holds the last groups of it only.
    alone = 2 * m16 * n16 * 4 > chip.memory.l0c_bytes
    serial = np.where(alone, (rounds - 1) * (out.leaving_cycles + chip.path["l1_l0a"].latency_cycles), 0.0)
    beside, behind, mte2 = rounds * np.maximum(product, near), out.busiest, loads.cycles + rounds * out.side_cycles
    busiest = most(ddr / far, mte2, beside, rounds * behind)
    whole = most(
        loads.latency_cycles + ddr / far,
        loads.latency_cycles + mte2 + last,
        loads.first_cycles + beside + serial + last,
        loads.first_cycles + beside / rounds + (rounds - 1) * behind + last,
    )
    serial = np.minimum(serial, whole - busiest)
    ends = np.maximum(0.0, whole - busiest - serial)
    first = np.minimum(loads.first_cycles, ends)
    columns: dict[str, Any] = dict(
        cores=of.cores,
        cube_cycles=rounds * product,
        vector_cycles=rounds * out.vector_cycles,
        mte1_cycles=rounds * near,
        mte2_cycles=mte2,
        mte3_cycles=np.where(of.through_ub, rounds * out.store_cycles, 0.0),
        fix_cycles=rounds * out.fix_cycles,
        ddr_bytes=ddr,
        llb_bytes=llb,
        trips=rounds,
        turns=rounds * chunks,
        steps=rounds * steps,
        instructions=rounds * (steps + 2 * chunks + of.groups) * SCALAR_STEP,
        first_cycles=first,
        last_cycles=ends - first,
        serial_cycles=serial,
        loads=loads.count,
        shared=loads.shared,
        sharers=loads.sharers,
        rows=of.m,
        columns=of.n,
    )
    return Work(**columns)


class _Columns:
    """What `Tile` says of one tile, of many: the same names, and all of it arrays."""

    def __init__(self, tiles: Sequence[Tile], problem: Problem) -> None:
        self.tiles, self.problem = tiles, problem
        numbers = np.array(
            [
                (
                    *(t.m, t.n, t.step, t.steps, t.m_trips, t.n_trips, t.columns, t.pieces, t.grid.count),
                    *(t.held == "a", t.held == "b", *self._batch_trips(t)),
                )
                for t in tiles
            ],
            np.int64,
        ).T
        self.m, self.n, self.step, self.steps, self.m_trips, self.n_trips = numbers[:6]
        self.group_columns, self.pieces, self.cores = numbers[6:9]
        self.held = dict(zip("ab", numbers[9:11].astype(bool), strict=True))
        self.batch, *only = numbers[11:]
        self.only = dict(zip("ab", only, strict=True))  # trips of the batch axes that one operand alone has

    def _batch_trips(self, tile: Tile) -> tuple[int, ...]:
        of = list(zip(tile.batch_trips, self.problem.batch_of, strict=True))
        return prod(tile.batch_trips), *(prod(trips for trips, name in of if name == own) for own in "ab")

    @cached_property
    def rounds(self) -> np.ndarray:
        return np.asarray(self.batch * self.m_trips * self.n_trips)

    @cached_property
    def chunk(self) -> np.ndarray:
        return np.asarray(self.step * self.steps)

    @cached_property
    def chunks(self) -> np.ndarray:
        return np.asarray(quotient(self.problem.k, self.chunk))

    @cached_property
    def through_ub(self) -> np.ndarray:
        return self.group_columns > 0

    @cached_property
    def groups(self) -> np.ndarray:
        """Of columns, that leave one after another."""
        return np.where(self.through_ub, quotient(self.n, np.maximum(self.group_columns, 1)), 1)

    @cached_property
    def passing(self) -> np.ndarray:
        """The share of what is held that comes from LLB."""
        return np.where(self.pieces > 0, 1 - self.pieces / self.chunks, 0.0)

    def in_cluster(self, chip: Chip) -> np.ndarray:
        return np.minimum(self.cores, chip.cores_per_cluster)

    def clusters(self, chip: Chip) -> np.ndarray:
        return np.asarray(quotient(self.cores, chip.cores_per_cluster))


# ---- from afar ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Operand:
    """What a core loads of one operand: all of its k for one tile, each time."""

    near: bool  # whether it lies in LLB
    alike: int  # clusters that load the same, once for all of them
    cores: np.ndarray
    blocks: np.ndarray  # different ones, summed over the clusters
    shared: np.ndarray  # whether cores of a cluster bring it to LLB for each other
    loads: np.ndarray
    once: np.ndarray  # of these, those of something new
    bytes: np.ndarray  # of lines
    slow_bytes: np.ndarray  # as long as they take to come to the core
    slow_runs: np.ndarray  # how much longer it takes DDR to bring rows that end within a block to the core itself
    own_bytes: np.ndarray  # without what lines have beside them

    def brought(self, resident: np.ndarray) -> np.ndarray:
        """Times that it comes from where it lies: of what is shared and stays in LLB, once."""
        return np.where(self.shared & resident, self.once, self.loads)

    @property
    def parts(self) -> np.ndarray:
        """Different ones where it is shared, else one for each core."""
        return np.where(self.shared, self.blocks, self.cores)

    @property
    def of_all_bytes(self) -> np.ndarray:
        """Of all cores, in one load each."""
        slower = np.where(self.shared, 1.0, self.slow_runs)
        return np.asarray(self.parts * self.bytes * slower / self.alike)


def _operands(of: _Columns, problem: Problem, chip: Chip) -> dict[str, _Operand]:
    lines, slowness = _line_shares(of, problem, chip), _slowness(of, problem, chip)
    again = {"a": of.only["b"] * of.n_trips, "b": of.only["a"] * of.m_trips}
    elements = {"a": of.m * problem.k, "b": of.n * problem.k}
    both = [readers(tile.grid, problem.batch_of, chip.cores_per_cluster) for tile in of.tiles]
    rows, block = _rows(of, problem), chip.block_bytes // problem.itemsize
    found = {}
    for at, name in enumerate("ab"):
        once, own = of.rounds // again[name], elements[name] * problem.itemsize
        near = name in problem.near
        may_share = not near and "ddr_llb" in chip.path
        found[name] = _Operand(
            near=near,
            alike=chip.alike if name in problem.common else 1,
            cores=of.cores,
            blocks=np.array([each[at].blocks for each in both], np.int64),
            shared=np.array([each[at].shared and may_share for each in both], bool),
            loads=np.where(of.held[name], once, of.rounds),
            once=once,
            bytes=own * lines[name],
            slow_bytes=own * lines[name] * slowness[name],
            slow_runs=np.where(rows[name][0] % block > 0, _slower(chip), 1.0),
            own_bytes=own,
        )
    return found


@dataclass(frozen=True)
class _Loads:
    """What operands take on their way from afar."""

    cycles: np.ndarray  # of MTE2
    latency_cycles: int  # of the last one
    first_cycles: np.ndarray  # that the cube waits for operands: for the first, and for what is held beside them
    ddr_bytes: np.ndarray
    llb_bytes: np.ndarray
    count: np.ndarray  # of both operands
    shared: np.ndarray  # of these, pieces that the cores of a cluster bring to LLB for each other
    sharers: np.ndarray

    @staticmethod
    def of(of: _Columns, problem: Problem, chip: Chip, product: np.ndarray, other_ddr: np.ndarray) -> _Loads:
        """Cores that share a load wait for each other's parts, so that all use DDR at once and then all LLB. What fits
        the kernel's room in LLB stays there; else slots are used in turn, and without room for these each core loads
        alone. What is held comes in piece by piece beside the first round of the other operand.
        """
        chunks, cluster, clusters = of.chunks, of.in_cluster(chip), of.clusters(chip)
        both = _operands(of, problem, chip)
        slots = _slots(of, both, min(problem.room_bytes, chip.memory.llb_bytes), chip)
        resident, in_turns = slots == ALL_SLOTS, slots >= LEAST_SLOTS * 2
        both = _as_shared(both, of.held, chunks, cluster, resident, slots >= LEAST_SLOTS, other_ddr, chip)
        far_rate = ddr_bytes_per_cycle(chip)
        llb_rate = np.minimum(_from_llb(chip).bytes_per_cycle, chip.bandwidth.llb_bytes_per_kilocycle / 1000 / cluster)
        relay = np.where(both["a"].shared | both["b"].shared, relay_cycles(chip), 0)
        none = np.zeros(len(of.tiles))
        cycles, ddr, llb, fill, count, shared = none, none, none, none, none, none
        sharers, once_cycles = np.ones(len(of.tiles)), {}
        for name, one in both.items():
            count = count + one.loads * chunks
            near_load = np.maximum(chunks * _from_llb(chip).issue_cycles, one.slow_bytes / llb_rate)
            if one.near:
                llb = llb + cluster * one.loads * one.bytes
                once_cycles[name] = near_load
                cycles, fill = cycles + one.loads * near_load, fill + near_load / chunks
                continue
            far, brought = one.of_all_bytes / far_rate, one.brought(resident)
            ddr = ddr + brought * one.of_all_bytes
            # By itself.
            issue = chunks * chip.path["ddr_l1"].issue_cycles
            alone = most(issue, one.slow_bytes / rate(chip, "ddr_l1"), far)
            passing = np.where(of.held[name], of.passing, 0.0)
            filled = chunks * (_to_llb(chip).latency_cycles + chip.sync.cross_flag_cycles)
            again = passing * (of.rounds * one.slow_bytes / llb_rate + one.once * filled)
            # By way of LLB.
            told = _to_llb(chip).issue_cycles + 2 * cluster * chip.sync.flag_cycles
            part = one.blocks / of.cores * one.bytes / _to_llb(chip).bytes_per_cycle
            turn_about = in_turns & _take_turns(of.cores // one.blocks, brought * chunks)
            bring = np.maximum(part, far * np.where(turn_about, HELD_UP, 1.0)) + chunks * told
            together = brought * bring + one.loads * near_load
            together = np.where(turn_about, np.maximum(together, brought * far), together)
            together = np.maximum(together, brought * chunks * relay / AHEAD)

            cycles = cycles + np.where(one.shared, together, one.loads * alone + again)
            once_cycles[name] = np.where(one.shared, most(bring, near_load, far), alone)
            fill = fill + np.where(one.shared, np.maximum(bring, far) + near_load, alone) / chunks
            through = cluster * one.loads * one.bytes + one.blocks / clusters * brought * one.bytes
            llb = llb + np.where(one.shared, through, cluster * (of.rounds + one.once) * passing * one.bytes)
            shared = shared + np.where(one.shared, brought * chunks, 0)
            sharers = np.where(one.shared, np.maximum(sharers, of.cores / one.blocks), sharers)
        latency = max((_from_llb(chip) if one.near else chip.path["ddr_l1"]).latency_cycles for one in both.values())
        first = fill + np.maximum(relay, latency) + chip.path["l1_l0a"].latency_cycles
        for name, one in both.items():
            in_pieces = np.maximum(0.0, once_cycles["a"] + once_cycles["b"] - product)
            at_once = once_cycles[name] * (chunks - 1) / chunks
            waits = one.once * np.where(comes_in_pieces(of, name, problem, chip), in_pieces, at_once)
            first = first + np.where(of.held[name], waits, 0.0)
        return _Loads(cycles, latency, first, ddr, llb, count, shared, sharers)


ALL_SLOTS = 1 << 30  # in LLB: one for each piece


def _slots(of: _Columns, both: Mapping[str, _Operand], room: int, chip: Chip) -> np.ndarray:
    """For pieces of what cores share."""
    kept, piece = np.zeros(len(of.tiles)), np.zeros(len(of.tiles))
    for name, one in both.items():
        of_cluster = np.where(one.shared, one.blocks / of.clusters(chip) * one.own_bytes, 0.0)
        kept = (
            kept + one.once * of_cluster + np.where(of.held[name], of.in_cluster(chip) * of.passing * one.own_bytes, 0)
        )
        piece = piece + of_cluster / of.chunks
    in_turn = np.where(piece > 0, room // np.maximum(piece, 1), ALL_SLOTS - 1)
    return np.where(kept <= room, ALL_SLOTS, in_turn)


def _as_shared(
    both: dict[str, _Operand],
    held: Mapping[str, np.ndarray],
    chunks: np.ndarray,
    cluster: np.ndarray,
    resident: np.ndarray,
    fits: np.ndarray,
    other_ddr: np.ndarray,
    chip: Chip,
) -> dict[str, _Operand]:
    """The operands as `ShareLoads` leaves them: cores of a cluster bring to LLB for each other what that pays for, by
    the greatest of DDR's and a queue's cycles, what saves DDR the most first; what does not pay, they load by
    themselves.
    """
    none = np.zeros(len(chunks), bool)
    alone = {name: replace(one, shared=none) for name, one in both.items()}
    # What is held is not loaded in all turns: slots that are used again would be waited for in vain.
    shared = {
        name: replace(one, shared=one.shared & np.where(held[name], resident, fits)) for name, one in both.items()
    }
    arrival = _to_llb(chip).latency_cycles + chip.sync.cross_flag_cycles

    def cycles(*operands: _Operand) -> np.ndarray:
        far, queue, any_shared = other_ddr, np.zeros(len(chunks)), none
        for one in operands:
            times = one.brought(resident)
            far = far + (0.0 if one.near else times * one.of_all_bytes)
            part = one.blocks / one.cores * one.bytes / _to_llb(chip).bytes_per_cycle
            flags = chunks * 2 * cluster * chip.sync.flag_cycles
            of_load = np.where(one.shared | one.near, _from_llb(chip).bytes_per_cycle, rate(chip, "ddr_l1"))
            queue = queue + one.loads * one.slow_bytes / of_load + np.where(one.shared, times * (part + flags), 0.0)
            any_shared = any_shared | one.shared
        return np.asarray(np.maximum(far / ddr_bytes_per_cycle(chip), queue) + arrival * any_shared)

    saved = {name: alone[name].of_all_bytes - shared[name].of_all_bytes for name in both}
    a_first = saved["a"] >= saved["b"]
    one = np.where(a_first, cycles(shared["a"], alone["b"]), cycles(alone["a"], shared["b"]))
    pay = which_pay(cycles(*alone.values()), one, cycles(*shared.values()), a_first, chip)
    return {
        name: replace(shared[name], shared=shared[name].shared & pays) for name, pays in zip("ab", pay, strict=True)
    }


def comes_in_pieces(of: _Columns, name: str, problem: Problem, chip: Chip) -> np.ndarray:
    """Whether what is held is loaded chunk by chunk, as `SpreadLoads` has it."""
    cuts_rows = problem.transposed_b if name == "b" else not problem.transposed_a
    size = problem.itemsize
    may_be_cut = rows_may_be_cut(of.chunk * size, problem.k * size, chip)
    return np.asarray((of.chunk >= problem.k) | (not cuts_rows) | may_be_cut)


def _take_turns(sharers: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """Whether some cores of a group bring pieces while the others load: each part of it brings several."""
    return np.asarray(_least_divisors(int(sharers.max()))[sharers] <= pieces // LEAST_ROUNDS)


@lru_cache(maxsize=64)
def _least_divisors(most: int) -> np.ndarray:
    """Of every number up to that, the least one above one; of one, more than there can be."""
    found = np.full(most + 1, np.iinfo(np.int64).max)
    for divisor in range(most, 1, -1):
        found[divisor::divisor] = divisor
    return found


def ddr_bytes_per_cycle(chip: Chip) -> float:
    return chip.bandwidth.ddr_bytes_per_kilocycle / 1000


def _line_shares(of: _Columns, problem: Problem, chip: Chip) -> dict[str, np.ndarray]:
    """What each byte of a and b that is wanted costs DDR: the lines that rows touch."""
    size, line = problem.itemsize, chip.transfer.ddr_line_bytes
    return {name: line_share(run * size, pitch * size, line) for name, (run, pitch) in _rows(of, problem).items()}


def _rows(of: _Columns, problem: Problem) -> dict[str, tuple[np.ndarray, int]]:
    """Of a and b: how much of a row in DDR a load has, and how long that row is."""
    of_k, of_m, of_n = (np.minimum(of.chunk, problem.k), problem.k), (of.m, problem.m), (of.n, problem.n)
    return {"a": of_m if problem.transposed_a else of_k, "b": of_k if problem.transposed_b else of_n}


def _slowness(of: _Columns, problem: Problem, chip: Chip) -> dict[str, np.ndarray]:
    """How much longer a core waits for a and b whose rows end in the middle of a block of elements."""
    rows, block = _rows(of, problem), chip.block_bytes // problem.itemsize
    whole = np.full(len(of.tiles), problem.k)
    own = {"a": of.m * of.m_trips if problem.transposed_a else whole}
    own["b"] = whole if problem.transposed_b else of.n * of.n_trips
    return {
        name: _ragged(run, pitch, np.minimum(own[name], pitch), block, _slower(chip))
        for name, (run, pitch) in rows.items()
    }


def _ragged(run: np.ndarray, pitch: int, own: np.ndarray, block: int, slower: float) -> np.ndarray:
    """How much longer the loads of the last core along a row take than those of a core that has ``own`` elements of it,
    in runs of which those are slower that are no whole blocks.
    """
    last = pitch - (quotient(pitch, own) - 1) * own
    at_the_end = np.maximum(1.0, (last + (slower - 1) * (last % run)) / own) if pitch % block else np.ones(len(run))
    return np.where(run % block > 0, slower, at_the_end)


def _slower(chip: Chip) -> float:
    """Loads of rows that end within a block."""
    return 100 / chip.transfer.ragged_nz_percent


def line_share(run: Any, pitch: int, line: int) -> Any:
    """What each byte of runs so far apart costs DDR, which moves lines."""
    start = np.gcd(np.gcd(run, pitch), line)
    return np.where(run >= pitch, 1.0, (run + line - start) / run)


def _to_llb(chip: Chip) -> Path_:
    """The way there; of a chip that has none, another one stands for it, which nothing takes."""
    return chip.path.get("ddr_llb", chip.path["ddr_l1"])


def _from_llb(chip: Chip) -> Path_:
    return chip.path.get("llb_l1", chip.path["ddr_l1"])


def relay_cycles(chip: Chip) -> int:
    """From when a core begins to bring a piece to LLB until another may load it."""
    return _to_llb(chip).latency_cycles + chip.sync.cross_flag_cycles + _from_llb(chip).latency_cycles


def rate(chip: Chip, name: str) -> int:
    return chip.path[name].bytes_per_cycle


# ---- on the way out ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Way:
    """What one tile of the result takes on its way out, through UB in groups of columns or from L0C at once."""

    fix_cycles: np.ndarray
    vector_cycles: np.ndarray
    store_cycles: np.ndarray
    side_cycles: np.ndarray  # of MTE2, for other inputs of the stages
    ddr_bytes: np.ndarray  # of the tiles of all cores
    llb_bytes: np.ndarray  # of those of a cluster
    last_cycles: np.ndarray  # from when the last tile is summed until all is out
    leaving_cycles: np.ndarray  # until L0C is free again

    @property
    def busiest(self) -> np.ndarray:
        return np.asarray(most(self.fix_cycles, self.vector_cycles, self.store_cycles, self.side_cycles))

    @staticmethod
    def of(of: _Columns, problem: Problem, chip: Chip) -> _Way:
        near, epilogue, through_ub, groups = "c" in problem.near, problem.epilogue, of.through_ub, of.groups
        results = of.m * of.n
        width = np.where(through_ub, of.group_columns, of.n)
        size = problem.result_bytes
        lines = line_share(width * size, problem.n * size, chip.transfer.ddr_line_bytes)
        stored, read = results * size * lines, results * epilogue.side_bytes * lines
        to = "llb" if near else "ddr"
        ways = [chip.path.get(f"{inside}_{to}") for inside in ("ub", "l0c")]
        ub, l0c = (way or next(filter(None, ways)) for way in ways)  # of two ways, or the only one there is
        out = stored / np.where(through_ub, ub.bytes_per_cycle, l0c.bytes_per_cycle)
        latency = np.where(through_ub, ub.latency_cycles, l0c.latency_cycles)
        taken_out = rounded(of.m, FRACTAL) * rounded(of.n, FRACTAL) * 4
        fix = np.where(through_ub, taken_out / rate(chip, "l0c_ub"), out)
        vector = np.where(through_ub, epilogue.vector_cycles(results, groups, chip), 0.0)
        beside = 0 * read
        if epilogue.side_bytes:
            side = chip.path["llb_ub" if epilogue.sides_near else "ddr_ub"]
            beside = np.maximum(groups * side.issue_cycles, read / side.bytes_per_cycle)
        far = (0.0 if near else stored) + (0.0 if epilogue.sides_near else read)
        close = (stored if near else 0.0) + (read if epilogue.sides_near else 0.0)
        # Groups follow one another through the queues; where DDR is what they wait for, all leave at its rate.
        slowest = most(fix, vector, out)
        last = np.where(through_ub, slowest + (fix + vector + out - slowest) / groups, out)
        last = last if near else np.maximum(last, of.cores * stored / ddr_bytes_per_cycle(chip))
        behind = np.maximum(vector, out) * np.maximum(0, groups - SLOTS) / groups
        leaving = np.where(through_ub, np.maximum(fix, behind), out)
        in_cluster = of.in_cluster(chip)
        return _Way(fix, vector, out, beside, of.cores * far, in_cluster * close, last + latency, leaving)
