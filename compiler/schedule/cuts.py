"""Which calls of a graph can be cut into how many pieces, and the functions that do one piece of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, relax, tirx

from compiler import graph
from compiler.schedule.pieces import (
    Along,
    Axes,
    Proof,
    cut_axis,
    in_pieces,
    only_cut,
    piece_shape,
    piece_type,
    proven,
)
from compiler.schedule.storage import results_of


class Cuts:
    """Answers for the functions of one module; each is asked once."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self._proofs: dict[tuple[str, int, Along], Proof | None] = {}
        self._axes: dict[tuple[str, int, Along], Axes | None] = {}

    def counts(self, call: graph.Call, candidates: Sequence[int], own: frozenset[Any]) -> list[int]:
        """The candidates in which a call can be cut, and one. ``own`` is there as a whole whenever it is read."""
        found = []
        for count in sorted(candidates, reverse=True):
            inputs = self.inputs(call.callee, count)
            if inputs is not None and all(cut or a in own for a, cut in zip(call.arguments, inputs, strict=True)):
                found.append(count)
        return [1, *reversed(found)]

    def inputs(self, callee: str, count: int) -> tuple[bool, ...] | None:
        """Which inputs a function is given contiguous pieces of; None where it cannot be cut so."""
        axes = self.axes(callee, count)
        if axes is None:
            return None
        shapes = [graph.shape_of(param) for param, _ in zip(self.module[callee].params, axes, strict=False)]
        if any(axis not in (None, cut_axis(shape)) for shape, axis in zip(shapes, axes, strict=True)):
            return None
        return tuple(axis is not None for axis in axes)

    def axes(self, callee: str, count: int, along: Along = None) -> Axes | None:
        """How inputs of a function are cut where its results are along these axes, or the first one of each; None where
        it cannot be cut so.
        """
        key = callee, count, along
        if key not in self._axes:
            function = self.module[callee]
            if isinstance(function, tirx.PrimFunc):
                proof = self._proof(callee, count, along)
                self._axes[key] = proof.inputs if proof is not None else None
            else:
                body = graph.read(function)
                found = self.body_axes(body, count, _wanted(body, along))
                self._axes[key] = None if found is None else tuple(found.get(param) for param in body.params)
        return self._axes[key]

    def body_axes(self, body: graph.Body, count: int, results: Mapping[Any, int | None]) -> dict[Any, int] | None:
        """By variable of a body: the axis along which it is cut; those that are not there are whole.

        From its results back to its parameters: all that reads a variable has to be given it cut in the same way.
        """
        found: dict[Any, int | None] = {
            value: cut_axis(graph.shape_of(value)) if axis is None else axis for value, axis in results.items()
        }
        for call in reversed(body.calls):
            made = results_of(body, call)
            if any(found.get(value) is not None for value, _ in made):  # what nobody reads is cut as the others are
                for (value, _), axis in zip(made, self._unread(call), strict=True):
                    found.setdefault(value, axis)
            inputs = self._inputs_for(call, count, [found.get(value) for value, _ in made])
            if inputs is None:
                return None
            if any(found.setdefault(a, axis) != axis for a, axis in zip(call.arguments, inputs, strict=True)):
                return None
        given = ((graph.shape_of(param), found[param]) for param in body.params if found.get(param) is not None)
        if any(piece_shape(shape, count, axis) is None for shape, axis in given):  # results that no call makes
            return None
        return {value: axis for value, axis in found.items() if axis is not None}

    def _inputs_for(self, call: graph.Call, count: int, wanted: Sequence[int | None]) -> Axes | None:
        """How a call's inputs are cut where its results are wanted so."""
        if all(axis is None for axis in wanted):
            return (None,) * len(call.arguments)
        return None if None in wanted else self.axes(call.callee, count, _along(call, wanted))

    def _unread(self, call: graph.Call) -> Axes:
        """How each result of a call is cut that nobody reads, where others are."""
        function = self.module[call.callee]
        if isinstance(function, relax.Function):
            (first, *others) = graph.read(function).calls
            if not others and first.types == call.types:
                return self._unread(first)
        elif (known := only_cut(function)) is not None:
            return known
        return tuple(cut_axis(graph.extents_of(kind)) for kind in call.types)

    def _proof(self, name: str, count: int, along: Along) -> Proof | None:
        """A proof for more pieces is one for a count that divides theirs: several of them are one."""
        key = name, count, along
        if key not in self._proofs:
            known = [(n, p) for (m, n, a), p in self._proofs.items() if (m, a) == (name, along) and n % count == 0]
            finer = next((p for _, p in known if p is not None), None)
            self._proofs[key] = finer.coarser(count) if finer else proven(self.module[name], count, along)
        return self._proofs[key]

    # ---- functions

    def added(self, builder: Any, callee: str, count: int, along: Along = None) -> Any:
        """The function that does one piece, in the module that the builder makes."""
        name = f"{callee}_of_{count}" + ("" if along is None else f"_along_{'_'.join(map(str, along))}")
        if name in {var.name_hint for var in builder.get().functions}:
            return builder.get().get_global_var(name)
        function = self.module[callee]
        if isinstance(function, tirx.PrimFunc):
            proof = self._proof(callee, count, along)
            if proof is None:
                raise ValueError(f"{callee} cannot be cut into {count} pieces")
            return builder.add_func(in_pieces(proof), name)
        return self._added_group(builder, name, function, count, along)

    def _added_group(self, builder: Any, name: str, group: Any, count: int, along: Along) -> Any:
        body = graph.read(group)
        cut = self.body_axes(body, count, _wanted(body, along)) or {}
        self.add_body(builder, name, body, count, cut, dict(group.attrs.items()), private=True)
        return builder.get().get_global_var(name)

    def add_body(
        self,
        builder: Any,
        name: str,
        body: graph.Body,
        count: int,
        cut: Mapping[Any, int],
        attrs: Mapping[str, Any],
        *,
        private: bool = False,
    ) -> None:
        """A function of the module that the builder makes: what a body does, for one piece."""
        functions = [self._function(builder, body, call, count, cut) for call in body.calls]

        def kind(value: Any, whole: Any) -> Any:
            return piece_type(whole, count, cut[value]) if value in cut else whole

        params = [relax.Var(str(param.name), kind(param, param.ty)) for param in body.params]
        made = dict(zip(body.params, params, strict=True))
        with builder.function(name, params, attrs=dict(attrs), private=private):
            with builder.dataflow():
                for call, function in zip(body.calls, functions, strict=True):
                    arguments = [made[argument] for argument in call.arguments]
                    if isinstance(builder.get()[function], relax.Function):
                        value = ir.Call(function, arguments)
                    else:
                        kinds = [kind(value, whole) for value, whole in results_of(body, call)]
                        value = relax.call_tir(function, arguments, kinds)
                    made[call.var] = builder.emit(value, call.name)
                    for var, (source, index) in body.fields.items():
                        if source.same_as(call.var):
                            made[var] = builder.emit(relax.TupleGetItem(made[call.var], index), str(var.name))
                results = [made[result] for result in body.results]
                output = builder.emit_output(relax.Tuple(results) if len(results) != 1 else results[0])
            builder.emit_func_output(output)

    def _function(self, builder: Any, body: graph.Body, call: graph.Call, count: int, cut: Mapping[Any, int]) -> Any:
        wanted = [cut.get(value) for value, _ in results_of(body, call)]
        if all(axis is None for axis in wanted):
            return builder.get().get_global_var(call.callee)
        return self.added(builder, call.callee, count, _along(call, wanted))


def _along(call: graph.Call, wanted: Sequence[int | None]) -> Along:
    """The axes of a call's results, as they are said: None where each is cut along its first one."""
    if list(wanted) == [cut_axis(graph.extents_of(kind)) for kind in call.types]:
        return None
    return tuple(axis for axis in wanted if axis is not None)


def _wanted(body: graph.Body, along: Along) -> dict[Any, int]:
    """By result of a body: the axis along which it is cut."""
    (first, *others), results = body.results, [(value, value.ty) for value in body.results]
    if not others and isinstance(first.ty, relax.TupleType):
        results = results_of(body, body.producer[first])
    axes = along or tuple(cut_axis(graph.extents_of(kind)) for _, kind in results)
    return {value: axis for (value, _), axis in zip(results, axes, strict=True)}
