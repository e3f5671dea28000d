"""The figures of a run, against figures counted by hand or in a slower way."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compiler.isa.assembler import assemble
from compiler.isa.dtypes import MEMORIES, Queue
from compiler.sim import occupancy
from compiler.sim.classes import READ, WRITE
from compiler.sim.occupancy import Occupancy, occupancies
from compiler.sim.pipeline import REASONS
from compiler.sim.simulator import Run, simulate
from compiler.sim.statistics import statistics, table
from compiler.target import load_chip
from tests.sim import sample


@pytest.fixture(scope="module")
def run() -> Run:
    return sample.run()


def test_paths_carry_what_the_program_moves(run: Run) -> None:
    moved = {p.path: (p.copies, p.moved_bytes) for p in statistics(run).paths}
    matrix, block = 2 * 16 * 16, 4 * 16 * 16
    assert moved == {
        "ddr_ub": (8, 8 * 1024),
        "ub_ddr": (8, 8 * 1024),
        "ddr_l1": (2, 2 * matrix),
        "l1_l0a": (2, 2 * matrix),
        "l1_l0b": (2, 2 * matrix),
        "l0c_ddr": (2, 2 * block),
    }
    assert statistics(run).ddr_bytes == sum(moved[path][1] for path in moved if "ddr" in path)


def test_multiplications_are_counted_without_padding() -> None:
    whole = statistics(sample.run())
    assert whole.macs == 2 * 16**3
    assert whole.mac_utilisation == pytest.approx(2 * 16**3 / 64 / (whole.cycles * 2))
    ragged = sample.SOURCE.replace("mad.fp16 [0], [0], [0], <16, 16, 16>", "mad.fp16 [0], [0], [0], <16, 5, 16>")
    assert statistics(sample.run(ragged)).macs == 2 * 16 * 5 * 16


def test_batches_multiply_and_fills_do_not() -> None:
    def macs(instruction: str) -> int:
        return statistics(sample.run(sample.SOURCE.replace("mad.fp16 [0], [0], [0], <16, 16, 16>", instruction))).macs

    assert macs("bmad.fp16 [0], [0], [0], <1, 16, 16, 16>") == 2 * 16**3
    assert macs("mfill.fp32 [0], <16, 16>, 0.0") == 0


def test_no_queue_spends_more_cycles_than_there_are(run: Run) -> None:
    stats = statistics(run)
    spent = stats.busy + stats.stalled.sum(axis=2)
    assert (spent <= stats.cycles).all()
    assert (stats.busy >= 0).all()
    assert (stats.stalled >= 0).all()


def test_instructions_by_queue(run: Run) -> None:
    stats = statistics(run)
    queue_of = run.classes.queue[run.stream.klass]
    for queue in Queue:
        if queue is not Queue.S:
            assert stats.instructions[:, queue].sum() == (queue_of == queue).sum()
    assert stats.scalar_instructions == 2 * (1 + 1 + 1 + 2 + 1 + 1)  # getsr smul loop sadd sadd smul halt


def test_conflicts_are_those_of_the_classes() -> None:
    # Both operands start in the same group of the same bank: every repeat fetches twice.
    source = """
.chip tiny
.cores 2
.buffer t ub 4096
    vdup.fp32.1d [0; 1], 1.0, <512>
    vadd.fp32.1d [2048; 1], [0; 1], [1024; 1], <64>
    halt
"""
    done = sample.run(source)
    stats = statistics(done)
    expected = sum(int(done.classes.conflict[k]) for k in done.stream.klass)
    assert stats.conflict_cycles.sum() == expected > 0


# ---- occupancy ------------------------------------------------------------------------------------------------


def slow_live(run: Run, memory: str, core: int, time: int) -> int:
    """Bytes of a core's memory that are live at a time, byte by byte."""
    events: list[tuple[int, int, int, int, int]] = []
    for index in range(int(run.stream.core_start[core]), int(run.stream.core_start[core + 1])):
        klass = int(run.stream.klass[index])
        for f in range(int(run.classes.footprint_start[klass]), int(run.classes.footprint_start[klass + 1])):
            slot, where, access, start, extent = (int(v) for v in run.classes.footprints[f][:5])
            if MEMORIES[where] == memory:
                low = int(run.stream.address[index, slot]) + start
                begin, end = int(run.schedule.start[index]), int(run.schedule.end[index])
                events += [(begin, kind, low, low + extent, end) for kind in (READ, WRITE) if access & kind]
    born, last = {}, {}
    lives = []
    for begin, kind, low, high, end in sorted(events):
        for byte in range(low, high):
            if kind == WRITE:
                lives.append((born.get(byte, 0), last.pop(byte, -1)))
                born[byte] = begin
            elif byte in born:
                last[byte] = max(last.get(byte, -1), end)
    lives += [(born[byte], end) for byte, end in last.items()]
    return sum(begin <= time < end for begin, end in lives)


@pytest.mark.parametrize("memory", ["ub", "l1", "l0a", "l0c"])
def test_live_bytes_are_those_that_will_still_be_read(run: Run, memory: str) -> None:
    one = next(o for o in occupancies(run) if (o.memory, o.owner) == (memory, 1))
    for time in [*range(0, run.cycles, run.cycles // 40), *one.times.tolist()[:10]]:
        at = int(np.searchsorted(one.times, time, side="right")) - 1
        assert (int(one.live_bytes[at]) if at >= 0 else 0) == slow_live(run, memory, 1, time)


def test_memories_where_they_are_fullest(run: Run) -> None:
    found = {m.memory: m for m in statistics(run).memories}
    assert found["ub"].touched_bytes == 4096
    assert found["l0c"].peak_bytes == 1024
    assert found["ddr"].peak_bytes is None
    assert found["ddr"].touched_bytes == sum(b.size_bytes for b in run.program.buffers)


def test_a_coarse_grid_only_adds(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {(o.memory, o.owner): o.peak_bytes for o in occupancies(run)}
    monkeypatch.setattr(occupancy, "MAX_PIECES", 3)
    coarse = {(o.memory, o.owner): o.peak_bytes for o in occupancies(run)}
    assert all(coarse[key] >= exact[key] for key in exact)
    assert all(coarse[o.memory, o.owner] <= o.capacity_bytes for o in occupancies(run) if o.memory != "ddr")


def test_a_run_too_long_to_follow_has_no_occupancy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupancy, "MAX_ACCESSES", 10)
    assert statistics(run).memories == ()
    assert "most live" not in table(statistics(run))


def test_sampling_keeps_peaks() -> None:
    times = np.arange(0, 10_000, 7)
    live = np.random.default_rng(3).integers(0, 1000, len(times))
    some = Occupancy("ub", 0, 1000, 1000, times, live)
    kept, values = some.sampled(50)
    assert len(kept) <= 50
    assert values.max() == live.max()
    assert (np.diff(kept) > 0).all()
    for time, value in zip(times, live, strict=True):
        assert values[np.searchsorted(kept, time, side="right") - 1] >= value


# ---- as text and as tables ------------------------------------------------------------------------------------


def test_the_table_states_cycles_and_every_queue_in_use(run: Run) -> None:
    text = table(statistics(run))
    assert f"{run.cycles:,} cycles = " in text.splitlines()[0]
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    for queue in Queue:
        numbers = rows[queue.name]
        assert len(numbers) == 3 + 3 + len(REASONS) + 1  # the busiest core takes three words
        shares = [float(numbers[2]), *(float(word) for word in numbers[6:])]
        assert sum(shares) == pytest.approx(100, abs=0.5)


def test_tables_are_json_and_the_same_every_time(run: Run) -> None:
    first = json.dumps(statistics(run).to_dict())
    assert json.loads(first)["cycles"] == run.cycles
    assert first == json.dumps(statistics(sample.run()).to_dict())


def test_a_program_that_does_nothing() -> None:
    stats = statistics(sample.run(".chip tiny\n.cores 1\nhalt\n"))
    assert (stats.macs, stats.paths, stats.memories) == (0, (), ())
    assert table(stats)


def test_an_accumulator_is_counted_once() -> None:
    chip = load_chip("tw2")
    text = """
        .cores 1
        filll0a.fp16 [0], <256>, 1.0
        filll0b.fp16 [0], <256>, 1.0
        set_flag.mte1.m 0
        wait_flag.mte1.m 0
        mad.fp16 [0], [0], [0], <16, 16, 16>
        loop x1, 4, done
        madacc.fp16 [0], [0], [0], <16, 16, 16>
    done:
        halt
    """
    run = simulate(assemble(text, chip=chip), chip)
    (sums,) = (each for each in occupancies(run) if each.memory == "l0c")
    assert sums.peak_bytes == 16 * 16 * 4
