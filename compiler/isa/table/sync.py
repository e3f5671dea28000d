"""Order between queues and cores. What each one waits for is written in its row; the simulator implements just that.

A flag is one bit per (source queue, destination queue, id). Cross-core flags are counters per (source core,
destination core, id); `cluster_set` and `cluster_wait` count the cores of their own cluster from zero, so that one
program runs on every cluster. Barriers of cores drain every queue of the cores that take part.
"""

from __future__ import annotations

from compiler.isa.dtypes import Queue
from compiler.isa.model import Args, Int, Modifier, Operand, Row, Rule, Timing

QUEUES = tuple(queue.name.lower() for queue in Queue)
_FLAG = (Modifier("src", QUEUES), Modifier("dst", QUEUES))
_OF_QUEUE = (Modifier("queue", QUEUES[1:]),)
_CROSS = (Int("core", 0), Int("id", 0))


def queues_differ(args: Args) -> bool:
    """a flag joins two different queues; inside one queue use pipe_barrier"""
    return bool(args.src != args.dst)


def event_exists(args: Args) -> bool:
    """the event id must be below the chip's event_ids"""
    return bool(args.id < args.chip.event_ids)


def cross_flag_exists(args: Args) -> bool:
    """the cross-core flag id must be below the chip's cross_flag_ids"""
    return bool(args.id < args.chip.cross_flag_ids)


def core_exists(args: Args) -> bool:
    """the core must be one of the chip's"""
    return bool(args.core < args.chip.cores)


def core_exists_in_cluster(args: Args) -> bool:
    """the core must be one of the cluster's"""
    return bool(args.core < args.chip.cores_per_cluster)


def _sync(
    opcode: int,
    mnemonic: str,
    queue: Queue | str,
    doc: str,
    operands: tuple[Operand, ...] = (),
    modifiers: tuple[Modifier, ...] = (),
    rules: tuple[Rule, ...] = (),
    cycles: str = "flag_cycles",
    latency: str = "",
    kind: str = "",
) -> Row:
    def timing(args: Args) -> Timing:
        sync = args.chip.sync
        return Timing(getattr(sync, cycles), getattr(sync, latency) if latency else 0)

    return Row(opcode, mnemonic, queue, doc, operands, modifiers, rules, timing=timing, kind=kind or mnemonic)


ROWS = [
    _sync(
        192,
        "set_flag",
        "@src",
        "set the flag once everything before it in queue src has completed; src goes on at once",
        (Int("id", 0),),
        _FLAG,
        (queues_differ, event_exists),
    ),
    _sync(
        193,
        "wait_flag",
        "@dst",
        "hold queue dst until the flag is set, then clear it",
        (Int("id", 0),),
        _FLAG,
        (queues_differ, event_exists),
    ),
    _sync(
        194,
        "pipe_barrier",
        "@queue",
        "hold the queue until everything before it in the same queue has completed",
        modifiers=_OF_QUEUE,
        cycles="barrier_cycles",
    ),
    _sync(
        195,
        "barrier_all",
        Queue.S,
        "hold the scalar unit until every queue of the core is empty",
        cycles="barrier_cycles",
    ),
    _sync(
        196,
        "core_barrier",
        Queue.S,
        "hold every core until all cores are here with empty queues",
        cycles="core_barrier_cycles",
    ),
    _sync(
        197,
        "cluster_barrier",
        Queue.S,
        "hold the cores of a cluster until all of them are here with empty queues",
        cycles="core_barrier_cycles",
    ),
    _sync(
        198,
        "cross_set",
        "@queue",
        "add one to flag id of (this core, core) once everything before it in the queue has completed",
        _CROSS,
        _OF_QUEUE,
        (cross_flag_exists, core_exists),
        latency="cross_flag_cycles",
    ),
    _sync(
        199,
        "cross_wait",
        "@queue",
        "hold the queue until flag id of (core, this core) is above zero, then take one off",
        _CROSS,
        _OF_QUEUE,
        (cross_flag_exists, core_exists),
    ),
    _sync(
        200,
        "cluster_set",
        "@queue",
        "cross_set, where core is counted within this core's cluster",
        _CROSS,
        _OF_QUEUE,
        (cross_flag_exists, core_exists_in_cluster),
        latency="cross_flag_cycles",
        kind="cross_set",
    ),
    _sync(
        201,
        "cluster_wait",
        "@queue",
        "cross_wait, where core is counted within this core's cluster",
        _CROSS,
        _OF_QUEUE,
        (cross_flag_exists, core_exists_in_cluster),
        kind="cross_wait",
    ),
]

# The rows that name a core of their own cluster.
IN_CLUSTER = ("cluster_set", "cluster_wait")
