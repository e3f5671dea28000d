"""From a checked model to calls of operators: one walk over the nodes, with everything known that can be known.

Shapes are static, so the walk evaluates: what is known it computes (`folding`), functions, branches and loops it
follows into (`control_flow`), and for the rest it calls declared operators (`graph`). Nothing needs rewriting first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from compiler.errors import (
    Diagnostics,
    InputError,
    InvalidError,
    LimitError,
    Place,
    Problem,
    TilewrightError,
    UnsupportedError,
)
from compiler.frontend import old_broadcast
from compiler.frontend.assigned_boxes import ASSIGNED
from compiler.frontend.attributes import plain_value
from compiler.frontend.combined_rows import COMBINED
from compiler.frontend.control_flow import CONTROL_FLOW
from compiler.frontend.decided_logic import DECIDED
from compiler.frontend.folding import fold
from compiler.frontend.gathered_grids import GRIDS
from compiler.frontend.gathered_rows import GATHERED
from compiler.frontend.graph import GraphBuilder, Value, type_like
from compiler.frontend.inner_axes import INNER_AXES, Rewrite
from compiler.frontend.joined_windows import WINDOWS
from compiler.frontend.known_indices import BY_INDICES, INDICES, check_known_indices
from compiler.frontend.left_products import LEFT
from compiler.frontend.load import Model
from compiler.frontend.naming import described, node_name, operator_name, quoted
from compiler.frontend.ordering import needed_nodes
from compiler.frontend.padded_maps import PADDED
from compiler.frontend.plain_windows import PLAIN
from compiler.frontend.quantised_sums import QUANTISED, note_dequantised
from compiler.frontend.scattered_columns import SCATTERED_COLUMNS
from compiler.frontend.scattered_rows import SCATTERED
from compiler.frontend.schema import Schema, schema_of
from compiler.frontend.schema_functions import function_body
from compiler.frontend.scope import UNKNOWN, Item, Scope, Site, Unknown
from compiler.frontend.static_operators import STATIC_OPERATORS
from compiler.frontend.structure import domain_of, function_key
from compiler.frontend.tensors import to_array, type_name
from compiler.frontend.types import Types, kind_of, onnx_type
from compiler.frontend.whole_numbers import WholeNumbers
from compiler.frontend.wrapped_integers import WRAPPED
from compiler.operators import Declared, find, refusals

# Of nodes of ONNX with one result, by operator: the first one that has something to say counts.
_REWRITES: dict[str, list[Rewrite]] = {}
for _rewrites in (
    QUANTISED, INNER_AXES, ASSIGNED, COMBINED, DECIDED, GATHERED, GRIDS, LEFT, PADDED, PLAIN, SCATTERED,
    SCATTERED_COLUMNS, WINDOWS, WRAPPED,
):  # fmt: skip
    for _operator, _rewrite in _rewrites.items():
        _REWRITES.setdefault(_operator, []).append(_rewrite)
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")
# Of ONNX's first years: hints for whoever runs the model, and that it is not trained, which is so for all.
_IGNORED_ATTRIBUTES = ("consumed_inputs", "is_test")
# The inputs that are there to say the type of the result.
_TYPE_INPUTS = {"CastLike": 1, "QuantizeLinear": 2}
_DECLARE_IT = "declare it with @operator or @composition, and load the file: --ops FILE, or ops= in Python"
_HINTS = {
    "com.microsoft.nchwc": "onnxruntime writes it for one processor: let it optimise up to ORT_ENABLE_EXTENDED only",
    "ai.onnx.ml::ZipMap": "it makes dictionaries: convert the model without, which skl2onnx does with zipmap=False",
}
_SHOWN_NODES = 3


class Importer:
    """Walks the graphs of one model; `problems` are those of all nodes, and what depends on one of them is left out."""

    def __init__(self, model: Model, types: Types) -> None:
        self.model, self.types, self.limits = model, types, model.limits
        self.graph = GraphBuilder(types, model.limits)
        self._whole_numbers = WholeNumbers(self.graph)
        self._place = Place(model.file)
        self._problems: dict[type[TilewrightError], list[Problem]] = {}
        self._unsupported: dict[str, list[str]] = {}
        self._visited = 0
        self._functions = 0
        self._branches: list[tuple[Value, bool]] = []  # around a node, and what the condition is where they are taken

    def run(
        self, inputs: Mapping[str, tuple[tuple[int, ...], int]], values: Mapping[str, np.ndarray]
    ) -> tuple[list[Value], list[Value]]:
        """The main graph: the Values of its inputs and outputs.

        ``inputs`` are shape and ONNX element type by name, ``values`` the other inputs, whose elements are known.
        """
        proto = self.model.proto.graph
        scope = Scope(self.model.structure.opsets)
        given = [self.graph.input(name, shape, kind) for name, (shape, kind) in inputs.items()]
        scope.names.update((value.name, value) for value in given)
        scope.names.update((name, self.graph.constant(array, name)) for name, array in values.items())
        scope.names.update((name, self.graph.constant(array, name)) for name, array in self.model.initializers.items())
        results = self.evaluate(proto, scope, [info.name for info in proto.output], sparse=proto.sparse_initializer)
        self._raise_problems()
        outputs = []
        for info, result in zip(proto.output, results, strict=True):
            if not isinstance(result, Value):
                text = f"output {quoted(info.name)} is a sequence or an optional; only tensors can be outputs"
                raise UnsupportedError(Problem("TW2031", text, self._place))
            self._check_declared(info, result)
            outputs.append(result)
        return given, outputs

    def _check_declared(self, info: onnx.ValueInfoProto, result: Value) -> None:
        """A float of another width is cast; a number of another kind would be another number."""
        declared = info.type.tensor_type.elem_type
        if declared and kind_of(declared) != kind_of(result.element_type):
            is_so, said = type_name(result.element_type), type_name(declared)
            text = f"output {quoted(info.name)} is declared {said}, but is {is_so}"
            hint = "`onnx.checker.check_model(..., full_check=True)` finds the same"
            raise InvalidError(Problem("TW2029", text, self._place, hint))

    def evaluate(
        self,
        graph: onnx.GraphProto | onnx.FunctionProto,
        scope: Scope,
        outputs: Sequence[str],
        sparse: Iterable[onnx.SparseTensorProto] = (),
    ) -> list[Item]:
        """Follow the nodes that ``outputs`` need, in a scope that holds the inputs, and answer the outputs."""
        for tensor in sparse:
            text = f"initializer {quoted(tensor.values.name)} is sparse, which is not supported"
            raise UnsupportedError(Problem("TW2031", text, self._place, "save it as a dense tensor"))
        for at in needed_nodes(graph, set(outputs)):
            node = graph.node[at]
            self._visited += 1
            self._check_work(node)
            scope.names.update(zip(node.output, self._visit(node, scope), strict=False))
        return [scope.find(name) for name in outputs]

    def _check_work(self, node: onnx.NodeProto) -> None:
        text = ""
        if self._visited > self.limits.expanded_nodes:
            text = f"functions and loops expand to more nodes than the limit of {self.limits.expanded_nodes}"
        elif max(len(node.input), len(node.output)) > self.limits.node_arity:
            text = f"{len(node.input)} inputs and {len(node.output)} outputs, limit {self.limits.node_arity}"
        if text:
            raise LimitError(Problem("TW2033", f"{described(node)}: {text}", self._place))

    def evaluate_subgraph(self, site: Site, graph: onnx.GraphProto, inputs: Sequence[Item], part: str) -> list[Item]:
        """A graph inside a node, whose inputs are ``inputs``, and which sees the names around the node."""
        if len(inputs) != len(graph.input):
            text = f"graph {part!r} has {len(graph.input)} inputs, but {len(inputs)} are passed"
            raise InvalidError(Problem("TW2029", text))
        scope = site.scope.inner()
        scope.names.update((info.name, item) for info, item in zip(graph.input, inputs, strict=True))
        for tensor in graph.initializer:
            array = to_array(tensor, f"initializer {quoted(tensor.name)}", self.limits, None)
            scope.names[tensor.name] = self.graph.constant(array, tensor.name)
        return self.evaluate(graph, scope, [info.name for info in graph.output], sparse=graph.sparse_initializer)

    @contextmanager
    def only_if(self, condition: Value, when: bool) -> Iterator[None]:
        """What is evaluated inside counts only if the condition turns out so, but is computed whatever it is."""
        self._branches.append((condition, when))
        try:
            yield
        finally:
            self._branches.pop()

    def _visit(self, node: onnx.NodeProto, scope: Scope) -> Sequence[Item]:
        """The outputs of a node; Unknown ones, and a problem noted, where it has none."""
        inputs = tuple(scope.find(name) if name else None for name in node.input)
        try:
            with self.graph.inside(node_name(node)):
                if any(isinstance(item, Unknown) for item in inputs):
                    self._note_unsupported(node)
                    return [UNKNOWN] * len(node.output)
                results = list(self._results(node, scope, inputs))
        except LimitError as error:
            if all(problem.place for problem in error.problems):
                raise  # a node inside this one has put its name to it
            raise LimitError(self._placed(node, error)) from error
        except TilewrightError as error:
            self._problems.setdefault(type(error), []).extend(self._placed(node, error))
            return [UNKNOWN] * len(node.output)
        return results + [UNKNOWN] * (len(node.output) - len(results))

    def _results(self, node: onnx.NodeProto, scope: Scope, inputs: tuple[Item, ...]) -> Sequence[Item]:
        attributes = scope.resolved(node)
        if (function := self.model.structure.functions.get(function_key(node))) is not None:
            return self._function(function, inputs, attributes, scope.opsets)
        domain, opset = domain_of(node.domain), scope.opsets[domain_of(node.domain)]
        declared = find(domain, node.op_type)
        schema = schema_of(domain, node.op_type, opset)
        if schema is not None:
            _raise_each(schema.wrong_node(_with_attributes(node, attributes)))
        site = Site(node, scope, inputs, {a.name: self._plain(a) for a in attributes})
        if not domain and node.op_type in CONTROL_FLOW:
            return CONTROL_FLOW[node.op_type](self, site)
        if not domain and node.op_type in STATIC_OPERATORS:
            return STATIC_OPERATORS[node.op_type](self.graph, site)
        if any(item is not None and not isinstance(item, Value) for item in inputs):
            return self._expanded(node, site, opset)
        types = [value.element_type if value is not None else None for value in site.values]
        bound: dict[str, str] = {}
        if schema is not None:
            bound, wrong = schema.bind_types(types)
            _raise_each(wrong)
        if not domain and opset <= old_broadcast.LAST_OPSET:
            site = old_broadcast.broadcast_as_now(self.graph, site)
        results = self._tensor_results(node, site, declared, schema, opset)
        if results is None:
            return self._expanded(node, site, opset)
        for position, (name, result) in enumerate(zip(node.output, results, strict=False)):
            known = None if schema is None else schema.output_type(position, bound, site.attributes)
            if schema is None and result.dtype == self.types.wide and result.element_type not in types:
                known = type_like(result, site.values)
            result.name_once(name, known)
        return results

    def _tensor_results(
        self, node: onnx.NodeProto, site: Site, declared: Declared | None, schema: Schema | None, opset: int
    ) -> Sequence[Value] | None:
        """A node from tensors to tensors: computed now, or called; None when nothing is declared for it."""
        values = self._with_safe_indices(node, site.values)
        if not node.domain and (folded := self._folded(node, site, values, opset)) is not None:
            known = [self.graph.constant(array, name) for array, name in zip(folded, node.output, strict=True)]
            note_dequantised(self.graph, node.op_type, values, site.attributes, known[0])
            return known
        if declared is None:
            return None
        position = _TYPE_INPUTS.get(node.op_type, len(values))
        given = values[position] if position < len(values) else None
        if given is not None and node.domain in ("", "com.microsoft"):
            self.types.computed(given.element_type, self.graph.origin)
        self._check_setup_values(declared, values)
        if not node.domain:
            check_known_indices(node.op_type, values, site.attributes)
        attributes = self._compiled_attributes(declared, schema, site.attributes)
        if node.op_type == "Split" and not node.domain:
            _raise_each(_complete_split(node, values, attributes))

        def apply(operator: Declared, given: Sequence[Value | None]) -> Sequence[Value]:
            return self.graph.apply(operator, given, attributes, opset=opset, outputs=len(node.output))

        wide = None if node.domain else self._whole_numbers.results(node.op_type, values, site.attributes, apply)
        if wide is not None:
            return wide
        if not node.domain and len(node.output) == 1:
            for rewrite in _REWRITES.get(node.op_type, ()):
                if (result := rewrite(self.graph, values, attributes)) is not None:
                    return [result]
        results = apply(declared, values)
        if schema is None and len(results) < len(node.output):  # of ONNX's operators its schema says how many
            raise refusals.missing_outputs(len(node.output), len(results))
        return results

    def _folded(
        self, node: onnx.NodeProto, site: Site, values: Sequence[Value | None], opset: int
    ) -> tuple[np.ndarray[Any, Any], ...] | None:
        """The outputs of a node of which all that counts is known: of what only says a type, that is its type."""
        operator, attributes = node.op_type, site.attributes
        if operator == "CastLike" and len(values) == 2 and values[1] is not None:
            operator, attributes, values = "Cast", {**attributes, "to": values[1].element_type}, values[:1]
        arrays = [None if value is None else value.constant for value in values]
        if any(value is not None and value.constant is None for value in values):
            return None
        return fold(operator, opset, arrays, attributes, len(node.output), self.limits)

    def _with_safe_indices(self, node: onnx.NodeProto, values: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
        """The operands, with the first element for what a branch that is not taken would pick: it may be nowhere."""
        indices = values[INDICES] if not node.domain and node.op_type in BY_INDICES and len(values) > INDICES else None
        if indices is None or indices.constant is not None or not self._branches:
            return values
        first = np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(indices.element_type))
        for condition, when in self._branches:
            indices = self.graph.call("Where", condition, *((indices, first) if when else (first, indices)))
        return (*values[:INDICES], indices, *values[INDICES + 1 :])

    def _check_setup_values(self, declared: Declared, values: Sequence[Value | None]) -> None:
        for position, value in enumerate(values):
            parameter = declared.signature.input_at(position)
            if value is None or value.constant is None or parameter is None or parameter.kind != "constant":
                continue
            if value.constant.size > self.limits.setup_elements:
                text = f"input {parameter.name!r} has {value.constant.size} elements"
                raise LimitError(Problem("TW2033", f"{text}, limit {self.limits.setup_elements}"))

    def _compiled_attributes(
        self, declared: Declared, schema: Schema | None, attributes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Attributes as operators take them: element types are the compiled ones, and what says nothing is left out."""
        inputs = {parameter.name for parameter in declared.signature.inputs}
        compiled = {}
        for name, value in attributes.items():
            if name not in declared.signature.attributes and name not in inputs:
                default = schema.defaults.get(name) if schema is not None else None
                if name in _IGNORED_ATTRIBUTES or (default is not None and plain_value(default) == value):
                    continue
            if name in _TYPE_ATTRIBUTES and isinstance(value, int) and value:
                value = onnx_type(self.types.computed(value, self.graph.origin))
            compiled[name] = value
        return compiled

    def _expanded(self, node: onnx.NodeProto, site: Site, opset: int) -> Sequence[Item]:
        """A node that no operator is declared for, by the function with which ONNX itself defines it."""
        types = [(value.element_type, value.shape) if value is not None else None for value in site.values]
        attributes = site.scope.resolved(node)
        body = function_body(_with_attributes(node, attributes), domain_of(node.domain), opset, types)
        if body is None:
            self._note_unsupported(node)
            return [UNKNOWN] * len(node.output)
        # Such a function may leave out the imports; a model of another domain need not import ONNX's own.
        opsets = {"": self.limits.opset[1], **site.scope.opsets}
        return self._function(body, site.inputs, attributes, opsets)

    def _function(
        self,
        function: onnx.FunctionProto,
        inputs: tuple[Item, ...],
        attributes: Sequence[onnx.AttributeProto],
        outer: Mapping[str, int],
    ) -> list[Item]:
        if len(inputs) > len(function.input):
            text = f"{len(inputs)} inputs, but the function takes {len(function.input)}"
            raise InvalidError(Problem("TW2029", text))
        if self._functions >= self.limits.function_depth:
            raise LimitError(Problem("TW2033", "functions call each other too deeply"))
        opsets = {**outer, **{domain_of(entry.domain): entry.version for entry in function.opset_import}}
        given = {attribute.name: attribute for attribute in (*function.attribute_proto, *attributes)}
        scope = Scope(opsets, attributes=given)
        padded = [*inputs, *([None] * (len(function.input) - len(inputs)))]
        for name, item in zip(function.input, padded, strict=True):
            scope.names[name] = item
        self._functions += 1
        try:
            return self.evaluate(function, scope, list(function.output))
        finally:
            self._functions -= 1

    def _plain(self, attribute: onnx.AttributeProto) -> Any:
        value = plain_value(attribute)
        if isinstance(value, onnx.TensorProto):
            return to_array(value, f"attribute {quoted(attribute.name)}", self.limits, None)
        return value

    def _note_unsupported(self, node: onnx.NodeProto) -> None:
        """Note an operator that nobody knows, once for all of its nodes."""
        domain = domain_of(node.domain)
        if find(domain, node.op_type) or function_key(node) in self.model.structure.functions:
            return
        if not domain and (node.op_type in CONTROL_FLOW or node.op_type in STATIC_OPERATORS):
            return
        self._unsupported.setdefault(operator_name(node), []).append(self.graph.origin)

    def _placed(self, node: onnx.NodeProto, error: TilewrightError) -> list[Problem]:
        text = described(node)
        return [Problem(p.code, f"{text}: {p.message}", p.place or self._place, p.hint) for p in error.problems]

    def _raise_problems(self) -> None:
        for operator, nodes in sorted(self._unsupported.items()):
            names = ", ".join(map(quoted, nodes[:_SHOWN_NODES]))
            more = f" and {len(nodes) - _SHOWN_NODES} more" if len(nodes) > _SHOWN_NODES else ""
            text = f"operator {quoted(operator)} is not supported (nodes {names}{more})"
            hint = _HINTS.get(operator) or _HINTS.get(operator.partition("::")[0], _DECLARE_IT)
            problem = Problem("TW2030", text, self._place, hint)
            self._problems.setdefault(UnsupportedError, []).append(problem)
        # What is wrong is told before what is missing here: the second may follow from the first.
        for kind in sorted(self._problems, key=lambda k: (k is not InputError, k is not InvalidError, k.exit_code)):
            found = Diagnostics([p for problems in self._problems.values() for p in problems])
            found.raise_if_any(kind)


def _raise_each(texts: Sequence[str]) -> None:
    if texts:
        raise InvalidError([Problem("TW2032", text) for text in texts])


def _complete_split(node: onnx.NodeProto, values: Sequence[Value | None], attributes: dict[str, Any]) -> list[str]:
    """Say how many parts there are, which before operator set 18 only the outputs do; answer what is wrong."""
    if "split" in attributes or any(value is not None for value in values[1:]):
        return []  # the node says how long each is
    data, parts = values[0], len(node.output)
    if "num_outputs" in attributes:
        return [] if attributes["num_outputs"] == parts else [f"num_outputs must be {parts}, the number of outputs"]
    attributes["num_outputs"] = parts
    axis = attributes.get("axis", 0)
    if data is not None and -len(data.shape) <= axis < len(data.shape) and data.shape[axis] % parts:
        return [f"an axis of {data.shape[axis]} elements has no {parts} equal parts"]
    return []


def _with_attributes(node: onnx.NodeProto, attributes: Sequence[onnx.AttributeProto]) -> onnx.NodeProto:
    """The node as it is called, where some of its attributes were references."""
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(attributes)
    return copy
