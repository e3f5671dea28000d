"""What the vector unit loses to bank conflicts, as a function of where a kernel's buffers lie in UB.

Every vector instruction of a kernel is looked at in a few turns of the loops around it: the first ones, which take the
slots of rings in turn, and some that are spread over all turns. What one of them loses says the row's own timing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from tvm import tirx

from compiler.codegen.instruction_form import (
    Address,
    Call,
    dtype_of,
    float_bits,
    is_call,
    memory_of,
    read_call,
    strides_of,
)
from compiler.isa.dtypes import DTYPES, Queue
from compiler.isa.model import Args, Instr, View, bind
from compiler.isa.timing import ceil_div
from compiler.target import Chip

MEMORY = "ub"
TURNS = 8  # that an instruction is looked at: half of them in a row, the rest spread
REPEATS = 24  # of an instruction that are timed: banks repeat sooner
_EXTENTS = ("n2", "n1", "n0")

Numbers = Any  # an int, or one for each turn


@dataclass(frozen=True, eq=False)
class Use:
    """An instruction in one turn: ``places`` are (slot, number of the buffer, byte offset) of its operands in UB."""

    call: Call
    values: tuple[int, ...]
    places: tuple[tuple[int, int, int], ...]
    weight: float  # how many executions it stands for


_Key = tuple[Use, tuple[int, ...]]


class Cost(NamedTuple):
    """Cycles of the vector unit, and how many of them conflicts cost."""

    busy: float
    lost: float


@dataclass
class Conflicts:
    """The uses of a kernel, and what they lose where its buffers are at some addresses."""

    chip: Chip
    uses: list[Use]
    _known: dict[_Key, Cost] = field(default_factory=dict)
    _costs: dict[Use, dict[tuple[int, ...], Cost]] = field(default_factory=lambda: defaultdict(dict))  # at addresses
    _bound: dict[Use, tuple[Args, tuple[View, ...], tuple[int, ...]]] = field(default_factory=dict)
    _reaches: dict[Use, tuple[int, ...]] = field(default_factory=dict)

    @property
    def timed(self) -> int:
        """How many instructions at addresses have been timed."""
        return len(self._known)

    def cost(self, addresses: Sequence[int]) -> Cost:
        """Of the kernel."""
        costs = [self.of(use, addresses) for use in self.uses]
        return Cost(sum(cost.busy for cost in costs), sum(cost.lost for cost in costs))

    def lost(self, addresses: Sequence[int], limit: float = float("inf")) -> float:
        """What conflicts cost the kernel; where that is ``limit`` or more, some number that is.

        What is known is added first, so that little is timed at addresses that are no good.
        """
        lost, unknown = 0.0, list[tuple[Use, tuple[int, ...]]]()
        for use in self.uses:
            at = tuple([addresses[buffer] + offset for _, buffer, offset in use.places])
            cost = self._costs[use].get(at) or self._alike(use, at)
            if cost is not None:
                lost += cost.lost
            else:
                unknown.append((use, at))
        for use, at in unknown:
            if lost >= limit:
                return lost
            lost += self._at(use, at).lost
        return lost

    def by_buffer(self, addresses: Sequence[int]) -> list[float]:
        """What the instructions lose that work on each buffer."""
        lost = [0.0] * len(addresses)
        for use in self.uses:
            cost = self.of(use, addresses)
            for buffer in {buffer for _, buffer, _ in use.places}:
                lost[buffer] += cost.lost
        return lost

    def of(self, use: Use, addresses: Sequence[int]) -> Cost:
        """Of all executions that a use stands for."""
        return self._at(use, tuple([addresses[buffer] + offset for _, buffer, offset in use.places]))

    def _at(self, use: Use, at: tuple[int, ...]) -> Cost:
        found = self._costs[use].get(at) or self._alike(use, at)
        if found is None:
            found = self._costs[use][at] = self._known[self._key(use, at)] = self._timed(use, at)
        return found

    def _alike(self, use: Use, at: tuple[int, ...]) -> Cost | None:
        """What a use costs at these addresses, if it is known of others at which that is the same."""
        found = self._known.get(self._key(use, at))
        if found is not None:
            self._costs[use][at] = found
        return found

    def _key(self, use: Use, at: tuple[int, ...]) -> _Key:
        return use, self._equivalent(at, self._reach(use))

    def _equivalent(self, at: tuple[int, ...], reach: tuple[int, ...]) -> tuple[int, ...]:
        """What conflicts depend on: which operands share a bank, and how far apart their groups are.

        Where an operand reaches into the next bank, that depends on all addresses.
        """
        banks = self.chip.vector.banks
        shift, period = banks.bank_shift, banks.groups << banks.group_shift
        if any([one >> shift != one + last >> shift for one, last in zip(at, reach, strict=True)]):
            return at
        first = at[0] >> banks.group_shift << banks.group_shift
        seen: dict[int, int] = {}
        return tuple([seen.setdefault(one >> shift, len(seen)) << shift | (one - first) % period for one in at])

    def _reach(self, use: Use) -> tuple[int, ...]:
        """Bytes from the start of each operand to its last one."""
        if use not in self._reaches:
            _, views, order = self._args(use)
            self._reaches[use] = tuple(_last_byte(views[which]) for which in order)
        return self._reaches[use]

    def _args(self, use: Use) -> tuple[Args, tuple[View, ...], tuple[int, ...]]:
        """The instruction at address zero, its operands, and which of these each place is of."""
        if use not in self._bound:
            args = bind(Instr(use.call.row, use.call.mods, use.values), use.values, self.chip)
            slots = [slot for slot, each in enumerate(use.call.slots) if each.kind == "addr"]
            self._bound[use] = args, args.views, tuple(slots.index(slot) for slot, _, _ in use.places)
        return self._bound[use]

    def _timed(self, use: Use, at: tuple[int, ...]) -> Cost:
        row = use.call.row
        if row.timing is None:
            return Cost(0.0, 0.0)
        args, unplaced, order = self._args(use)
        views = list(unplaced)
        for which, address in zip(order, at, strict=True):
            views[which] = unplaced[which]._replace(address=unplaced[which].address + address)
        args.views = tuple(views)
        timing = row.timing(args)
        return Cost(timing.cycles * use.weight, timing.conflict_cycles * use.weight)


def _last_byte(view: View) -> int:
    steps = zip(view.shape, view.strides, strict=True)
    return (sum(max(0, count - 1) * stride for count, stride in steps) + 1) * view.dtype.itemsize - 1


def conflicts(func: Any, chip: Chip, buffers: Sequence[Any]) -> Conflicts:
    """The conflicts of a kernel in instruction form; addresses are those of ``buffers``, all that it has in UB."""
    walk = _Walk(chip, {buffer: number for number, buffer in enumerate(buffers)})
    walk.statement(func.body)
    return Conflicts(chip, walk.uses)


@dataclass
class _Walk:
    chip: Chip
    numbers: Mapping[Any, int]  # of buffers
    uses: list[Use] = field(default_factory=list)
    _loops: list[Any] = field(default_factory=list)
    _bound: dict[Any, Any] = field(default_factory=dict)  # what a Bind says of a variable

    def statement(self, statement: Any) -> None:
        match statement:
            case tirx.SeqStmt():
                for part in statement.seq:
                    self.statement(part)
            case tirx.For():
                self._loops.append(statement)
                self.statement(statement.body)
                self._loops.pop()
            case tirx.IfThenElse():
                self.statement(statement.then_case)
                if statement.else_case is not None:
                    self.statement(statement.else_case)
            case tirx.AttrStmt():
                self.statement(statement.body)
            case tirx.Bind():
                self._bound[statement.var] = statement.value
            case tirx.Evaluate():
                call = read_call(statement)
                if call is not None and call.queue == Queue.V:
                    self._instruction(call)

    def _instruction(self, call: Call) -> None:
        addresses = [
            (slot, value)
            for slot, value in enumerate(call.operands)
            if isinstance(value, Address) and memory_of(value.buffer) == MEMORY
        ]
        if not addresses:
            return
        executions, variables = self._turns()
        numbers = _Numbers(variables, self._bound)
        columns = [_slot_values(numbers, value) for value in call.operands]
        offsets = [_byte_offset(numbers, address) for _, address in addresses]
        found: dict[tuple[Any, ...], int] = {}
        for turn in range(TURNS):
            values = tuple(_at(column, turn) for column in columns)
            found_at = (values, tuple(_at(offset, turn) for offset in offsets))
            found[found_at] = found.get(found_at, 0) + 1
        names = [slot.name for slot in call.slots]
        for (values, starts), times in found.items():
            if any(name in _EXTENTS and value < 1 for name, value in zip(names, values, strict=True)):
                continue  # a condition around it does not hold in this turn
            shortened, share = _shortened(call, values, self.chip)
            places = tuple(
                (slot, self.numbers[address.buffer], start)
                for (slot, address), start in zip(addresses, starts, strict=True)
            )
            self.uses.append(Use(call, shortened, places, executions * times / TURNS / share))

    def _turns(self) -> tuple[int, dict[Any, Numbers]]:
        """(executions, what every loop's variable is in the turns that are looked at)."""
        outside = _Numbers({}, self._bound)
        extents = []
        for loop in self._loops:
            outside.variables[loop.loop_var] = 0
            extents.append(max(1, int(outside.of(loop.extent))))
        executions = prod(extents)
        near = TURNS // 2
        spread = [near + k * executions // near for k in range(near)]
        turns = np.array([*range(near), *spread], np.int64) % executions
        variables: dict[Any, Numbers] = {}
        for loop, extent in zip(reversed(self._loops), reversed(extents), strict=True):
            variables[loop.loop_var] = turns % extent
            turns = turns // extent
        return executions, variables


def _at(numbers: Numbers, turn: int) -> int:
    return int(numbers[turn]) if isinstance(numbers, np.ndarray) else int(numbers)


def _slot_values(numbers: _Numbers, value: Any) -> Numbers:
    if isinstance(value, Address):
        return 0
    if isinstance(value, tirx.FloatImm):
        return float_bits(float(value.value)) & 0xFFFFFFFF
    return numbers.of(value)


def _byte_offset(numbers: _Numbers, address: Address) -> Numbers:
    elements: Numbers = 0
    for index, stride in zip(address.indices, strides_of(address.buffer), strict=True):
        elements = elements + numbers.of(index) * stride
    further = 0 if address.byte_offset is None else numbers.of(address.byte_offset)
    return elements * DTYPES[dtype_of(address.buffer)].itemsize + further


def _shortened(call: Call, values: tuple[int, ...], chip: Chip) -> tuple[tuple[int, ...], float]:
    """The instruction cut to few repeats, from its outermost dimension on, and which share of it is left."""
    names = [slot.name for slot in call.slots]
    at = [names.index(name) for name in _EXTENTS if name in names]
    left = REPEATS * chip.vector.bytes_per_cycle
    cut = list(values)
    for position, slot in enumerate(at):
        inner = prod(max(1, cut[k]) for k in at[position + 1 :])
        cut[slot] = min(cut[slot], max(1, ceil_div(left, inner)))
    whole = prod(max(1, values[slot]) for slot in at)
    return tuple(cut), prod(max(1, cut[slot]) for slot in at) / whole


_BINARY: dict[type, Callable[[Numbers, Numbers], Numbers]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // np.maximum(b, 1),
    tirx.FloorMod: lambda a, b: a % np.maximum(b, 1),
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.LT: lambda a, b: a < b,
    tirx.LE: lambda a, b: a <= b,
    tirx.GT: lambda a, b: a > b,
    tirx.GE: lambda a, b: a >= b,
    tirx.EQ: lambda a, b: a == b,
    tirx.NE: lambda a, b: a != b,
}


@dataclass
class _Numbers:
    """Integer expressions in numbers, for several turns at once; what data decides counts as zero."""

    variables: dict[Any, Numbers]
    bound: Mapping[Any, Any]

    def of(self, expression: Any) -> Numbers:
        if isinstance(expression, int):
            return expression
        binary = _BINARY.get(type(expression))
        if binary is not None:
            return binary(self.of(expression.a), self.of(expression.b))
        match expression:
            case tirx.IntImm():
                return int(expression.value)
            case tirx.Var():
                if expression not in self.variables and expression in self.bound:
                    self.variables[expression] = self.of(self.bound[expression])
                return self.variables.get(expression, 0)
            case tirx.Cast():
                return self.of(expression.value)
            case tirx.Select():
                sides = expression.condition, expression.true_value, expression.false_value
                return np.where(*(self.of(side) for side in sides))
        if is_call(expression, "tirx.if_then_else") or is_call(expression, "prim.if_then_else"):
            return np.where(*(self.of(side) for side in expression.args))
        return 0
