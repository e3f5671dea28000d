"""What an ONNX graph says of itself: shapes, which values are constant, which nodes compute the same.

Read with ONNX's own shape inference, so that what is said of a compiled model's work is not said by the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.report.bounds import ITEM_BYTES
from compiler.report.declared_types import with_declared_types

_SMALL_ELEMENTS = 1024  # constants that shapes may depend on are not larger

# Operators that only say again, elsewhere or in another shape, what was there before.
MOVES = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Slice", "Split", "Concat",
    "Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth", "Cast", "CastLike", "Pad", "Dropout",
    "ReverseSequence",
})  # fmt: skip
_SHAPE_ONLY = frozenset({"Shape", "Size", "ConstantOfShape", "EyeLike"})
_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_OF_SHAPES = frozenset({
    "Shape", "Size", "Gather", "Concat", "Unsqueeze", "Squeeze", "Slice", "Cast", "Add", "Sub", "Mul", "Div", "Mod",
    "Neg", "Range", "ConstantOfShape", "Equal", "Less", "Greater", "Where", "Reshape", "Min", "Max", "Floor", "Ceil",
    "Expand", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceSum", "Constant", "Sqrt", "Pow", "Not", "And",
    "Or", "Trilu", "Transpose", "Identity", "Tile", "Abs", "Sign", "Round", "Clip", "Xor", "LessOrEqual",
    "GreaterOrEqual", "ScatterND", "ScatterElements",
})  # fmt: skip
_TYPES: dict[int, str] = {
    TensorProto.FLOAT: "fp32", TensorProto.DOUBLE: "fp32", TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bf16",
    TensorProto.INT8: "int8", TensorProto.UINT8: "uint8", TensorProto.BOOL: "bool",
    TensorProto.INT16: "int16", TensorProto.UINT16: "uint16", TensorProto.INT32: "int32", TensorProto.UINT32: "uint32",
    TensorProto.INT64: "int64", TensorProto.UINT64: "uint64",
}  # fmt: skip


Kind: TypeAlias = tuple[int, "tuple[int, ...] | None"]


@dataclass(frozen=True)
class Value:
    """What is known of a tensor; ``shape`` is None where it is not static."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str  # on the chip
    constant: bool
    least_bytes: int  # of DDR that hold all that is in it
    quantised: bool = False  # an integer of 8 bits, seen as a float

    @property
    def size(self) -> int:
        return 0 if self.shape is None else prod(self.shape)

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES.get(self.dtype, 0)


@dataclass(frozen=True)
class Node:
    """One computation that is left when constants are folded and equal nodes are one."""

    names: tuple[str, ...]  # of the ONNX nodes that compute just this
    operator: str
    attributes: Mapping[str, Any]
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    constants: Mapping[str, Any]  # contents of small constant inputs, by name


@dataclass(frozen=True)
class Facts:
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]  # each once; none that is an input or a constant in other words
    folded: frozenset[str]  # names of nodes that compute nothing at run time


def read(
    model: onnx.ModelProto,
    precision: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> Facts:
    """The facts of a model as it is compiled: with these shapes, and float32 in this precision."""
    model = _inlined(model)
    return _Reader(model, _inferred(model, shapes or {}, dims or {}), precision).facts()


def kinds(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None, dims: Mapping[str, int] | None = None
) -> Mapping[str, Kind]:
    """Element type and shape of each tensor, as far as they are known of the model with these shapes."""
    return _inferred(_inlined(model), shapes or {}, dims or {}).kinds


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnx import inliner

    return inliner.inline_local_functions(model) if model.functions else model


@dataclass(frozen=True)
class _Inferred:
    kinds: Mapping[str, Kind]  # element type and shape, by name
    contents: Mapping[str, np.ndarray]  # of small values that are known


def _inferred(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]) -> _Inferred:
    """Shapes, and the small integers that they are computed from: each that is found may make more shapes known."""
    light = _without_weights(model, shapes, dims)
    weights = {tensor.name for tensor in model.graph.initializer}
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    contents = {tensor.name: numpy_helper.to_array(tensor) for tensor in light.graph.initializer}
    found_kinds: dict[str, Kind] = {}
    while True:
        found_kinds = _kinds(onnx.shape_inference.infer_shapes(light, data_prop=True).graph)
        found = _evaluated(light.graph, found_kinds, contents, opset)
        if found:
            contents |= found
            light.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in found.items())
            left = [node for node in light.graph.node if not set(node.output) & found.keys()]
            del light.graph.node[:]
            light.graph.node.extend(left)
            continue
        # Only now: what declared operators make may depend on what is in their inputs.
        typed = with_declared_types(light, weights)
        if len(typed.graph.value_info) == len(light.graph.value_info):
            break
        light = typed
    found_kinds |= {
        name: (int(helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape) for name, array in contents.items()
    }
    found_kinds |= {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in model.graph.initializer}
    return _Inferred(found_kinds, contents)


def _without_weights(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]
) -> onnx.ModelProto:
    """Inference copies the model that it is given: weights are inputs in what it gets."""
    graph = model.graph
    light = onnx.ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.output.extend(map(_without_names, graph.output))
    light.graph.value_info.extend(map(_without_names, graph.value_info))
    held = {tensor.name for tensor in graph.initializer}
    for tensor in graph.initializer:
        if prod(tensor.dims) <= _SMALL_ELEMENTS and tensor.data_location != TensorProto.EXTERNAL:
            light.graph.initializer.append(tensor)
        else:
            light.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    for info in graph.input:
        if info.name not in held:
            light.graph.input.append(_static(info, shapes.get(info.name), dims))
    return light


def _kinds(graph: onnx.GraphProto) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for info in (*graph.value_info, *graph.output, *graph.input):
        if info.type.HasField("tensor_type") and found.get(info.name, (0, None))[1] is None:
            found[info.name] = (int(info.type.tensor_type.elem_type), _shape(info))
    return found


def _evaluated(
    graph: onnx.GraphProto, kinds: Mapping[str, Kind], contents: Mapping[str, np.ndarray], opset: int
) -> dict[str, np.ndarray]:
    """Results of nodes that only have to do with shapes, where they are known."""
    found: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.op_type not in _OF_SHAPES or len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
            continue
        _, shape = kinds.get(node.output[0], (0, None))
        if shape is not None and prod(shape) > _SMALL_ELEMENTS:
            continue
        if node.op_type in ("Shape", "Size"):
            _, source = kinds.get(node.input[0], (0, None))
            feeds: dict[str, np.ndarray] | None = (
                None if source is None else {node.input[0]: np.broadcast_to(np.int8(0), source)}
            )
        else:
            known = {name: found.get(name, contents.get(name)) for name in node.input if name}
            feeds = {name: array for name, array in known.items() if array is not None}
            feeds = feeds if len(feeds) == len(known) else None
        if feeds is None:
            continue
        made = _run(node, feeds, opset)
        if made is not None and made.size <= _SMALL_ELEMENTS:
            found[node.output[0]] = made
    return found


def _run(node: onnx.NodeProto, feeds: Mapping[str, np.ndarray], opset: int) -> np.ndarray | None:
    from onnx.reference import ReferenceEvaluator

    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(node.output[0])]
    graph = helper.make_graph([node], "one", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        return np.asarray(ReferenceEvaluator(model).run(None, dict(feeds))[0])  # type: ignore[index]
    except Exception:  # noqa: BLE001 - what the reference cannot do stays unknown
        return None


def _without_names(info: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """Where an extent has a name, inference keeps to it, and does not say what it is."""
    fixed = onnx.ValueInfoProto()
    fixed.CopyFrom(info)
    for dim in fixed.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
        dim.ClearField("dim_param")
    return fixed


def _static(info: onnx.ValueInfoProto, shape: Sequence[int] | None, dims: Mapping[str, int]) -> onnx.ValueInfoProto:
    fixed = onnx.ValueInfoProto()
    fixed.CopyFrom(info)
    for axis, dim in enumerate(fixed.type.tensor_type.shape.dim):
        if shape is not None and axis < len(shape):
            dim.dim_value = shape[axis]
        elif dim.dim_param in dims:
            dim.dim_value = dims[dim.dim_param]
    return fixed


def _shape(info: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return tuple(dim.dim_value for dim in tensor.shape.dim)


class _Reader:
    """One walk over the nodes in their order, with a value for every name."""

    def __init__(
        self,
        model: onnx.ModelProto,
        inferred: _Inferred,
        precision: str | None,
    ) -> None:
        self.graph, self.inferred, self.precision = model.graph, inferred, precision
        self.values: dict[str, Value] = {}
        self.same: dict[Any, tuple[Value | None, ...]] = {}
        self.nodes: dict[Any, Node] = {}
        self.folded: set[str] = set()

    def facts(self) -> Facts:
        held = set[str]()
        contents = dict[str, str]()
        for tensor in self.graph.initializer:
            held.add(tensor.name)
            self._constant(tensor, contents)
        inputs = tuple(self._declare(info.name) for info in self.graph.input if info.name not in held)
        given = {value.name for value in inputs}
        for node in self.graph.node:
            self._visit(node)
        outputs = dict.fromkeys(self.values[o.name] for o in self.graph.output if o.name in self.values)
        made = {value.name for node in self.nodes.values() for value in node.outputs if value is not None}
        kept = tuple(value for value in outputs if value.name in made and not self._is_view(value, given))
        return Facts(tuple(self.nodes.values()), inputs, kept, frozenset(self.folded))

    def _is_view(self, value: Value, given: set[str]) -> bool:
        """An output that nothing but moves lead to from an input may be the same bytes, if none puts any elsewhere."""
        maker = next(node for node in self.nodes.values() if value in node.outputs)
        if maker.operator not in MOVES or _rearranges(maker):
            return False
        source = maker.inputs[0]
        return source is None or source.constant or source.name in given or self._is_view(source, given)

    def _constant(self, tensor: TensorProto, contents: dict[str, str]) -> None:
        """Initialisers of equal contents are one value."""
        value = self._declare(tensor.name, constant=True)
        if tensor.data_location != TensorProto.EXTERNAL:
            plain = TensorProto()
            plain.CopyFrom(tensor)
            plain.ClearField("name")
            plain.ClearField("doc_string")
            key = sha256(plain.SerializeToString(deterministic=True)).hexdigest()
            first = contents.setdefault(key, tensor.name)
            self.values[tensor.name] = self.values.get(first, value)

    def _declare(
        self, name: str, constant: bool = False, least_bytes: int | None = None, quantised: bool = False
    ) -> Value:
        element_type, shape = self.inferred.kinds.get(name, (0, None))
        dtype = _TYPES.get(element_type, "")
        if dtype == "fp32" and self.precision is not None:
            dtype = self.precision
        bytes_ = prod(shape) * ITEM_BYTES.get(dtype, 0) if shape is not None else 0
        least = bytes_ if least_bytes is None else min(bytes_, least_bytes)
        self.values[name] = Value(name, shape, dtype, constant, least, quantised)
        return self.values[name]

    def _visit(self, node: onnx.NodeProto) -> None:
        names = tuple(name for name in node.output if name)
        plain = node.domain in ("", "ai.onnx")
        operator = node.op_type if plain else f"{node.domain}::{node.op_type}"
        inputs = tuple(self.values.get(name) if name else None for name in node.input)
        title = node.name or (names[0] if names else "")
        subgraphs = any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute)
        if (
            operator == "Constant"
            or operator in _SHAPE_ONLY
            or (all(value is None or value.constant for value in inputs) and operator not in _RANDOM and not subgraphs)
        ):
            self._fold(node, operator, inputs)
            self.folded.add(title)
            return
        if operator == "Identity" or (operator == "Dropout" and len(names) == 1):
            if inputs[0] is not None:
                self.values[names[0]] = inputs[0]
            self.folded.add(title)
            return
        key: Any = (
            operator,
            tuple(value.name if value is not None else None for value in inputs),
            tuple(sorted(a.SerializeToString(deterministic=True) for a in node.attribute)),
            tuple(bool(name) for name in node.output),
        )
        if subgraphs or operator in _RANDOM or any(v is None and n for v, n in zip(inputs, node.input, strict=True)):
            key = id(node)
        if key in self.same:
            for name, value in zip(node.output, self.same[key], strict=True):
                if name and value is not None:
                    self.values[name] = value
            known = self.nodes[key]
            self.nodes[key] = Node((*known.names, title), *_rest(known))
            return
        outputs = tuple(self._made(name, operator, inputs) if name else None for name in node.output)
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        contents = self.inferred.contents
        known_inputs = {v.name: contents[v.name] for v in inputs if v is not None and v.name in contents}
        self.same[key] = outputs
        self.nodes[key] = Node((title,), operator, attributes, inputs, outputs, known_inputs)

    def _fold(self, node: onnx.NodeProto, operator: str, inputs: tuple[Value | None, ...]) -> None:
        """A constant may be kept as it is, or as what it is made from; the shapes of things need not be kept at all."""
        sources = sum(value.least_bytes for value in inputs if value is not None)
        least = None if operator == "Constant" else 0 if operator in _SHAPE_ONLY else sources
        for name in node.output:
            if name:
                self._declare(name, constant=True, least_bytes=least)

    def _made(self, name: str, operator: str, inputs: tuple[Value | None, ...]) -> Value:
        """A moved value need not lie in DDR in more bytes than what it was moved from."""
        sources = [value for value in inputs if value is not None]
        moved = sum(v.least_bytes for v in sources) if operator in MOVES else None
        quantised = operator == "DequantizeLinear" or (
            operator in MOVES | {"Relu", "MaxPool"} and bool(sources) and sources[0].quantised
        )
        if operator == "DequantizeLinear" and sources:
            moved = sources[0].least_bytes
        return self._declare(name, least_bytes=moved, quantised=quantised)


def _rearranges(node: Node) -> bool:
    """Whether a move cannot leave its bytes where they are, for all that is known."""
    source, result = node.inputs[0], node.outputs[0]
    if source is None or result is None or source.shape is None or result.shape is None:
        return False
    if node.operator == "Transpose":
        order = node.attributes.get("perm") or list(range(len(source.shape)))[::-1]
        moved = [axis for axis in order if source.shape[axis] > 1]
        return moved != sorted(moved) and source.size > 0
    if node.operator == "Concat":
        return sum(value is not None and value.size > 0 for value in node.inputs) > 1
    return node.operator in ("Expand", "Tile", "Pad") and result.size > source.size


def _rest(node: Node) -> Iterator[Any]:
    yield from (node.operator, node.attributes, node.inputs, node.outputs, node.constants)
