"""Calls of main that may share a kernel since what the one makes only the other reads: it stays in the cores' L1."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax

from compiler import graph
from compiler.schedule.manual import IN_L1, PIECES, is_view, members_of

CHAIN = "chain"  # the class of a kernel of two convolutions


@dataclass(frozen=True)
class Link:
    """Two calls, of which the second alone reads what the first makes."""

    first: graph.Call
    second: graph.Call

    @property
    def callees(self) -> tuple[str, str]:
        return self.first.callee, self.second.callee


def links(module: Any) -> list[Link]:
    """Convolutions whose results one other reads as its feature map, and nothing else does."""
    body = graph.read(module["main"])
    found = []
    for call in body.calls:
        users = body.consumers.get(call.var, [])
        if len(users) != 1 or users[0] is None or not all(_convolves(module, one) for one in (call, users[0])):
            continue
        if _map_of(module, users[0]).same_as(call.var) and sum(a.same_as(call.var) for a in users[0].arguments) == 1:
            found.append(Link(call, users[0]))
    return found


def _convolves(module: Any, call: graph.Call) -> bool:
    return bool(graph.attribute(module[call.callee], "tw.group") == "convolution") and len(call.types) == 1


def _map_of(module: Any, call: graph.Call) -> Any:
    group = graph.read(module[call.callee])
    given = dict(zip(group.params, call.arguments, strict=True))
    return given.get(group.calls[0].arguments[0])


def apart_from_each_other(found: Sequence[Link]) -> list[Link]:
    """Of links that share a call, those with the most between them; calls that are alike are treated alike."""
    most = sorted(found, key=lambda link: -_elements(link.first))
    taken, chosen = dict[str, tuple[str, str]](), set[tuple[str, str]]()
    for link in most:
        if all(taken.get(callee, link.callees) == link.callees for callee in link.callees):
            taken.update(dict.fromkeys(link.callees, link.callees))
            chosen.add(link.callees)
    return [link for link in found if link.callees in chosen]


def _elements(call: graph.Call) -> int:
    total = 1
    for extent in graph.shape_of(call.var):
        total *= extent
    return total


def linked(module: Any, chosen: Collection[Link]) -> Any:
    """The module whose main calls one function for both calls of each link."""
    body = graph.read(module["main"])
    builder = relax.BlockBuilder(ir.IRModule({gv: f for gv, f in module.functions.items() if gv.name_hint != "main"}))
    first_of = {link.second.var: link.first for link in chosen}
    left_out = {link.first.var for link in chosen}
    functions = {
        call.var: _function(builder, module, first_of[call.var], call) for call in body.calls if call.var in first_of
    }
    attributes = dict(module["main"].attrs.items())
    if PIECES not in attributes:
        calls = [call for call in body.calls if not is_view(module, call)]
        attributes[PIECES] = [(members_of(module, call), 1, False) for call in calls]
    attributes[IN_L1] = list(dict.fromkeys(members_of(module, link.first)[-1] for link in chosen))
    made: dict[Any, Any] = {}
    with builder.function("main", list(body.params), attrs=attributes):
        with builder.dataflow():
            for call in body.calls:
                if call.var in left_out:
                    continue
                if call.var in first_of:
                    function, arguments = functions[call.var]
                    value = ir.Call(function, [made.get(argument, argument) for argument in arguments])
                else:
                    value = _called(builder, call, [made.get(argument, argument) for argument in call.arguments])
                made[call.var] = builder.emit(value, call.name)
                for var, (source, index) in body.fields.items():
                    if source.same_as(call.var):
                        made[var] = builder.emit(relax.TupleGetItem(made[call.var], index), str(var.name))
            results = [made.get(result, result) for result in body.results]
            output = builder.emit_output(relax.Tuple(results) if len(results) != 1 else results[0])
        builder.emit_func_output(output)
    return builder.get()


def _called(builder: Any, call: graph.Call, arguments: list[Any]) -> Any:
    function = builder.get().get_global_var(call.callee)
    if isinstance(builder.get()[function], relax.Function):
        return ir.Call(function, arguments)
    return relax.call_tir(function, arguments, list(call.types))


def _function(builder: Any, module: Any, first: graph.Call, second: graph.Call) -> tuple[Any, list[Any]]:
    """The function of both calls, and what it is called with: each value once."""
    given = list(dict.fromkeys([*first.arguments, *(one for one in second.arguments if not one.same_as(first.var))]))
    where = [given.index(one) for one in (*first.arguments, *second.arguments) if not one.same_as(first.var)]
    name = f"{first.callee}_{second.callee}_" + "_".join(map(str, where))
    known = {gv.name_hint: gv for gv in builder.get().functions}
    if name in known:
        return known[name], given
    params = [relax.Var(f"p{index}", value.ty) for index, value in enumerate(given)]
    values = dict(zip(given, params, strict=True))
    members = [*members_of(module, first), *members_of(module, second)]
    attributes = {"tw.group": CHAIN, "tw.calls": members}
    with builder.function(name, params, attrs=attributes, private=True):
        with builder.dataflow():
            for call in (first, second):
                group = graph.read(module[call.callee])
                made = {param: values[one] for param, one in zip(group.params, call.arguments, strict=True)}
                for inner in group.calls:
                    callee = builder.get().get_global_var(inner.callee)
                    inputs = [made[argument] for argument in inner.arguments]
                    made[inner.var] = builder.emit(relax.call_tir(callee, inputs, list(inner.types)), inner.name)
                values[call.var] = made[group.results[0]]
            output = builder.emit_output(values[second.var])
        builder.emit_func_output(output)
    return builder.get().get_global_var(name), given
