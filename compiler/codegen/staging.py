"""The statements by which cores bring what they share to LLB, tell each other, and load it from there."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from tvm import ir, sym, tirx

from compiler.codegen.far_loads import operands
from compiler.codegen.instruction_form import Address
from compiler.codegen.sharing import Sharing
from compiler.emission.calls import address, instruction, sequence, temporary
from compiler.isa.dtypes import Queue
from compiler.tir.evaluate import expression_of
from compiler.tir.rewriter import substitute

SCOPE = "shared.llb"
QUEUE = Queue.MTE2.name.lower()


@dataclass
class Staging:
    """One load that is shared: what stands before all loops, and what stands in the place of the load.

    Pieces are brought ``ahead`` periods before they are loaded; flag ``flag`` between two cores says that one of them
    has brought its share of the next piece, the one after that it has loaded a piece whose slot is needed again.
    """

    sharing: Sharing
    core: Any
    flag: int
    ahead: int
    buffer: Any = field(init=False)
    _analyzer: Any = field(default_factory=sym.Analyzer)
    _bound: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        load = self.sharing.load
        cores = load.grid.runs.shape[0]
        self._analyzer.bind(self.core, ir.Range.from_min_extent(0, cores))
        for loop, trips in zip(load.site.loops, load.grid.trips, strict=True):
            self._analyzer.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, max(1, trips)))
        name = f"{load.address.buffer.name}_llb"
        dtype = str(load.address.buffer.ty.dtype)
        self.buffer = temporary(name, (self.sharing.size_bytes // load.itemsize,), dtype, SCOPE)
        groups = {core: group for group in self.sharing.groups for core in group.cores}
        own = [groups.get(core, self.sharing.groups[0]) for core in range(cores)]
        self._first = self._by_core("first", [group.first for group in own])
        self._step = self._by_core("step", [group.step for group in own])
        self._count = self._by_core("count", [group.count for group in own])
        self._region = self._by_core("region", [group.region for group in own])
        ranks = [(core - group.first) // group.step for core, group in enumerate(own)]
        parts = [group.count // self.sharing.period for group in own]
        self._sharers = self._by_core("sharers", parts)
        self._rank = self._by_core("rank", [rank % part for rank, part in zip(ranks, parts, strict=True)])
        self._place = self._by_core("place", [rank // part for rank, part in zip(ranks, parts, strict=True)])

    def _by_core(self, name: str, values: list[int]) -> Any:
        """What is a number for each core; one that no formula gives is worked out once."""
        expression = expression_of(values, self.core)
        if not isinstance(expression, tirx.Select):
            return expression
        variable = tirx.Var(f"{self.buffer.name}_{name}", "int32")
        self._analyzer.bind(variable, ir.Range.from_min_extent(min(values), max(values) - min(values) + 1))
        self._bound.append(tirx.Bind(variable, expression))
        return variable

    def _simple(self, expression: Any) -> Any:
        return expression if isinstance(expression, int) else self._analyzer.simplify(expression)

    # ---- the statements

    @property
    def made(self) -> list[Any]:
        """The buffer, and what is worked out once."""
        return [tirx.AllocBuffer(self.buffer), *self._bound]

    @property
    def first(self) -> list[tuple[int, Any]]:
        """What brings pieces before all loops, behind `made`: each with the first piece that it is for."""
        period, pieces = self.sharing.period, self.sharing.pieces
        found = list[tuple[int, Any]]()
        for begin in range(0, min(self.ahead * period, pieces), period):
            turn = self._place + begin
            found.append((begin, self._where(turn < pieces, self._stage(turn))))
        return found

    @property
    def instead(self) -> Any:
        """The load from LLB, behind the staging of a later piece and the wait for this one."""
        turn = self._turn()
        pieces, slots, period = self.sharing.pieces, self.sharing.slots, self.sharing.period
        arrival: list[Any] = []
        if pieces > self.ahead * period:
            later = turn + self.ahead * period
            staged = self._stage(later)
            if self.sharing.reuses:
                free = self._where(later >= slots, self._with_all("cross_wait", self.flag + 1))
                staged = sequence([free, staged])
            arrival.append(self._where(tirx.And(turn % period == self._place, later < pieces), staged))
        arrival.append(self._with_bringers("cross_wait", self.flag, turn))
        statements = [self._where_it_is_first(sequence(arrival)), self._load(turn)]
        if self.sharing.reuses:
            leaves = self._with_bringers("cross_set", self.flag + 1, turn)
            statements.append(self._where(turn + slots < pieces, leaves))
        return sequence(statements)

    def _where(self, condition: Any, statement: Any) -> Any:
        condition = self._simple(condition)
        return (
            statement
            if isinstance(condition, tirx.IntImm) and condition.value
            else tirx.IfThenElse(condition, statement, None)
        )

    def _with_all(self, mnemonic: str, flag: int) -> Any:
        """A flag to or from every core of the group, itself included."""
        return self._with(mnemonic, flag, tirx.IntImm("int32", 0), self._count)

    def _with_bringers(self, mnemonic: str, flag: int, turn: Any) -> Any:
        """A flag to or from the cores of the group that bring the piece of a turn."""
        return self._with(mnemonic, flag, turn % self.sharing.period * self._sharers, self._sharers)

    def _with(self, mnemonic: str, flag: int, rank: Any, count: Any) -> Any:
        """A flag to or from so many cores of the group, from a rank on."""
        other = tirx.Var("other", "int32")
        if isinstance(count, tirx.IntImm) and count.value == 1:
            return instruction(mnemonic, (QUEUE,), (self._simple(self._first + rank * self._step), flag))
        call = instruction(mnemonic, (QUEUE,), (self._simple(self._first + (rank + other) * self._step), flag))
        return tirx.For(other, tirx.IntImm("int32", 0), count, tirx.ForKind.SERIAL, call)

    def _stage(self, turn: Any) -> Any:
        """This core's share of a piece, and the word of it to all cores of the group."""
        load = self.sharing.load
        values = self._variables(turn)
        axes = list(self.sharing.layout.axes)
        split, unit = self.sharing.layout.split, self.sharing.layout.unit
        low, extent = self._share(substitute_in(axes[split].extent, values), unit)
        shape = [substitute_in(axis.extent, values) for axis in axes]
        shape[split] = extent
        indices = [self._simple(substitute_in(load.site.full(index), values)) for index in load.address.indices]
        source = address(load.address.buffer, indices)
        offset = low * (axes[split].far_stride * load.itemsize)
        if load.address.byte_offset is not None:
            offset = offset + substitute_in(load.site.full(load.address.byte_offset), values)
        offset = self._simple(offset)
        if not isinstance(offset, tirx.IntImm) or offset.value:
            source = tirx.call_extern("handle", "tw.at", source, offset)
        target = address(self.buffer, [self._simple(self._piece(turn) + low * axes[split].stride)])
        near, far = [axis.stride for axis in axes], [axis.far_stride for axis in axes]
        slots = [target, *near, source, *far, *map(self._simple, shape)]
        brought = self._to_llb(slots)
        if self._may_be_empty():
            brought = tirx.IfThenElse(extent > 0, brought, None)
        both = sequence([brought, self._with_all("cross_set", self.flag)])
        return self._where_it_runs(both, values)

    def _to_llb(self, slots: list[Any]) -> Any:
        form = (self.sharing.load.source.dtype.name, f"{len(self.sharing.layout.axes)}d")
        if self.sharing.load.alike > 1:
            return instruction("pld", ("llb", *form), slots)
        return instruction("ld", ("ddr", "llb", *form), slots)

    def _share(self, extent: Any, unit: int) -> tuple[Any, Any]:
        """(first, how many) elements of an axis that this core brings."""
        units = extent if unit == 1 else (extent + (unit - 1)) // unit
        low = self._rank * units // self._sharers * unit
        high = (self._rank + 1) * units // self._sharers * unit
        return low, (high if unit == 1 else tirx.min(high, extent)) - low

    def _may_be_empty(self) -> bool:
        """Whether some core's share of some piece is nothing."""
        load, layout = self.sharing.load, self.sharing.layout
        extent = layout.axes[layout.split].extent
        fewest = int(load.grid.values(extent)[load.grid.runs].min())
        return -(-fewest // layout.unit) < max(group.count for group in self.sharing.groups) // self.sharing.period

    def _where_it_runs(self, statement: Any, values: dict[Any, Any]) -> Any:
        """Under the conditions of the load, where these do not always hold."""
        load = self.sharing.load
        if load.first_turns(load.grid.runs).all():
            return statement
        conditions = [substitute(load.site.full(condition), values) for condition in load.site.conditions]
        for loop in load.site.loops:
            if not isinstance(loop.extent, tirx.IntImm):
                conditions.append(substitute(loop.loop_var - loop.min < load.site.full(loop.extent), values))
        for condition in reversed(conditions):
            statement = tirx.IfThenElse(condition, statement, None)
        return statement

    def _load(self, turn: Any) -> Any:
        load, call = self.sharing.load, self.sharing.load.site.call
        mods = [
            "llb" if each.name == "source" else mod for each, mod in zip(call.row.modifiers, call.mods, strict=True)
        ]
        (tensor, _), *_ = [pair for pair in operands(call) if "r" in pair[0].role]
        strides = dict(
            zip(_stride_slots(tensor.name, len(load.source.shape)), self.sharing.layout.strides * 2, strict=True)
        )
        original = load.site.statement.value.args[1:]
        slots = []
        for slot, value, read in zip(call.slots, original, call.operands, strict=True):
            if isinstance(read, Address) and slot.name == tensor.name:
                slots.append(address(self.buffer, [self._simple(self._piece(turn))]))
            else:
                slots.append(strides.get(slot.name, value))
        return instruction(call.row.mnemonic, mods, slots)

    # ---- turns

    def _followed(self) -> list[tuple[Any, int]]:
        load = self.sharing.load
        turns = zip(load.site.loops, load.grid.trips, load.followed, strict=True)
        return [(loop, trips) for loop, trips, follows in turns if follows]

    def _turn(self) -> Any:
        """Which piece the load is about to use."""
        turn: Any = tirx.IntImm("int32", 0)
        for loop, trips in self._followed():
            turn = turn * trips + _steps(loop)
        return turn

    def _variables(self, turn: Any) -> dict[Any, Any]:
        """The loops' variables in a turn; those that the load does not follow at their start."""
        followed = self._followed()
        values = {loop.loop_var: loop.min for loop in self.sharing.load.site.loops}
        for at, (loop, trips) in enumerate(followed):
            inner = prod(count for _, count in followed[at + 1 :])
            steps = turn if inner == 1 else turn // inner
            if at:
                steps = steps % trips
            step = 1 if loop.step is None else int(loop.step)
            values[loop.loop_var] = loop.min + steps * step
        return values

    def _where_it_is_first(self, statement: Any) -> Any:
        """Where a piece is loaded for the first time."""
        load = self.sharing.load
        for axis, (loop, follows) in enumerate(zip(load.site.loops, load.followed, strict=True), 1):
            runs_again = load.grid.runs.take(range(1, load.grid.runs.shape[axis]), axis).any()
            if not follows and runs_again:
                statement = tirx.IfThenElse(tirx.EQ(loop.loop_var, loop.min), statement, None)
        return statement

    def _piece(self, turn: Any) -> Any:
        """Where a piece begins in the buffer."""
        slots, elements = self.sharing.slots, self.sharing.layout.elements
        slot = turn % slots if self.sharing.reuses else turn
        return self._region * (slots * elements) + slot * elements


def substitute_in(expression: Any, values: dict[Any, Any]) -> Any:
    return expression if isinstance(expression, int) else substitute(expression, values)


def _steps(loop: Any) -> Any:
    position = loop.loop_var - loop.min
    step = 1 if loop.step is None else int(loop.step)
    return position if step == 1 else position // step


def _stride_slots(name: str, rank: int) -> list[str]:
    """The slots that say how far the elements of each axis are apart, by either way of naming them."""
    return [f"{name}.s{axis}" for axis in reversed(range(rank))] + [f"{name}_stride", *[""] * (rank - 1)]
