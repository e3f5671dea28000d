"""Operators that ONNX defines by others: their definitions, for those that nothing is declared for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TypeProto, defs, helper

TensorType = tuple[int, tuple[int, ...]]  # element type and shape


def function_body(
    node: onnx.NodeProto, domain: str, opset: int, types: Sequence[TensorType | None]
) -> onnx.FunctionProto | None:
    """The function that computes ``node``, whose inputs have ``types``; None where ONNX defines none."""
    try:
        schema: Any = defs.get_schema(node.op_type, opset, domain)
    except defs.SchemaError:
        return None
    if version := _newest(schema.function_opset_versions, opset):
        return _parsed(schema.get_function_with_opset_version(version))
    version = _newest(schema.context_dependent_function_opset_versions, opset)
    if not version:
        return None
    protos = [TypeProto() if each is None else helper.make_tensor_type_proto(*each) for each in types]
    try:
        body = schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), [proto.SerializeToString() for proto in protos]
        )
    except (RuntimeError, ValueError):
        return None
    return _parsed(body)


def _newest(versions: Sequence[int], opset: int) -> int:
    """The last version that is not newer than the model, or nothing."""
    return max((version for version in versions if version <= opset), default=0)


def _parsed(body: onnx.FunctionProto | bytes | None) -> onnx.FunctionProto | None:
    if isinstance(body, bytes):
        return onnx.FunctionProto.FromString(body) if body else None
    return body
