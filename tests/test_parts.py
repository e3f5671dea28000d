"""Tensors that are parts of others: no kernel joins or cuts them, and results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler import api, driver, graph, model_kernels
from compiler.kernels import NoRoadLeft, Road
from compiler.operators import TensorType, find
from compiler.parts import Parts, cut_offset, is_join
from compiler.target import load_chip
from tests.test_driver import model, node

SIZES = {"a": 10, "b": 20, "c": 30, "d": 40, "ab": 30, "abc": 60, "bc": 50}
RNG = np.random.default_rng(11)


def kernels(name: str, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
    declared = find("", name)
    assert declared is not None
    return declared.kernels([TensorType(i, "float32") if isinstance(i, tuple) else i for i in inputs], attributes)


def first_of(function: Any) -> int | None:
    """Where in its input the result begins: a view is all of it."""
    return 0 if graph.attribute(function, "tw.schedule") == "view" else cut_offset(function, [None])


def test_what_is_joined_lies_one_after_another() -> None:
    parts = Parts(SIZES)
    assert parts.join("abc", ["a", "b", "c"])
    assert [parts.place(name) for name in ("a", "b", "c", "abc", "d")] == [
        ("abc", 0), ("abc", 10), ("abc", 30), ("abc", 0), ("d", 0),
    ]  # fmt: skip


def test_what_is_joined_twice_stays_in_one_piece() -> None:
    """As the inputs of a dense block: each joins all before it."""
    parts = Parts(SIZES)
    assert parts.join("ab", ["a", "b"])
    assert parts.join("abc", ["a", "b", "c"])
    assert [parts.place(name) for name in ("a", "b", "c", "ab")] == [("abc", 0), ("abc", 10), ("abc", 30), ("abc", 0)]
    assert not parts.join("bc", ["b", "c"])  # a and b lie together


def test_what_is_in_another_place_already_is_copied() -> None:
    parts = Parts(SIZES)
    assert parts.join("ab", ["a", "b"])
    assert not parts.join("bc", ["b", "c"])
    assert not parts.join("abc", ["b", "a", "c"])
    assert not parts.join("d", ["a", "a"])
    assert not parts.join("d", ["input", "c"])
    assert parts.cut("c", "ab", 0)
    assert parts.place("c") == ("ab", 0)
    assert parts.cut("d", "c", 4)
    assert parts.place("d") == ("ab", 4)
    assert not parts.cut("output", "ab", 0)


@pytest.mark.parametrize("seed", range(12))
def test_cuts_are_in_one_piece(seed: int) -> None:
    """An offset is given exactly where the elements of a slice follow each other."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 1, 2, 3, 5], 4))
    starts = np.array([rng.integers(n) for n in shape])
    ends = np.array([rng.integers(start, n) + 1 for start, n in zip(starts, shape, strict=True)])
    (function,) = kernels("Slice", shape, starts, ends)
    whole = np.arange(np.prod(shape)).reshape(shape)
    picked = whole[tuple(slice(a, b) for a, b in zip(starts, ends, strict=True))].ravel()
    follows = bool((np.diff(picked) == 1).all())
    assert first_of(function) == (int(picked[0]) if follows else None)


def test_what_is_moved_otherwise_is_no_cut() -> None:
    (turned,) = kernels("Transpose", (1, 3, 4), perm=(0, 2, 1))
    (same,) = kernels("Transpose", (3, 1, 4), perm=(1, 0, 2))
    (strided,) = kernels("Slice", (8,), np.array([0]), np.array([8]), np.array([0]), np.array([2]))
    assert [first_of(each) for each in (turned, same, strided)] == [None, 0, None]


def test_joins_are_along_the_first_axis_of_several_elements() -> None:
    joins = [
        kernels("Concat", (1, 2, 3), (1, 4, 3), axis=1),
        kernels("Concat", (2, 2, 3), (2, 4, 3), axis=1),
        kernels("Concat", (2, 3), (2, 3), axis=0),
        kernels("Relu", (2, 3)),
    ]
    assert [is_join(function) for (function,) in joins] == [True, False, True, False]


def dense(batch: int) -> tuple[bytes, np.ndarray]:
    nodes = [
        node("Relu", "x", "a"),
        node("Neg", "a", "b"),
        node("Concat", "a b", "ab", axis=1),
        node("ReduceMax", "ab", "c", axes=[1], keepdims=1),
        node("Concat", "a b c", "abc", axis=1),
        node("Slice", "abc from to axis", "s"),
        node("Gather", "s one", "g", axis=1),
        node("Tanh", "s", "t"),
        node("Softmax", "g", "u", axis=-1),
        node("Add", "t u", "y"),
    ]
    bounds = {"from": np.array([1]), "to": np.array([6]), "axis": np.array([1]), "one": np.array([1])}
    source = model(nodes, {"x": (batch, 3, 7)}, ["y"], integers=bounds)
    x = RNG.standard_normal((batch, 3, 7)).astype(np.float32)
    return source, x


def reference(x: np.ndarray) -> np.ndarray:
    a = np.maximum(x, 0)
    ab = np.concatenate([a, -a], 1)
    s = np.concatenate([ab, ab.max(1, keepdims=True)], 1)[:, 1:6]
    g = np.exp(s[:, 1:2])
    result: np.ndarray = np.tanh(s) + g / g.sum(-1, keepdims=True)
    return result


@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
def test_no_kernel_joins_or_cuts(chip: str) -> None:
    source, x = dense(1)
    steps = driver.compile_model(source, load_chip(chip)).steps
    assert not {"ab", "abc", "s", "g"} & {node for step in steps for node in step.nodes}
    found = api.compile(source, chip).run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, reference(x), rtol=1e-4, atol=1e-5)


def test_batches_are_joined_by_kernels() -> None:
    source, x = dense(2)
    steps = driver.compile_model(source, load_chip("tiny")).steps
    assert {"ab", "abc", "s"} <= {node for step in steps for node in step.nodes}
    found = api.compile(source, "tiny").run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, reference(x), rtol=1e-4, atol=1e-5)


def test_the_host_gets_tensors_that_are_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_jobs = model_kernels.compile_jobs

    def refuse(jobs: Any, *rest: Any) -> Any:
        results = compile_jobs(jobs, *rest)
        return [
            NoRoadLeft(job.name, [Road("emission", "refused")]) if "c" in job.name.split("+") else result
            for job, result in zip(jobs, results, strict=True)
        ]

    monkeypatch.setattr(model_kernels, "compile_jobs", refuse)
    source, x = dense(1)
    compilation = driver.compile_model(source, load_chip("tiny"))
    assert "abc" in {node for step in compilation.steps for node in step.nodes}
    found = api.compile(source, "tiny").run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, reference(x), rtol=1e-4, atol=1e-5)
