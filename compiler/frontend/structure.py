"""Whether a model's graphs are graphs: every name made once and before it is used, no cycles, versions that exist.

Every walk here keeps its own stack or queue. What passes can be followed without looking back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx

from compiler.errors import Diagnostics, LimitError, Place, Problem, UnsupportedError
from compiler.frontend.attributes import graphs_of, wrong_attribute
from compiler.frontend.limits import Limits
from compiler.frontend.naming import described, quoted
from compiler.frontend.ordering import captured, sort_nodes
from compiler.frontend.tensors import check_dims

FunctionKey = tuple[str, str, str]  # domain, name, overload
_STANDARD = ("", "ai.onnx")


@dataclass
class Structure:
    """What a walk over the graphs has found out."""

    opsets: dict[str, int]
    functions: dict[FunctionKey, onnx.FunctionProto]
    notes: list[str] = field(default_factory=list)


def domain_of(name: str) -> str:
    return "" if name in _STANDARD else name


def function_key(node: onnx.NodeProto | onnx.FunctionProto) -> FunctionKey:
    name = node.op_type if isinstance(node, onnx.NodeProto) else node.name
    return domain_of(node.domain), name, node.overload


def check_structure(proto: onnx.ModelProto, limits: Limits, place: Place) -> Structure:
    """Raises for a model whose graphs cannot be followed; puts nodes that come too early into order."""
    found = Diagnostics()
    structure = Structure(_opsets(proto.opset_import, "the model", proto.ir_version, found, place), {})
    _check_versions(proto, structure.opsets, limits, place)
    if not proto.HasField("graph"):
        found.add("TW2020", "the model has no graph", place)
    for function in proto.functions:
        key = function_key(function)
        if key in structure.functions:
            found.add("TW2021", f"function {_shown(key)} is defined twice", place)
        structure.functions[key] = function
    _GraphCheck(structure, limits, place, found).run(proto)
    found.raise_if_any()
    _check_calls(structure, limits, place, found)
    found.raise_if_any()
    return structure


def _opsets(
    imports: Iterable[onnx.OperatorSetIdProto], what: str, ir_version: int, found: Diagnostics, place: Place
) -> dict[str, int]:
    versions: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            found.add("TW2022", f"{what} imports two versions of operator set {quoted(domain)}", place)
    if not versions and ir_version < 3:
        versions[""] = 1  # operator sets came with IR version 3
    return versions


def _check_versions(proto: onnx.ModelProto, opsets: dict[str, int], limits: Limits, place: Place) -> None:
    unsupported: list[Problem] = []
    low, high = limits.ir_version
    if not low <= proto.ir_version <= high:
        text = f"IR version {proto.ir_version} is outside {low} to {high}"
        unsupported.append(Problem("TW2023", text, place, "export the model for a version in this range"))
    low, high = limits.opset
    if "" in opsets and not low <= opsets[""] <= high:
        text = f"operator set version {opsets['']} is outside {low} to {high}"
        unsupported.append(Problem("TW2023", text, place, "export the model for a version in this range"))
    if unsupported:
        raise UnsupportedError(unsupported)


@dataclass
class _Scope:
    """A graph or function, the opsets its nodes are of, and the names that the graphs around it make."""

    what: str
    graph: onnx.GraphProto | onnx.FunctionProto
    opsets: dict[str, int]
    outer: frozenset[str] | set[str]
    in_function: bool


class _GraphCheck:
    def __init__(self, structure: Structure, limits: Limits, place: Place, found: Diagnostics) -> None:
        self.structure, self.limits, self.place, self.found = structure, limits, place, found

    def run(self, proto: onnx.ModelProto) -> None:
        waiting = [_Scope("the graph", proto.graph, self.structure.opsets, frozenset(), False)]
        for key, function in self.structure.functions.items():
            what = f"function {_shown(key)}"
            opsets = _opsets(function.opset_import, what, 3, self.found, self.place)
            waiting.append(_Scope(what, function, opsets or self.structure.opsets, frozenset(), True))
        waiting.reverse()
        while waiting:
            waiting += self._inner(waiting.pop())

    def _inner(self, scope: _Scope) -> list[_Scope]:
        """Check one graph; the graphs inside its nodes are still to be checked."""
        made = self._made(scope)
        for node in scope.graph.node:
            self._check_node(node, scope)
            for name in dict.fromkeys([*node.input, *captured(node)]):
                if name and name not in made and name not in scope.outer:
                    self._add("TW2024", f"{described(node)}: input {quoted(name)} is made by nothing")
        outputs = scope.graph.output
        for output in outputs:
            name = output if isinstance(output, str) else output.name
            if name not in made and name not in scope.outer:
                self._add("TW2024", f"{scope.what}: output {quoted(name)} is made by nothing")
        reordered, cycle = sort_nodes(scope.graph)
        if cycle:
            path = " -> ".join(quoted(name) for name in cycle)
            self._add("TW2025", f"{scope.what} has a cycle through the nodes {path}")
        elif reordered:
            self.structure.notes.append(f"{scope.what}: nodes that came before what they need were moved")
        outer = scope.outer | made if made else scope.outer
        return [
            _Scope(f"{described(node)}: graph {attribute}", graph, scope.opsets, outer, scope.in_function)
            for node in scope.graph.node
            for attribute, graph in graphs_of(node)
        ]

    def _made(self, scope: _Scope) -> set[str]:
        graph, made = scope.graph, set[str]()
        if isinstance(graph, onnx.GraphProto):
            constants = [tensor.name for tensor in graph.initializer]
            constants += [tensor.values.name for tensor in graph.sparse_initializer]
            self._once(constants, made, f"{scope.what}: initializer")
            inputs = [info.name for info in graph.input]
            for info in graph.input:
                self._check_info(info, scope.what)
            # An initializer may give an input's default.
            self._once([name for name in inputs if name not in made], made, f"{scope.what}: input")
            if len(set(inputs)) < len(inputs):
                self._add("TW2021", f"{scope.what}: two inputs have the same name")
        else:
            self._once(list(graph.input), made, f"{scope.what}: input")
        for node in graph.node:
            self._once([name for name in node.output if name], made, f"{described(node)}: output")
        return made

    def _once(self, names: list[str], made: set[str], what: str) -> None:
        for name in names:
            if not name:
                self._add("TW2021", f"{what} without a name")
            elif name in made:
                self._add("TW2021", f"{what} {quoted(name)} is made twice")
            made.add(name)

    def _check_info(self, info: onnx.ValueInfoProto, what: str) -> None:
        if info.type.HasField("tensor_type"):
            dims = [d.dim_value for d in info.type.tensor_type.shape.dim if d.HasField("dim_value")]
            if text := check_dims(dims, self.limits):
                self._add("TW2006", f"{what}: input {quoted(info.name)}: {text}")

    def _check_node(self, node: onnx.NodeProto, scope: _Scope) -> None:
        if not node.op_type:
            self._add("TW2026", f"{described(node)} has no operator")
        if domain_of(node.domain) not in scope.opsets:
            text = f"{described(node)}: {scope.what} imports no version of operator set {quoted(node.domain)}"
            hint = f"add it: onnx.helper.make_opsetid({node.domain!r}, 1); its operators may come from --ops FILE"
            self.found.add("TW2026", text, self.place, hint if node.domain else "")
        seen: set[str] = set()
        for attribute in node.attribute:
            if attribute.name in seen:
                self._add("TW2027", f"{described(node)}: attribute {quoted(attribute.name)} is given twice")
            seen.add(attribute.name)
            if text := wrong_attribute(attribute, in_function=scope.in_function):
                self._add("TW2027", f"{described(node)}: attribute {quoted(attribute.name)}: {text}")

    def _add(self, code: str, text: str) -> None:
        self.found.add(code, text, self.place)


def _check_calls(structure: Structure, limits: Limits, place: Place, found: Diagnostics) -> None:
    """Functions call each other without end in no model that means anything; how deep they may, ``limits`` says."""
    left = {key: _called(function, structure) for key, function in structure.functions.items()}
    resolved: set[FunctionKey] = set()
    for _ in range(limits.function_depth):
        ready = [key for key, called in left.items() if called <= resolved]
        if not ready:
            break
        resolved.update(ready)
        for key in ready:
            del left[key]
    else:
        if left:
            text = f"functions call each other more than {limits.function_depth} levels deep"
            raise LimitError(Problem("TW2028", text, place, "raise Limits.function_depth for a model you trust"))
    if left:
        names = ", ".join(sorted(map(_shown, left))[:5])
        found.add("TW2028", f"functions call themselves, directly or through others: {names}", place)


def _called(function: onnx.FunctionProto, structure: Structure) -> set[FunctionKey]:
    called: set[FunctionKey] = set()
    graphs: list[onnx.GraphProto | onnx.FunctionProto] = [function]
    while graphs:
        for node in graphs.pop().node:
            key = function_key(node)
            if key in structure.functions:
                called.add(key)
            graphs += [graph for _, graph in graphs_of(node)]
    return called


def _shown(key: FunctionKey) -> str:
    domain, name, overload = key
    return quoted("::".join(part for part in (domain, name) if part) + (f":{overload}" if overload else ""))
