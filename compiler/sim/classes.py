"""What each class of dynamic instructions costs, touches and requires: the table's functions, asked once per class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.errors import CapacityError, InvalidError, Problem
from compiler.isa.dtypes import MEMORIES, SHARED_MEMORIES, Queue
from compiler.isa.jit import kernel
from compiler.isa.model import Args, Instr, Slot, Timing, View, alignment_bytes, bind, counting_faults
from compiler.isa.program import Program
from compiler.isa.table.sync import IN_CLUSTER
from compiler.isa.timing import DDR, contiguous_run, memories_of
from compiler.sim.collector import uncollected
from compiler.sim.expand import Stream
from compiler.target import Chip

# Kinds of dynamic instructions, as the pipeline tells them apart.
PLAIN, TRANSFER, SET, WAIT, PIPE_BARRIER, BARRIER_ALL, CORE_BARRIER, CLUSTER_BARRIER, CROSS_SET, CROSS_WAIT = range(10)
_KIND = {
    "set_flag": SET,
    "wait_flag": WAIT,
    "pipe_barrier": PIPE_BARRIER,
    "barrier_all": BARRIER_ALL,
    "core_barrier": CORE_BARRIER,
    "cluster_barrier": CLUSTER_BARRIER,
    "cross_set": CROSS_SET,
    "cross_wait": CROSS_WAIT,
}
QUEUES = len(Queue)
READ, WRITE = 1, 2
OUTER_LOOPS = 5


@dataclass(frozen=True)
class Footprint:
    """Bytes one operand touches, from its address slot: runs of ``run`` bytes inside up to five loops."""

    address_index: int
    memory: int
    access: int  # READ, WRITE or both
    start: int
    extent: int
    run: int
    loops: tuple[tuple[int, int], ...]  # (count, stride in bytes), outermost first


@dataclass(frozen=True)
class ClassTable:
    """One row per class; ``footprint_start[k]:footprint_start[k + 1]`` are its footprints."""

    args: list[Args]
    pc: np.ndarray
    queue: np.ndarray
    kind: np.ndarray
    cycles: np.ndarray
    latency: np.ndarray
    argument: np.ndarray  # sync: flag number, or queue
    in_cluster: np.ndarray  # flags between cores: whether the argument counts cores from the cluster's first
    rate: np.ndarray  # transfers: bytes per 1000 cycles when alone
    line_bytes: np.ndarray
    moved_bytes: np.ndarray
    conflict: np.ndarray
    shares: np.ndarray  # transfers: bits DDR and LLB, of what they take bandwidth of
    broadcast: np.ndarray  # transfers: whether cores of several clusters have it in common
    path: list[str]
    footprint_start: np.ndarray
    footprints: np.ndarray  # columns: address index, memory, access, start, extent, run, then (count, stride) x 5
    footprint_class: np.ndarray

    def flags(self, stream: Stream, chip: Chip) -> np.ndarray:
        """The flag of each dynamic instruction that is about one; between cores, cores are counted over the chip."""
        per_cluster = chip.cores_per_cluster
        first = np.arange(stream.cores) // per_cluster * per_cluster * chip.cross_flag_ids
        core_of = np.repeat(np.arange(stream.cores), np.diff(stream.core_start))
        found: np.ndarray = self.argument[stream.klass] + self.in_cluster[stream.klass] * first[core_of]
        return found

    def takes_ddr(self, stream: Stream) -> np.ndarray:
        """Which dynamic instructions take bandwidth of DDR: of a broadcast the one on the first cluster."""
        takes = (self.shares & DDR) != 0
        further = np.repeat(stream.cluster_of, np.diff(stream.core_start)) > 0
        found: np.ndarray = takes[stream.klass] & ~(further & self.broadcast[stream.klass])
        return found


@uncollected()
def classify(stream: Stream, program: Program, chip: Chip) -> ClassTable:
    """Check every class against the table and the chip, and cost it. All that is illegal is reported at once."""
    problems: list[Problem] = []
    numbers, costs = dict[_Same, int](), list[_Cost]()  # of what differs: most classes differ in where they stand
    of_class = np.zeros(stream.classes, np.int64)
    for klass, pc in enumerate(stream.class_pc.tolist()):
        instr = program.instrs[pc]
        values = stream.class_values[klass, : len(instr.row.slots(instr.mods))]
        same = (instr.row.mnemonic, instr.mods, values.tobytes())
        if same not in numbers:
            numbers[same] = len(costs)
            costs.append(_cost(same, instr, values, chip, stream.cores))
        of_class[klass] = numbers[same]
        found = costs[numbers[same]].faults
        problems += [Problem("TW1310", f"{instr.row.mnemonic}: {text}", program.place(pc)) for text in found]
    if problems:
        raise InvalidError(list(dict.fromkeys(problems))[:50])
    return _table(of_class, costs, stream)


# An instruction with its values: its mnemonic, its modifiers, and the values' bytes.
_Same = tuple[str, tuple[str, ...], bytes]


@dataclass(frozen=True, slots=True)
class _Cost:
    """What an instruction with its values is, wherever it stands."""

    faults: list[str]  # why it is not allowed; then it is nothing else
    args: Args | None = None
    numbers: tuple[int, ...] = ()  # in the order of COLUMNS
    path: str = ""
    footprints: tuple[tuple[int, ...], ...] = ()


# Programs that are compared are alike in most of their instructions, and so are those that are run again.
_KNOWN: dict[tuple[Chip, _Same], _Cost] = {}
MOST_KNOWN = 1 << 14


def _cost(same: _Same, instr: Instr, values: np.ndarray, chip: Chip, cores: int) -> _Cost:
    known = _KNOWN.get((chip, same))
    if known is None:
        args, found = checked(instr, values.tolist(), chip, cores)
        known = _Cost(found) if args is None else _cost_of(args, instr, chip)
        if instr.row.kind in ("cross_set", "cross_wait"):  # some other program has other cores
            return known
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[chip, same] = known
    return known


def checked(instr: Instr, values: list[int], chip: Chip, cores: int) -> tuple[Args | None, list[str]]:
    """An instruction bound to its values, or why they are not allowed: ranges of slots, alignment, the row's rules.

    What a row computes from its operands relies on their ranges, so nothing is bound to values outside of them.
    """
    slots = instr.row.slots(instr.mods)
    found = [text for slot, value in zip(slots, values, strict=False) if (text := slot_fault(slot, value))]
    if found:
        return None, found
    args = bind(instr, values[: len(slots)], chip)
    found = illegal(instr, args)
    if instr.row.mnemonic in IN_CLUSTER:
        # Every cluster runs the same instruction, so also the last one has to have the core.
        cores = min(cores, chip.cores_per_cluster, cores % chip.cores_per_cluster or cores)
    if instr.row.kind in ("cross_set", "cross_wait") and args.core >= cores:
        where = "a cluster of the program has" if instr.row.mnemonic in IN_CLUSTER else "the program runs on"
        found.append(f"core is {args.core}; {where} {cores} cores")
    return (None, found) if found else (args, [])


def illegal(instr: Instr, args: Args) -> list[str]:
    """Why an instruction with values in range is not allowed."""
    found = counting_faults(args)
    for tensor, view in zip(instr.row.tensors, args.views, strict=True):
        multiple = alignment_bytes(tensor, args)
        address = getattr(args, tensor.name)
        if address % multiple:
            found.append(f"{tensor.name} is at {view.memory} address {address}; it must be a multiple of {multiple}")
    return found or [str(rule.__doc__) for rule in instr.row.rules if not rule(args)]


def slot_fault(slot: Slot, value: int) -> str:
    if slot.kind in ("float", "target", "addr"):
        return ""
    if not slot.lo <= value <= slot.hi:
        return f"{slot.name} is {value}; allowed is {slot.lo} to {slot.hi}"
    if value % slot.multiple:
        return f"{slot.name} is {value}; it must be a multiple of {slot.multiple}"
    return ""


def footprints(args: Args) -> list[Footprint]:
    """The row's views as byte runs relative to their address slots; what is only read comes first."""
    prints = []
    for index, (tensor, view) in enumerate(zip(args.row.tensors, args.views, strict=True)):
        run, loops = contiguous_run(view)
        if len(loops) > OUTER_LOOPS:
            raise ValueError(f"{args.row.mnemonic}: {tensor.name} needs {len(loops)} loops")
        access = READ * ("r" in view.role) | WRITE * ("w" in view.role)
        start = view.address - getattr(args, tensor.name)
        prints.append(
            Footprint(index, MEMORIES.index(view.memory), access, start, view.extent_bytes, run, tuple(loops))
        )
    return sorted(prints, key=lambda each: each.access & WRITE)


COLUMNS = (
    "queue", "kind", "cycles", "latency", "argument", "in_cluster", "rate", "line_bytes", "moved_bytes", "conflict",
    "shares", "broadcast",
)  # fmt: skip


def _cost_of(args: Args, instr: Instr, chip: Chip) -> _Cost:
    timing = args.row.timing(args) if args.row.timing else Timing(chip.scalar.issue_cycles)
    path = timing.path
    numbers = (
        instr.row.queue_of(instr.mods),
        TRANSFER if path else _KIND.get(args.row.kind, PLAIN),
        timing.cycles,
        timing.latency_cycles,
        _argument(args, chip),
        args.row.mnemonic in IN_CLUSTER,
        chip.path[path].bytes_per_cycle * 1000 if path else 0,
        timing.line_bytes,
        timing.moved_bytes,
        timing.conflict_cycles,
        memories_of(path) if path else 0,
        bool(path) and args.row.meets,
    )
    touched = []
    for each in footprints(args):
        pad = (1, 0) * (OUTER_LOOPS - len(each.loops))
        loops = (*pad, *(n for loop in each.loops for n in loop))
        touched.append((each.address_index, each.memory, each.access, each.start, each.extent, each.run, *loops))
    return _Cost([], args, tuple(map(int, numbers)), path or _local_path(args.views), tuple(touched))


def _table(of_class: np.ndarray, costs: list[_Cost], stream: Stream) -> ClassTable:
    numbers = np.array([cost.numbers for cost in costs], np.int64).reshape(-1, len(COLUMNS))[of_class]
    columns = dict(zip(COLUMNS, np.ascontiguousarray(numbers.T), strict=True))
    columns |= {name: columns[name].astype(np.int8) for name in ("queue", "kind", "in_cluster", "shares")}
    columns["broadcast"] = columns["broadcast"].astype(np.bool_)
    own = [costs[number] for number in of_class.tolist()]
    counts = np.array([len(cost.footprints) for cost in own], np.int64)
    touched = [each for cost in own for each in cost.footprints]
    return ClassTable(
        args=[cost.args for cost in own if cost.args is not None],
        pc=stream.class_pc,
        path=[cost.path for cost in own],
        footprint_start=np.concatenate([[0], np.cumsum(counts)]),
        footprints=np.array(touched, np.int64).reshape(-1, 6 + 2 * OUTER_LOOPS),
        footprint_class=np.repeat(np.arange(len(own)), counts),
        **columns,
    )


def _local_path(views: tuple[View, ...]) -> str:
    """The pair of memories a copy inside the core joins; empty for everything that is not a copy."""
    memories = {v.role: v.memory for v in views}
    return (
        f"{memories['r']}_{memories['w']}" if set(memories) == {"r", "w"} and len(set(memories.values())) == 2 else ""
    )


def _argument(args: Args, chip: Chip) -> int:
    if args.row.kind in ("set_flag", "wait_flag"):
        source, target = Queue[args.src.upper()], Queue[args.dst.upper()]
        return int((source * QUEUES + target) * chip.event_ids + args.id)
    if args.row.kind in ("cross_set", "cross_wait"):
        return int(args.core * chip.cross_flag_ids + args.id)
    return 0


# ---- bounds -----------------------------------------------------------------------------------------------


@kernel
def _first_out_of_bounds(klass, address, footprint_start, footprints, capacity, span_start, span_end):  # type: ignore[no-untyped-def]
    """(dynamic index, footprint) of the first access outside its memory, or outside every buffer of a shared one."""
    for i in range(len(klass)):
        for f in range(footprint_start[klass[i]], footprint_start[klass[i] + 1]):
            low = address[i, footprints[f, 0]] + footprints[f, 3]
            extent = footprints[f, 4]  # not added to an address, which may be any int64
            memory = footprints[f, 1]
            if memory > 1:
                if low < 0 or low > capacity[memory] - extent:
                    return i, f
                continue
            inside = False
            for k in range(span_start.shape[1]):
                if span_start[memory, k] <= low and low <= span_end[memory, k] - extent:
                    inside = True
                    break
            if not inside:
                return i, f
    return -1, -1


def check_bounds(stream: Stream, classes: ClassTable, program: Program, chip: Chip) -> None:
    """On chip an access must lie inside its memory, in DDR and LLB inside one buffer that the program declares."""
    shared = [[b for b in program.buffers if b.memory == name] for name in MEMORIES[:2]]
    widest = max(1, *(len(buffers) for buffers in shared))
    span_start, span_end = np.zeros((2, widest), np.int64), np.full((2, widest), -1, np.int64)
    for memory, buffers in enumerate(shared):
        for k, buffer in enumerate(buffers):
            span_start[memory, k], span_end[memory, k] = buffer.offset, buffer.offset + buffer.size_bytes
    capacity = np.array([chip.memory_bytes(name) for name in MEMORIES], np.int64)
    index, footprint = _first_out_of_bounds(
        stream.klass, stream.address, classes.footprint_start, classes.footprints, capacity, span_start, span_end
    )
    if index < 0:
        return
    address_index, memory, _, start, extent = (int(v) for v in classes.footprints[footprint][:5])
    pc, name = int(stream.pc[index]), MEMORIES[memory]
    low = int(stream.address[index, address_index]) + start
    row = program.instrs[pc].row
    limit = (
        f"it must lie inside one declared {name} buffer"
        if name in SHARED_MEMORIES
        else f"{name} has {chip.memory_bytes(name)} bytes"
    )
    text = f"{row.mnemonic} on core {stream.core_of(index)} touches {name} bytes {low} to {low + extent - 1}; {limit}"
    raise CapacityError(Problem("TW1311", f"{text} (operand {row.tensors[address_index].name})", program.place(pc)))
