"""What a file costs to parse, found out before it is parsed.

Protobuf turns two bytes of file into hundreds of bytes of memory, and takes nesting as deep as the file says. This walk
over the wire format believes nothing, builds nothing and keeps its own stack; what passes it is cheap to parse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import onnx

from compiler.errors import InvalidError, LimitError, Place, Problem
from compiler.frontend.limits import Limits

# Protobuf's own parsers give up at 100 levels, without saying where.
_MESSAGE_DEPTH = 90
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class Field(NamedTuple):
    """How one field of a message is read: its name, the message inside it, or whether it holds text."""

    name: str
    message: Message | None
    is_text: bool


@dataclass(eq=False)
class Message:
    name: str
    fields: dict[int, Field]
    limit: str  # the field of Limits that counts this message, or nothing


def check_wire(data: bytes, limits: Limits, place: Place | None) -> None:
    """Refuse bytes that are no ONNX model (InvalidError) or that ask for more than ``limits`` (LimitError)."""
    _Walk(data, limits, place).run()


class _Walk:
    def __init__(self, data: bytes, limits: Limits, place: Place | None) -> None:
        self.data, self.limits, self.place = data, limits, place
        self.counts = {"nodes": 0, "initializers": 0}
        self.graphs = 0
        # One entry per open message: where it ends, what it is.
        self.stack: list[tuple[int, Message]] = []

    def run(self) -> None:
        data = self.data
        at, end, message = 0, len(data), _message(onnx.ModelProto.DESCRIPTOR.full_name)
        fields = 0
        while True:
            while at == end:
                if not self.stack:
                    return
                self.graphs -= message.name == "GraphProto"
                end, message = self.stack.pop()
            fields += 1
            if fields > self.limits.fields:
                raise self._over("fields", "the file holds more fields")
            key, at = self._varint(at, end, message)
            kind, field = key & 7, message.fields.get(key >> 3)
            if kind == _LENGTH:
                size, at = self._varint(at, end, message)
                if size > end - at:
                    raise self._truncated(at, message, f"{_named(field, key)} needs {size} bytes, {end - at} are left")
                if field is not None and field.message is not None:
                    self.stack.append((end, message))
                    message, end = field.message, at + size
                    self._enter(message)
                    continue
                if field is not None and field.is_text:
                    self._text(field, message, at, size)
                at += size
            elif kind == _VARINT:
                _, at = self._varint(at, end, message)
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
                if at > end:
                    raise self._truncated(end, message, f"{_named(field, key)} is cut off")
            else:
                raise self._invalid(
                    f"byte {at}: {_named(field, key)} of {message.name} has the unknown wire type {kind}"
                )

    def _varint(self, at: int, end: int, message: Message) -> tuple[int, int]:
        data = self.data
        if at < end and data[at] < 0x80:
            return data[at], at + 1
        value = 0
        for shift in range(0, 70, 7):
            if at >= end:
                raise self._truncated(at, message, "a number is cut off")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise self._invalid(f"byte {at}: a number in {message.name} is longer than ten bytes")

    def _enter(self, message: Message) -> None:
        if len(self.stack) > _MESSAGE_DEPTH:
            raise LimitError(
                Problem("TW2005", f"messages are nested more than {_MESSAGE_DEPTH} levels deep", self.place)
            )
        if message.limit:
            self.counts[message.limit] += 1
            if self.counts[message.limit] > getattr(self.limits, message.limit):
                raise self._over(message.limit, f"the file holds more {message.limit}")
        elif message.name == "GraphProto":
            self.graphs += 1
            if self.graphs > self.limits.subgraph_depth:
                raise self._over("subgraph_depth", "graphs are nested deeper")

    def _text(self, field: Field, message: Message, at: int, size: int) -> None:
        if size > self.limits.name_bytes and field.name not in ("doc_string", "value"):
            raise self._over("name_bytes", f"byte {at}: {field.name} of {message.name} has {size} bytes, which is more")
        try:
            self.data[at : at + size].decode()
        except UnicodeDecodeError as error:
            text = f"byte {at + error.start}: {field.name} of {message.name} is not UTF-8"
            raise self._invalid(text) from error

    def _over(self, limit: str, text: str) -> LimitError:
        return LimitError(
            Problem(
                "TW2005",
                f"{text} than the limit of {getattr(self.limits, limit)}",
                self.place,
                hint=f"raise Limits.{limit} for a model you trust",
            )
        )

    def _truncated(self, at: int, message: Message, text: str) -> InvalidError:
        return self._invalid(f"byte {at}: {message.name} ends too early: {text}")

    def _invalid(self, text: str) -> InvalidError:
        return InvalidError(Problem("TW2003", f"not an ONNX model: {text}", self.place))


def _named(field: Field | None, key: int) -> str:
    return field.name if field is not None else f"field {key >> 3}"


@cache
def _messages() -> dict[str, Message]:
    """Every message that a model can hold, from the descriptors that the parser itself uses."""
    descriptors: dict[str, Any] = {}
    waiting: list[Any] = [onnx.ModelProto.DESCRIPTOR]
    while waiting:
        descriptor = waiting.pop()
        if descriptor.full_name not in descriptors:
            descriptors[descriptor.full_name] = descriptor
            waiting += [f.message_type for f in descriptor.fields if f.message_type is not None]
    counted = {"NodeProto": "nodes", "TensorProto": "initializers"}
    found = {name: Message(d.name, {}, counted.get(d.name, "")) for name, d in descriptors.items()}
    for name, descriptor in descriptors.items():
        for f in descriptor.fields:
            inner = found[f.message_type.full_name] if f.message_type is not None else None
            found[name].fields[f.number] = Field(f.name, inner, f.type == f.TYPE_STRING)
    return found


def _message(name: str) -> Message:
    return _messages()[name]
