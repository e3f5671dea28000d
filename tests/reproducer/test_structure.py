"""A model without what it has learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.frontend import load_model
from compiler.reproducer.structure import external_files, without_weights

SECRET = 123.25


def model(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "product", doc_string="secret"),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.full(100, SECRET, np.float32))),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (2, 40)), ("y", (2, 30)))]
    graph = helper.make_graph(nodes, "graph", ports[:1], ports[1:], list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def weights(kind: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.full((40, 30), SECRET).astype(kind), "w")


def forgotten(folder: Path, found: onnx.ModelProto, **options: object) -> onnx.ModelProto:
    path = folder / "model.onnx"
    onnx.save(found, path, **options)
    return onnx.load_model_from_string(without_weights(path))


@pytest.mark.parametrize("kind", ["float32", "float16", "float64", "int8", "uint8"])
def test_weights_are_made_up(kind: str, tmp_path: Path) -> None:
    (found,) = forgotten(tmp_path, model(weights(kind))).graph.initializer if kind.startswith("float") else [None]
    if found is not None:
        array = numpy_helper.to_array(found)
        assert (array.shape, array.dtype, found.name) == ((40, 30), kind, "w")
        assert not (array == SECRET).any() and 0.5 <= array.min() and array.max() < 2
    big = numpy_helper.from_array(np.full((100, 100), 77).astype(kind), "w")
    (large,) = forgotten(tmp_path, model(big)).graph.initializer
    assert not (numpy_helper.to_array(large) == 77).any()


def test_constants_in_nodes_are_forgotten_and_so_is_what_was_noted(tmp_path: Path) -> None:
    found = forgotten(tmp_path, model(weights("float32")))
    constant = numpy_helper.to_array(found.graph.node[1].attribute[0].t)
    assert not (constant == SECRET).any()
    assert found.graph.node[0].doc_string == ""
    assert found.graph.node[0].name == "product"


def test_what_decides_shapes_stays(tmp_path: Path) -> None:
    shape = numpy_helper.from_array(np.array([7, -1, 1200], np.int64), "shape")
    epsilon = numpy_helper.from_array(np.array(1e-5, np.float32), "epsilon")
    kept = forgotten(tmp_path, model(weights("float32"), shape, epsilon)).graph.initializer
    assert numpy_helper.to_array(kept[1]).tolist() == [7, -1, 1200]
    assert numpy_helper.to_array(kept[2]) == np.float32(1e-5)


def test_external_data_is_needed_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    found = forgotten(folder, model(weights("float32")), save_as_external_data=True, location="w.bin", size_threshold=0)
    assert external_files(folder / "model.onnx") == {"w.bin"}
    path = tmp_path / "alone.onnx"
    onnx.save(found, path)
    assert load_model(path).initializers["w"].shape == (40, 30)
