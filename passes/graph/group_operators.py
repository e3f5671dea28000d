"""Decide which operators become one kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Any, ClassVar

from tvm import ir, relax, sym, tirx

from compiler import graph
from compiler.graph import Body, Call
from compiler.parts import MOVES, OF_CLUSTERS
from compiler.target import Chip
from compiler.tiling.factors import multiplies
from compiler.tir.displacement import displacement
from compiler.tir.structure import structural_walk
from passes.base import Pass

# An operator of these classes leads a kernel: its schedule is taken, elementwise operators behind it follow.
MASTERS = frozenset({"matmul", "convolution", "attention", "pooling", "reduction", "softmax", "norm"})
# These take elementwise operators before them along, too: their inputs lie in UB anyway.
WITH_PROLOGUE = frozenset({"reduction", "softmax", "norm"})
FOLLOWER = "elementwise"
PRODUCTS = frozenset({"matmul", "attention"})
VIEW = "view"


@dataclass(frozen=True)
class GroupOperators(Pass):
    """Gather operators into groups, each a Relax function that becomes one kernel; views stay calls of their own.

    a = conv(x); b = add(a, bias); c = relu(b)
    -> def group0(x, bias): conv, add, relu        c = group0(x, bias)

    An elementwise operator joins the group that makes one of its inputs where
    (1) nothing else reads that input, so that it need not leave the chip: nothing but elementwise operators that all
        join with it, up to one on which all of them end (``x * sigmoid(x)``),
    (2) it has as many elements as that group's result, so that both are tiled alike, and
    (3) the group stays within ``operators`` operators and ``inputs`` inputs, which bounds what a tile holds.
    A reduction joins the elementwise group that makes its input likewise. A product, the softmax of its rows and the
    product of that with something become one group, so that scores never leave the core. By (1) no value leaves a
    group and comes back, so the groups are in an order without cycles.

    A product takes along what only moves elements of one of its operands and what nobody else reads, where
    (4) what lies side by side does so along rows of a matrix or along columns: loads turn these, but those of the
        first matrices of an attention;
    in fp16, where sums cannot overflow, also a factor of all of an operand: it becomes one of the product.
    Both take along a transposition that alone reads all of their result, an attention where rows stay rows, a product
    of a map with channels last where these come first: these are stored where they belong. Elementwise work takes
    along what cuts one of its operands out of another tensor, where
    (5) nothing else reads that part, and it does not lie in one piece: then no kernel need copy it anyway.
    """

    name: ClassVar[str] = "group-operators"
    establishes: ClassVar[frozenset[str]] = frozenset({"groups"})
    operators: int = 12
    inputs: int = 10

    def run(self, subject: Any, chip: Chip) -> Any:
        body = graph.read(subject["main"])
        return _rebuilt(subject, body, _Grouping(subject, body, self).groups())


@dataclass
class _Group:
    calls: list[Call]
    schedule: str


@dataclass
class _Grouping:
    module: Any
    body: Body
    limits: GroupOperators
    group_of: dict[Any, _Group] = field(default_factory=dict)
    position: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.position = {call.var: index for index, call in enumerate(self.body.calls)}

    def groups(self) -> list[_Group]:
        for call in self.body.calls:
            if call.var in self.group_of:
                continue
            schedule = schedule_of(self.module, call)
            host, more = self._joinable(call, schedule) or (_Group([], schedule), (call,))
            host.calls += more
            self.group_of.update((each.var, host) for each in more)
            if schedule != FOLLOWER:
                host.schedule = schedule
        for group in self._unique():
            if group.schedule == "matmul":
                self._make_attention(group)
        for group in self._unique():
            if group.schedule in PRODUCTS:
                self._take_operands(group)
        for group in self._unique():
            if group.schedule in PRODUCTS:
                self._transpose_result(group)
        for group in self._unique():
            if group.schedule == FOLLOWER:
                self._take_parts(group)
        return sorted(self._unique(), key=lambda group: self.position[group.calls[-1].var])

    def _unique(self) -> list[_Group]:
        return list({id(group): group for group in self.group_of.values()}.values())

    def _make_attention(self, values: _Group) -> None:
        """Merge scores, their softmax and the product with the values, where nothing else reads what is between."""
        rows = self._only_reader(values, values.calls[0].arguments[:1], "softmax")
        scores = rows and self._only_reader(rows, [a for call in rows.calls for a in call.arguments], "matmul")
        if not rows or not scores:
            return
        values.calls[:] = sorted((*scores.calls, *rows.calls, *values.calls), key=lambda call: self.position[call.var])
        values.schedule = "attention"
        for call in values.calls:
            self.group_of[call.var] = values

    def _take_operands(self, group: _Group) -> None:
        products = [call for call in group.calls if schedule_of(self.module, call) == "matmul"]
        # By argument: along how many of its last axes what it gives must lie side by side; whether a product reads it.
        alone = len(products) == 1
        waiting = [
            (argument, 2 if at or alone else 1, True)
            for product in products
            for at, argument in enumerate(product.arguments[:2])
        ]
        while waiting:
            argument, axes, direct = waiting.pop(0)
            operand, users = self.group_of.get(argument), self.body.consumers[argument]
            inside = all(user is not None and self.group_of.get(user.var) is group for user in users)
            if operand is None or operand is group or len(operand.calls) != 1 or not inside:
                continue
            call, func = operand.calls[0], self.module[operand.calls[0].callee]
            scales = direct and operand.schedule == FOLLOWER and len(users) == 1 and is_factor(func)
            if scales or (operand.schedule in MOVES and keeps_runs(func, axes if len(users) == 1 else 1)):
                self._take(group, call)
                # A factor may be of what is moved, and what is moved be turned once. What is scaled before it is moved
                # is no factor of the product.
                waiting += [(each, axes if scales else 1, False) for each in call.arguments]

    def _take_parts(self, group: _Group) -> None:
        """Read parts of tensors where they are, not copies of them (5)."""
        for argument in list(dict.fromkeys(argument for call in group.calls for argument in call.arguments)):
            part = self.group_of.get(argument)
            if part is None or part.schedule != "movement" or len(part.calls) != 1:
                continue
            users = self.body.consumers[argument]
            inside = all(user is not None and self.group_of.get(user.var) is group for user in users)
            fits = len(group.calls) < self.limits.operators
            if inside and fits and is_scattered_part(self.module[part.calls[0].callee]):
                self._take(group, part.calls[0])

    def _take(self, group: _Group, call: Call) -> None:
        """Put a call in front of a group, once for each time it is read there: tiles of what it reads differ."""
        copies: list[Call] = []

        def own(argument: Any) -> Any:
            if not argument.same_as(call.var):
                return argument
            copies.append(replace(call, var=relax.Var(call.name, call.var.ty)) if copies else call)
            return copies[-1].var

        group.calls[:] = [replace(user, arguments=tuple(map(own, user.arguments))) for user in group.calls]
        group.calls[:0] = copies
        self.group_of[call.var] = group

    def _transpose_result(self, group: _Group) -> None:
        users = self.body.consumers[group.calls[-1].var]
        moved = self.group_of[users[0].var] if len(users) == 1 and users[0] is not None else group
        axes, (call, *others) = 2 if group.schedule == "matmul" else 1, moved.calls
        func = self.module[call.callee]
        if moved.schedule == "movement" and not others and keeps_runs(func, axes, rows=True) and not picks_places(func):
            group.calls += moved.calls
            self.group_of[call.var] = group

    def _only_reader(self, reader: _Group, arguments: Iterable[Any], schedule: str) -> _Group | None:
        """The group of class ``schedule`` whose result is among ``arguments`` and goes nowhere but to ``reader``."""
        for argument in arguments:
            group = self.group_of.get(argument)
            if group is None or group is reader or group.schedule != schedule:
                continue
            users = self.body.consumers[argument]
            if group.calls[-1].var.same_as(argument) and len(users) == 1 and users[0] is not None:
                return group
        return None

    def _joinable(self, call: Call, schedule: str) -> tuple[_Group, tuple[Call, ...]] | None:
        """The group that a call joins, and all that joins with it: of several, one of a master that ends latest."""
        if len(call.types) != 1:
            return None
        candidates = [
            (group, more)
            for argument in call.arguments
            if (group := self.group_of.get(argument)) is not None
            and (more := self._joining(group, call, schedule, argument))
        ]
        return max(
            candidates,
            key=lambda found: (found[0].schedule in MASTERS, self.position[found[0].calls[-1].var]),
            default=None,
        )

    def _joining(self, group: _Group, call: Call, schedule: str, argument: Any) -> tuple[Call, ...]:
        """What joins a group when a call that reads its result does: the call, or nothing."""
        if not group.calls[-1].var.same_as(argument):
            return ()
        if schedule == FOLLOWER:
            if group.schedule != FOLLOWER and group.schedule not in MASTERS:
                return ()
            more = self._closed(group.calls[-1])
        else:
            alone = len(self.body.consumers[argument]) == 1
            more = (call,) if schedule in WITH_PROLOGUE and group.schedule == FOLLOWER and alone else ()
        outside = Outside.of([*group.calls, *more], self.module)
        fits = len(group.calls) + len(more) <= self.limits.operators and len(outside.values) <= self.limits.inputs
        return more if fits else ()  # (3)

    def _closed(self, producer: Call) -> tuple[Call, ...]:
        """The fewest calls, in order, that hold all that reads what ``producer`` makes, but for the last one's (1)."""
        found, open_values = dict[int, Call](), {producer.var}
        while len(found) < self.limits.operators:
            readers = [user for value in open_values for user in self.body.consumers.get(value, [])]
            if any(user is None for user in readers):
                return ()
            waiting = {at: user for user in readers if (at := self.position[user.var]) not in found}
            at = min(waiting)
            if not self._follows(waiting[at], producer.var):
                return ()
            found[at] = waiting[at]
            open_values = {value for value in open_values if self._is_read_outside(value, found)} | {waiting[at].var}
            if len(open_values) == 1:
                return tuple(found.values())
        return ()

    def _is_read_outside(self, value: Any, calls: dict[int, Call]) -> bool:
        return any(user is None or self.position[user.var] not in calls for user in self.body.consumers[value])

    def _follows(self, call: Call, made: Any) -> bool:
        """Whether a call is elementwise, of as many elements as something and with rows of the same length (2)."""
        if schedule_of(self.module, call) != FOLLOWER or len(call.types) != 1 or call.var in self.group_of:
            return False
        shape, like = graph.shape_of(call.var), graph.shape_of(made)
        return prod(shape) == prod(like) and shape[-1:] == like[-1:]


def schedule_of(module: Any, call: Call) -> str:
    return str(module[call.callee].attrs["tw.schedule"])


def keeps_runs(func: Any, axes: int, *, rows: bool = False) -> bool:
    """Whether an operator only changes the order of axes, perhaps of a part of its input that has one place along some,
    and the last axis of its input is among its last ``axes``: of ``rows``, axes that stay side by side are one."""
    stores: list[Any] = []
    structural_walk(func.body, (tirx.BufferStore, stores.append))
    if len(stores) != 1 or not isinstance(stores[0].value, ir.TensorLoad) or len(stores[0].indices) < 2:
        return False
    if graph.attribute(func, OF_CLUSTERS) is not None:
        return False
    written, read = list(stores[0].indices), list(stores[0].value.indices)
    # One place of an axis is read at a number.
    moved = [index for index in read if not isinstance(index, tirx.IntImm)]
    long = [i for i, extent in zip(written, stores[0].buffer.shape, strict=True) if int(extent) > 1]
    if len(moved) > len(written) or not all(any(i.same_as(j) for j in written) for i in moved):
        return False
    if not all(any(i.same_as(j) for j in moved) for i in long):
        return False
    at = next((at for at, j in enumerate(written) if read[-1].same_as(j)), None)
    if at is None:
        return False
    behind = written[at + 1 :]
    together = [any(i.same_as(a) and j.same_as(b) for i, j in pairwise(read)) for a, b in pairwise(behind)]
    return len(behind) - (sum(together) if rows else 0) < axes


def picks_places(func: Any) -> bool:
    """Whether an operator reads its input at one place of an axis that has more."""
    loads: list[Any] = []
    structural_walk(func.body, (ir.TensorLoad, loads.append))
    places = [place for load in loads for place in zip(load.indices, load.source.shape, strict=True)]
    return any(isinstance(index, tirx.IntImm) and int(extent) > 1 for index, extent in places)


def is_scattered_part(func: Any) -> bool:
    """Whether an operator picks places along axes of its input, in order, and these do not lie in one piece."""
    stores: list[Any] = []
    structural_walk(func.body, (tirx.BufferStore, stores.append))
    if len(func.params) != 2 or len(stores) != 1 or not isinstance(stores[0].value, ir.TensorLoad):
        return False
    if graph.attribute(func, OF_CLUSTERS) is not None:  # where the part is, each cluster knows for itself
        return False
    read, written = stores[0].value.indices, stores[0].indices
    if len(read) != len(written) or displacement(func) is not None:
        return False
    return all(isinstance(sym.Analyzer().simplify(i - j), tirx.IntImm) for i, j in zip(read, written, strict=True))


def is_factor(func: Any) -> bool:
    """Whether all that an operator does is to multiply something by a number."""
    stores: list[Any] = []
    structural_walk(func.body, (tirx.BufferStore, stores.append))
    return len(stores) == 1 and multiplies(stores[0])


@dataclass
class Outside:
    """What a list of calls reads and does not make, in order of first use; for each call which of it its arguments are.

    What several calls or inputs of calls that are not elementwise read is there for each of them: in a product of a
    matrix with itself, transposed, scaled or not, tiles of the two are not the same. And what the cube multiplies, or
    windows go over, is there once more for elementwise calls that add it to the result.
    """

    values: list[Any] = field(default_factory=list)
    arguments: list[list[int | None]] = field(default_factory=list)  # None is what another of the calls makes

    @classmethod
    def of(cls, calls: Iterable[Call], module: Any) -> Outside:
        calls, found, made, position = list(calls), cls(), set[Any](), dict[Any, int]()
        operands, tiled, apart = set[Any](), set[Any](), set[Any]()
        for call in reversed(calls):
            if call.var in operands:
                operands.update(call.arguments)
            elif schedule_of(module, call) == "matmul":
                operands.update(call.arguments[:2])
        for call in calls:
            places = list[int | None]()
            schedule = schedule_of(module, call)
            elementwise = schedule == FOLLOWER and call.var not in operands
            for argument in call.arguments:
                again = argument in (apart if elementwise else tiled)
                if argument not in made and (again or argument not in position):
                    position[argument] = len(found.values)
                    found.values.append(argument)
                    apart.discard(argument)
                if not elementwise:
                    tiled.add(argument)
                    if schedule not in WITH_PROLOGUE:
                        apart.add(argument)
                places.append(None if argument in made else position[argument])
            found.arguments.append(places)
            made.add(call.var)
        return found


def _rebuilt(module: Any, body: Body, groups: list[_Group]) -> Any:
    """The module with one Relax function per group, and a main that calls them."""
    builder = relax.BlockBuilder(ir.IRModule({gv: f for gv, f in module.functions.items() if gv.name_hint != "main"}))
    names = [
        _add_group(builder, f"group{index}", group, module) if schedule_of(module, group.calls[0]) != VIEW else None
        for index, group in enumerate(groups)
    ]
    made: dict[Any, Any] = {}
    with builder.function("main", list(body.params), attrs=dict(module["main"].attrs.items())):
        with builder.dataflow():
            for group, name in zip(groups, names, strict=True):
                last = group.calls[-1]
                inputs = [made.get(value, value) for value in Outside.of(group.calls, module).values]
                if name is None:
                    value = relax.call_tir(builder.get().get_global_var(last.callee), inputs, list(last.types))
                else:
                    value = ir.Call(name, inputs)
                made[last.var] = builder.emit(value, last.name)
                for var, (source, index) in body.fields.items():
                    if source.same_as(last.var):
                        made[var] = builder.emit(relax.TupleGetItem(made[last.var], index), str(var.name))
            results = [made.get(result, result) for result in body.results]
            output = builder.emit_output(relax.Tuple(results) if len(results) != 1 else results[0])
        builder.emit_func_output(output)
    return builder.get()


def _add_group(builder: Any, name: str, group: _Group, module: Any) -> Any:
    outside = Outside.of(group.calls, module)
    params = [relax.Var(f"p{index}", value.ty) for index, value in enumerate(outside.values)]
    made: dict[Any, Any] = {}
    attributes = {"tw.group": group.schedule, "tw.calls": list(dict.fromkeys(call.name for call in group.calls))}
    with builder.function(name, params, attrs=attributes, private=True):
        with builder.dataflow():
            for call, places in zip(group.calls, outside.arguments, strict=True):
                callee = builder.get().get_global_var(call.callee)
                inputs = [
                    made[argument] if place is None else params[place]
                    for argument, place in zip(call.arguments, places, strict=True)
                ]
                made[call.var] = builder.emit(relax.call_tir(callee, inputs, list(call.types)), call.name)
            output = builder.emit_output(made[group.calls[-1].var])
        builder.emit_func_output(output)
    return builder.get().get_global_var(name)
