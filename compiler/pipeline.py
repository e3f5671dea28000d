"""THE list of passes, in order, with the reason why each stands where it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from compiler.errors import Problem, TilewrightError, UsageError
from compiler.target import Chip

BANDS = "schedule-bands"
IN_PARTS = ("schedule-graph", BANDS)  # passes that are left out where tensors cannot be parts of others


@dataclass(frozen=True)
class Told:
    """What graph passes need not find out."""

    clusters: int | None = None  # how many of them run the model
    way: Any = None  # how calls run (a `Way`), where that was found for the same graph before


NOTHING = Told()


@cache
def graph_passes(told: Told = NOTHING) -> tuple[Any, ...]:
    """Relax -> Relax. Imported when something is compiled, not when the command starts."""
    from passes.graph.divide_batch import DivideBatch
    from passes.graph.group_operators import GroupOperators
    from passes.graph.schedule_bands import ScheduleBands
    from passes.graph.schedule_graph import ScheduleGraph

    return (
        GroupOperators(),  # what shares a kernel: all later decisions are per kernel
        DivideBatch(told=told.clusters),  # before the graph is cut further: one cluster's part is what has to fit
        ScheduleGraph(found=told.way),  # how often each kernel runs, and on what
        ScheduleBands(),  # last: of what does not fit in pieces of the batch, rows
    )


@cache
def kernel_passes() -> tuple[Any, ...]:
    """PrimFunc -> PrimFunc, for a kernel that a schedule template has cut into tiles."""
    from passes.tir.allocate_memory import AllocateMemory
    from passes.tir.bound_marked_nests import BoundMarkedNests
    from passes.tir.broadcast_loads import BroadcastLoads
    from passes.tir.cut_operands import CutOperands
    from passes.tir.cut_trips import CutTrips
    from passes.tir.dispatch_ahead import DispatchAhead
    from passes.tir.double_buffer import DoubleBuffer
    from passes.tir.emit_instructions import EmitInstructions
    from passes.tir.fill_borders import FillBorders
    from passes.tir.guard_turns import GuardTurns
    from passes.tir.hoist_invariants import HoistInvariants
    from passes.tir.hold_pieces import HoldPieces
    from passes.tir.if_promotion import IfPromotion
    from passes.tir.insert_sync import InsertSync
    from passes.tir.keep_near import KeepNear
    from passes.tir.loop_collapse import LoopCollapse
    from passes.tir.loop_fission import LoopFission
    from passes.tir.loop_partition import LoopPartition
    from passes.tir.loop_shift import LoopShift
    from passes.tir.loop_split import LoopSplit
    from passes.tir.lower_blocks import LowerBlocks
    from passes.tir.merge_core_axes import MergeCoreAxes
    from passes.tir.minimise_sync import MinimiseSync
    from passes.tir.pad_rows import PadRows
    from passes.tir.pre_process import PreProcess
    from passes.tir.repeat_factors import RepeatFactors
    from passes.tir.share_loads import ShareLoads
    from passes.tir.shift_addresses import ShiftAddresses
    from passes.tir.shrink_buffers import ShrinkBuffers
    from passes.tir.size_cube_buffers import SizeCubeBuffers
    from passes.tir.spread_loads import SpreadLoads
    from passes.tir.start_sums import StartSums
    from passes.tir.sum_rows_on_cube import SumRowsOnCube
    from passes.tir.turn_rows import TurnRows
    from passes.tir.vector_first import VectorFirst
    from passes.tir.work_in_place import WorkInPlace

    return (
        LowerBlocks(),  # from here on a kernel is loops, ifs and stores
        ShrinkBuffers(),  # while the core axes still are variables with a range of their own
        MergeCoreAxes(),  # one core number, as the machine has it
        SumRowsOnCube(),  # before what looks at marked nests: it makes some
        BoundMarkedNests(),  # a nest that is one instruction has bounds, not guards; nobody touches it from here on
        CutOperands(),  # behind them: how far a product reads is how far its loops go
        HoldPieces(),  # behind them: marked nests have bounds; the buffers that it makes need sizes
        SizeCubeBuffers(),  # while it still shows which rows and columns a fractal buffer holds
        SpreadLoads(),  # behind them: marked nests have bounds and sizes
        PreProcess(),  # before loops move: temporaries belong to the nest that they are split from
        LoopShift(),  # loops count from zero: what follows need not look where they begin
        LoopFission(),  # each store is on its own, so that a guard of one does not split the loops of others
        IfPromotion(),  # guards leave the loops that do not decide them: fewer loops are left to partition
        LoopSplit(),  # quotients that start anew within a loop become loops, before guards on these are looked at
        LoopPartition(),  # the guards that are left become bounds
        LoopShift(),  # partition leaves loops that begin elsewhere than at zero
        LoopFission(),  # the parts of a partition may hold several stores again
        IfPromotion(),  # and guards that now depend on outer loops only
        FillBorders(),  # while a nest still shows which rows and columns it moves
        TurnRows(),  # before PadRows: what it turns needs no gaps
        PadRows(),  # before loops merge over rows that get gaps
        LoopCollapse(),  # last of the loop passes: only guard-free nests of one store have the fewest dimensions
        RepeatFactors(),  # behind it: the loops that it cuts rows into would merge again
        EmitInstructions(),  # every nest becomes instructions
        StartSums(),  # while the sum that is set to zero stands beside the products that follow
        WorkInPlace(),  # before rings: a buffer that is not there needs no slots
        HoistInvariants(),  # before rings: what leaves a loop needs no second slot in it
        KeepNear(),  # before ShareLoads: what a core keeps for itself, DDR need not bring to others
        ShareLoads(),  # before buffers are doubled: a load from LLB takes another time than one from DDR
        BroadcastLoads(),  # of what is left: what cores share comes by way of LLB
        GuardTurns(),  # behind what puts instructions into loops
        CutTrips(),  # while a loop's body is one turn; behind what puts instructions into it
        DoubleBuffer(),  # what is touched by which queue shows in instructions; before buffers get their bytes
        AllocateMemory(),  # before synchronisation: sharing of memory orders instructions
        ShiftAddresses(),  # while nothing yet depends on which buffers share memory with which
        InsertSync(),  # last but one: whatever moves instructions after it would break it
        MinimiseSync(),  # what was put in for one instruction after another may be implied by all together
        VectorFirst(),  # behind them: flags show what needs nothing of the work before it
        DispatchAhead(),  # last: no queue's order changes any more
    )


# Called after each pass with the kernel's name, the pass's name, and the subject before and after it.
Watcher = Callable[[str, str, Any, Any], None]


@dataclass
class Observer:
    """What a person asked to see of the passes; the default only counts seconds.

    Passes in ``without`` are left out, to see what they are for.
    """

    watchers: Sequence[Watcher] = ()
    stop_after: str | None = None
    without: frozenset[str] = frozenset()
    seconds: dict[str, float] = field(default_factory=dict)
    kernel: str = "graph"  # what the passes work on now
    progress: Callable[[int, int, str], None] | None = (
        None  # called with kernels done, of how many, and the last's name
    )

    def report(self, done: int, total: int, name: str = "") -> None:
        if self.progress is not None:
            self.progress(done, total, name)


class Stopped(Exception):
    """The pipeline stopped after the pass it was asked to stop after; carries what that pass made."""

    def __init__(self, name: str, subject: Any) -> None:
        super().__init__(name)
        self.name, self.subject = name, subject


def run(passes: Sequence[Any], subject: Any, chip: Chip, observer: Observer) -> Any:
    """The subject after all passes."""
    for one in passes:
        if one.name in observer.without:
            continue
        start = time.perf_counter()
        try:
            after = one.run(subject, chip)
        except TilewrightError:
            raise
        except Exception as error:
            error.add_note(f"in pass {one.name}, kernel {observer.kernel}")
            raise
        elapsed = time.perf_counter() - start
        observer.seconds[one.name] = observer.seconds.get(one.name, 0.0) + elapsed
        for watch in observer.watchers:
            watch(observer.kernel, one.name, subject, after)
        subject = after
        if observer.stop_after == one.name:
            raise Stopped(one.name, subject)
    return subject


def pass_names() -> list[str]:
    """Each once, in the order in which it runs first."""
    return list(dict.fromkeys(one.name for one in (*graph_passes(), *kernel_passes())))


def check_name(name: str) -> None:
    if name not in pass_names():
        raise UsageError(Problem("TW0020", f"no pass is called {name}", hint=f"passes: {', '.join(pass_names())}"))


class OutOfOrder(TilewrightError):
    """A pass stands where a fact that it needs does not hold: a bug of this file."""


def facts(passes: Sequence[Any]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Each pass with the facts that hold before it; raises OutOfOrder, naming the pass that establishes what lacks."""
    holding: frozenset[str] = frozenset()
    for one in passes:
        lacking = sorted(one.requires - holding)
        if lacking:
            makers = [p.name for p in passes if lacking[0] in p.establishes] or ["no pass"]
            text = f"{one.name} needs {lacking[0]}, which {', '.join(makers)} establishes"
            raise OutOfOrder(Problem("TW7001", text))
        yield one, holding
        holding = (holding - one.breaks) | one.establishes
