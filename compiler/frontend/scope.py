"""What names mean where a node stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from compiler.frontend.graph import Value


@dataclass(frozen=True)
class Sequence:
    """A sequence whose length is known: there are none at run time."""

    items: tuple[Value, ...]
    element_type: int = 0


@dataclass(frozen=True)
class Absent:
    """An optional that holds nothing."""


@dataclass(frozen=True)
class Unknown:
    """The result of a node with a problem, which has been noted: what needs it is passed over."""


# None is an input that is left out.
Item = Value | Sequence | Absent | Unknown | None
UNKNOWN = Unknown()


@dataclass
class Scope:
    """The names of one graph; those that it does not hold are looked up around it."""

    opsets: Mapping[str, int]
    names: dict[str, Item] = field(default_factory=dict)
    outer: Scope | None = None
    # The attributes of the call, where the graph is a function's.
    attributes: Mapping[str, onnx.AttributeProto] | None = None

    def find(self, name: str) -> Item:
        """None for an input of a function that its call leaves out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return UNKNOWN  # its node came to grief

    def inner(self) -> Scope:
        return Scope(self.opsets, {}, self, self.attributes)

    def resolved(self, node: onnx.NodeProto) -> list[onnx.AttributeProto]:
        """The node's attributes; those that refer to the function's are replaced, or left out where it has none."""
        if not any(attribute.ref_attr_name for attribute in node.attribute):
            return list(node.attribute)
        found = []
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                found.append(attribute)
            elif (given := (self.attributes or {}).get(attribute.ref_attr_name)) is not None:
                copy = onnx.AttributeProto()
                copy.CopyFrom(given)
                copy.name = attribute.name
                found.append(copy)
        return found


@dataclass(frozen=True)
class Site:
    """A node where it stands: its inputs looked up, its attributes read."""

    node: onnx.NodeProto
    scope: Scope
    inputs: tuple[Item, ...]
    attributes: Mapping[str, Any]

    @property
    def values(self) -> tuple[Value | None, ...]:
        """The inputs of a node that takes tensors only; see `Importer`."""
        return tuple(item if isinstance(item, Value) else None for item in self.inputs)
