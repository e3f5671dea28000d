"""Cores wait for each other where one needs what another did, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.codegen.borders import Borders, Lane, Order, Reach
from compiler.target import load_chip

TW1 = load_chip("tw1")
CORES = np.arange(TW1.cores)


def reach(
    queue: str, *, at: int = 0, shift: int = 0, writes: bool = False, gated: bool = True, memory: str = "ddr"
) -> Reach:
    """64 bytes of each core behind ``at``; ``shift`` cores further along."""
    low = at + ((CORES + shift) % TW1.cores) * 64
    return Reach(memory, queue, writes, low, low + 64, gated)


def orders(*kernels: list[Reach], gates: bool = True) -> list[Order]:
    borders = Borders(TW1, gates=gates)
    return [borders.next(kernel).order for kernel in kernels]


def test_what_stays_on_a_core_needs_no_order() -> None:
    chain = [[reach("mte3", at=n, writes=True), reach("mte2", at=n - 4096)] for n in range(0, 5 * 4096, 4096)]
    assert orders(*chain) == [Order.NONE] * 5


def test_what_crosses_cores_is_awaited_at_the_gate_once() -> None:
    made, read = reach("mte3", writes=True), reach("mte2", shift=1)
    assert orders([made], [read], [read]) == [Order.NONE, Order.GATE, Order.NONE]


def test_flags_that_count_to_one_make_no_gates() -> None:
    """A core may say that it is done with a kernel before another one has heard that of the kernel before."""
    made, read = reach("mte3", writes=True), reach("mte2", shift=1)
    for most, order in ((1, Order.BARRIER), (2, Order.GATE)):
        borders = Borders(replace(TW1, cross_flag_max=most))
        assert [borders.next(kernel).order for kernel in ([made], [read])] == [Order.NONE, order]


def test_what_is_loaded_in_front_of_the_gate_is_awaited_before_the_kernel() -> None:
    assert orders([reach("mte3", writes=True)], [reach("mte2", shift=1, gated=False)])[1] is Order.GATE_AHEAD


def test_what_other_queues_need_takes_a_barrier() -> None:
    """Only the queue that loads waits at a gate: a store over what others still read would not."""
    assert orders([reach("mte2", shift=1)], [reach("mte3", writes=True)])[1] is Order.BARRIER


def test_other_queues_know_one_kernel_later_what_was_known_at_the_gate() -> None:
    read, made = reach("mte2", shift=1), reach("mte3", at=4096, writes=True)
    gate = [reach("mte2", at=4096, shift=1)]
    assert orders([read, made], gate, [reach("mte3", writes=True)]) == [Order.NONE, Order.GATE, Order.NONE]


def test_another_memory_is_another_place() -> None:
    assert orders([reach("mte3", writes=True)], [reach("mte2", shift=1, memory="llb")]) == [Order.NONE, Order.NONE]


def test_what_writes_beside_another_needs_no_order() -> None:
    """Two kernels write the halves of rows of 64 bytes, on different cores; a third one writes across both."""
    left, right, across = (replace(reach("mte3", shift=n, writes=True), lane=lane) for n, lane in enumerate(LANES))
    assert orders([left], [right], [left]) == [Order.NONE] * 3
    assert orders([left], [right], [across]) == [Order.NONE, Order.NONE, Order.BARRIER]
    assert orders([left], [replace(right, lane=None)]) == [Order.NONE, Order.BARRIER]


LANES = [Lane(0, 32, 64), Lane(32, 32, 64), Lane(16, 32, 64)]


def test_lanes_are_beside_each_other_where_they_share_no_byte() -> None:
    period = 6
    every = [Lane(start, run, period) for start in range(period) for run in range(1, period + 1)]
    for one in every:
        for other in every:
            apart = not bytes_of(one) & bytes_of(other)
            assert one.is_beside(other) == apart, (one, other)
    assert not every[0].is_beside(Lane(3, 1, 2 * period)) and not every[0].is_beside(None)


def bytes_of(lane: Lane) -> set[int]:
    return {(lane.start + n) % lane.period for n in range(lane.run)}


def test_bytes_are_free_when_all_cores_are_known_to_be_through_with_them() -> None:
    borders = Borders(TW1)
    borders.next([reach("mte3", at=4096, writes=True)])
    assert borders.is_free("ddr", 0, 4096) and borders.is_free("llb", 4096, 4160)
    assert not borders.is_free("ddr", 4000, 4100)
    borders.next([reach("mte2", at=4096, shift=1)])  # waits at its gate, and reads them again
    assert not borders.is_free("ddr", 4000, 4100)
    borders.next([reach("mte3", at=4096, shift=1, writes=True)])
    borders.next([reach("mte2", at=4096)])
    borders.next([reach("mte2", at=8192), reach("mte2", at=4096, shift=2, memory="llb")])
    assert not borders.is_free("ddr", 4000, 4100) and borders.is_free("ddr", 0, 4096)


def test_bytes_are_written_when_all_cores_are_known_to_be_through_with_writing_them() -> None:
    borders = Borders(TW1)
    borders.next([reach("mte3", at=4096, writes=True)])
    assert borders.is_written("ddr", 0, 4096) and not borders.is_written("ddr", 4000, 4100)
    borders.next([reach("mte2", at=4096, shift=1)])
    assert borders.is_written("ddr", 4000, 4100) and not borders.is_free("ddr", 4000, 4100)


def test_only_cores_that_did_something_tell_the_others() -> None:
    made = reach("mte3", writes=True)
    few = replace(made, low=made.low[:3], high=made.high[:3])
    borders = Borders(TW1)
    borders.next([few])
    assert borders.next([reach("mte2", shift=1)]).setters == 3


def test_without_gates_there_are_barriers() -> None:
    assert orders([reach("mte3", writes=True)], [reach("mte2", shift=1)], gates=False)[1] is Order.BARRIER


def test_what_is_kept_in_mind_is_bounded() -> None:
    found = orders(*([reach("mte3", at=n * 4096, writes=True)] for n in range(1000)))
    assert 1 <= found.count(Order.BARRIER) <= 4


def test_what_runs_beside_others_knows_what_they_do_before_their_gate() -> None:
    """A kernel beside one that waits at its gate for what a third one made may not read that: it may begin sooner."""
    made, read = reach("mte3", writes=True), reach("mte2", shift=1)
    borders = Borders(TW1)
    assert [borders.next(kernel).order for kernel in ([made], [read])] == [Order.NONE, Order.GATE]
    assert not borders.are_beside([read], [read])
    assert borders.are_beside([reach("mte2", at=4096)], [read])
    assert not borders.are_beside([reach("mte3", at=4096, writes=True)], [read, reach("mte2", at=4096)])
    assert borders.next([reach("mte3", at=4096, writes=True)]).order is Order.NONE  # on each core what it read itself
