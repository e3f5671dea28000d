"""A part of a model that clusters run together, each on some rows of its images, as a model of its own.

    main(x, w): a = conv(x, w); b = conv(a, w)    ->    main(x, w): x' = rows of x; a = conv'(x', w); b' = conv'(a, w)
                                                                    b = copy of rows of b', in their place

Inputs and results lie in DDR as a whole. Each cluster copies its window of the former from where it is, and its part of
the latter to where it belongs (:mod:`compiler.schedule.spreads`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from tvm import ir, relax, te

from compiler import graph
from compiler.clusters import CLUSTERS, COMMON, ROWS
from compiler.ends import end_of, model_of, part_of, with_inputs
from compiler.frontend import Imported
from compiler.operators import TensorType
from compiler.parts import BANDS, JOIN_BANDS, OF_CLUSTERS
from compiler.schedule.manual import KEPT_ROWS
from compiler.schedule.movement import operator_kernel
from compiler.schedule.spreads import JOIN, VIEW, Section, Spread, Spreads

COPY = "tilewright::Copy"


def in_sections(imported: Imported, sections: Sequence[Section]) -> list[Imported] | None:
    """A model as several, one behind the other; those that clusters cannot run as they should are as ever. None where
    no other is left.
    """
    body, spreads, found = graph.read(imported.module["main"]), Spreads(imported.module, imported.recipes), list[Any]()
    # The first is given all that the model is, as whoever joins them expects.
    every = [_given(imported, body) if not at else () for at in range(len(sections))]
    spread = [
        section.clusters and _spread(imported, body, section, spreads, inputs)
        for section, inputs in zip(sections, every, strict=True)
    ]
    waiting = frozenset[str]()
    for section, model in zip(sections, spread, strict=True):
        if not model:
            waiting |= section.names
            continue
        found += [*_as_ever(imported, body, waiting, first=not found), model]
        waiting = frozenset()
    found += _as_ever(imported, body, waiting, first=not found)
    return found if any(spread) and None not in found else None


def _given(imported: Imported, body: graph.Body) -> tuple[Any, ...]:
    return body.params[: len(imported.inputs)]


def _as_ever(imported: Imported, body: graph.Body, names: Collection[str], *, first: bool) -> list[Imported | None]:
    part = part_of(body, names) if names else None
    if part is not None and first:
        part = with_inputs(part, _given(imported, body))
    return [] if not names else [None if part is None else end_of(imported, body, part)]


def _spread(
    imported: Imported, body: graph.Body, section: Section, spreads: Spreads, inputs: Sequence[Any]
) -> Imported | None:
    """Calls that clusters run each on some rows, given these inputs among others; None where they cannot."""
    names, clusters = section.names, section.clusters
    part = part_of(body, names)
    if part is None:
        return None
    constants = set(body.params[len(imported.inputs) :])
    spread = spreads.of(part, clusters)
    if spread is None or any(value in constants for _, value in spread.read):
        return None
    part = with_inputs(part, inputs)
    given = [param for param in part.params if param not in constants]
    held = [param for param in part.params if param in constants]
    builder = relax.BlockBuilder(ir.IRModule())
    emitter = _Emitter(builder, part, spread)
    emitter.emit([*given, *held], len(given))
    return replace(model_of(imported, builder.get(), given, part), recipes={})


class _Emitter:
    def __init__(self, builder: Any, part: graph.Body, spread: Spread) -> None:
        self.builder, self.part, self.spread = builder, part, spread
        self.made = dict[Any, Any]()
        self._windows = dict[Any, Any]()

    def emit(self, params: list[Any], inputs: int) -> None:
        functions = {
            call.var: self.builder.add_func(self.spread.functions[call.var], call.callee) for call in self.part.calls
        }
        cut = {value for _, value in self.spread.read}
        common = [number for number, param in enumerate(params) if param not in cut]
        attributes = {"num_input": inputs, CLUSTERS: self.spread.clusters, COMMON: common, ROWS: True}
        own = [relax.Var(str(param.name), param.ty) for param in params]
        with self.builder.function("main", own, attrs=attributes):
            with self.builder.dataflow():
                self.made.update(zip(params, own, strict=True))
                for call in self.part.calls:
                    shape = self.spread.made[call.var].of(graph.shape_of(call.var))
                    kind = relax.TensorType(shape, graph.dtype_of(call.var))
                    arguments = [self._read(call, argument) for argument in call.arguments]
                    self.made[call.var] = self.builder.emit(
                        relax.call_tir(functions[call.var], arguments, [kind]), call.name
                    )
                results = [self._result(value) for value in self.part.results]
                output = self.builder.emit_output(relax.Tuple(results) if len(results) != 1 else results[0])
            self.builder.emit_func_output(output)

    def _read(self, call: graph.Call, value: Any) -> Any:
        """What a call reads: all that there is, or a window of it."""
        window, made, source = self.spread.read.get((call.var, value)), self.spread.made.get(value), self.made[value]
        if window is None or window == made:
            return source
        function = self.spread.functions[call.var]
        dense = made is None or (
            graph.attribute(function, "tw.schedule") == VIEW or graph.attribute(function, "tw.operator") == JOIN
        )
        if (value, window, dense) not in self._windows:
            shape = graph.shape_of(value) if made is None else made.of(graph.shape_of(value))
            before = (0,) * len(window.starts) if made is None else made.starts
            starts = [start - first for start, first in zip(window.starts, before, strict=True)]
            found = self._cut(value, source, shape, window.rows, window.axis, starts)
            if dense:  # under another shape its rows are not evenly apart, nor do they lie where others are, too
                copied = window.of(graph.shape_of(value))
                found = self._call(_copy(copied, graph.dtype_of(value)), found, f"{call.name}_given")
            self._windows[value, window, dense] = found
        return self._windows[value, window, dense]

    def _result(self, value: Any) -> Any:
        """The rows of a result that are this cluster's, in the place where they belong."""
        window, shape = self.spread.made[value], graph.shape_of(value)
        axis, rows = window.axis, window.extent // self.spread.clusters
        first = [number * rows - start for number, start in enumerate(window.starts)]
        kept = self._cut(value, self.made[value], window.of(shape), rows, axis, first)
        own = (*shape[:axis], rows, *shape[axis + 1 :])
        copied = self._call(_copy(own, graph.dtype_of(value)), kept, f"{value.name}{KEPT_ROWS}")
        placed = _placed(shape, own, axis, graph.dtype_of(value), self.spread.clusters)
        return self._call(placed, copied, f"{value.name}_whole")

    def _cut(self, value: Any, source: Any, shape: tuple[int, ...], rows: int, axis: int, starts: Sequence[int]) -> Any:
        """Some rows, which begin at one of their own on each cluster."""
        kind = TensorType(shape, graph.dtype_of(value))
        kernel = operator_kernel("Slice", [kind, *(np.array([each]) for each in (0, rows, axis))], {})
        further = [start * prod(shape[axis + 1 :]) for start in starts]
        return self._call(kernel.with_attr(OF_CLUSTERS, further), source, f"{value.name}_window")

    def _call(self, function: Any, argument: Any, name: str) -> Any:
        added = self.builder.add_func(function.without_attr("global_symbol"), "rows")
        result = function.params[-1]
        kind = relax.TensorType([int(n) for n in result.shape], str(result.dtype))
        return self.builder.emit(relax.call_tir(added, [argument], [kind]), name)


def _copy(shape: tuple[int, ...], dtype: str) -> Any:
    given = te.placeholder(shape, dtype, "given")
    func = te.create_prim_func([given, te.compute(shape, lambda *index: given(*index), "copy")])
    return func.with_attrs({"tirx.noalias": True, "tw.schedule": "elementwise", "tw.operator": COPY})


def _placed(shape: tuple[int, ...], own: tuple[int, ...], axis: int, dtype: str, clusters: int) -> Any:
    """Where rows of a cluster lie in the whole; the rows of others are not there."""
    given = te.placeholder(own, dtype, "given")
    rows = own[axis]
    func = te.create_prim_func(
        [given, te.compute(shape, lambda *i: given(*i[:axis], i[axis] % rows, *i[axis + 1 :]), "placed")]
    )
    attributes = {
        "tirx.noalias": True,
        "tw.schedule": "movement",
        "tw.operator": JOIN_BANDS,
        BANDS: [axis, 0],
        OF_CLUSTERS: [number * rows * prod(shape[axis + 1 :]) for number in range(clusters)],
    }
    return func.with_attrs(attributes)
