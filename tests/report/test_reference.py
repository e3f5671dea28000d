"""What `verify` compares with is what the graph says, whatever the host's processor."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.report.reference import reference_of


def test_sums_of_bytes_do_not_saturate() -> None:
    """Of unsigned by signed bytes: two products of the largest ones are more than 16 bits hold."""
    weight, zero = np.full((1, 2, 1, 1), 127, np.int8), np.array(0, np.int8)
    constants = {
        "sx": np.float32(1), "zx": np.uint8(0), "w": weight, "sw": np.float32(1), "zw": zero,
        "sy": np.float32(512), "zy": np.uint8(0),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"])
    ports = [helper.make_tensor_value_info(name, TensorProto.UINT8, [1, n, 4, 4]) for name, n in (("x", 2), ("y", 1))]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph([node], "sums", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    found = reference_of(model)[1].run({"x": np.full((1, 2, 4, 4), 255, np.uint8)})["y"]
    assert np.array_equal(found, np.full((1, 1, 4, 4), round(2 * 255 * 127 / 512)))


def test_weights_of_floats_between_quantised_tensors_stay_floats() -> None:
    constants = {
        "scale": np.float32(1), "zero": np.uint8(0), "one": np.eye(2, dtype=np.uint8).reshape(2, 2, 1, 1),
        "w": np.array([2, 0.0045], np.float32).reshape(2, 1, 1, 1), "b": np.zeros(1, np.float32),
    }  # fmt: skip
    quantised = ["scale", "zero"]
    nodes = [
        helper.make_node("QLinearConv", ["x", *quantised, "one", *quantised, *quantised], ["same"]),
        helper.make_node("DequantizeLinear", ["same", *quantised], ["floats"]),
        helper.make_node("ConvTranspose", ["floats", "w", "b"], ["products"]),
        helper.make_node("QuantizeLinear", ["products", *quantised], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.UINT8, [1, n, 1, 1]) for name, n in (("x", 2), ("y", 1))]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "weights", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    found = reference_of(model)[1].run({"x": np.array([0, 255], np.uint8).reshape(1, 2, 1, 1)})["y"]
    assert found.item() == 1  # with the weight in steps of 2 / 255 it would be 2


def test_a_least_accuracy_is_no_reason_to_round() -> None:
    """onnxruntime rounds the rows of ``a`` to bytes, where a node of `MatMulNBits` allows that."""
    constants = {"b": np.full((4, 1, 16), 0x99, np.uint8), "scales": np.ones(4, np.float32)}  # 1 everywhere
    node = helper.make_node(
        "MatMulNBits", ["a", *constants], ["y"], domain="com.microsoft", K=32, N=4, bits=4, block_size=32,
        accuracy_level=4,
    )  # fmt: skip
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("a", 32), ("y", 4))]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "bits", ports[:1], ports[1:], weights)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    a = np.linspace(-1, 0.7, 32, dtype=np.float32)[None]
    np.testing.assert_allclose(reference_of(model)[1].run({"a": a})["y"], np.full((1, 4), a.sum()), atol=1e-5)
