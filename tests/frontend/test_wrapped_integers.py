"""Known integers beyond 32 bits: hashes of them are right, and the largest numbers stay that."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.frontend import import_model
from models import checks
from tests.frontend.cpu import run

Array = np.ndarray[Any, Any]


def model(nodes: list[onnx.NodeProto], kind: int, known: dict[str, Array]) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(name, kind, [40]) for name in ("x", "z")]
    constants = [numpy_helper.from_array(array, name) for name, array in known.items()]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", kind, [40])], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.uint32])
def test_hashes_of_large_primes_are_right(dtype: Any) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "p"], ["a"]),
        helper.make_node("Mul", ["q", "z"], ["b"]),
        helper.make_node("BitwiseXor", ["a", "b"], ["c"]),
        helper.make_node("Add", ["c", "r"], ["d"]),
        helper.make_node("BitwiseAnd", ["d", "m"], ["y"]),
    ]
    known = {"p": 2654435761, "q": 3674653429, "r": 2246822519, "m": (1 << 14) - 1}
    proto = model(
        nodes, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), {n: np.array(v, dtype) for n, v in known.items()}
    )
    feeds = {name: np.arange(at, 40 + at).astype(dtype) for name, at in (("x", 0), ("z", 900))}
    imported = import_model(proto.SerializeToString())
    np.testing.assert_array_equal(run(imported, feeds)[0], checks.run(proto, feeds)["y"])
    assert any("modulo 2 ** 32" in note for note in imported.notes)


def test_remainders_by_powers_of_two_are_right() -> None:
    nodes = [helper.make_node("Mul", ["x", "p"], ["a"]), helper.make_node("Add", ["a", "z"], ["b"])]
    nodes.append(helper.make_node("Mod", ["b", "n"], ["y"]))
    proto = model(nodes, TensorProto.INT64, {"p": np.array(2654435761), "n": np.array(512)})
    feeds = {"x": np.arange(40), "z": np.arange(40) * 7}
    np.testing.assert_array_equal(run(import_model(proto.SerializeToString()), feeds)[0], checks.run(proto, feeds)["y"])


def test_the_largest_number_stays_the_largest() -> None:
    nodes = [helper.make_node("Mul", ["x", "p"], ["a"]), helper.make_node("Min", ["a", "z"], ["y"])]
    proto = model(nodes, TensorProto.INT64, {"p": np.array(np.iinfo(np.int64).max)})
    feeds = {"x": np.arange(40) % 2, "z": np.arange(40)}
    np.testing.assert_array_equal(run(import_model(proto.SerializeToString()), feeds)[0], checks.run(proto, feeds)["y"])
