"""Picking and joining along a last axis of few elements, against onnxruntime, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import compiler
from compiler.frontend import import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import operators

pytestmark = pytest.mark.usefixtures("as_planned")

RNG = np.random.default_rng(5)


def feeds(*shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {f"x{at}": RNG.standard_normal(shape).astype(np.float32) for at, shape in enumerate(shapes)}


def of(operator: str, given: dict[str, np.ndarray], constants: dict[str, Any], **attributes: Any) -> Any:
    names = " ".join([*given, *constants])
    inputs = {name: list(array.shape) for name, array in given.items()}
    return model([node(operator, names, "y", **attributes)], inputs, ["y"], constants)


@pytest.mark.parametrize("shape", [(4, 8, 64, 2), (1024, 3), (2, 2, 2), (1, 5000, 1), (3, 700, 17)])
@pytest.mark.parametrize("index", [0, -1, [0], [[-1]]])
def test_one_of_the_last_axis(shape: tuple[int, ...], index: Any) -> None:
    given = feeds(shape)
    for axis in (-1, len(shape) - 1):
        network = of("Gather", given, {"i": np.array(index)}, axis=axis)
        check(network, import_model(network.SerializeToString()), given)


@pytest.mark.parametrize("shapes", [[(4, 8, 64, 1)] * 2, [(1500, 1)] * 3, [(2, 2, 1)] * 2, [(1024, 1), (1024, 2)]])
def test_one_behind_another(shapes: list[tuple[int, ...]]) -> None:
    given = feeds(*shapes)
    network = of("Concat", given, {}, axis=-1)
    check(network, import_model(network.SerializeToString()), given)


def test_pairs_are_moved_in_runs() -> None:
    """Each half of all pairs takes about as long as a copy of all of them."""
    given = feeds((8, 128, 64, 2))
    taken = of("Gather", given, {"i": np.array(1)}, axis=-1)
    apart = feeds((8, 128, 64, 1), (8, 128, 64, 1))
    put = of("Concat", apart, {}, axis=-1)
    for network, arrays in ((taken, given), (put, apart)):
        loaded = compiler.load(compiler.compile(network.SerializeToString(), chip="tw2"))
        loaded.run(arrays, hazards=True)
        assert loaded.cycles < 6000


PICKED = RNG.permutation(64)


@pytest.mark.parametrize(
    "indices", [PICKED, PICKED[:16] - 64, PICKED.reshape(8, 8), np.arange(64) // 2, np.arange(64), np.arange(0, 64, 3)]
)
@pytest.mark.parametrize("known", [False, True])
def test_columns(indices: np.ndarray, known: bool) -> None:
    given = feeds((4, 64, 64))
    if known:
        network = of("Gather", given, {"i": indices}, axis=2)
    else:
        given["i"] = indices
        inputs = {"x0": [4, 64, 64], "i": (onnx.TensorProto.INT64, list(indices.shape))}
        network = model([node("Gather", "x0 i", "y", axis=-1)], inputs, ["y"])
    check(network, import_model(network.SerializeToString()), given)


@pytest.mark.parametrize("rows, are_turned", [(1024, False), (4096, True)])
def test_stretches_of_columns_are_turned_where_there_are_many(rows: int, are_turned: bool) -> None:
    """The products of all pairs of nine features, each once."""
    pairs = np.flatnonzero(np.tril(np.ones((9, 9)), -1))
    source = model([node("Gather", "x i", "y", axis=1)], {"x": (rows, 81)}, ["y"], {"i": pairs})
    assert ("Transpose" in operators(import_model(source.SerializeToString()))) is are_turned


def test_columns_are_moved_as_rows() -> None:
    """An element at a time, they took 39,022 cycles."""
    given = feeds((1024, 256))
    network = of("Gather", given, {"i": RNG.permutation(256)}, axis=1)
    loaded = compiler.load(compiler.compile(network.SerializeToString(), chip="tw2", precision="fp16"))
    loaded.run(given, hazards=True)
    assert loaded.cycles < 6000
