"""What the cores of a kernel read from DDR: every load with the bytes that each core moves in each turn of its loops.

All numbers are worked out, for all cores and turns at once, so that whatever a template makes of the core's number
is understood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from tvm import tirx

from compiler.codegen.instruction_form import Address, Call, dense_bytes, memory_of, read_call, strides_of
from compiler.isa.dtypes import Queue
from compiler.isa.model import Instr, View, bind
from compiler.isa.table.load import LAYOUT_CHANGING
from compiler.target import Chip
from compiler.tir.evaluate import DependsOnData, Values, evaluate
from compiler.tir.rewriter import substitute, thread_variable, uses

MOST_TURNS = 1 << 18  # of all cores together: more than that is not looked at


@dataclass(frozen=True, eq=False)
class Site:
    """An instruction, the loops around it (outermost first) and the conditions under which it runs."""

    statement: Any
    call: Call
    loops: tuple[Any, ...]
    conditions: tuple[Any, ...]
    bound: Mapping[Any, Any]  # variables that stand for an expression of others

    def full(self, expression: Any) -> Any:
        """An expression of the core's number and loop variables only."""
        return (
            substitute(expression, dict(self.bound)) if self.bound and not isinstance(expression, int) else expression
        )


@dataclass
class Sites:
    """All instructions of a kernel in order, and which core axis they are split over."""

    core: Any = None
    cores: int = 1
    found: list[Site] = field(default_factory=list)
    stored: set[Any] = field(default_factory=set)  # buffers that the scalar unit writes
    _bound: dict[Any, Any] = field(default_factory=dict)

    @staticmethod
    def of(func: Any) -> Sites:
        sites = Sites()
        sites._statement(func.body, (), ())
        return sites

    def _statement(self, statement: Any, loops: tuple[Any, ...], conditions: tuple[Any, ...]) -> None:
        match statement:
            case tirx.SeqStmt():
                for part in statement.seq:
                    self._statement(part, loops, conditions)
            case tirx.For():
                self._statement(statement.body, (*loops, statement), conditions)
            case tirx.IfThenElse():
                self._statement(statement.then_case, loops, (*conditions, statement.condition))
                if statement.else_case is not None:
                    self._statement(statement.else_case, loops, (*conditions, tirx.Not(statement.condition)))
            case tirx.AttrStmt():
                if thread_variable(statement) is not None:
                    self.core, self.cores = thread_variable(statement), int(statement.value)
                self._statement(statement.body, loops, conditions)
            case tirx.Bind():
                self._bound[statement.var] = substitute(statement.value, dict(self._bound))
            case tirx.BufferStore():
                self.stored.add(statement.buffer)
            case tirx.Evaluate():
                call = read_call(statement)
                if call is not None:
                    self.found.append(Site(statement, call, loops, conditions, dict(self._bound)))

    @property
    def cross_flags(self) -> int:
        """Flags between cores that are in use: the first ones."""
        used = [site.call.operands[1] for site in self.found if site.call.row.kind in ("cross_set", "cross_wait")]
        return max((1 + int(flag) for flag in used), default=0)

    @property
    def near_bytes(self) -> int:
        """What the kernel takes of LLB."""
        buffers = {address.buffer for site in self.found for _, address in operands(site.call)}
        return sum(dense_bytes(buffer) for buffer in buffers if memory_of(buffer) == "llb")

    @property
    def written(self) -> set[Any]:
        """Every buffer that something writes."""
        found = set(self.stored)
        for site in self.found:
            found.update(address.buffer for tensor, address in operands(site.call) if "w" in tensor.role)
        return found


def operands(call: Call) -> Iterator[tuple[Any, Address]]:
    """The tensors of an instruction with their addresses."""
    addresses = [value for value in call.operands if isinstance(value, Address)]
    return zip(call.row.tensors, addresses, strict=True)


def view_of(site: Site, name: str, chip: Chip) -> View:
    """A tensor operand, its extents and strides as expressions."""
    values = [0 if isinstance(value, Address) else _integer(site.full(value)) for value in site.call.operands]
    return bind(Instr(site.call.row, site.call.mods, tuple(values)), values, chip).view(name)


def _integer(value: Any) -> Any:
    if isinstance(value, tirx.FloatImm):
        return 0
    return int(value) if isinstance(value, tirx.IntImm) else value


@dataclass(frozen=True)
class Grid:
    """All turns of the loops around an instruction: one axis for the cores, one per loop."""

    variables: Mapping[Any, Values]
    trips: tuple[int, ...]  # of each loop, at most
    runs: Values  # where the instruction runs

    @staticmethod
    def of(site: Site, core: Any, cores: int) -> Grid:
        """Raises DependsOnData, also where there is no turn to look at, or too many."""
        rank = len(site.loops) + 1
        variables = {core: _along(0, rank, cores)} if core is not None else {}
        runs, trips = np.ones((cores,) + (1,) * (rank - 1), bool), list[int]()
        for axis, loop in enumerate(site.loops, 1):
            extent = evaluate(site.full(loop.extent), variables)
            step = 1 if loop.step is None else int(loop.step)
            trips.append(max(0, -(-int(extent.max()) // step)))
            if not 0 < cores * int(np.prod(trips)) <= MOST_TURNS:
                raise DependsOnData("no turn, or too many")
            steps = _along(axis, rank, trips[-1]) * step
            runs = runs & (steps < extent)
            variables[loop.loop_var] = evaluate(site.full(loop.min), variables) + steps
        for condition in site.conditions:
            runs = runs & evaluate(site.full(condition), variables)
        return Grid(variables, tuple(trips), np.broadcast_to(runs, (cores, *trips)))

    def values(self, expression: Any) -> Values:
        return np.broadcast_to(evaluate(expression, self.variables), self.runs.shape)


def _along(axis: int, rank: int, count: int) -> Values:
    return np.arange(count).reshape(tuple(count if each == axis else 1 for each in range(rank)))


@dataclass(frozen=True)
class FarLoad:
    """A load of bytes that nobody writes, whose place and extents follow from the core and the loops.

    ``followed`` says of each loop whether the bytes depend on it; the other loops load them again.
    """

    site: Site
    source: View  # with expressions
    address: Address
    grid: Grid
    followed: tuple[bool, ...]
    chip: Chip
    alike: int = 1  # clusters that load the same

    @property
    def itemsize(self) -> int:
        return self.source.dtype.itemsize

    @cached_property
    def offset(self) -> Any:
        """Bytes from the start of the parameter."""
        total: Any = tirx.IntImm("int32", 0)
        for index, stride in zip(self.address.indices, strides_of(self.address.buffer), strict=True):
            total = total + self.site.full(index) * (stride * self.itemsize)
        return total if self.address.byte_offset is None else total + self.site.full(self.address.byte_offset)

    @cached_property
    def extents(self) -> tuple[Values, ...]:
        return tuple(self.grid.values(extent) for extent in self.source.shape)

    @cached_property
    def strides(self) -> tuple[Values, ...]:
        return tuple(self.grid.values(stride) for stride in self.source.strides)

    @cached_property
    def moved_bytes(self) -> Values:
        """By core and turn, in whole lines."""
        return moved_bytes(self.source, self.grid, self.chip.transfer.ddr_line_bytes)

    @cached_property
    def taken_bytes(self) -> Values:
        """The bytes of loads that would take as long, if none changed its layout."""
        return self.moved_bytes * slower(self.site.call, self.source, self.grid, self.chip)

    @cached_property
    def offsets(self) -> Values:
        return self.grid.values(self.offset)

    def first_turns(self, values: Values) -> Values:
        """One row per core: the values where the loops that load the same bytes again have their first turn."""
        index = tuple(slice(None) if each else 0 for each in self.followed)
        return values[(slice(None), *index)].reshape(values.shape[0], -1)

    def in_all_turns(self) -> FarLoad:
        """The same as if each turn loaded bytes of its own."""
        return replace(self, followed=(True,) * len(self.followed))

    @property
    def starts_first(self) -> bool:
        """Whether no bytes are loaded for the first time but in the first turn of the other loops."""
        runs = self.grid.runs
        others = tuple(axis for axis, each in enumerate(self.followed, 1) if not each)
        return bool((self.first_turns(runs) == runs.any(axis=others).reshape(len(runs), -1)).all())

    @property
    def runs_from_the_start(self) -> bool:
        """Whether no core runs in a turn behind one that it leaves out."""
        runs = self.first_turns(self.grid.runs)
        return bool((runs[:, 1:] <= runs[:, :-1]).all())


def moved_bytes(view: View, grid: Grid, line_bytes: int) -> Values:
    """Whole lines of all contiguous runs, as if each began with a line."""
    axes = [(grid.values(extent), grid.values(stride)) for extent, stride in zip(view.shape, view.strides, strict=True)]
    run, rows = grid.runs.astype(np.int64), np.ones_like(grid.runs, np.int64)
    for extent, stride in sorted((axis for axis in axes if axis[1].any()), key=lambda axis: int(axis[1].max())):
        goes_on = (stride == run) & (rows == 1)
        run, rows = np.where(goes_on, run * extent, run), np.where(goes_on, rows, rows * extent)
    return rows * -(-run * view.dtype.itemsize // line_bytes) * line_bytes


def slower(call: Call, view: View, grid: Grid, chip: Chip) -> Values:
    """How many times as long a load takes because it changes the layout of rows that are no whole blocks."""
    if call.row.mnemonic.removeprefix("p") not in LAYOUT_CHANGING:
        return np.ones_like(grid.runs, np.float64)
    run: Values = np.ones_like(grid.runs, np.int64)
    for extent, stride in zip(view.shape, view.strides, strict=True):
        run = np.where(grid.values(stride) == 1, np.maximum(run, grid.values(extent)), run)
    is_ragged = run * view.dtype.itemsize % chip.block_bytes > 0
    return np.where(is_ragged, 100 / chip.transfer.ragged_nz_percent, 1.0)


def far_load(
    site: Site, core: Any, cores: int, written: set[Any], chip: Chip, common: frozenset[Any] = frozenset()
) -> FarLoad | None:
    """The instruction as a load from DDR; None where it is none, or where data decides what it loads.

    ``common``: the parameters that other clusters read, too.
    """
    tensors = list(operands(site.call))
    sources = [(tensor, address) for tensor, address in tensors if "r" in tensor.role]
    if site.call.queue != Queue.MTE2 or len(sources) != 1 or len(tensors) != 2:
        return None
    (tensor, address), *_ = sources
    if any(memory_of(each.buffer) == "llb" for _, each in tensors):
        return None
    if memory_of(address.buffer) != "ddr" or address.buffer in written:
        return None
    try:
        source, grid = view_of(site, tensor.name, chip), Grid.of(site, core, cores)
        alike = chip.alike if address.buffer in common else 1
        load = FarLoad(site, source, address, grid, (), chip, alike)
        place = [load.offset, *source.shape]
        for expression in place:
            grid.values(expression)
    except DependsOnData:
        return None
    followed = tuple(_follows(loop, place) for loop in site.loops)
    return replace(load, followed=followed)


def load_rate(load: FarLoad, memory: str, chip: Chip) -> float:
    """Bytes per cycle of the load from a memory, alone on its path."""
    row, mods = load.site.call.row, load.site.call.mods
    target = row.chosen(next(tensor.memory for tensor in row.tensors if "w" in tensor.role), mods)
    return chip.path[f"{memory}_{target}"].bytes_per_cycle


def _follows(loop: Any, place: Sequence[Any]) -> bool:
    return any(uses(expression, [loop.loop_var]) for expression in place if not isinstance(expression, int))


def far_bytes(
    site: Site,
    core: Any,
    cores: int,
    chip: Chip,
    near: frozenset[Any] = frozenset(),
    common: frozenset[Any] = frozenset(),
) -> float:
    """What DDR takes for an instruction, all cores together, as bytes; nothing where that is not known.

    ``near``: the parameters that lie in LLB; ``common``: those that other clusters load at the same time.
    """
    total, line_bytes = 0.0, chip.transfer.ddr_line_bytes
    for tensor, address in operands(site.call):
        if memory_of(address.buffer) == "ddr" and address.buffer not in near:
            try:
                grid, view = Grid.of(site, core, cores), view_of(site, tensor.name, chip)
                moved = float((moved_bytes(view, grid, line_bytes) * slower(site.call, view, grid, chip)).sum())
                total += moved / (chip.alike if address.buffer in common else 1)
            except DependsOnData:
                continue
    return total
