"""Attributes of a node: the one value that each says it has."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import AttributeProto

# The field in which an attribute of each kind keeps its value.
_FIELDS: dict[int, str] = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
_REPEATED = frozenset(("floats", "ints", "strings", "tensors", "graphs", "sparse_tensors", "type_protos"))
_ALL_FIELDS = frozenset(_FIELDS.values())


def kind_name(kind: int) -> str:
    return AttributeProto.AttributeType.Name(kind).lower() if kind in _FIELDS else f"kind {kind}"


def present_fields(attribute: AttributeProto) -> list[str]:
    return [descriptor.name for descriptor, _ in attribute.ListFields() if descriptor.name in _ALL_FIELDS]


def kind_of(attribute: AttributeProto) -> int:
    """What kind the attribute is; files of ONNX's first years leave it to be told from the field that is there."""
    if attribute.type:
        return attribute.type
    present = present_fields(attribute)
    kinds = [kind for kind, field in _FIELDS.items() if present == [field]]
    return kinds[0] if kinds else AttributeProto.UNDEFINED


def wrong_attribute(attribute: AttributeProto, *, in_function: bool) -> str:
    """What is wrong with an attribute by itself; nothing when its kind and value agree."""
    kind = kind_of(attribute)
    if kind not in _FIELDS:
        return "its kind is unknown"
    present = present_fields(attribute)
    if attribute.ref_attr_name:
        if not in_function:
            return "it refers to an attribute of a function, but is in none"
        return "it refers to another attribute and has a value too" if present else ""
    own = _FIELDS[kind]
    if extra := [name for name in present if name != own]:
        return f"it is of kind {kind_name(kind)}, but its value is in field {extra[0]!r}"
    if not present and own not in _REPEATED and own not in ("f", "i", "s"):
        return f"it is of kind {kind_name(kind)}, but has no value"
    if own == "s" or own == "strings":
        for text in [attribute.s] if own == "s" else attribute.strings:
            try:
                text.decode()
            except UnicodeDecodeError:
                return "its text is not UTF-8"
    return ""


def graphs_of(node: onnx.NodeProto) -> list[tuple[str, onnx.GraphProto]]:
    """The graphs inside a node, by attribute."""
    found: list[tuple[str, onnx.GraphProto]] = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            found.append((attribute.name, attribute.g))
        found += [(attribute.name, graph) for graph in attribute.graphs]
    return found


def plain_value(attribute: AttributeProto) -> Any:
    """The value of a checked attribute: numbers, texts and tuples of them; protobuf messages as they are."""
    field = _FIELDS[kind_of(attribute)]
    if field in ("i", "f", "t", "g", "tp", "sparse_tensor"):
        return getattr(attribute, field)
    if field == "s":
        return attribute.s.decode()
    if field == "strings":
        return tuple(text.decode() for text in attribute.strings)
    return tuple(getattr(attribute, field))
