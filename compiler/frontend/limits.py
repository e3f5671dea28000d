"""How much of everything a model may ask for before it is refused: all of it in one place."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

MEBI = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Bounds on what a model file holds and on what importing it may cost."""

    file_bytes: int = 2048 * MEBI
    # Fields, sub-messages and list entries of the whole file: what bounds the memory that parsing takes.
    fields: int = 4_000_000
    tensor_bytes: int = 2048 * MEBI
    constant_bytes: int = 8192 * MEBI  # all initialisers of a model together, external ones too
    rank: int = 8
    elements: int = (1 << 31) - 1  # of one tensor: the chip's integers index it
    nodes: int = 200_000
    # Inputs of one node, or outputs: an expression over them nests as deeply, and TVM follows it on the stack.
    node_arity: int = 1024
    # Elements of an input that decides a shape (axes, pads, a shape): an expression may have as many dimensions.
    setup_elements: int = 1024
    initializers: int = 100_000
    name_bytes: int = 1024
    subgraph_depth: int = 16
    function_depth: int = 32
    opset: tuple[int, int] = (1, onnx.defs.onnx_opset_version())
    ir_version: tuple[int, int] = (1, int(onnx.IR_VERSION))
    # Nodes that are followed, counting each expansion of a function and each trip of an unrolled loop; calls likewise.
    expanded_nodes: int = 250_000
    trip_count: int = 1024
    open_trips: int = 64  # of a loop without a count, when only a run knows whether it goes on
    # What folding may cost: bytes of one result, and scalar operations of one node.
    folded_bytes: int = 256 * MEBI
    folded_operations: int = 200_000_000
