"""`tvm.ir.save_json`, which ends the process on every type.

Host kernels are kept as the JSON of their IR, and every expression of TVM's IR holds a type. This writes what
`tvm.ir.load_json` reads, but for spans, the places in Python where nodes were made: an artifact depends on its model
alone.
"""

from __future__ import annotations

import json
from typing import Any

from patches import Patch

UPSTREAM = """
Title: [Bug][FFI] `tvm.ir.save_json` segfaults on `ir.PrimType`, and so on every function
Environment: apache-tvm 0.27.0.post1, apache-tvm-ffi 0.1.15.post2, Linux x86-64
To reproduce:

    import tvm
    tvm.ir.save_json(tvm.ir.PrimType("float32"))

It dies in `tvm::ffi::ToJSONGraph`. `ir.PrimType` is the one node type that registers `kAnyHash` and `kAnyEqual` (in
`src/ir/type.cc`); other types without `PrimType` inside them are written as they should.
"""

_INLINE = {0, 1, 2, 3}  # fields of these static types (none, bool, int, float) stand in their object's data
_DTYPE = 5  # so does a type, as text
_BY_NAME = ("ir.Op", "ir.SourceName", "tirx.Axis")


def save_json(node: Any) -> str:
    writer = _Writer()
    root = writer.index_of(node)
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


def shows_fault() -> bool:
    from tvm import ir

    return not ir.save_json(ir.PrimType("float32"))  # it does not come back from this


PATCH = Patch(
    why="TVM ends the process when it writes a type, and with it any function, as JSON",
    upstream=UPSTREAM,
    replaces=("tvm.ir:save_json", "tvm.ir.base:save_json"),
    fits={"0.27.0.post1": "317f56911924c6f073a2e7ba6164a8634491112ad5119024716063c16036ea92"},
    replacement=save_json,
    shows_fault=shows_fault,
)
