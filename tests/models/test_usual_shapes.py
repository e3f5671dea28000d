"""Operators as people have them whose programs once took tens to thousands of times as long as similar ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import compiler
from models import checks
from tests.frontend.models import model, node

RNG = np.random.default_rng(2)


def cycles_of(
    operator: str, shape: tuple[int, ...], constants: dict[str, Any], precision: str = "fp16", **attributes: Any
) -> int:
    """On tw2, where the results are onnxruntime's."""
    outputs = ["v", "y"] if operator == "TopK" else ["y"]
    names = " ".join(["x", *constants])
    network = model([node(operator, names, " ".join(outputs), **attributes)], {"x": list(shape)}, ["y"], constants)
    if operator == "TopK":
        network.graph.output[0].type.tensor_type.elem_type = 7
    x = {"x": RNG.permutation(np.prod(shape)).reshape(shape).astype(np.float32) % 251 / 64}
    loaded = compiler.load(compiler.compile(network.SerializeToString(), chip="tw2", precision=precision))
    found, wanted = loaded.run(x, hazards=True)["y"], checks.run(network, x)["y"]
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2e-2, atol=2e-3)
    return loaded.cycles or 0


@pytest.mark.parametrize(
    ("operator", "shape", "attributes", "most"),
    [
        ("Softmax", (16, 7, 4096), {"axis": 1}, 8_000),  # 353,014 once
        ("Softmax", (1, 16, 4, 2100), {"axis": 1}, 4_000),
        ("LogSoftmax", (16, 7, 1024), {"axis": 1}, 6_000),
        ("LpNormalization", (1, 256, 30, 40), {"axis": 1, "p": 2}, 8_000),
    ],
)
def test_rows_that_lie_apart(operator: str, shape: tuple[int, ...], attributes: dict[str, Any], most: int) -> None:
    assert cycles_of(operator, shape, {}, **attributes) < most


@pytest.mark.parametrize(
    ("shape", "axis", "most"),
    [((64, 512), 1, 1_500), ((512, 64), 0, 4_000), ((1, 128), 1, 500)],  # 21,373,011, 21,523,040 and 19,851 once
)
def test_running_sums(shape: tuple[int, int], axis: int, most: int) -> None:
    assert cycles_of("CumSum", shape, {"axis": np.array(axis)}, precision="fp32") < most


@pytest.mark.parametrize(("largest", "most"), [(1, 2_000), (0, 2_000)])  # 566,156 once
def test_the_one_largest(largest: int, most: int) -> None:
    assert cycles_of("TopK", (32, 251), {"k": np.array([1])}, largest=largest) < most


@pytest.mark.parametrize("where", ["queries", "scores"])
def test_attention_of_one_image_wherever_it_is_scaled(where: str) -> None:
    """Behind the product it took 3.4 times as long where there is one image."""
    shape = [1, 4, 512, 64]
    q, scores = ("scaled", "product") if where == "queries" else ("q", "scaled")
    nodes = [
        *([node("Mul", "q s", "scaled")] if where == "queries" else []),
        node("MatMul", f"{q} k", "product"),
        *([node("Mul", "product s", "scaled")] if where == "scores" else []),
        node("Softmax", scores, "p", axis=-1),
        node("MatMul", "p v", "y"),
    ]
    inputs = {"q": shape, "k": [1, 4, 64, 512], "v": shape}
    network = model(nodes, inputs, ["y"], {"s": np.float32(0.125)})
    loaded = compiler.load(compiler.compile(network.SerializeToString(), chip="tw2", precision="fp16"))
    feeds = {name: RNG.standard_normal(size).astype(np.float32) for name, size in inputs.items()}
    found, wanted = loaded.run(feeds, hazards=True)["y"], checks.run(network, feeds)["y"]
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-2, atol=5e-3)
    assert (loaded.cycles or 0) < 8_000


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("shape", [(1, 64, 128, 128), (1, 1, 128, 128), (1, 8, 256, 256)])
def test_instance_norms_whose_rows_are_summed_in_parts(shape: tuple[int, ...]) -> None:
    """Sums of parts of rows have no place of their own that the cube's could be picked to."""
    ones = np.ones(shape[1], np.float32)
    assert cycles_of("InstanceNormalization", shape, {"s": ones, "b": 0 * ones}) > 0


@pytest.mark.parametrize("operator", ["Conv", "MatMul"])
def test_what_is_added_to_its_own_operand(operator: str) -> None:
    """A residual around one layer: the product of 512 x 256 took 79,022 cycles, the convolution two kernels."""
    shape, weights = ([512, 256], (256, 256)) if operator == "MatMul" else ([1, 32, 80, 80], (32, 32, 3, 3))
    attributes = {} if operator == "MatMul" else {"pads": [1, 1, 1, 1]}
    constants = {"w": (RNG.standard_normal(weights) / 16).astype(np.float32)}
    nodes = [
        node(operator, "x w", "a", **attributes),
        node("Sigmoid", "a", "s"),
        node("Mul", "a s", "m"),
        node("Add", "x m", "y"),
    ]
    network = model(nodes, {"x": shape}, ["y"], constants)
    artifact = compiler.compile(network.SerializeToString(), chip="tw2", precision="fp16")
    x = {"x": RNG.standard_normal(shape).astype(np.float32)}
    found, wanted = artifact.run(x, hazards=True)["y"], checks.run(network, x)["y"]
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-2, atol=1e-2)
    assert len(artifact.model.kernels) == 1
    assert (artifact.report.cycles or 0) < 4_500
