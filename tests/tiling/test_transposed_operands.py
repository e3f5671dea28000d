"""Products and attention whose operands lie in DDR with their axes in another order: heads between rows."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import api
from tests.test_driver import model, node

pytestmark = pytest.mark.usefixtures("as_planned")
RNG = np.random.default_rng(5)


@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
@pytest.mark.parametrize("sizes", [(1, 2, 16, 32), (2, 3, 13, 8), (1, 5, 35, 24)])
@pytest.mark.parametrize("keys_in_rows", [True, False])
def test_heads_between_rows(chip: str, sizes: tuple[int, int, int, int], keys_in_rows: bool) -> None:
    """One product reads both of its operands with heads between their rows."""
    batch, heads, rows, width = sizes
    turned = [0, 2, 3, 1] if keys_in_rows else [0, 2, 1, 3]
    given = (batch, rows, heads, width) if keys_in_rows else (batch, width, heads, rows)
    nodes = [
        node("Transpose", "q", "a", perm=[0, 2, 1, 3]),
        node("Transpose", "k", "b", perm=turned),
        node("MatMul", "a b", "y"),
    ]
    source = model(nodes, {"q": (batch, rows, heads, width), "k": given}, ["y"])
    artifact = api.compile(source, chip)
    assert len(artifact.report.kernels) == 1
    q, k = (RNG.standard_normal(shape).astype(np.float32) for shape in ((batch, rows, heads, width), given))
    found = artifact.run({"q": q, "k": k}, hazards=True)["y"]
    np.testing.assert_allclose(found, q.transpose(0, 2, 1, 3) @ k.transpose(turned), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("sizes", [(1, 3, 37, 16), (2, 2, 16, 64)])
def test_attention_of_heads_between_rows(chip: str, sizes: tuple[int, int, int, int]) -> None:
    batch, heads, rows, width = sizes
    nodes = [
        node("Transpose", "q", "qt", perm=[0, 2, 1, 3]),
        node("Transpose", "k", "kt", perm=[0, 2, 3, 1]),
        node("Transpose", "v", "vt", perm=[0, 2, 1, 3]),
        node("MatMul", "qt kt", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p vt", "y"),
    ]
    shape = (batch, rows, heads, width)
    source = model(nodes, dict.fromkeys("qkv", shape), ["y"])
    artifact = api.compile(source, chip, precision="fp16")
    assert len(artifact.report.kernels) == 1
    inputs = {name: RNG.standard_normal(shape).astype(np.float32) for name in "qkv"}
    found = artifact.run(inputs, hazards=True)["y"]
    q, k, v = (inputs[name].transpose(0, 2, 1, 3).astype(np.float64) for name in "qkv")
    powers = np.exp(q @ k.transpose(0, 1, 3, 2))
    np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True) @ v, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
@pytest.mark.parametrize("sizes", [(1, 3, 37, 16), (2, 2, 16, 32)])
def test_attention_of_one_product(chip: str, sizes: tuple[int, int, int, int]) -> None:
    """Queries, which are scaled, keys and values beside one another, and results with heads between their rows."""
    batch, heads, rows, width = sizes
    nodes = [
        node("Transpose", "x", "j", perm=[2, 0, 3, 1, 4]),
        *(node("Gather", f"j part{at}", name, axis=0) for at, name in enumerate("qkv")),
        node("Mul", "q scale", "qs"),
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "qs kt", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p v", "o"),
        node("Transpose", "o", "y", perm=[0, 2, 1, 3]),
    ]
    parts = {f"part{at}": np.array(at) for at in range(3)}
    source = model(nodes, {"x": (batch, rows, 3, heads, width)}, ["y"], parts, scale=np.array(0.3, np.float32))
    artifact = api.compile(source, chip, precision="fp16")
    assert chip == "tiny" or len(artifact.report.kernels) == 1  # which holds no scores
    x = RNG.standard_normal((batch, rows, 3, heads, width)).astype(np.float32)
    found = artifact.run({"x": x}, hazards=True)["y"]
    q, k, v = x.transpose(2, 0, 3, 1, 4).astype(np.float64)
    powers = np.exp(q @ k.transpose(0, 1, 3, 2) * 0.3)
    expected = (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)
