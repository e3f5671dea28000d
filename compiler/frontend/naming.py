"""Names from a model as a person may see them: short, on one line, and without characters that steer a terminal."""

from __future__ import annotations

import onnx

_SHOWN = 80


def quoted(name: str) -> str:
    """A name in quotes; control and direction characters are escaped, the middle of a long name is left out."""
    if len(name) > _SHOWN:
        name = f"{name[: _SHOWN // 2]}...{name[-_SHOWN // 4 :]}"
    return repr(name)


def operator_name(node: onnx.NodeProto) -> str:
    """How the operator is declared: the plain name for ONNX's own, ``domain::Name`` for others."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def node_name(node: onnx.NodeProto) -> str:
    """What a node is called: its name or, since names are optional, that of its first output."""
    return node.name or next((output for output in node.output if output), "")


def described(node: onnx.NodeProto) -> str:
    """A node for a message: operator and name."""
    return f"{quoted(operator_name(node))[1:-1]} node {quoted(node_name(node))}"
