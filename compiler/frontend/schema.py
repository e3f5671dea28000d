"""A node against ONNX's own description of its operator: attributes, numbers of inputs and outputs, element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import onnx
from onnx import AttributeProto, TensorProto, defs

from compiler.frontend.attributes import kind_name, kind_of
from compiler.frontend.naming import quoted
from compiler.frontend.tensors import type_name


@dataclass(frozen=True)
class Formal:
    """One input or output: its name, the types it may have, and what else must have the same."""

    name: str
    types: frozenset[str]
    variable: str
    optional: bool
    variadic: bool
    homogeneous: bool


@dataclass(frozen=True)
class Schema:
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    attributes: Mapping[str, int]
    required: frozenset[str]
    defaults: Mapping[str, AttributeProto]

    def wrong_node(self, node: onnx.NodeProto) -> list[str]:
        """What is wrong with the node whatever its inputs are."""
        found: list[str] = []
        for attribute in node.attribute:
            expected = self.attributes.get(attribute.name)
            if expected is None:
                known = f"; known: {', '.join(sorted(self.attributes))}" if self.attributes else "; it has none"
                found.append(f"unknown attribute {quoted(attribute.name)}{known}")
            elif kind_of(attribute) != expected:
                kinds = f"{kind_name(expected)}, not {kind_name(kind_of(attribute))}"
                found.append(f"attribute {quoted(attribute.name)} must be of kind {kinds}")
        given = {attribute.name for attribute in node.attribute}
        found += [f"attribute {quoted(name)} is required" for name in sorted(self.required - given)]
        for what, names, low, high in (
            ("input", node.input, self.min_inputs, self.max_inputs),
            ("output", node.output, self.min_outputs, self.max_outputs),
        ):
            if not low <= len(names) <= high:
                allowed = str(low) if low == high else f"{low} to {high}" if high < 1 << 30 else f"at least {low}"
                found.append(f"{len(names)} {what}s, but it takes {allowed}")
        for formal, name in zip(self.inputs, node.input, strict=False):
            if not name and not formal.optional and not formal.variadic:
                found.append(f"input {formal.name!r} is required")
        return found

    def bind_types(self, types: Sequence[int | None]) -> tuple[dict[str, str], list[str]]:
        """What each type variable stands for, given the inputs' element types; None where one is unknown or absent."""
        bound: dict[str, str] = {}
        found: list[str] = []
        for position, element_type in enumerate(types):
            formal = self.inputs[min(position, len(self.inputs) - 1)] if self.inputs else None
            if formal is None or element_type is None:
                continue
            spelled = f"tensor({type_name(element_type)})"
            shown = formal.name if position < len(self.inputs) else f"{formal.name}[{position}]"
            if formal.types and spelled not in formal.types:
                found.append(f"input {shown!r} cannot be {spelled}")
            elif formal.homogeneous and bound.setdefault(formal.variable, spelled) != spelled:
                found.append(f"input {shown!r} is {spelled}, but {bound[formal.variable]} is needed beside the others")
        return bound, found

    def output_type(self, position: int, bound: Mapping[str, str], attributes: Mapping[str, Any]) -> int | None:
        """The element type of an output, where the schema alone says it."""
        formal = self.outputs[min(position, len(self.outputs) - 1)] if self.outputs else None
        if formal is None:
            return None
        if formal.variable in bound:
            return _element_type(bound[formal.variable])
        if len(formal.types) == 1:
            return _element_type(next(iter(formal.types)))
        for name in ("to", "dtype", "output_dtype", "output_datatype"):
            if isinstance(attributes.get(name), int) and attributes[name]:
                return int(attributes[name])
        return None


@cache
def schema_of(domain: str, operator: str, version: int) -> Schema | None:
    """None where ONNX describes no such operator, or not for this version."""
    try:
        schema = defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    constraints = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    required = frozenset(name for name, attribute in schema.attributes.items() if attribute.required)
    defaults = {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != AttributeProto.UNDEFINED
    }
    return Schema(
        tuple(_formal(formal, constraints) for formal in schema.inputs),
        tuple(_formal(formal, constraints) for formal in schema.outputs),
        schema.min_input,
        schema.max_input,
        schema.min_output,
        schema.max_output,
        {name: int(cast(Any, attribute.type)) for name, attribute in schema.attributes.items()},
        required,
        defaults,
    )


def _formal(formal: Any, constraints: Mapping[str, frozenset[str]]) -> Formal:
    variable = formal.type_str
    option = defs.OpSchema.FormalParameterOption
    return Formal(
        formal.name,
        constraints.get(variable, frozenset((variable,))),
        variable,
        formal.option == option.Optional,
        formal.option == option.Variadic,
        formal.is_homogeneous,
    )


@cache
def _element_type(spelled: str) -> int | None:
    """``tensor(float)`` as an element type; None for sequences, maps and optionals."""
    inner = spelled.removeprefix("tensor(").removesuffix(")").upper()
    return int(TensorProto.DataType.Value(inner)) if inner in TensorProto.DataType.keys() else None
