"""Tensors that are parts of others: no kernel joins or cuts them, and results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from compiler import api, driver, graph
from compiler.isa.model import dense_strides
from compiler.operators import TensorType, find
from compiler.parts import Band, BandsOf, Parts, band_of, cut_offset, is_join, joined_bands, strides_of_view
from compiler.runtime.model import ProgramSegment
from compiler.target import load_chip
from tests.refused_kernels import refuse_node
from tests.test_driver import model, node

pytestmark = pytest.mark.usefixtures("as_planned")
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


def bands(*shapes: tuple[int, ...], axis: int = 1) -> list[Band]:
    """Of what they are joined to along an axis."""
    of = tuple(sum(each[at] for each in shapes) if at == axis else n for at, n in enumerate(shapes[0]))
    return [Band(axis, dense_strides(of), each, of) for each in shapes]


A, B, C, AB = (2, 5), (2, 10), (2, 15), (2, 15)  # of bytes


def test_bands_that_are_joined_twice_stay_together() -> None:
    parts = Parts(SIZES)
    assert parts.join_bands("ab", ["a", "b"], [0, 5], bands(A, B))
    assert parts.join_bands("abc", ["ab", "c"], [0, 15], bands(AB, C))
    assert [parts.place(name) for name in ("a", "b", "c", "ab")] == [("abc", 0), ("abc", 5), ("abc", 15), ("abc", 0)]
    assert {band.strides for band in parts.bands.values()} == {(30, 1)}
    parts = Parts(SIZES)
    assert parts.join_bands("ab", ["a", "b"], [0, 5], bands(A, B))
    assert parts.join_bands("abc", ["a", "b", "c"], [0, 5, 15], bands(A, B, C)), "each joins all before it"
    assert (parts.bands["a"].strides, parts.bands["a"].shape) == ((30, 1), A)
    assert (parts.bands["ab"].strides, parts.bands["ab"].shape) == ((30, 1), AB)
    assert not parts.join_bands("bc", ["b", "c"], [0, 10], bands(B, C)), "a and b lie together"


@pytest.mark.parametrize(
    ("parts", "offsets", "of"),
    [
        (["b", "c"], [0, 10], bands(B, C)),  # without a
        (["b", "a", "c"], [0, 10, 15], bands(B, A, C)),  # in another order
        (["a", "b", "c"], [0, 5, 15], bands((2, 1, 5), (2, 1, 10), (2, 1, 15), axis=2)),  # under other shapes
        (["ab", "ab"], [0, 15], bands(AB, AB)),
        (["ab", "input"], [0, 15], bands(AB, AB)),
        (["abc", "ab"], [0, 30], bands((2, 30), AB)),
        (["ab", "c"], [0, 3], bands((10, 3), (10, 3))),  # a band along another axis of what it is seen as
        (["ab", "empty"], [0, 15], bands(AB, (2, 0))),
    ],
)
def test_bands_that_would_leave_their_place_are_copied(parts: list[str], offsets: list[int], of: list[Band]) -> None:
    found = Parts(SIZES | {"empty": 0})
    assert found.join_bands("ab", ["a", "b"], [0, 5], bands(A, B))
    assert not found.join_bands("abc", parts, offsets, of)
    assert found.place("a") == ("ab", 0)


def test_a_whole_that_has_pieces_too_stays_where_it_is() -> None:
    found = Parts(SIZES)
    assert found.cut("d", "ab", 0)
    assert found.join_bands("ab", ["a", "b"], [0, 5], bands(A, B))
    assert not found.join_bands("abc", ["a", "b", "c"], [0, 5, 15], bands(A, B, C))
    assert not found.join_bands("abc", ["d", "c"], [0, 15], bands((2, 20), C))
    assert found.place("a") == ("ab", 0)


def test_bands_may_be_seen_where_rows_stay_together() -> None:
    for shapes, may in (({A, (2, 5, 1), (1, 2, 5)}, True), ({A, (10,)}, False)):
        found = Parts(SIZES, seen={"a": shapes})
        assert found.join_bands("ab", ["a", "b"], [0, 5], bands(A, B)) == may
        if may:
            assert found.strides_of("a", (2, 5, 1)) == (15, 1, 1)
            assert found.strides_of("c", (2, 15)) is None
            with pytest.raises(ValueError, match="cannot be seen as"):
                found.strides_of("a", (10,))


@pytest.mark.parametrize("seed", range(40))
def test_strides_of_a_view_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    extents = [int(n) for n in rng.choice([1, 2, 2, 3, 4], 4)]
    whole = np.zeros([2 * n for n in extents], np.int8)
    cuts = [slice(0, n if rng.random() < 0.5 else 2 * n) for n in extents]
    part = whole[tuple(cuts)]
    for _ in range(20):
        factors = [f for n in part.shape for f in ((n,) if rng.random() < 0.5 else _factors(n))]
        view = list[int]()
        for factor in factors:
            if view and rng.random() < 0.4:
                view[-1] *= factor
            else:
                view.append(factor)
        copy = part.view()
        try:
            copy.shape = tuple(view)
        except AttributeError:  # numpy would have to copy
            assert strides_of_view(part.shape, part.strides, view) is None
            continue
        found = strides_of_view(part.shape, part.strides, view)
        assert found is not None
        assert [s for s, n in zip(found, view, strict=True) if n > 1] == [
            s for s, n in zip(copy.strides, view, strict=True) if n > 1
        ]


def _factors(number: int) -> tuple[int, ...]:
    return (2, number // 2) if number % 2 == 0 else (number,)


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


@pytest.mark.parametrize("seed", range(12))
def test_bands_begin_where_slices_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, axis = tuple(int(n) for n in rng.choice([1, 2, 3, 5], 4)), int(rng.integers(4))
    start = int(rng.integers(shape[axis]))
    end = int(rng.integers(start, shape[axis])) + 1
    (function,) = kernels("Slice", shape, np.array([start]), np.array([end]), np.array([axis]))
    found = band_of(function)
    if end - start == shape[axis]:
        assert found is None
        return
    assert found is not None
    whole = np.arange(np.prod(shape)).reshape(shape)
    (band,) = found.bands
    assert found.first == (int(whole.take(start, axis).min()),)
    assert (band.strides, band.axis, band.of) == (dense_strides(shape), axis, shape)
    assert band.shape == whole.take(range(start, end), axis).shape


def test_what_is_no_band() -> None:
    steps = kernels("Slice", (2, 8), np.array([0]), np.array([8]), np.array([1]), np.array([2]))
    box = kernels("Slice", (4, 4), np.array([1, 1]), np.array([3, 3]))
    turned = kernels("Transpose", (2, 3), perm=(1, 0))
    assert [band_of(function) for (function,) in (steps, box, turned)] == [None, None, None]


def test_what_is_joined_is_in_bands() -> None:
    (function,) = kernels("Concat", (2, 3, 4), (2, 1, 4), (2, 3, 4), axis=1)
    assert joined_bands(function) == BandsOf((0, 12, 16), tuple(bands((2, 3, 4), (2, 1, 4), (2, 3, 4))))


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
@pytest.mark.parametrize("batch", [1, 3])
def test_no_kernel_joins_or_cuts(chip: str, batch: int) -> None:
    source, x = dense(batch)
    steps = driver.compile_model(source, load_chip(chip)).steps
    assert not {"ab", "abc", "s", "g"} & {node for step in steps for node in step.nodes}
    found = api.compile(source, chip).run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, reference(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chip", ["tiny", "tw1", "tw2"])
def test_convolutions_write_and_read_bands_of_channels(chip: str) -> None:
    """As in a fire module, with rows that are cut anew; a half of what is joined is cut out again."""
    weights = {
        "v": RNG.standard_normal((20, 12, 1, 1)).astype(np.float32),
        "w": RNG.standard_normal((28, 12, 3, 3)).astype(np.float32),
        "u": RNG.standard_normal((9, 24, 1, 1)).astype(np.float32),
    }
    nodes = [
        node("Conv", "x v", "a"),
        node("Conv", "x w", "b", pads=[1, 1, 1, 1]),
        node("Concat", "a b", "ab", axis=1),
        node("Relu", "ab", "r"),
        node("Slice", "r from half axis", "s"),
        node("Slice", "r half to axis", "t"),
        node("Conv", "s u", "c"),
        node("Conv", "t u", "d"),
        node("Sub", "c d", "y"),
    ]
    bounds = {"from": np.array([0]), "half": np.array([24]), "to": np.array([48]), "axis": np.array([1])}
    source = model(nodes, {"x": (2, 12, 8, 32)}, ["y"], integers=bounds, **weights)
    made = {name for step in driver.compile_model(source, load_chip(chip)).steps for name in step.nodes}
    # On the smallest chip one convolution runs for both images at once, the rest image by image: its half is copied.
    assert not {"s", "t", *(["ab"] if chip != "tiny" else [])} & made
    x = RNG.standard_normal((2, 12, 8, 32)).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})[0]
    found = api.compile(source, chip).run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_kernels_that_write_beside_each_other_do_not_wait() -> None:
    """Each of them writes what all cores have between what all cores have of the others."""
    parts = list("abcd")
    nodes = [node("Relu", f"x{name}", name) for name in parts]
    nodes.append(node("Concat", " ".join(parts), "y", axis=1))
    source = model(nodes, {f"x{name}": (5, 7, 33) for name in parts}, ["y"])
    compiled = api.compile(source, "tw2", precision="fp16")
    (segment,) = compiled.model.segments
    assert isinstance(segment, ProgramSegment)
    assert not {"cross_set", "core_barrier"} & {instr.row.mnemonic for instr in segment.program.instrs}
    given = {f"x{name}": RNG.standard_normal((5, 7, 33)).astype(np.float32) for name in parts}
    expected = np.maximum(np.concatenate([*given.values()], axis=1), 0)
    np.testing.assert_allclose(compiled.run(given, hazards=True)["y"], expected, atol=2e-3)


def test_what_is_in_several_places_is_joined_by_a_kernel() -> None:
    """A tensor is in one place: of two wholes that it is a part of, in the first."""
    nodes = [
        node("Relu", "x", "a"),
        node("Neg", "x", "b"),
        node("Concat", "a b", "ab", axis=1),
        node("Concat", "b a", "ba", axis=1),
        node("Exp", "ab", "e"),
        node("Add", "e ba", "y"),
    ]
    source = model(nodes, {"x": (2, 3, 7)}, ["y"])
    x = RNG.standard_normal((2, 3, 7)).astype(np.float32)
    made = {node for step in driver.compile_model(source, load_chip("tiny")).steps for node in step.nodes}
    assert "ba" in made
    assert "ab" not in made
    a, b = np.maximum(x, 0), -x
    expected = np.exp(np.concatenate([a, b], 1)) + np.concatenate([b, a], 1)
    found = api.compile(source, "tiny").run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_host_gets_tensors_that_are_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_node(monkeypatch, "c")
    source, x = dense(1)
    compilation = driver.compile_model(source, load_chip("tiny"))
    assert "abc" in {node for step in compilation.steps for node in step.nodes}
    found = api.compile(source, "tiny").run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(found, reference(x), rtol=1e-4, atol=1e-5)
