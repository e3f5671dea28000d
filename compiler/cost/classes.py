"""What instructions cost, asked of their rows once for all that cannot differ in it."""

from __future__ import annotations

from functools import lru_cache

from compiler.cost import walk as w
from compiler.cost.growth import Q
from compiler.isa.dtypes import Queue
from compiler.isa.model import Args, Instr, Row, Timing, bind
from compiler.isa.timing import memories_of
from compiler.target import Chip

_KIND = {
    "set_flag": w.SET,
    "wait_flag": w.WAIT,
    "pipe_barrier": w.PIPE_BARRIER,
    "barrier_all": w.BARRIER_ALL,
    "core_barrier": w.CORE_BARRIER,
    "cluster_barrier": w.CLUSTER_BARRIER,
    "cross_set": w.CROSS_SET,
    "cross_wait": w.CROSS_WAIT,
}
Class = tuple[tuple[int, int, int, int], tuple[float, float, float, float, float, float]]


@lru_cache(maxsize=1 << 16)
def class_of(row: Row, mods: tuple[str, ...], values: tuple[int, ...], chip: Chip) -> Class:
    """The columns of a class: whole numbers, then costs. Of addresses only the bits that matter are given."""
    args = bind(Instr(row, mods, values), values, chip)
    timing = row.timing(args) if row.timing else Timing(chip.scalar.issue_cycles)
    rate, shares = 0.0, 0
    if timing.path:
        rate, shares = float(chip.path[timing.path].bytes_per_cycle), memories_of(timing.path)
    kind = w.TRANSFER if timing.path else _KIND.get(row.kind, w.PLAIN)
    numbers = (int(row.queue_of(mods)), kind, _argument(args, chip), shares)
    return numbers, (
        float(timing.cycles), float(timing.latency_cycles), rate, float(timing.line_bytes),
        float(timing.conflict_cycles), 1 / chip.alike if row.meets else 1.0,
    )  # fmt: skip


def _argument(args: Args, chip: Chip) -> int:
    """Which flag."""
    if args.row.kind in ("set_flag", "wait_flag"):
        return int((Queue[args.src.upper()] * Q + Queue[args.dst.upper()]) * chip.event_ids + args.id)
    if args.row.kind in ("cross_set", "cross_wait"):
        return int(args.core * chip.cross_flag_ids + args.id)
    return 0
