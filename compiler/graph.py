"""A Relax main function as a list of calls: what graph passes and the driver read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import ir, relax


@dataclass(frozen=True)
class Call:
    """One binding: ``results = function(arguments)``, where function is a PrimFunc or a group (a Relax function)."""

    var: Any  # relax.Var
    callee: str
    arguments: tuple[Any, ...]  # relax.Var or relax.Constant

    @property
    def name(self) -> str:
        return str(self.var.name)

    @property
    def types(self) -> tuple[Any, ...]:
        """The tensor types of its results."""
        found = self.var.ty
        return tuple(found.fields) if isinstance(found, relax.TupleType) else (found,)


@dataclass(frozen=True)
class Body:
    """Parameters, calls in order, aliases of tuple fields, and results of one Relax function."""

    params: tuple[Any, ...]
    calls: tuple[Call, ...]
    fields: dict[Any, tuple[Any, int]]  # a variable that is one field of a call's tuple
    results: tuple[Any, ...]

    @cached_property
    def producer(self) -> dict[Any, Call]:
        made = {call.var: call for call in self.calls}
        return {**made, **{var: made[source] for var, (source, _) in self.fields.items() if source in made}}

    @cached_property
    def consumers(self) -> dict[Any, list[Call]]:
        """The calls that read a variable; a result of the function counts once more, as None."""
        users = dict[Any, list[Any]]()
        for call in self.calls:
            for argument in dict.fromkeys(call.arguments):
                users.setdefault(argument, []).append(call)
        for result in self.results:
            users.setdefault(result, []).append(None)
        for var, (source, _) in self.fields.items():
            users.setdefault(source, []).extend(users.get(var, [None]))
        return users


def read(function: Any) -> Body:
    """A function whose blocks hold calls of global functions, tuple fields and renamings only."""
    calls, fields, renamed = [], dict[Any, tuple[Any, int]](), dict[Any, Any]()

    def resolve(value: Any) -> Any:
        while value in renamed:
            value = renamed[value]
        return value

    for var, value in _bindings(function):
        if isinstance(value, relax.TupleGetItem):
            fields[var] = (resolve(value.tuple_value), int(value.index))
        elif isinstance(value, ir.Call):
            callee, arguments = _called(value)
            calls.append(Call(var, callee, tuple(resolve(a) for a in arguments)))
        else:
            renamed[var] = value
    tail = resolve(function.body.body)
    results = tuple(tail.fields) if isinstance(tail, relax.Tuple) else (tail,)
    return Body(tuple(function.params), tuple(calls), fields, tuple(resolve(r) for r in results))


def _bindings(function: Any) -> Iterator[tuple[Any, Any]]:
    for block in function.body.blocks:
        for binding in block.bindings:
            yield binding.var, binding.value


def _called(call: Any) -> tuple[str, tuple[Any, ...]]:
    if isinstance(call.op, ir.GlobalVar):
        return str(call.op.name_hint), tuple(call.args)
    if call.op.name != "relax.call_tir":
        raise ValueError(f"a graph holds calls of operators only, not {call.op.name}")
    arguments = call.args[1]
    return str(call.args[0].name_hint), tuple(arguments.fields if isinstance(arguments, relax.Tuple) else (arguments,))


def shape_of(value: Any) -> tuple[int, ...]:
    return extents_of(value.ty)


def extents_of(kind: Any) -> tuple[int, ...]:
    """The shape of a buffer, or of a tensor's type."""
    shape = kind.shape
    # An expression would be asked for its length with each of them.
    return tuple([int(extent) for extent in (shape.values if isinstance(shape, relax.ShapeExpr) else shape)])


def dtype_of(value: Any) -> str:
    return str(value.ty.dtype)


def is_one_operator(function: Any) -> bool:
    """Whether a function is what one operator declares: groups of several are of no operator."""
    return attribute(function, "tw.operator") is not None


def attribute(function: Any, name: str, default: Any = None) -> Any:
    """An attribute of a function, or the default where it has none of that name."""
    attributes = function.attrs
    return default if attributes is None else attributes.get(name, default)
