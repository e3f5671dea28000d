"""Which calls of a graph can be cut into how many pieces, and the functions that do one piece of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx

from compiler import graph
from compiler.schedule.pieces import Proof, in_pieces, piece_type, proven


class Cuts:
    """Answers for the functions of one module; each is asked once."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self._proofs: dict[tuple[str, int], Proof | None] = {}
        self._inputs: dict[tuple[str, int], tuple[bool, ...] | None] = {}

    def counts(self, call: graph.Call, candidates: Sequence[int], own: frozenset[Any]) -> list[int]:
        """The candidates in which a call can be cut, and one. ``own`` is there as a whole whenever it is read."""
        found = []
        for count in sorted(candidates, reverse=True):
            inputs = self.inputs(call.callee, count)
            if inputs is not None and all(cut or a in own for a, cut in zip(call.arguments, inputs, strict=True)):
                found.append(count)
        return [1, *reversed(found)]

    def inputs(self, callee: str, count: int) -> tuple[bool, ...] | None:
        """Which inputs a function is given pieces of; None where it cannot be cut."""
        key = callee, count
        if key not in self._inputs:
            function = self.module[callee]
            if isinstance(function, tirx.PrimFunc):
                proof = self._proof(callee, count)
                self._inputs[key] = proof.inputs if proof is not None else None
            else:
                self._inputs[key] = self._inputs_of_group(function, count)
        return self._inputs[key]

    def _inputs_of_group(self, group: Any, count: int) -> tuple[bool, ...] | None:
        body = graph.read(group)
        given = dict[Any, bool]()  # what is known of parameters, and that all that is made here is in pieces
        for call in body.calls:
            inputs = self.inputs(call.callee, count)
            if inputs is None:
                return None
            if any(given.setdefault(a, cut) != cut for a, cut in zip(call.arguments, inputs, strict=True)):
                return None
            given.update((var, True) for var in (call.var, *(v for v, (s, _) in body.fields.items() if s == call.var)))
        return tuple(given.get(param, False) for param in body.params)

    def _proof(self, name: str, count: int) -> Proof | None:
        """A proof for more pieces is one for a count that divides theirs: several of them are one."""
        key = name, count
        if key not in self._proofs:
            finer = [p for (n, c), p in self._proofs.items() if n == name and p is not None and c % count == 0]
            self._proofs[key] = finer[0].coarser(count) if finer else proven(self.module[name], count)
        return self._proofs[key]

    # ---- functions

    def added(self, builder: Any, callee: str, count: int) -> Any:
        """The function that does one piece, in the module that the builder makes."""
        name = f"{callee}_of_{count}"
        if name in {var.name_hint for var in builder.get().functions}:
            return builder.get().get_global_var(name)
        function = self.module[callee]
        if isinstance(function, tirx.PrimFunc):
            proof = self._proof(callee, count)
            if proof is None:
                raise ValueError(f"{callee} cannot be cut into {count} pieces")
            return builder.add_func(in_pieces(proof), name)
        return self._added_group(builder, name, function, callee, count)

    def _added_group(self, builder: Any, name: str, group: Any, callee: str, count: int) -> Any:
        body, inputs = graph.read(group), self.inputs(callee, count) or ()
        functions = [self.added(builder, call.callee, count) for call in body.calls]
        params = [
            relax.Var(str(param.name), piece_type(param.ty, count) if cut else param.ty)
            for param, cut in zip(body.params, inputs, strict=True)
        ]
        made = dict(zip(body.params, params, strict=True))
        with builder.function(name, params, attrs=dict(group.attrs.items()), private=True):
            with builder.dataflow():
                for call, function in zip(body.calls, functions, strict=True):
                    types = [piece_type(kind, count) for kind in call.types]
                    value = relax.call_tir(function, [made[argument] for argument in call.arguments], types)
                    made[call.var] = builder.emit(value, call.name)
                    for var, (source, index) in body.fields.items():
                        if source.same_as(call.var):
                            made[var] = builder.emit(relax.TupleGetItem(made[call.var], index), str(var.name))
                output = builder.emit_output(made[body.results[0]])
            builder.emit_func_output(output)
        return builder.get().get_global_var(name)
