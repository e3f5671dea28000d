"""Models that nobody should have to trust: each built in memory, with the error it must end in.

A case is an error kind, its code, and texts that the message must hold: what is wrong, and the node where it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from compiler.errors import (
    InputError,
    InvalidError,
    LimitError,
    TilewrightError,
    UnsupportedError,
    UsageError,
)
from compiler.frontend import Limits
from tests.frontend.models import model, node


@dataclass(frozen=True)
class Case:
    build: Callable[[], bytes]
    error: type[TilewrightError]
    code: str
    texts: tuple[str, ...]
    limits: Limits


CASES: dict[str, Case] = {}


def case(
    error: type[TilewrightError], code: str, *texts: str, limits: Limits | None = None
) -> Callable[[Callable[[], object]], None]:
    def add(build: Callable[[], object]) -> None:
        def data() -> bytes:
            made = build()
            return made if isinstance(made, bytes) else made.SerializeToString()  # type: ignore[attr-defined]

        CASES[build.__name__] = Case(data, error, code, texts, limits or Limits())

    return add


# Graphs


@case(InvalidError, "TW2025", "cycle", "'second' -> ")
def cycle() -> onnx.ModelProto:
    return model([node("Add", "x b", "a", name="first"), node("Relu", "a", "b", name="second")], {"x": [2]}, ["b"])


@case(InvalidError, "TW2025", "cycle", "'n19999'")
def long_cycle() -> onnx.ModelProto:
    nodes = [node("Relu", f"v{(at - 1) % 20_000}", f"v{at}", name=f"n{at}") for at in range(20_000)]
    return model(nodes, {"x": [2]}, ["v5"])


@case(InvalidError, "TW2024", "Relu node 'lonely'", "input 'nobody' is made by nothing")
def dangling_input() -> onnx.ModelProto:
    return model([node("Relu", "nobody", "y", name="lonely")], {"x": [2]}, ["y"])


@case(InvalidError, "TW2024", "output 'z' is made by nothing")
def dangling_output() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": [2]}, ["z"])


@case(InvalidError, "TW2021", "Neg node 'again'", "output 'y' is made twice")
def duplicate_output() -> onnx.ModelProto:
    return model([node("Relu", "x", "y"), node("Neg", "x", "y", name="again")], {"x": [2]}, ["y"])


@case(InvalidError, "TW2021", "output 'x' is made twice")
def output_named_as_input() -> onnx.ModelProto:
    return model([node("Relu", "x", "x")], {"x": [2]}, ["x"])


@case(InvalidError, "TW2021", "initializer 'w' is made twice")
def duplicate_initializer() -> onnx.ModelProto:
    made = model([node("Add", "x w", "y")], {"x": [2]}, ["y"], {"w": np.ones(2, np.float32)})
    made.graph.initializer.append(made.graph.initializer[0])
    return made


@case(InvalidError, "TW2020", "no graph")
def no_graph() -> onnx.ModelProto:
    return onnx.ModelProto(ir_version=10, opset_import=[helper.make_opsetid("", 18)])


@case(InvalidError, "TW2029", "no outputs")
def no_outputs() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": [2]}, [])


@case(InvalidError, "TW2026", "node 'nothing' has no operator")
def no_operator() -> onnx.ModelProto:
    return model([node("", "x", "y", name="nothing")], {"x": [2]}, ["y"])


@case(LimitError, "TW2005", "graphs are nested deeper", "limit of 16")
def nested_ifs() -> bytes:
    """Ten thousand Ifs, each inside the last: more than the parser would survive, so written byte by byte."""
    inner = b""
    for _ in range(10_000):
        attribute = b"\x0a\x01g" + _field(6, inner) + b"\xa0\x01\x05"
        inner = _field(1, b"\x22\x02If" + _field(5, attribute))
    return b"\x08\x0a" + _field(7, inner) + _field(8, b"\x10\x12")


@case(LimitError, "TW2005", "nested more than")
def nested_types() -> bytes:
    """A sequence of a sequence of ...: in the type of an input."""
    kind = b""
    for _ in range(5_000):
        kind = _field(4, _field(1, kind))
    return b"\x08\x0a" + _field(7, _field(11, b"\x0a\x01x" + _field(2, kind))) + _field(8, b"\x10\x12")


@case(InvalidError, "TW2028", "functions call themselves", "'local::f'")
def recursive_functions() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    functions = [
        helper.make_function("local", name, ["a"], ["b"], [node(other, "a", "b", domain="local")], opsets)
        for name, other in (("f", "g"), ("g", "f"))
    ]
    nodes = [node("f", "x", "y", domain="local")]
    return model(nodes, {"x": [2]}, ["y"], domains=["local"], functions=functions)


@case(LimitError, "TW2033", "expand to more nodes", limits=Limits(expanded_nodes=5_000))
def doubling_functions() -> onnx.ModelProto:
    """Each function calls the next one twice: 2^30 nodes out of 60."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    functions = []
    for at in range(30):
        nodes = [
            node(f"f{at + 1}" if at < 29 else "Relu", "a", "b", domain="local" if at < 29 else ""),
            node(f"f{at + 1}" if at < 29 else "Neg", "b", "c", domain="local" if at < 29 else ""),
        ]
        functions.append(helper.make_function("local", f"f{at}", ["a"], ["c"], nodes, opsets))
    return model([node("f0", "x", "y", domain="local")], {"x": [2]}, ["y"], domains=["local"], functions=functions)


@case(LimitError, "TW2033", "Loop node 'forever'", "unrolled more than")
def endless_loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [node("Identity", "going", "still"), node("Relu", "state", "next")],
        "body",
        [helper.make_tensor_value_info(n, k, s) for n, k, s in (("i", 7, []), ("going", 9, []), ("state", 1, [2]))],
        [helper.make_tensor_value_info(n, k, s) for n, k, s in (("still", 9, []), ("next", 1, [2]))],
    )
    made = node("Loop", "_ _ x", "y", name="forever", body=body)
    return model([made], {"x": [2]}, ["y"])


# Versions, domains, operators


@case(UnsupportedError, "TW2023", "operator set version 9999")
def future_opset() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": [2]}, ["y"], opset=9999)


@case(UnsupportedError, "TW2023", "operator set version -1")
def negative_opset() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": [2]}, ["y"], opset=-1)


@case(UnsupportedError, "TW2023", "IR version 0")
def no_ir_version() -> onnx.ModelProto:
    made = model([node("Relu", "x", "y")], {"x": [2]}, ["y"])
    made.ir_version = 0
    return made


@case(InvalidError, "TW2026", "node 'n'", "imports no version of operator set 'elsewhere'")
def domain_not_imported() -> onnx.ModelProto:
    return model([node("Relu", "x", "y", name="n", domain="elsewhere")], {"x": [2]}, ["y"])


@case(UnsupportedError, "TW2030", "operator 'elsewhere::Frobnicate'", "'frob1', 'frob2'")
def unknown_domain() -> onnx.ModelProto:
    nodes = [
        node("Frobnicate", "x", "a", name="frob1", domain="elsewhere"),
        node("Frobnicate", "a", "y", name="frob2", domain="elsewhere"),
    ]
    return model(nodes, {"x": [2]}, ["y"], domains=["elsewhere"])


@case(UnsupportedError, "TW2030", "operator 'com.microsoft.nchwc::Conv'", "up to ORT_ENABLE_EXTENDED only")
def layout_of_a_processor() -> onnx.ModelProto:
    domain = "com.microsoft.nchwc"
    return model([node("Conv", "x", "y", domain=domain)], {"x": [2]}, ["y"], domains=[domain])


@case(UnsupportedError, "TW2030", "operator 'Frobnicate' is not supported", "'frob'")
def unknown_operator() -> onnx.ModelProto:
    return model([node("Frobnicate", "x", "y", name="frob")], {"x": [2]}, ["y"])


# Attributes


@case(InvalidError, "TW2032", "Gemm node 'g'", "attribute 'alpha' must be of kind float, not int")
def wrong_attribute_kind() -> onnx.ModelProto:
    return model([node("Gemm", "x x", "y", name="g", alpha=1)], {"x": [2, 2]}, ["y"])


@case(InvalidError, "TW2032", "Relu node 'r'", "unknown attribute 'steepness'")
def unknown_attribute() -> onnx.ModelProto:
    return model([node("Relu", "x", "y", name="r", steepness=1.0)], {"x": [2]}, ["y"])


@case(InvalidError, "TW2027", "attribute 'alpha'", "its value is in field 'i'")
def attribute_in_wrong_field() -> onnx.ModelProto:
    made = model([node("LeakyRelu", "x", "y")], {"x": [2]}, ["y"])
    made.graph.node[0].attribute.append(AttributeProto(name="alpha", type=AttributeProto.FLOAT, i=3))
    return made


@case(InvalidError, "TW2027", "attribute 'alpha' is given twice")
def attribute_twice() -> onnx.ModelProto:
    made = model([node("LeakyRelu", "x", "y", alpha=0.1)], {"x": [2]}, ["y"])
    made.graph.node[0].attribute.append(made.graph.node[0].attribute[0])
    return made


@case(InvalidError, "TW2027", "its kind is unknown")
def attribute_of_no_kind() -> onnx.ModelProto:
    made = model([node("LeakyRelu", "x", "y")], {"x": [2]}, ["y"])
    made.graph.node[0].attribute.append(AttributeProto(name="alpha"))
    return made


@case(InvalidError, "TW2029", "output 'y' is declared int64, but is float")
def output_of_another_kind() -> onnx.ModelProto:
    made = model([node("Relu", "x", "y")], {"x": [2]}, ["y"])
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    return made


@case(InvalidError, "TW2108", "CumSum node 'p'", "must have one element; given: axis [2]")
def cumsum_along_two_axes() -> onnx.ModelProto:
    return model([node("CumSum", "x axes", "y", name="p")], {"x": [3, 4]}, ["y"], {"axes": np.array([0, 1])})


@case(InvalidError, "TW2111", "OneHot node 'o'", "given: depth=1099511627776")
def one_hot_of_too_many() -> onnx.ModelProto:
    nodes = [node("Cast", "x", "i", to=TensorProto.INT64), node("OneHot", "i depth values", "y", name="o")]
    return model(nodes, {"x": [2]}, ["y"], {"depth": np.array(2**40), "values": np.array([0, 1], np.float32)})


@case(InvalidError, "TW2111", "QuantizeLinear node 'q'", "must not be 0; given: y_scale=0")
def scale_of_zero() -> onnx.ModelProto:
    nodes = [node("QuantizeLinear", "x none zero", "i", name="q"), node("DequantizeLinear", "i one zero", "y")]
    known = {"none": np.float32(0), "one": np.float32(1), "zero": np.uint8(0)}
    return model(nodes, {"x": [2]}, ["y"], known)


@case(InvalidError, "TW2032", "Concat node 'c'", "attribute 'axis' is required")
def missing_attribute() -> onnx.ModelProto:
    return model([node("Concat", "x x", "y", name="c")], {"x": [2]}, ["y"])


@case(InvalidError, "TW2032", "Add node 'a'", "1 inputs, but it takes 2")
def too_few_inputs() -> onnx.ModelProto:
    return model([node("Add", "x", "y", name="a")], {"x": [2]}, ["y"])


@case(InvalidError, "TW2032", "Relu node 'r'", "2 outputs, but it takes 1")
def too_many_outputs() -> onnx.ModelProto:
    return model([node("Relu", "x", "y z", name="r")], {"x": [2]}, ["y"])


# Types and shapes


@case(InvalidError, "TW2032", "Add node 'a'", "tensor(int32)", "tensor(float)")
def mixed_types() -> onnx.ModelProto:
    return model([node("Add", "x i", "y", name="a")], {"x": [2], "i": (TensorProto.INT32, [2])}, ["y"])


@case(InvalidError, "TW2032", "Not node 'n'", "cannot be tensor(float)")
def wrong_type() -> onnx.ModelProto:
    return model([node("Not", "x", "y", name="n")], {"x": [2]}, ["y"])


@case(UnsupportedError, "TW2031", "string tensors are not supported")
def string_input() -> onnx.ModelProto:
    return model([node("Identity", "x", "y")], {"x": (TensorProto.STRING, [2])}, ["y"])


@case(UnsupportedError, "TW2031", "type 12345 tensors are not supported")
def unknown_input_type() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": (12345, [2])}, ["y"])


@case(UnsupportedError, "TW2031", "input 's' is a sequence_type")
def sequence_input() -> onnx.ModelProto:
    made = model([node("Relu", "x", "y")], {"x": [2]}, ["y"])
    info = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    made.graph.input.append(info)
    return made


@case(InvalidError, "TW2006", "input 'x'", "negative extent")
def negative_dim() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": [2, -3]}, ["y"])


@case(InvalidError, "TW2006", "input 'x'", "more elements than the limit")
def overflowing_dims() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": [1 << 33, 1 << 33]}, ["y"])


@case(InvalidError, "TW2006", "input 'x'", "more elements than the limit")
def overflow_hidden_by_zero() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": [1 << 40, 0]}, ["y"])


@case(InvalidError, "TW2006", "input 'x'", "rank 65")
def high_rank() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": [1] * 65}, ["y"])


@case(UsageError, "TW2040", "input 'x': dimension 0 ('batch') is not known", "--dim batch=", "--shape x=?x3")
def symbolic_dim() -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], {"x": ["batch", 3]}, ["y"])


@case(InvalidError, "TW2108", "Add node 'a'", "broadcast")
def shapes_that_do_not_broadcast() -> onnx.ModelProto:
    return model([node("Add", "x z", "y", name="a")], {"x": [2], "z": [3]}, ["y"])


@case(LimitError, "TW2006", "Expand node 'e'", "more elements than the limit")
def expand_beyond_limits() -> onnx.ModelProto:
    constants = {"shape": np.array([1 << 20, 1 << 20, 2])}
    return model([node("Expand", "x shape", "y", name="e")], {"x": [2]}, ["y"], constants)


@case(LimitError, "TW2006", "more elements than the limit")
def constant_of_huge_shape() -> onnx.ModelProto:
    nodes = [node("ConstantOfShape", "shape", "c", name="c"), node("Add", "x c", "y")]
    return model(nodes, {"x": [2]}, ["y"], {"shape": np.array([1 << 30, 1 << 30])})


@case(LimitError, "TW2033", "ConstantOfShape node 'c'", "1048576 elements, limit 1024")
def shape_of_a_million_dims() -> onnx.ModelProto:
    return model([node("ConstantOfShape", "s", "y", name="c")], {}, ["y"], {"s": np.zeros(1 << 20, np.int64)})


@case(LimitError, "TW2033", "Sum node 's'", "5000 inputs", "limit 1024")
def node_with_thousands_of_inputs() -> onnx.ModelProto:
    """A sum of as many terms would be an expression as deep, and end in the visitor's stack."""
    return model([node("Sum", " ".join(["x"] * 5000), "y", name="s")], {"x": [2]}, ["y"])


@case(InvalidError, "TW2032", "Split node 's'", "no 2 equal parts")
def split_into_unequal_parts() -> onnx.ModelProto:
    return model([node("Split", "x", "y z", name="s")], {"x": [3]}, ["y"], opset=13)


@case(UnsupportedError, "TW2031", "Cast node 'c'", "int4 results")
def cast_to_four_bits() -> onnx.ModelProto:
    return model([node("Cast", "x", "y", name="c", to=TensorProto.INT4)], {"x": [3]}, ["y"], opset=21)


# Tensors


def _with_tensor(tensor: TensorProto) -> onnx.ModelProto:
    made = model([node("Add", "x w", "y")], {"x": [2]}, ["y"])
    tensor.name = "w"
    made.graph.initializer.append(tensor)
    return made


@case(InvalidError, "TW2006", "initializer 'w'", "negative extent")
def tensor_negative_dim() -> onnx.ModelProto:
    return _with_tensor(TensorProto(dims=[-2], data_type=1, raw_data=bytes(8)))


@case(LimitError, "TW2006", "initializer 'w'", "more elements than the limit")
def tensor_overflowing_dims() -> onnx.ModelProto:
    return _with_tensor(TensorProto(dims=[1 << 62, 4], data_type=1, raw_data=b""))


@case(InvalidError, "TW2007", "initializer 'w'", "800 bytes are announced, 8 are there")
def tensor_too_short() -> onnx.ModelProto:
    return _with_tensor(TensorProto(dims=[200], data_type=1, raw_data=bytes(8)))


@case(InvalidError, "TW2007", "initializer 'w'", "given twice")
def tensor_given_twice() -> onnx.ModelProto:
    return _with_tensor(TensorProto(dims=[2], data_type=1, raw_data=bytes(8), float_data=[1, 2]))


@case(InvalidError, "TW2007", "initializer 'w'", "float elements cannot be in int64_data")
def tensor_in_wrong_field() -> onnx.ModelProto:
    return _with_tensor(TensorProto(dims=[2], data_type=1, int64_data=[1, 2]))


@case(InvalidError, "TW2007", "initializer 'w'", "does not fit int8")
def tensor_element_out_of_range() -> onnx.ModelProto:
    return _with_tensor(TensorProto(dims=[2], data_type=TensorProto.INT8, int32_data=[1, 300]))


@case(InvalidError, "TW2007", "initializer 'w'", "unknown element type 77")
def tensor_of_unknown_type() -> onnx.ModelProto:
    return _with_tensor(TensorProto(dims=[2], data_type=77, raw_data=bytes(8)))


@case(InputError, "TW2010", "initializer 'w'", "given by its path")
def external_data_of_bytes() -> onnx.ModelProto:
    tensor = TensorProto(dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    return _with_tensor(tensor)


@case(UnsupportedError, "TW2031", "initializer 'w' is sparse")
def sparse_initializer() -> onnx.ModelProto:
    made = model([node("Add", "x w", "y")], {"x": [2]}, ["y"])
    values, indices = (
        numpy_helper.from_array(np.ones(1, np.float32), "w"),
        numpy_helper.from_array(np.zeros(1, np.int64)),
    )
    made.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, indices=indices, dims=[2]))
    return made


# Names and bytes


@case(InvalidError, "TW2024", r"'a\x1b[31m\u202ered\x00'", "is made by nothing")
def names_that_steer_terminals() -> onnx.ModelProto:
    return model([node("Relu", "x", "y", name="ok")], {"x": [2]}, ["a\x1b[31m\u202ered\0"])


@case(LimitError, "TW2005", "name of NodeProto", "limit of 1024")
def long_name() -> onnx.ModelProto:
    return model([node("Relu", "x", "y", name="n" * 100_000)], {"x": [2]}, ["y"])


@case(InvalidError, "TW2003", "name of NodeProto is not UTF-8")
def name_that_is_not_text() -> bytes:
    data = model([node("Relu", "x", "y", name="@@@@")], {"x": [2]}, ["y"]).SerializeToString()
    return data.replace(b"@@@@", b"\xff\xfe\x80\x81")


@case(LimitError, "TW2005", "more fields", "limit of 300000", limits=Limits(fields=300_000))
def empty_messages() -> bytes:
    """Two bytes each in the file, and hundreds in memory."""
    return b"\x08\x0a" + _field(7, b"\x72\x00" * 500_000)


@case(LimitError, "TW2005", "more nodes", "limit of 200000")
def too_many_nodes() -> bytes:
    return b"\x08\x0a" + _field(7, b"\x0a\x00" * 300_000)


@case(InvalidError, "TW2003", "is empty")
def empty_file() -> bytes:
    return b""


@case(InvalidError, "TW2003", "not an ONNX model")
def text_file() -> bytes:
    return b"#!/bin/sh\necho this is not a model\n" * 20


@case(InvalidError, "TW2003", "wire type 3")
def deprecated_groups() -> bytes:
    return b"\x0b" * 100_000


def random_bytes(seed: int) -> bytes:
    return random.Random(seed).randbytes(4096)


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of the wire format."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
