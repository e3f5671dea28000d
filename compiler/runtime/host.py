"""Host kernels: functions of TVM's that are kept as the JSON of their IR and compiled for this machine when needed.

TVM reads JSON into any object its types allow, and compiles what it is told to: only for artifacts that are trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from compiler.errors import CorruptError, InvalidError, Problem
from compiler.runtime.model import HostSegment

_INLINE = {0, 1, 2, 3}  # fields of these static types (none, bool, int, float) stand in their object's data
_DTYPE = 5  # so does a type, as text
_BY_NAME = ("ir.Op", "ir.SourceName")


class HostFunction:
    """A host segment; its function is compiled when it is needed first."""

    def __init__(self, segment: HostSegment) -> None:
        self.segment = segment

    def set_up(self) -> None:
        """Compile it now."""
        self._compiled  # noqa: B018  the property keeps what it makes

    @cached_property
    def _compiled(self) -> tuple[Any, list[tuple[str, tuple[int, ...]]]]:
        """What to call, and (dtype, shape) of each of its parameters."""
        import tvm
        from tvm import tirx

        try:
            function: Any = tvm.ir.load_json(self.segment.function)
            if not isinstance(function, tirx.PrimFunc) or len(function.params) != len(self.segment.arguments):
                raise TypeError(f"no function of {len(self.segment.arguments)} parameters")
            types = [(str(p.dtype), tuple(int(n) for n in p.shape)) for p in function.params]
            named = function.with_attr("global_symbol", "main")
            return tvm.compile(tvm.IRModule({"main": named}), target="llvm")["main"], types
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            text = f"host kernel {self.segment.name} cannot be compiled: {str(error).partition(chr(10))[0][:200]}"
            raise CorruptError(Problem("TW1605", text)) from error

    def run(self, buffers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the function writes, by buffer."""
        from tvm import runtime

        call, types = self._compiled
        arguments = []
        for name, (dtype, shape) in zip(self.segment.arguments, types, strict=True):
            if name in self.segment.written:
                arguments.append(runtime.empty(shape, dtype))
            else:
                arguments.append(runtime.tensor(self._as_parameter(name, buffers[name], dtype, shape)))
        call(*arguments)
        results = dict(zip(self.segment.arguments, arguments, strict=True))
        return {name: _as_buffer(results[name].numpy()) for name in self.segment.written}

    def _as_parameter(self, name: str, array: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """A view of a tensor may have another shape than the buffer, but no other bytes."""
        content = array.view(np.bool_) if dtype == "bool" else array
        if str(content.dtype) != dtype or content.size != prod(shape):
            text = f"host kernel {self.segment.name} wants {dtype} {list(shape)} in {name}"
            raise InvalidError(Problem("TW1606", f"{text}; it has {content.dtype} {list(content.shape)}"))
        return content.reshape(shape)


def _as_buffer(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8) if array.dtype == np.bool_ else array


# ---- writing ------------------------------------------------------------------------------------------------------


def to_json(function: Any) -> str:
    """A PrimFunc as `tvm.ir.load_json` reads it, without the places it came from.

    `tvm.ir.save_json` of TVM 0.27.0.post1 ends the process with a segmentation fault on every `ir.PrimType`.
    """
    writer = _Writer()
    root = writer.index_of(function)
    return json.dumps({"root_index": root, "nodes": writer.nodes}, separators=(",", ":"))


class _Writer:
    """Objects become nodes, once each, that refer to each other by index."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self._index: dict[Any, int] = {}
        self._kept: list[Any] = []  # or a handle could be given to another object

    def index_of(self, value: Any) -> int:
        from tvm_ffi import core

        is_object = isinstance(value, core.Object) and not isinstance(value, str)
        key = value.__chandle__() if is_object else (type(value).__name__, repr(value))
        if key not in self._index:
            self._kept.append(value)
            node = self._node(value)
            self._index[key] = len(self.nodes)
            self.nodes.append(node)
        return self._index[key]

    def _node(self, value: Any) -> dict[str, Any]:
        import tvm_ffi

        if value is None:
            return {"type": "None"}
        for kind, name in ((bool, "bool"), (int, "int"), (float, "float"), (str, "ffi.String")):
            if isinstance(value, kind):
                return {"type": name, "data": kind(value)}
        if isinstance(value, tvm_ffi.dtype):
            return {"type": "DataType", "data": str(value)}
        if isinstance(value, tvm_ffi.Array):
            return {"type": "ffi.Array", "data": [self.index_of(each) for each in value]}
        if isinstance(value, tvm_ffi.Map):
            pairs = sorted(value.items(), key=lambda pair: str(pair[0]))
            return {"type": "ffi.Map", "data": [self.index_of(each) for pair in pairs for each in pair]}
        info = type(value).__tvm_ffi_type_info__
        return {"type": info.type_key, "data": value.name if info.type_key in _BY_NAME else self._fields(value, info)}

    def _fields(self, value: Any, info: Any) -> dict[str, Any]:
        data = {} if info.parent_type_info is None else self._fields(value, info.parent_type_info)
        for field in info.fields:
            content = None if field.name == "span" else field.getter(value)
            if field.field_static_type_index in _INLINE:
                data[field.name] = content
            else:
                data[field.name] = str(content) if field.field_static_type_index == _DTYPE else self.index_of(content)
        return data
