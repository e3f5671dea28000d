"""Long sums in parts: where it pays, and that results stay what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tvm import te

from compiler import api
from compiler.operators.matmul import gemm, matmul
from compiler.pipeline import Observer
from compiler.sim.simulator import simulate
from compiler.target import load_chip
from compiler.tiling.split_k import SWITCH, split


def product(m: int, n: int, k: int, batch: tuple[int, ...] = ()) -> Any:
    a, b = te.placeholder((*batch, m, k), "float16", "a"), te.placeholder((*batch, k, n), "float16", "b")
    return te.create_prim_func([a, b, matmul(a, b)])


@pytest.mark.parametrize("shape", [(128, 128, 4096), (100, 36, 8192), (1, 128, 128, 4096)])
def test_a_long_sum_of_a_small_result_is_taken_in_parts(shape: tuple[int, ...]) -> None:
    *batch, m, n, k = shape
    found, *_ = split(product(m, n, k, tuple(batch)), "matmul", load_chip("tw2"))
    parts, *result = (int(extent) for extent in found.between[0].shape)
    assert result == [*batch, m, n]
    assert k % parts == 0
    assert [part.arguments for part in found.parts] == [(0, 1, 3), (3, 2)]
    assert [len(part.func.params) for part in found.parts] == [3, 2]


@pytest.mark.parametrize(
    "shape", [(1024, 1024, 1024), (256, 256, 512), (1, 4096, 1024), (127, 128, 4099)], ids=lambda shape: str(shape)
)
def test_what_gains_nothing_stays_one_kernel(shape: tuple[int, int, int]) -> None:
    assert split(product(*shape), "matmul", load_chip("tw2")) == ()


def test_batches_and_other_classes_stay_one_kernel() -> None:
    assert split(product(128, 128, 4096, (2,)), "matmul", load_chip("tw2")) == ()
    assert split(product(128, 128, 4096), "convolution", load_chip("tw2")) == ()


def test_the_second_kernel_has_what_follows_the_product() -> None:
    shapes = {"a": (64, 4096), "b": (4096, 128), "c": (128,)}
    a, b, c = (te.placeholder(shape, "float16", name) for name, shape in shapes.items())
    found, *_ = split(te.create_prim_func([a, b, c, gemm(a, b, c, alpha=0.5)]), "matmul", load_chip("tw2"))
    assert [part.arguments for part in found.parts] == [(0, 1, 4), (2, 4, 3)]


def weights(k: int, n: int) -> np.ndarray:
    return (np.random.default_rng(1).standard_normal((k, n)) / 64).astype(np.float32)


def layer(m: int, n: int, k: int) -> bytes:
    """relu(x @ w + 0.5)"""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="p"),
            helper.make_node("Add", ["p", "b"], ["s"], name="s"),
            helper.make_node("Relu", ["s"], ["y"], name="y"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (m, k))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            helper.make_tensor("w", TensorProto.FLOAT, (k, n), weights(k, n).reshape(-1).tolist()),
            helper.make_tensor("b", TensorProto.FLOAT, (n,), [0.5] * n),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


@pytest.mark.parametrize("k", [768, 1024, 2048])
def test_two_kernels_are_never_clearly_slower(k: int) -> None:
    cycles = []
    for without in (frozenset[str](), frozenset({SWITCH})):
        model = api.compile(
            layer(128, 128, k), "tw2", precision="fp16", cache=False, observer=Observer(without=without)
        ).model
        cycles.append(sum(simulate(s.program, model.chip).cycles for s in model.segments))
    assert cycles[0] <= 1.02 * cycles[1]


def test_results_are_those_of_one_kernel() -> None:
    m, n, k = 48, 80, 4096
    model, weight = layer(m, n, k), weights(k, n)
    x = np.random.default_rng(2).standard_normal((m, k)).astype(np.float32)
    results, kernels = {}, {}
    for without in (frozenset[str](), frozenset({SWITCH})):
        artifact = api.compile(model, "tw2", precision="fp16", cache=False, observer=Observer(without=without))
        kernels[without] = len(artifact.model.kernels)
        results[without] = artifact.run({"x": x}, hazards=True)["y"]
    assert list(kernels.values()) == [2, 1]
    exact = np.maximum(x.astype(np.float16).astype(np.float64) @ weight.astype(np.float16).astype(np.float64) + 0.5, 0)
    for result in results.values():
        np.testing.assert_allclose(result, exact, rtol=1e-3, atol=2e-3)


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize(
    ("m", "k", "chips"), [(65, 1536, "tw1 tw2"), (33, 1200, "tw1"), (100, 4096, "tw2"), (17, 1280, "tw1")]
)
def test_parts_end_where_the_next_begins(m: int, k: int, chips: str) -> None:
    """Of the last chunk of a part no load brings what is behind it: a block of L0A would lie elsewhere."""
    for chip in chips.split():
        artifact = api.compile(layer(m, 384, k), chip)
        x = np.random.default_rng(3).standard_normal((m, k)).astype(np.float32)
        exact = np.maximum(x.astype(np.float64) @ weights(k, 384) + 0.5, 0)
        np.testing.assert_allclose(artifact.run({"x": x}, hazards=True)["y"], exact, rtol=1e-4, atol=1e-4)
