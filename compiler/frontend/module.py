"""From calls to a Relax module: a function `main` that is one dataflow block of `R.call_tir`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.frontend.convolution_folding import fold_convolutions
from compiler.frontend.graph import Call, GraphBuilder, Recipe, Value
from compiler.operators import find

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]+")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME_LENGTH = 64


@dataclass(frozen=True)
class Emitted:
    module: Any
    constants: dict[str, np.ndarray]
    nodes: dict[str, tuple[str, ...]]
    recipes: dict[str, Recipe]  # by function of the module


def emit_module(graph: GraphBuilder, inputs: Sequence[Value], outputs: Sequence[Value]) -> Emitted:
    """The calls that ``outputs`` need. Parameters of `main` are the inputs, then the constants, in order of use."""
    from tvm import relax

    outputs = [_computed(graph, value, inputs) for value in outputs]
    calls = fold_convolutions(graph, _needed(graph.calls, outputs), outputs)
    constants = _constants([operand for call in calls for operand in call.operands] + list(outputs))
    block = relax.BlockBuilder()
    names = _Names()
    variables: dict[Value, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for value in inputs:
        variables[value] = relax.Var(names.fresh(value.name), _type(value))
    for value in constants:
        variables[value] = relax.Var(names.fresh(value.name), _type(value))
        if value.constant is not None:
            arrays[variables[value].name] = graph.types.convert(value.constant, value.dtype, value.name)
    emitter = _Emitter(block, variables, frozenset(outputs), names)
    with block.function("main", list(variables.values()), attrs={"num_input": len(inputs)}):
        with block.dataflow():
            functions: dict[Any, Any] = {}
            for call in calls:
                if call.function not in functions:
                    functions[call.function] = _added(block, call.function)
                emitter.emit(call, functions[call.function])
            results = [variables[value] for value in outputs]
        block.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    recipes = {str(functions[f].name_hint): graph.recipes[f] for f in functions if f in graph.recipes}
    return Emitted(block.get(), arrays, emitter.nodes, recipes)


def _computed(graph: GraphBuilder, value: Value, inputs: Sequence[Value]) -> Value:
    """An output that no call makes is copied: whoever runs `main` owns its outputs."""
    if value.constant is None and value not in inputs:
        return value
    copy = find("", "Identity")
    if copy is None:
        return value
    (result,) = graph.apply(copy, [value], {})
    result.name_once(value.name, value.element_type)
    return result


def _needed(calls: Sequence[Call], outputs: Iterable[Value]) -> list[Call]:
    wanted = set(outputs)
    needed = []
    for call in reversed(calls):
        if not wanted.isdisjoint(call.results):
            needed.append(call)
            wanted.update(call.operands)
    needed.reverse()
    return needed


def _constants(values: Iterable[Value]) -> list[Value]:
    return list(dict.fromkeys(value for value in values if value.constant is not None))


def _type(value: Value) -> Any:
    from tvm import relax

    return relax.TensorType(value.shape, value.dtype)


def _added(block: Any, function: Any) -> Any:
    """The function under a name of its operator; it is nobody's but `main`'s."""
    operator = str(function.attrs["tw.operator"]).rpartition("::")[2]
    return block.add_func(function.without_attr("global_symbol"), _snake_case(operator))


def _snake_case(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", _WORD_STARTS.sub("_", name)).lower()


class _Emitter:
    """Puts calls into the open dataflow block and remembers where each variable comes from."""

    def __init__(self, block: Any, variables: dict[Value, Any], outputs: frozenset[Value], names: _Names) -> None:
        self._block, self._variables, self._outputs, self._names = block, variables, outputs, names
        self.nodes: dict[str, tuple[str, ...]] = {}

    def emit(self, call: Call, function: Any) -> None:
        from tvm import relax

        operands = [self._variables[value] for value in call.operands]
        types = [_type(value) for value in call.results]
        result = relax.call_tir(function, operands, types)
        if len(types) == 1:
            self._bind(call, call.results[0], result)
            return
        whole = self._block.emit(result, name_hint=self._names.fresh(f"{call.results[0].name}_all"))
        self.nodes[whole.name] = call.nodes
        for at, value in enumerate(call.results):
            self._bind(call, value, relax.TupleGetItem(whole, at))

    def _bind(self, call: Call, value: Value, expression: Any) -> None:
        emit = self._block.emit_output if value in self._outputs else self._block.emit
        variable = emit(expression, name_hint=self._names.fresh(value.name))
        self._variables[value] = variable
        self.nodes[variable.name] = call.nodes


class _Names:
    """Identifiers made of ONNX's names, each used once."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        base = _NOT_IN_NAMES.sub("_", name)[:_NAME_LENGTH].strip("_") or "value"
        if not base[0].isalpha():
            base = f"v_{base}"
        while True:
            count = self._taken.get(base, 0)
            self._taken[base] = count + 1
            if not count:
                return base
            base = f"{base}_{count}"
