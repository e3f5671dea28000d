"""When things happen: every rule of the queues on the smallest program that shows it, in cycles of the tiny chip."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.isa.assembler import assemble
from compiler.isa.dtypes import Queue
from compiler.sim.pipeline import BANDWIDTH, BARRIER, FLAG, QUEUE_FULL
from compiler.sim.simulator import Run, prepare
from compiler.target import Chip, load_chip

TINY = load_chip("tiny")
TW1 = load_chip("tw1")
FRAME = """
.cores {cores}
.input x ddr fp32 4096
.buffer y ddr fp32 4096
.buffer z llb fp32 4096
"""
PATH = TINY.path["ddr_ub"]
LINE = TINY.transfer.ddr_line_bytes


def run(body: str, cores: int = 1, chip: Chip = TINY, seed: int = 0) -> Run:
    return prepare(assemble(FRAME.format(cores=cores) + body + "\nhalt", chip=chip), chip, seed=seed)


def times(each: Run, core: int = 0) -> list[tuple[str, int, int, int]]:
    """(mnemonic, start, end, complete) of a core's dynamic instructions."""
    stream, timed = each.stream, each.schedule
    span = range(int(stream.core_start[core]), int(stream.core_start[core + 1]))
    names = [each.program.instrs[int(pc)].row.mnemonic for pc in stream.pc]
    return [(names[i], int(timed.start[i]), int(timed.end[i]), int(timed.complete[i])) for i in span]


def load(elements: int, ub: int = 0, element: int = 0) -> str:
    return f"ld.ddr.ub.fp32.1d [{ub}; 1], [x + {4 * element}; 1], <{elements}>"


def fill(elements: int, ub: int = 0) -> str:
    return f"vdup.fp32.1d [{ub}; 1], 1.0, <{elements}>"


def cycles_of(body: str, **options: object) -> int:
    return run(body, **options).cycles  # type: ignore[arg-type]


# ---- dispatch -----------------------------------------------------------------------------------------------


def test_each_dispatch_takes_an_issue_slot_and_scalar_code_its_own() -> None:
    copy, cube = "filll1.fp32.1d [0; 1], <8>, 1.0", "mfill.fp32 [0], <16, 16>, 1.0"
    each = run("\n".join([".tiling w = 1", "nop", "nop", fill(8), "nop", copy, "ldt x1, w", cube]))
    issue = TINY.scalar.issue_cycles
    starts = [start for _, start, _, _ in times(each)]
    assert starts == [3 * issue, 5 * issue, 6 * issue + TINY.scalar.load_cycles]


def test_a_taken_branch_costs_more_than_one_that_is_not() -> None:
    taken, not_taken = cycles_of("beq x0, 0, on\non:"), cycles_of("beq x0, 1, on\non:")
    assert taken - not_taken == TINY.scalar.branch_taken_cycles - 1
    # A hardware loop is one instruction, its body's ten times, and the halt behind it.
    assert cycles_of("loop x1, 10, end\nnop\nend:") == 12 * TINY.scalar.issue_cycles


def test_the_scalar_unit_stalls_while_a_queue_is_full() -> None:
    """``depth`` instructions wait in the queue; the next one is dispatched when the first of them starts."""
    depth = TINY.queues.depth
    each = run("\n".join([fill(512)] * (depth + 2)))
    length = times(each)[0][3] - times(each)[0][1]
    assert each.schedule.stalled[0, Queue.S, QUEUE_FULL] > 0
    starts = [start for _, start, _, _ in times(each)]
    assert starts == [1 + k * length for k in range(depth + 2)]
    assert run("\n".join([fill(512)] * (depth + 1))).schedule.stalled[0, Queue.S, QUEUE_FULL] == 0


def test_a_full_queue_holds_up_what_is_for_other_queues() -> None:
    depth = TINY.queues.depth
    behind = "\n" + "mfill.fp32 [0], <16, 16>, 1.0"
    few, many = (run("\n".join([fill(512)] * count) + behind) for count in (depth, depth + 3))
    assert times(few)[-1][1] == depth + 1
    assert times(many)[-1][1] > times(many)[1][1]


# ---- queues -------------------------------------------------------------------------------------------------


def test_queues_run_side_by_side_and_each_in_order() -> None:
    vector, cube = fill(512), "mfill.fp32 [0], <16, 16>, 1.0"
    each = run("\n".join([vector, vector, cube]))
    (_, _, _, first), (_, second, _, _), (_, other, _, _) = times(each)
    assert second == first  # interlocked: not before the result is there
    assert other == 3


def test_copies_overlap_their_latency_unless_a_barrier_is_between_them() -> None:
    copy = "filll1.fp32.1d [{0}; 1], <256>, 1.0"
    apart = run(copy.format(0) + "\n" + copy.format(2048))
    held = run(copy.format(0) + "\npipe_barrier.mte1\n" + copy.format(2048))
    latency = TINY.path["l1_l0a"].latency_cycles
    (_, _, end, complete), (_, second, _, _) = times(apart)
    assert complete - end == latency
    assert second == end
    (_, _, _, complete), (_, barrier, after, _), (_, second, _, _) = times(held)
    assert (barrier, second) == (complete, complete + TINY.sync.barrier_cycles)
    assert after == second
    assert held.schedule.stalled[0, Queue.MTE1, BARRIER] == latency


def test_a_load_is_a_latency_and_its_lines_at_the_rate_of_its_path() -> None:
    def cost(elements: int, offset: int = 0) -> int:
        _, start, _, complete = times(run(load(elements, element=offset)))[0]
        return complete - start

    sizes = [16, 64, 256, 1024]
    costs = [cost(n) for n in sizes]
    assert costs == [PATH.latency_cycles + n * 4 // PATH.bytes_per_cycle for n in sizes]
    assert cost(1) == PATH.latency_cycles + LINE // PATH.bytes_per_cycle  # lines move whole
    assert cost(16, offset=1) == PATH.latency_cycles + 2 * LINE // PATH.bytes_per_cycle


def test_a_strided_load_moves_the_lines_that_its_rows_touch() -> None:
    body = "ld.ddr.ub.fp32.2d [0; 8, 1], [x; 32, 1], <8, 8>"
    _, start, end, _ = times(run(body))[0]
    assert end - start == 8 * LINE // PATH.bytes_per_cycle


# ---- flags and barriers -------------------------------------------------------------------------------------


def test_a_flag_is_set_when_all_before_it_is_complete_and_its_queue_goes_on() -> None:
    each = run("\n".join([load(256), "set_flag.mte2.v 0", load(256, 1024, 256), "wait_flag.mte2.v 0", fill(8, 4096)]))
    (_, _, free, complete), (_, _, _, flag), (_, second, _, _), (_, wait, _, _), (_, vector, _, _) = times(each)
    assert flag == complete + TINY.sync.flag_cycles
    assert wait == flag
    assert second == free + TINY.sync.flag_cycles  # long before the flag is set
    assert vector == wait + TINY.sync.flag_cycles
    assert each.schedule.stalled[0, Queue.V, FLAG] > 0


def test_barrier_all_holds_the_scalar_unit_until_the_queues_are_empty() -> None:
    each = run("\n".join([load(256), fill(8, 4096), "barrier_all", fill(8)]))
    loaded, _, barrier, after = times(each)
    assert barrier[1] == loaded[3]
    assert after[1] == barrier[1] + TINY.sync.barrier_cycles + TINY.scalar.issue_cycles


@pytest.mark.parametrize("kind", ["core_barrier", "cluster_barrier"])
def test_a_core_barrier_releases_all_cores_when_the_last_one_arrives(kind: str) -> None:
    each = run(f"getsr.core x1\nbeq x1, 0, early\n{load(1024)}\nearly:\n{kind}\n{fill(8)}", cores=2)
    (_, arrived, released, _), after = times(each, 0)[-2:]
    (_, _, _, loaded), (_, last, also, _), late = times(each, 1)
    assert arrived < last == loaded
    assert released == also == loaded + TINY.sync.core_barrier_cycles
    assert after[1] == late[1] == released + TINY.scalar.issue_cycles


def test_a_cluster_barrier_waits_for_its_own_cluster_only() -> None:
    body = f"getsr.cluster x1\nbeq x1, 0, early\n{load(1024)}\nearly:\ncluster_barrier\nnop"
    each = run(body, cores=10, chip=TW1)
    ends = [times(each, core)[-1][2] for core in range(10)]
    assert len(set(ends[:8])) == len(set(ends[8:])) == 1
    assert ends[0] < ends[9]


def test_a_cross_core_flag_arrives_after_its_latency_and_may_be_set_ahead() -> None:
    body = "getsr.core x1\nbeq x1, 1, taker\ncross_set.v 1, 0\ncross_set.v 1, 0\nhalt\ntaker:\n{}cross_wait.v 0, 0\n" \
           "cross_wait.v 0, 0"  # fmt: skip
    each = run(body.format(""), cores=2)
    sets, waits = times(each, 0), times(each, 1)
    for (_, start, end, there), (_, taken, _, _) in zip(sets, waits, strict=True):
        assert end == start + TINY.sync.flag_cycles
        assert taken == there == end + TINY.sync.cross_flag_cycles
    late = times(run(body.format("nop\n" * 1000), cores=2), 1)
    assert late[1][1] == late[0][1] + TINY.sync.flag_cycles  # both were there already


# ---- shared bandwidth -----------------------------------------------------------------------------------------


def bandwidth(ddr: int) -> Chip:
    return replace(TINY, bandwidth=replace(TINY.bandwidth, ddr_bytes_per_kilocycle=ddr))


def test_two_cores_share_ddr_and_one_alone_has_it_all() -> None:
    alone, both = run(load(1024)), run(load(1024), cores=2)
    moving = 1024 * 4 // PATH.bytes_per_cycle
    assert times(alone)[0][2] - times(alone)[0][1] == moving
    for core in (0, 1):
        assert times(both, core)[0][2] - times(both, core)[0][1] == 2 * moving
        assert both.schedule.stalled[core, Queue.MTE2, BANDWIDTH] == moving
    wide = run(load(1024), cores=2, chip=bandwidth(16000))
    assert times(wide)[0][2] - times(wide)[0][1] == moving


def test_what_one_core_leaves_the_other_takes() -> None:
    """Max-min: half each while both load, all of it for the longer one afterwards."""
    body = f"getsr.core x1\nbeq x1, 1, short\n{load(1024)}\nhalt\nshort:\n{load(256)}"
    each = run(body, cores=2)
    rate = PATH.bytes_per_cycle
    (_, start, end, _), (_, begin, done, _) = times(each, 0)[0], times(each, 1)[0]
    assert abs(done - begin - 2 * 1024 // rate) <= 2
    # Each byte that the short one moved meanwhile was lost to the long one.
    assert abs(end - start - (4096 + 1024) // rate) <= 2


def test_a_flow_below_its_fair_share_leaves_the_rest_to_the_others() -> None:
    """DDR of 12 bytes per cycle: the copy to LLB is asked to take 2, so the load takes its full 8."""
    slow = replace(TINY.path["ddr_llb"], bytes_per_cycle=2)
    chip = replace(bandwidth(12000), path={**TINY.path, "ddr_llb": slow})
    copy = "ld.ddr.llb.fp32.1d [z; 1], [x; 1], <1024>"
    each = run(f"getsr.core x1\nbeq x1, 1, other\n{load(1024)}\nhalt\nother:\n{copy}", cores=2, chip=chip)
    assert times(each, 0)[0][2] - times(each, 0)[0][1] == 1024 * 4 // PATH.bytes_per_cycle


def test_every_cluster_has_an_llb_of_its_own() -> None:
    """Cores of one cluster share it; a core of another cluster does not slow them."""
    chip = replace(TW1, bandwidth=replace(TW1.bandwidth, llb_bytes_per_kilocycle=110_000))
    path = TW1.path["llb_ub"]

    def moving(body: str, core: int) -> int:
        _, start, end, _ = times(run(body, cores=9, chip=chip), core)[-1]
        return end - start

    copy = "ld.llb.ub.fp32.1d [0; 1], [z; 1], <4096>"
    text = "getsr.core x1\nbeq x1, 0, on\nbeq x1, {}, on\nhalt\non:\n" + copy
    alone = -(-4096 * 4 // path.bytes_per_cycle)
    assert moving(text.format(0), 0) == alone
    assert moving(text.format(8), 0) == alone
    assert abs(moving(text.format(1), 0) - 2 * alone) <= 2


# ---- the whole --------------------------------------------------------------------------------------------------


def test_a_run_ends_when_its_last_result_is_there() -> None:
    each = run(load(256))
    assert each.cycles == times(each)[0][3]


def test_every_cycle_of_a_queue_is_busy_or_accounted_for() -> None:
    body = "\n".join(
        [load(256), "set_flag.mte2.v 0", "wait_flag.mte2.v 0", fill(256, 4096), "pipe_barrier.mte2", load(64)]
    )
    each = run(body, cores=2)
    for core in range(2):
        for queue in (Queue.V, Queue.MTE2):
            spent = each.schedule.busy[core, queue] + each.schedule.stalled[core, queue].sum()
            assert spent == max(end for name, _, end, _ in times(each, core) if (name[0] in "vw") == (queue == Queue.V))


def test_a_seed_delays_queues_and_the_same_seed_in_the_same_way() -> None:
    body = "\n".join([load(64), "barrier_all"] * 20)
    plain, once, again, other = (run(body, seed=seed) for seed in (0, 3, 3, 4))
    assert plain.cycles < once.cycles == again.cycles != other.cycles
    np.testing.assert_array_equal(once.schedule.start, again.schedule.start)
