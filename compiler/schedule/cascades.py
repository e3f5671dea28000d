"""Cascades: calls that run one after another for each band of rows, and keep between them what one band takes.

    a = conv(x); b = conv(a)    in two bands    ->    a0 = conv(x[0:18]); b0 = conv(a0)    a1 = conv(x[14:32]); b1 = ..
                                                      a[0:17]; b[0:16]                     a[15:32]; b[16:32]

Each band makes all rows that it needs itself, those at its edges are made twice. What the cascade is given, and what it
makes for others, lies there as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from compiler import graph
from compiler.operators import TensorType
from compiler.parts import BANDS, JOIN_BANDS
from compiler.schedule.bands import Band, Bands, banded_shape, hull
from compiler.schedule.movement import added_movement, operator_kernel


@dataclass(frozen=True)
class Cascade:
    """Calls from the first to before ``end``, in ``count`` bands along an axis of the last one's result."""

    first: int
    end: int
    count: int
    axis: int

    def continues(self, before: Cascade) -> bool:
        """Whether the two are one cascade."""
        return before.end == self.first and (before.count, before.axis) == (self.count, self.axis)


@dataclass(frozen=True)
class Made:
    """Of a call, in one band: the rows of its result, and those of its arguments with the axes that count them, both
    None for arguments that are read whole.
    """

    axis: int
    rows: Band
    arguments: tuple[Band | None, ...]
    axes: tuple[int | None, ...]


class GroupBands:
    """A group of operators in bands along an axis of its result."""

    def __init__(self, calls: Sequence[tuple[graph.Call, Bands]], params: Sequence[Any], axes: dict[Any, int]) -> None:
        self._calls, self._params = calls, params
        self.inputs = tuple(axes.get(param) for param in params)
        self.needed = cache(self._needed)

    @staticmethod
    def of(module: Any, callee: str, axis: int) -> GroupBands | None:
        """None where it has no bands along this axis."""
        group = module[callee]
        if isinstance(group, tirx.PrimFunc):
            return None
        body, axes, whole, calls = graph.read(group), dict[Any, int](), set[Any](), []
        if len(body.results) != 1 or body.fields or not body.calls[-1].var.same_as(body.results[0]):
            return None
        axes[body.results[0]] = axis
        for call in reversed(body.calls):
            if call.var not in axes:
                return None
            bands = Bands.of(module[call.callee], axes[call.var])
            if bands is None:
                return None
            for value, own in zip(call.arguments, bands.inputs, strict=True):
                if own is None:
                    whole.add(value)
                elif axes.setdefault(value, own) != own:
                    return None
            calls.append((call, bands))
        return None if whole & axes.keys() else GroupBands(calls, body.params, axes)

    def _needed(self, rows: Band) -> dict[Any, Band] | None:
        """The rows of all that the group's operators make or are given; None where one needs nothing."""
        found = {self._calls[0][0].var: rows}
        for call, bands in self._calls:
            taken = bands.inputs_of(found[call.var])
            if taken is None:
                return None
            for value, own in zip(call.arguments, taken, strict=True):
                if own is not None:
                    found[value] = hull(found.get(value, own), own)
        return found

    def inputs_of(self, rows: Band) -> tuple[Band | None, ...] | None:
        needed = self.needed(rows)
        return None if needed is None else tuple(needed.get(param) for param in self._params)

    def added(self, builder: Any, name: str, rows: Band, attributes: dict[str, Any]) -> Any:
        """The function that makes these rows of the result, in the module that the builder makes."""
        needed = self.needed(rows) or {}
        functions, kinds = dict[Any, Any](), dict[Any, Any]()
        for call, bands in self._calls:
            own = needed[call.var]
            given = {p: needed[v] for p, v in zip(bands.func.params, call.arguments, strict=False) if p in bands.axes}
            function = bands.function({**(bands.needed(own) or {}), **given})
            kinds[call.var] = relax.TensorType([int(n) for n in function.params[-1].shape], str(call.types[0].dtype))
            functions[call.var] = builder.add_func(function, f"{call.callee}_band")
        axes = dict(zip(self._params, self.inputs, strict=True))
        params = [relax.Var(str(p.name), _banded_type(p.ty, axes[p], needed.get(p))) for p in self._params]
        made = dict(zip(self._params, params, strict=True))
        with builder.function(name, params, attrs=attributes, private=True):
            with builder.dataflow():
                for call, _ in reversed(self._calls):
                    arguments = [made[argument] for argument in call.arguments]
                    made[call.var] = builder.emit(
                        relax.call_tir(functions[call.var], arguments, [kinds[call.var]]), call.name
                    )
                output = builder.emit_output(made[self._calls[0][0].var])
            return builder.emit_func_output(output)


def _banded_type(kind: Any, axis: int | None, rows: Band | None) -> Any:
    shape = graph.extents_of(kind)
    if axis is not None and rows is not None:
        shape = banded_shape(shape, axis, rows)
    return relax.TensorType(shape, str(kind.dtype))


class Cascades:
    """Which calls of main can be a cascade, and what each of its bands makes."""

    def __init__(self, module: Any) -> None:
        self.module, self.body = module, graph.read(module["main"])
        self.bands = cache(lambda callee, axis: GroupBands.of(module, callee, axis))
        self._last = dict[Any, int]()  # call that reads a value
        for at, call in enumerate(self.body.calls):
            self._last.update((argument, at) for argument in call.arguments)
        self._last.update((result, len(self.body.calls)) for result in self.body.results)

    def is_read_behind(self, value: Any, end: int) -> bool:
        return self._last.get(value, -1) >= end

    def going_back(self, end: int, count: int, axis: int, numbers: Sequence[int]) -> Iterator[tuple[int, list[Made]]]:
        """From the last call of a cascade to those before it, as long as they can be in it: which one, and what it
        makes in the bands of these numbers.
        """
        axes, needed, whole = dict[Any, int](), dict[Any, list[Band]](), set[Any]()
        for at in reversed(range(end)):
            call = self.body.calls[at]
            made = self._call(at, end, count, axis, numbers, axes, needed)
            if made is None or call.var in whole:
                return
            for value, index in zip(call.arguments, made[0].axes, strict=True):
                if index is None:
                    whole.add(value)
                elif axes.setdefault(value, index) != index:
                    return
            if whole & axes.keys():
                return
            for value, *rows in zip(call.arguments, *(one.arguments for one in made), strict=True):
                if rows[0] is not None:
                    before = needed.get(value, rows)
                    needed[value] = [hull(one, other) for one, other in zip(before, rows, strict=True)]
            yield at, made

    def _call(
        self,
        at: int,
        end: int,
        count: int,
        axis: int,
        numbers: Sequence[int],
        axes: dict[Any, int],
        needed: dict[Any, list[Band]],
    ) -> list[Made] | None:
        call = self.body.calls[at]
        if len(call.types) != 1:
            return None
        shape, own = graph.shape_of(call.var), axes.get(call.var, axis)
        group = self.bands(call.callee, own) if own < len(shape) else None
        if group is None or not any(index is not None for index in group.inputs):
            return None
        rows = needed.get(call.var)
        if rows is None or self.is_read_behind(call.var, end):
            if shape[own] < count:
                return None
            parts = [part(shape[own], count, number) for number in numbers]
            rows = parts if rows is None else [hull(one, other) for one, other in zip(rows, parts, strict=True)]
        found = list[Made]()
        for one in rows:
            arguments = group.inputs_of(one)
            if arguments is None:
                return None
            found.append(Made(own, one, arguments, group.inputs))
        return found

    def all_of(self, cascade: Cascade) -> list[list[Made]] | None:
        """By call, what it makes in each band; None where these calls cannot be a cascade."""
        numbers, found = range(cascade.count), list[list[Made]]()
        for at, made in self.going_back(cascade.end, cascade.count, cascade.axis, numbers):
            found.append(made)
            if at == cascade.first:
                return found[::-1]
        return None


def part(extent: int, count: int, number: int) -> Band:
    """The rows that a band is there for."""
    return extent * number // count, extent * (number + 1) // count


def cascaded(cascades: Cascades, wanted: Sequence[Cascade]) -> Any:
    """The module with a main in which some calls run in bands."""
    return _Emitter(cascades, wanted).run()


@dataclass(frozen=True)
class _Step:
    """A call of main: what it calls, with which values or bands of them, and which one it makes."""

    function: Any
    arguments: tuple[Any, ...]
    made: Any
    name: str
    kinds: tuple[Any, ...] = ()


class _Emitter:
    """Values are known by themselves, or with the number of a band, or with the rows of a window."""

    def __init__(self, cascades: Cascades, wanted: Sequence[Cascade]) -> None:
        self.cascades, self.module, self.body = cascades, cascades.module, cascades.body
        self.wanted = {cascade.first: cascade for cascade in wanted}
        kept = {gv: f for gv, f in self.module.functions.items() if gv.name_hint != "main"}
        self.builder = relax.BlockBuilder(ir.IRModule(kept))
        self.steps: list[_Step] = []
        self._functions: dict[tuple[str, int, Band], Any] = {}
        self._windows = set[Any]()

    def run(self) -> Any:
        at = 0
        while at < len(self.body.calls):
            if at in self.wanted:
                self._cascade(self.wanted[at])
                at = self.wanted[at].end
            else:
                self._whole(self.body.calls[at])
                at += 1
        return self._emitted()

    def _emitted(self) -> Any:
        made: dict[Any, Any] = {param: param for param in self.body.params}
        with self.builder.function("main", list(self.body.params), attrs=dict(self.module["main"].attrs.items())):
            with self.builder.dataflow():
                for step in self.steps:
                    arguments = [made[argument] for argument in step.arguments]
                    if step.kinds:
                        value = relax.call_tir(step.function, arguments, list(step.kinds))
                    else:
                        value = ir.Call(step.function, arguments)
                    made[step.made] = self.builder.emit(value, step.name)
                    for var, (source, index) in self.body.fields.items():
                        if source is step.made:
                            made[var] = self.builder.emit(relax.TupleGetItem(made[source], index), str(var.name))
                results = [made[result] for result in self.body.results]
                output = self.builder.emit_output(relax.Tuple(results) if len(results) != 1 else results[0])
            self.builder.emit_func_output(output)
        return self.builder.get()

    def _whole(self, call: graph.Call) -> None:
        function = self.builder.get().get_global_var(call.callee)
        kinds = () if isinstance(self.module[call.callee], relax.Function) else tuple(call.types)
        self.steps.append(_Step(function, call.arguments, call.var, call.name, kinds))

    def _cascade(self, cascade: Cascade) -> None:
        calls, plan = self.body.calls[cascade.first : cascade.end], self.cascades.all_of(cascade)
        if plan is None:
            raise ValueError(f"calls {cascade.first} to {cascade.end} cannot run in {cascade.count} bands")
        rows = {call.var: [made.rows for made in each] for call, each in zip(calls, plan, strict=True)}
        for number in range(cascade.count):
            for call, each in zip(calls, plan, strict=True):
                self._band(call, each[number], number, rows)
        for call, each in zip(calls, plan, strict=True):
            if self.cascades.is_read_behind(call.var, cascade.end):
                parts = tuple((call.var, number) for number in range(cascade.count))
                function = added_join(self.builder, call.var, each[0].axis, rows[call.var])
                self.steps.append(_Step(function, parts, call.var, call.name))

    def _band(self, call: graph.Call, made: Made, number: int, rows: Mapping[Any, Sequence[Band]]) -> None:
        arguments = list[Any]()
        for value, axis, own in zip(call.arguments, made.axes, made.arguments, strict=True):
            if axis is None or own is None:
                arguments.append(value)
            elif value in rows:
                arguments.append(self._window((value, number), value, axis, rows[value][number], own))
            else:
                arguments.append(self._window(value, value, axis, (0, graph.shape_of(value)[axis]), own))
        function = self._function(call, made)
        self.steps.append(_Step(function, tuple(arguments), (call.var, number), call.name))

    def _function(self, call: graph.Call, made: Made) -> Any:
        key = call.callee, made.axis, made.rows
        if key not in self._functions:
            group: Any = self.cascades.bands(call.callee, made.axis)
            attributes = dict(self.module[call.callee].attrs.items())
            name = f"{call.callee}_rows_{made.rows[0]}_to_{made.rows[1]}"
            self._functions[key] = group.added(self.builder, name, made.rows, attributes)
        return self._functions[key]

    def _window(self, source: Any, value: Any, axis: int, there: Band, wanted: Band) -> Any:
        """Some of the rows of what is there."""
        if there == wanted:
            return source
        made = (source, axis, wanted)
        if made not in self._windows:
            shape = banded_shape(graph.shape_of(value), axis, there)
            kind = TensorType(shape, graph.dtype_of(value))
            given = [np.array([each]) for each in (wanted[0] - there[0], wanted[1] - there[0], axis)]
            kernel = operator_kernel("Slice", [kind, *given], {})
            function = added_movement(self.builder, kernel, value)
            self.steps.append(_Step(function, (source,), made, str(value.name)))
            self._windows.add(made)
        return made


def added_join(builder: Any, value: Any, axis: int, rows: Sequence[Band]) -> Any:
    """A group that makes a whole of bands, whose rows at the edges are there twice."""
    shape = graph.shape_of(value)
    dtype = graph.dtype_of(value)
    parts = [te.placeholder(banded_shape(shape, axis, own), dtype, f"band{n}") for n, own in enumerate(rows)]

    def element(*index: Any) -> Any:
        found = None
        for part_, (first, last) in reversed(list(zip(parts, rows, strict=True))):
            there = part_(*index[:axis], index[axis] - first, *index[axis + 1 :])
            found = there if found is None else tirx.if_then_else(index[axis] < last, there, found)
        return found

    func = te.create_prim_func([*parts, te.compute(shape, element, "joined")])
    attributes = {
        "tirx.noalias": True,
        "tw.schedule": "movement",
        "tw.operator": JOIN_BANDS,
        BANDS: [axis, *(r[0] for r in rows)],
    }
    return added_movement(builder, func.with_attrs(attributes), value)
