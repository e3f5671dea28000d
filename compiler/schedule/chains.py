"""Calls of main that may share a kernel, since the next one reads what one makes: that need not come back to the cores,
and never leaves them where nothing else reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax

from compiler import graph
from compiler.schedule.noted import IN_L1, PIECES, members_of, pieces_of

CHAIN = "chain"  # the class of a kernel of several convolutions, each of what the one before it makes
PAIR = "pair"  # the class of a kernel of two convolutions of which one's result is added to the other's
PREPARED = "prepared"  # the class of a kernel of elementwise work and a convolution of what that makes
PRODUCTS = "products"  # the class of a kernel of several products of matrices, each of what the one before it makes
POOLED = "pooled"  # the class of a kernel of a convolution and what pools its result

PLACES = 2  # of a feature map, the first axis that is neither images nor channels

CONVOLUTION, ELEMENTWISE, MATMUL = "convolution", "elementwise", "matmul"  # classes of groups
POOLS = ("pooling", "reduction")


@dataclass(frozen=True)
class Chain:
    """Calls of which each reads what the one before it makes: as its feature map, or to add it to its own."""

    calls: tuple[graph.Call, ...]
    adds: frozenset[int] = frozenset()  # which of them add what the one before them makes
    prepared: bool = False  # whether the first one is elementwise work
    products: bool = False  # whether all are products of matrices, not convolutions
    kept: frozenset[int] = frozenset()  # of which of them others read, too, what they make
    pooled: bool = False  # whether the last one pools what the one before it makes

    @property
    def kind(self) -> str | None:
        """The class of its kernel; None where there is none for such calls."""
        pair, special = len(self.calls) == 2, self.adds or self.prepared
        if self.pooled:
            return POOLED if pair and not special else None
        if (special or self.kept) and (not pair or (special and self.kept)):
            return None
        if special:
            return PREPARED if self.prepared else PAIR
        return PRODUCTS if self.products else CHAIN

    def part(self, start: int, end: int) -> Chain:
        adds = frozenset(at - start for at in self.adds if start < at < end)
        kept = frozenset(at - start for at in self.kept if start <= at < end - 1)
        pooled = self.pooled and end == len(self.calls)
        return Chain(self.calls[start:end], adds, self.prepared and start == 0, self.products, kept, pooled)

    @property
    def results(self) -> tuple[Any, ...]:
        """The variables of what its kernel makes."""
        return (*(self.calls[at].var for at in sorted(self.kept)), self.calls[-1].var)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(call.name for call in self.calls)

    @property
    def callees(self) -> tuple[str, ...]:
        return tuple(call.callee for call in self.calls)

    @property
    def function_name(self) -> str:
        """Of the function for all its calls."""
        return "_".join(f"{callee}_kept" if at in self.kept else callee for at, callee in enumerate(self.callees))


def chains(module: Any, *, kept: bool = True) -> list[Chain]:
    """Convolutions one after another, as long as there are: the next one reads one's result, once. Where two results
    are read by nothing else, what is added goes before the feature map. Elementwise work may go before the first one,
    if it makes its feature map. The same of products of matrices, of which nothing is added.

    Behind the last convolution may stand what pools its result. What a convolution makes others may read, too, behind
    the next one, unless nothing is to be ``kept`` for others.
    """
    body = graph.read(module["main"])
    next_of, before, adding = dict[Any, graph.Call](), dict[Any, graph.Call](), set[Any]()
    for call in body.calls:
        works, multiplies = _is_of(module, call, ELEMENTWISE), _is_of(module, call, MATMUL)
        if not (works or multiplies or _is_of(module, call, CONVOLUTION)):
            continue
        users = body.consumers.get(call.var, [])
        groups = (CONVOLUTION,) if works else (MATMUL,) if multiplies else (CONVOLUTION, *POOLS)
        user = _next_of(module, call, users, groups)
        if user is None or (len(users) > 1 and not kept):
            continue
        adds = not _is_first(module, user, call.var)
        if adds and (works or multiplies or not _is_side(module, user, call.var) or user.var in adding):
            continue
        if user.var in before:
            if not adds:
                continue
            del next_of[before[user.var].var]
        next_of[call.var], before[user.var] = user, call
        if adds:
            adding.add(user.var)
    found = []
    for call in body.calls:
        if call.var in next_of and call.var not in before:
            line = [call]
            while line[-1].var in next_of:
                line.append(next_of[line[-1].var])
            adds_at = frozenset(at for at, one in enumerate(line) if one.var in adding)
            works, multiplies = (_is_of(module, call, group) for group in (ELEMENTWISE, MATMUL))
            others = frozenset(at for at, one in enumerate(line[:-1]) if len(body.consumers[one.var]) > 1)
            pooled = any(_is_of(module, line[-1], group) for group in POOLS)
            found.append(Chain(tuple(line), adds_at, works, multiplies, others, pooled))
    return found


def _next_of(
    module: Any, call: graph.Call, users: Sequence[graph.Call | None], groups: Sequence[str]
) -> graph.Call | None:
    """Which of those that read what a call makes may share a kernel with it: the only one. Or of several the first, if
    it pools what a convolution makes, or both are convolutions and it makes as many places of it as it has, and so the
    others come behind their kernel.
    """
    user = users[0] if users else None
    able = user is not None and any(_is_of(module, user, group) for group in groups)
    if user is None or not able or not _reads_once(module, user, call.var):
        return None
    if len(users) == 1 or any(_is_of(module, user, group) for group in POOLS):
        return user
    places = (graph.shape_of(var)[PLACES:] for var in (call.var, user.var))
    able = _is_of(module, call, CONVOLUTION) and len(set(places)) == 1 and _is_first(module, user, call.var)
    return user if able else None


def named(module: Any, names: Collection[tuple[str, ...]]) -> list[Chain] | None:
    """The parts of chains whose calls have these names; None where there is no such part."""
    found = []
    for one in chains(module):
        for start, call in enumerate(one.calls):
            found += [one.part(start, start + len(each)) for each in names if each and each[0] == call.name]
    return found if sorted(one.names for one in found) == sorted(names) else None


def _is_side(module: Any, call: graph.Call, value: Any) -> bool:
    """Whether a call may add a value to what it makes: it is no weights, and as large."""
    group = graph.read(module[call.callee])
    first = group.calls[0].arguments
    given = dict(zip(group.params, call.arguments, strict=True))
    inside = any(given.get(argument, argument).same_as(value) for argument in first)
    return not inside and graph.shape_of(value) == graph.shape_of(call.var)


def _is_of(module: Any, call: graph.Call, group: str) -> bool:
    """Whether a call is a group of some class with one result."""
    return bool(graph.attribute(module[call.callee], "tw.group") == group) and len(call.types) == 1


def _reads_once(module: Any, call: graph.Call, value: Any) -> bool:
    """Whether one operator of a call reads a value, once."""
    group = graph.read(module[call.callee])
    given = [param for param, one in zip(group.params, call.arguments, strict=True) if one.same_as(value)]
    reads = [argument for each in group.calls for argument in each.arguments if any(argument.same_as(p) for p in given)]
    return len(given) == len(reads) == 1


def _is_first(module: Any, call: graph.Call, value: Any) -> bool:
    """Whether a value is the feature map of a call, or the matrix whose rows it multiplies."""
    group = graph.read(module[call.callee])
    given = dict(zip(group.params, call.arguments, strict=True))
    first = given.get(group.calls[0].arguments[0])
    return first is not None and bool(first.same_as(value))


def with_functions(module: Any, wanted: Sequence[Chain]) -> tuple[Any, list[tuple[str, list[Any]]]]:
    """The module with a function for each chain, beside a main that calls none; their names, and what each is given."""
    builder, known = _without_main(module)
    found = [_function(builder, known, module, chain) for chain in wanted]
    return builder.get(), [(str(function.name_hint), given) for function, given in found]


def linked(module: Any, chosen: Collection[Chain]) -> Any:
    """The module whose main calls one function for all calls of each chain."""
    body = graph.read(module["main"])
    builder, known = _without_main(module)
    left_out = {call.var for chain in chosen for call in chain.calls[:-1]}
    several = {chain.calls[-1].var: chain.results for chain in chosen if chain.kept}
    functions = {chain.calls[-1].var: _function(builder, known, module, chain) for chain in chosen}
    kept = [members_of(module, call)[-1] for chain in chosen for call in chain.calls[:-1]]
    noted = {PIECES: pieces_of(module), IN_L1: list(dict.fromkeys(kept))}
    attributes = {**dict(module["main"].attrs.items()), **noted}
    made: dict[Any, Any] = {}
    with builder.function("main", list(body.params), attrs=attributes):
        with builder.dataflow():
            for call in body.calls:
                if call.var in left_out:
                    continue
                if call.var in functions:
                    function, arguments = functions[call.var]
                    value = ir.Call(function, [made.get(argument, argument) for argument in arguments])
                else:
                    value = _called(builder, call, [made.get(argument, argument) for argument in call.arguments])
                if call.var in several:
                    value = builder.emit(value, f"{call.name}_results")
                    for index, var in enumerate(several[call.var]):
                        made[var] = builder.emit(relax.TupleGetItem(value, index), str(var.name))
                    continue
                made[call.var] = builder.emit(value, call.name)
                for var, (source, index) in body.fields.items():
                    if source.same_as(call.var):
                        made[var] = builder.emit(relax.TupleGetItem(made[call.var], index), str(var.name))
            results = [made.get(result, result) for result in body.results]
            output = builder.emit_output(relax.Tuple(results) if len(results) != 1 else results[0])
        builder.emit_func_output(output)
    return builder.get()


def _without_main(module: Any) -> tuple[Any, dict[str, Any]]:
    """A builder that has all other functions, and these by name."""
    others = {gv: function for gv, function in module.functions.items() if gv.name_hint != "main"}
    return relax.BlockBuilder(ir.IRModule(others)), {str(gv.name_hint): gv for gv in others}


def _called(builder: Any, call: graph.Call, arguments: list[Any]) -> Any:
    function = builder.get().get_global_var(call.callee)
    if isinstance(builder.get()[function], relax.Function):
        return ir.Call(function, arguments)
    return relax.call_tir(function, arguments, list(call.types))


def _function(builder: Any, known: dict[str, Any], module: Any, chain: Chain) -> tuple[Any, list[Any]]:
    """The function of all calls, and what it is called with: once for each call that reads it, which need not be tiled
    alike.
    """
    inner = {call.var for call in chain.calls[:-1]}
    given = [argument for call in chain.calls for argument in call.arguments if argument not in inner]
    name = chain.function_name
    if name in known:
        return known[name], given
    params = [relax.Var(f"p{index}", value.ty) for index, value in enumerate(given)]
    values, left = dict[Any, Any](), iter(params)
    attributes = {
        "tw.group": chain.kind,
        "tw.calls": [name for call in chain.calls for name in members_of(module, call)],
    }
    with builder.function(name, params, attrs=attributes, private=True):
        with builder.dataflow():
            for call in chain.calls:
                group = graph.read(module[call.callee])
                made = {
                    param: values[one] if one in inner else next(left)
                    for param, one in zip(group.params, call.arguments, strict=True)
                }
                for each in group.calls:
                    callee = known[each.callee]
                    inputs = [made[argument] for argument in each.arguments]
                    made[each.var] = builder.emit(relax.call_tir(callee, inputs, list(each.types)), each.name)
                values[call.var] = made[group.results[0]]
            results = [values[result] for result in chain.results]
            output = builder.emit_output(relax.Tuple(results) if len(results) != 1 else results[0])
        builder.emit_func_output(output)
    known[name] = builder.get().get_global_var(name)
    return known[name], given
