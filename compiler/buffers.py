"""The tensors of a model's graph as named buffers: which of them share bytes, and what each kernel is called with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

from compiler import graph
from compiler.codegen.residence import GraphBuffer
from compiler.frontend import Imported
from compiler.isa.dtypes import DTYPES
from compiler.parts import MOVES, OF_CLUSTERS, Parts, band_of, cut_offset, is_join, joined_bands
from compiler.tir.scopes import ISA_DTYPE

VIEW, BETWEEN = "view", "intermediate"


class NotInPlace(ValueError):
    """What clusters read or write where it is, each elsewhere, has to be copied there."""


class Buffers:
    """Every tensor of the graph as a named buffer; views share the buffer of what they look at.

    Without ``parts`` no buffer lies in another one: joining and cutting are kernels.
    """

    def __init__(self, module: Any, imported: Imported, *, parts: bool = True) -> None:
        self.body = graph.read(module["main"])
        self.names: dict[Any, str] = {}
        self.declared: dict[str, GraphBuffer] = {}
        inputs, constants = self.body.params[: len(imported.inputs)], self.body.params[len(imported.inputs) :]
        for index, param in enumerate(inputs):
            self._declare(param, f"in{index}", "input")
        for index, param in enumerate(constants):
            self._declare(param, f"w{index}", "constant")
        self.counts: dict[int, str] = {}  # by output: the buffer that says how many of its rows count
        self.outputs: list[str] = []  # one value may be several outputs: they share its buffer
        for index, result in enumerate(self.body.results):
            written = self._written(module, result)
            if written not in self.names:
                self._declare(written, f"out{index}", "output", like=result)
                self._declare_count(module, index, result)
            self.outputs.append(self.names[written])
        count = 0
        for call in self.body.calls:
            source = self.viewed(module, call)
            if source is not None and call.var not in self.names:
                self.names[call.var] = self.names[source]
                continue
            for variable, kind in self._results(call):
                if variable not in self.names:
                    self._declare(variable, f"t{count}", BETWEEN, like_type=kind)
                    count += 1
        roles = {each.name: each.role for each in self.declared.values()}
        self.parts = Parts(
            {name: self.declared[name].size_bytes for name, role in roles.items() if role == BETWEEN},
            frozenset(name for name, role in roles.items() if role != BETWEEN),
            frozenset(name for name, role in roles.items() if role == "output"),
            self._seen(module),
        )
        self._in_place = self._placed(module) if parts else frozenset[Any]()

    def is_in_place(self, module: Any, call: graph.Call) -> bool:
        """Whether a call's result is there without a kernel: it is seen, or made, where it lies."""
        source = self.viewed(module, call)
        return call.var in self._in_place or (source is not None and self.names[source] == self.names[call.var])

    def _placed(self, module: Any) -> frozenset[Any]:
        """The results that need no kernel, once their buffers lie in one another."""
        found = set[Any]()
        for call in self.body.calls:
            callee = module[call.callee]
            if graph.attribute(callee, "tw.group") not in MOVES or len(call.types) != 1:
                continue
            inner = graph.read(callee)
            if len(inner.calls) != 1:
                continue
            given = dict(zip(inner.params, call.arguments, strict=True))
            arguments = [given[argument] for argument in inner.calls[0].arguments]
            function, name = module[inner.calls[0].callee], self.names[call.var]
            names = [self.names[argument] for argument in arguments]
            if self._lies_within(function, name, names):
                found.add(call.var)
            elif graph.attribute(function, OF_CLUSTERS) is not None:
                raise NotInPlace(f"{call.name} has to lie where it is on each cluster, and cannot")
        return frozenset(found)

    def _lies_within(self, function: Any, name: str, names: list[str]) -> bool:
        """Whether a result lies in what it is cut from, or what it is made of in the result."""
        itemsize = DTYPES[self.declared[name].dtype].itemsize
        bands = joined_bands(function)
        further = graph.attribute(function, OF_CLUSTERS)
        if further is not None:
            part = name if bands is None else names[0]
            self.parts.of_clusters[part] = tuple(int(elements) * itemsize for elements in further)
        if is_join(function):
            return self.parts.join(name, names)
        if bands is not None:
            return self.parts.join_bands(name, names, [n * itemsize for n in bands.first], bands.bands)
        offset = cut_offset(function, names)
        if offset is not None:
            return self.parts.cut(name, names[0], offset * itemsize)
        band = band_of(function)
        if band is None:
            return False
        return self.parts.cut_band(name, names[0], band.first[0] * itemsize, band.bands[0])

    def _seen(self, module: Any) -> dict[str, set[tuple[int, ...]]]:
        """All shapes of what is looked at under several."""
        found = dict[str, set[tuple[int, ...]]]()
        for call in self.body.calls:
            source = self.viewed(module, call)
            if source is not None:
                shapes = found.setdefault(self.names[source], set())
                shapes.update(graph.shape_of(value) for value in (source, call.var))
        return found

    def _written(self, module: Any, result: Any) -> Any:
        """What a kernel writes that is seen as ``result``: the first of its chain of views, if that is a kernel's."""
        value = result
        while (call := self.body.producer.get(value)) is not None:
            source = self.viewed(module, call)
            if source is None or source in self.names or source not in self.body.producer:
                return value
            value = source
        return value

    def _declare_count(self, module: Any, index: int, result: Any) -> None:
        """Operators whose number of results depends on data give the most there can be, and a count beside it."""
        call = self.body.producer.get(result)
        if call is None or len(call.types) == 1:
            return
        callee = module[call.callee]
        if graph.attribute(callee, "tw.group") is not None:
            callee = module[graph.read(callee).calls[-1].callee]
        position = graph.attribute(callee, "tw.valid_count")
        if position is not None:
            variable, kind = self._results(call)[int(position)]
            self._declare(variable, f"count{index}", "output", like_type=kind)
            self.counts[index] = f"count{index}"

    def viewed(self, module: Any, call: graph.Call) -> Any | None:
        if graph.attribute(module[call.callee], "tw.schedule") == VIEW and len(call.arguments) == 1:
            return call.arguments[0]
        return None

    def _results(self, call: graph.Call) -> list[tuple[Any, Any]]:
        if len(call.types) == 1:
            return [(call.var, call.types[0])]
        fields = {index: var for var, (source, index) in self.body.fields.items() if source.same_as(call.var)}
        return [(fields.get(index, (call.var, index)), kind) for index, kind in enumerate(call.types)]

    def _declare(self, value: Any, name: str, role: str, like: Any = None, like_type: Any = None) -> None:
        kind = like_type if like_type is not None else (like if like is not None else value).ty
        shape, dtype = graph.extents_of(kind), ISA_DTYPE[str(kind.dtype)]
        self.names[value] = name
        self.declared[name] = GraphBuffer(name, dtype, shape, prod(shape) * DTYPES[dtype].itemsize, role)

    def arguments(self, call: graph.Call) -> tuple[str, ...]:
        """The buffers of a call's PrimFunc: what it reads, then what it writes."""
        return (
            *(self.names[argument] for argument in call.arguments),
            *(self.names[variable] for variable, _ in self._results(call)),
        )

    def placed(self, names: Iterable[str]) -> list[GraphBuffer]:
        """The buffers of these names, and those that they lie in."""
        found = dict[str, GraphBuffer]()
        for name in names:
            outer, offset = self.parts.place(name)
            found[outer] = self.declared[outer]
            if outer != name:
                part, moves = self._part(self.declared[name]), self.parts.moves(name)
                found[name] = replace(part, whole=outer, offset=offset, of_clusters=moves)
        return list(found.values())

    def _part(self, buffer: GraphBuffer) -> GraphBuffer:
        """As large as it is from its first element to behind its last one."""
        band = self.parts.bands.get(buffer.name)
        if band is None:
            return buffer
        size = DTYPES[buffer.dtype].itemsize
        return replace(buffer, size_bytes=band.reach * size, run_bytes=band.run * size, period_bytes=band.period * size)

    def role(self, name: str) -> str:
        """Of what a buffer lies in, which may be itself."""
        return self.declared[self.parts.place(name)[0]].role

    def copy_of(self, name: str) -> str:
        """A buffer between kernels for a copy of a constant."""
        copy = f"u{len(self.declared)}"
        self.declared[copy] = replace(self.declared[name], name=copy, role=BETWEEN, copy_of=name)
        return copy

    def temporary(self, kind: Any) -> str:
        name = f"u{len(self.declared)}"
        self._declare(name, name, BETWEEN, like_type=kind)
        return name

    @contextmanager
    def on_trial(self) -> Iterator[None]:
        """Temporaries that are made within are gone behind it: names do not tell what else was tried."""
        kept = len(self.declared)
        yield
        for name in list(self.declared)[kept:]:
            del self.declared[name], self.names[name]
