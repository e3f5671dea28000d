"""A model as two, one behind the other: for what comes first can be divided among clusters, and the rest cannot.

A detector picks its boxes out of those of all images, a host takes whole tensors: a call like that, and what needs its
results, keeps the model from being divided. So the calls before it become a model of their own, the *head*, whose
results the rest is given, the *tail*. Each has its own program, and is scheduled as if there were nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import ir, relax

from compiler import graph
from compiler.errors import Diagnostics, InvalidError, Problem
from compiler.frontend import Imported
from compiler.frontend import Port as ModelPort
from compiler.runtime.model import CompiledModel, HostSegment, Port, Segment
from compiler.schedule.cuts import Cuts
from compiler.schedule.manual import Manual
from compiler.schedule.noted import is_view
from compiler.schedule.storage import results_of
from compiler.target import Chip
from passes.graph.divide_batch import cut_values

_OWN = "tail"  # what the names of a tail's own buffers begin with


@dataclass(frozen=True)
class Ends:
    """The head has all inputs of the whole; of the tail's, the first are results of the head."""

    whole: Imported
    head: Imported
    tail: Imported
    first: tuple[str, ...]  # the calls of the tail that need none of its others


def ends_of(imported: Imported, chip: Chip, blocked: Collection[str] = ()) -> Ends | None:
    """A model whose head clusters can divide, as many as can; or, where it begins with what cannot be divided, whose
    tail they can. None where neither can be, or the whole. ``blocked`` are calls that cannot be.
    """
    body, cuts = graph.read(imported.module["main"]), Cuts(imported.module)
    inputs = body.params[: len(imported.inputs)]
    extents = {port.shape[0] for port in imported.inputs if port.shape}
    for clusters in range(chip.clusters, 1, -1):
        if not any(extent > 1 and extent % clusters == 0 for extent in extents):
            continue
        if not blocked and cut_values(body, inputs, cuts, clusters) is not None:
            return None
        bars = {call.name for call in body.calls if call.name in blocked or not _divides(call, cuts, clusters)}
        found = _largest(body, inputs, cuts, clusters, bars)
        if found is not None:
            return _cut(imported, body, found)
    return None


def cut(imported: Imported, first: Collection[str]) -> Ends | None:
    """A model whose tail is the calls of these names and what needs them; None where one end would be empty."""
    body = graph.read(imported.module["main"])
    behind = _with_followers(body, first)
    return _cut(imported, body, {call.name for call in body.calls} - behind) if behind.issuperset(first) else None


def ends_as_told(imported: Imported, manual: Manual) -> Ends:
    """As a schedule says."""
    tail, body = manual.tails[0], graph.read(imported.module["main"])
    names = {call.name for call in body.calls}
    problems = Diagnostics()
    for name in tail.calls:
        if name not in names:
            problems.add("TW2631", f"the model has no call {name}", tail.place)
    problems.raise_if_any(InvalidError)
    found = cut(imported, _with_members(imported.module, body, tail.calls, manual.pieces))
    if found is None:
        text = "a tail is some of the calls, and what needs their results: these are none, or all that are left"
        raise InvalidError(Problem("TW2632", text, tail.place))
    return found


def _with_members(module: Any, body: graph.Body, first: Collection[str], named: Collection[str]) -> set[str]:
    """Calls, and those that they share a kernel with: a schedule names the last one, and no other kernel reads them."""
    found = {name for name in first if name in named}
    for call in reversed(body.calls):
        readers = {reader and reader.name for reader in body.consumers.get(call.var, ())}
        if call.name not in named and not is_view(module, call) and readers and readers <= found:
            found.add(call.name)
    return found.union(first)


def tails_of(whole: Imported, models: Sequence[Imported]) -> list[tuple[str, ...]]:
    """Of models that one was cut into, but for the first: the first calls of it and of all behind it."""
    body, found, behind = graph.read(whole.module["main"]), list[tuple[str, ...]](), set[str]()
    for one in reversed(models[1:]):
        behind |= {call.name for call in graph.read(one.module["main"]).calls}
        found.append(_first(body, [call for call in body.calls if call.name in behind]))
    return found[::-1]


# ---- where to cut ------------------------------------------------------------------------------------------------


def _divides(call: graph.Call, cuts: Cuts, clusters: int) -> bool:
    """Whether a call can be cut, its results all along their first axes, or all along another one."""
    rank = min(len(kind.shape) for kind in call.types)
    alongs = (None, *((axis,) * len(call.types) for axis in range(rank)))
    return any(cuts.axes(call.callee, clusters, along) is not None for along in alongs)


def _largest(
    body: graph.Body, inputs: Sequence[Any], cuts: Cuts, clusters: int, bars: Collection[str]
) -> set[str] | None:
    """The calls of the head: as many of the first as can be divided together, or all before those last that can be."""
    names, constants = [call.name for call in body.calls], set(body.params).difference(inputs)

    def divides(some: Sequence[str]) -> bool:
        part = part_of(body, some)
        if part is None:
            return False
        given = [param for param in part.params if param not in constants]
        return cut_values(part, given, cuts, clusters) is not None

    behind, before = _with_followers(body, bars), _with_needed(body, bars)
    first = [name for name in names if name not in behind]
    most = _most(len(first), lambda count: divides(first[:count]))
    if most:
        return set(first[:most])
    last = [name for name in names if name not in before]
    most = _most(len(last), lambda count: divides(last[len(last) - count :]))
    return set(names).difference(last[len(last) - most :]) if most else None


def _most(count: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to ``count`` for which something holds that holds for all smaller ones, too."""
    low, high, tried = 0, count, count
    while low < high:
        low, high = (tried, high) if holds(tried) else (low, tried - 1)
        tried = (low + high + 1) // 2
    return low


def _with_followers(body: graph.Body, names: Collection[str]) -> set[str]:
    """Calls, and all that need their results."""
    found, made = set[str](), set[Any]()
    for call in body.calls:
        if call.name in names or not made.isdisjoint(call.arguments):
            found.add(call.name)
            made.update(value for value, _ in results_of(body, call))
    return found


def _with_needed(body: graph.Body, names: Collection[str]) -> set[str]:
    """Calls, and all whose results they need."""
    found, needed = set[str](), set[Any]()
    for call in reversed(body.calls):
        if call.name in names or any(value in needed for value, _ in results_of(body, call)):
            found.add(call.name)
            needed.update(call.arguments)
    return found


# ---- two models --------------------------------------------------------------------------------------------------


def part_of(body: graph.Body, names: Collection[str]) -> graph.Body | None:
    """Some of the calls, given what others make and the parameters that they read; None where nobody reads a result."""
    names, known, asked = set(names), set(body.params), set(body.results)
    calls = tuple(call for call in body.calls if call.name in names)
    variables = {call.var for call in calls}
    made = dict.fromkeys(value for call in calls for value, _ in results_of(body, call))
    read = dict.fromkeys(argument for call in calls for argument in call.arguments)
    wanted = {argument for call in body.calls if call.name not in names for argument in call.arguments}
    results = tuple(value for value in made if value in wanted or value in asked)
    given = (value for value in read if value not in made and value not in known)
    params = (*given, *(param for param in body.params if param in read))
    fields = {var: field for var, field in body.fields.items() if field[0] in variables}
    return graph.Body(params, calls, fields, results) if results else None


def _cut(imported: Imported, body: graph.Body, names: Collection[str]) -> Ends | None:
    """The model in two, the head of which is these calls."""
    head, tail = part_of(body, names), part_of(body, {call.name for call in body.calls}.difference(names))
    if head is None or tail is None:
        return None
    head = with_inputs(head, body.params[: len(imported.inputs)])
    return Ends(imported, end_of(imported, body, head), end_of(imported, body, tail), _first(body, tail.calls))


def with_inputs(part: graph.Body, inputs: Sequence[Any]) -> graph.Body:
    """The same with these as its first parameters, whether it needs them or not."""
    return replace(part, params=(*inputs, *(param for param in part.params if param not in inputs)))


def _first(body: graph.Body, calls: Sequence[graph.Call]) -> tuple[str, ...]:
    """Those of some calls that need none of the others."""
    made = {value for call in calls for value, _ in results_of(body, call)}
    return tuple(call.name for call in calls if made.isdisjoint(call.arguments))


def end_of(imported: Imported, body: graph.Body, part: graph.Body) -> Imported:
    """A part as a model of its own, whose inputs and outputs are called as its variables are."""
    constants = set(body.params[len(imported.inputs) :])
    inputs = [param for param in part.params if param not in constants]
    used, main = {call.callee for call in part.calls}, imported.module["main"]
    functions = {gv: function for gv, function in imported.module.functions.items() if gv.name_hint in used}
    builder = relax.BlockBuilder(ir.IRModule(functions))
    attributes = {**dict(main.attrs.items()), "num_input": len(inputs)}
    Cuts(imported.module).add_body(builder, "main", part, 1, {}, attributes)
    return model_of(imported, builder.get(), inputs, part)


def model_of(imported: Imported, module: Any, inputs: Sequence[Any], part: graph.Body) -> Imported:
    """A part, of which there is a module, with these of its parameters as inputs and the others as constants."""
    held = {str(param.name) for param in part.params if param not in inputs}
    return replace(
        imported,
        module=module,
        inputs=tuple(map(_port, inputs)),
        outputs=tuple(map(_port, part.results)),
        constants={name: array for name, array in imported.constants.items() if name in held},
    )


def _port(variable: Any) -> ModelPort:
    dtype = graph.dtype_of(variable)
    return ModelPort(str(variable.name), dtype, dtype, graph.shape_of(variable))


# ---- one model of all --------------------------------------------------------------------------------------------


def joined(whole: Imported, models: Sequence[CompiledModel]) -> CompiledModel:
    """The programs of all models that one was cut into, one behind the other; each is given what it needs of those
    before it.
    """
    (first, *others), made = models, dict[str, Port]()
    constants, segments, kernels = dict(first.constants), list(first.segments), list(first.kernels)
    made |= {port.name: port for port in (*first.inputs, *first.outputs)}
    held = {id(array): name for name, array in constants.items()}
    for number, model in enumerate(others, 1):
        names = {port.buffer: made[port.name].buffer for port in model.inputs}
        names |= {name: held[id(array)] for name, array in model.constants.items() if id(array) in held}
        named = _Names(f"{_OWN}{number}_", names)
        segments += [named.of_segment(segment) for segment in model.segments]
        constants |= {named.of(name): array for name, array in model.constants.items()}
        held |= {id(array): named.of(name) for name, array in model.constants.items()}
        made |= {port.name: named.of_port(port) for port in model.outputs}
        kernels += model.kernels
    results = graph.read(whole.module["main"]).results
    outputs = zip(results, whole.outputs, strict=True)
    return replace(
        first,
        segments=tuple(segments),
        inputs=tuple(map(_called, first.inputs, whole.inputs)),
        outputs=tuple(_called(made[str(value.name)], port) for value, port in outputs),
        constants=constants,
        kernels=tuple(kernels),
    )


@dataclass(frozen=True)
class _Names:
    """Of the buffers of a model that stands behind others: those that these have, too, and its own."""

    prefix: str
    known: Mapping[str, str]

    def of(self, name: str) -> str:
        return self.known.get(name, self.prefix + name)

    def of_port(self, port: Port) -> Port:
        return replace(port, buffer=self.of(port.buffer), count=self.of(port.count) if port.count else "")

    def of_segment(self, segment: Segment) -> Segment:
        if isinstance(segment, HostSegment):
            arguments, written = (tuple(map(self.of, each)) for each in (segment.arguments, segment.written))
            return replace(segment, arguments=arguments, written=written)
        buffers = tuple(replace(buffer, name=self.of(buffer.name)) for buffer in segment.program.buffers)
        return replace(segment, program=replace(segment.program, buffers=buffers))


def _called(port: Port, of: ModelPort) -> Port:
    return replace(port, name=of.name, onnx_dtype=of.onnx_dtype)
