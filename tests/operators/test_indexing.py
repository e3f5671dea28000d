"""Gather and scatter against onnxruntime (every case is exact), and scans against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx.helper import np_dtype_to_tensor_dtype as np_type

import compiler
from compiler.errors import TilewrightError
from compiler.operators import TensorType, find_called
from compiler.operators.gathering import is_in_runs
from tests.frontend.models import model, node
from tests.host import for_host
from tests.operators.evaluate import evaluate
from tests.operators.oracle import onnxruntime_node

RNG = np.random.default_rng(7)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.integers(-50, 50, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8", "bool"])
@pytest.mark.parametrize(("shape", "picked", "axis"), [((7, 3), (2, 5), 0), ((3, 1, 4), (3,), -1), ((5, 2), (), 0)])
def test_gather(shape: tuple[int, ...], picked: tuple[int, ...], axis: int, dtype: str) -> None:
    x = numbers(*shape, dtype=dtype)
    i = RNG.integers(-shape[axis], shape[axis], picked).astype(np.int32)
    got = evaluate("Gather", x, i, axis=axis)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, np.take(x, i, axis=axis))


@pytest.mark.parametrize("index", [2, -1, [1], [[-3]]])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_known_index_is_a_part(index: int | list[int], axis: int) -> None:
    x = numbers(3, 4, 5)
    (function,) = find_called("Gather").kernels([TensorType(x.shape, "float32"), np.array(index)], {"axis": axis})
    assert len(function.params) == 2
    expected = np.take(x, np.array(index), axis=axis)
    assert tuple(int(n) for n in function.params[1].shape) == expected.shape
    result = tvm.runtime.empty(expected.shape, "float32")
    for_host(function.with_attr("global_symbol", "main"))(tvm.runtime.tensor(x), result)
    np.testing.assert_array_equal(result.numpy(), expected)


TRIANGLE = np.flatnonzero(np.tril(np.ones((4, 4)), -1))


@pytest.mark.parametrize("indices", [TRIANGLE, TRIANGLE - 16, np.array([3, 2, 1, 0]), np.array([5, 5, 5])])
@pytest.mark.parametrize("axis", [1, -2])
def test_known_indices_in_runs_are_parts(indices: np.ndarray, axis: int) -> None:
    x = numbers(3, 16, 5)
    np.testing.assert_array_equal(
        evaluate("Gather", x, indices, constants=[1], axis=axis), np.take(x, indices, axis=axis)
    )


WINDOWS = np.arange(3)[:, None] + 2 * np.arange(6)


@pytest.mark.parametrize(
    "indices", [WINDOWS, WINDOWS - 16, WINDOWS[::-1, None], np.full((2, 3), 4), np.arange(8).reshape(2, 2, 2) + 1]
)
@pytest.mark.parametrize("axis", [1, -1])
def test_known_indices_in_a_grid_are_parts(indices: np.ndarray, axis: int) -> None:
    """Windows, as torch writes `unfold`: nothing looks up an index."""
    x = numbers(3, 16, 16)
    assert is_in_runs(indices)
    np.testing.assert_array_equal(
        evaluate("Gather", x, indices, constants=[1], axis=axis), np.take(x, indices, axis=axis)
    )


def test_known_indices_without_runs_are_looked_up_when_they_are_known() -> None:
    assert is_in_runs(TRIANGLE)
    assert is_in_runs(np.array([[2]]))
    assert not is_in_runs(np.array([[0, 1], [2, 4]]))
    assert not is_in_runs(np.array([[-1, 0], [1, 2]]))  # it wraps
    assert not is_in_runs(np.zeros((0, 3), np.int64))
    assert not is_in_runs(RNG.permutation(1000))
    assert not is_in_runs(np.array([], np.int64))


@pytest.mark.parametrize("index", [np.array(3), np.array([0, 1, 3]), np.array([0, -4])])
def test_a_known_index_is_in_its_axis(index: np.ndarray) -> None:
    with pytest.raises(TilewrightError, match="must be in an axis of 3"):
        find_called("Gather").kernels([TensorType((3, 4), "float32"), index], {})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis: int) -> None:
    x = numbers(4, 5, 3)
    i = RNG.integers(-x.shape[axis], x.shape[axis], (3, 2, 3)).astype(np.int32)
    np.testing.assert_array_equal(
        evaluate("GatherElements", x, i, axis=axis), onnxruntime_node("GatherElements", [x, i], axis=axis)[0]
    )


@pytest.mark.parametrize(
    ("shape", "places", "axis"),
    [
        ((2, 3, 70), (2, 3, 2), 2),
        ((2, 3, 2, 50), (2, 3, 1, 1), 3),
        ((3, 2, 90, 1), (2, 2, 1, 1), 2),
        ((4, 3), (0, 3), 0),
    ],
)
def test_few_elements_of_long_rows(shape: tuple[int, ...], places: tuple[int, ...], axis: int) -> None:
    x, i = numbers(*shape), RNG.integers(-shape[axis], shape[axis], places)
    expected = onnxruntime_node("GatherElements", [x, i], axis=axis)[0]
    np.testing.assert_array_equal(evaluate("GatherElements", x, i.astype(np.int32), axis=axis), expected)


def test_many_elements_of_few_rows() -> None:
    x, i = numbers(2, 130, 7, 9), RNG.integers(-130, 130, (2, 40, 7, 8))
    expected = onnxruntime_node("GatherElements", [x, i], axis=1)[0]
    np.testing.assert_array_equal(evaluate("GatherElements", x, i.astype(np.int32), axis=1), expected)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("shape", [(130, 40), (2, 700, 3, 4)])
def test_many_elements_into_few_rows(reduction: str, shape: tuple[int, ...]) -> None:
    axis = len(shape) // 4
    x = numbers(*shape)
    i = np.argsort(RNG.random(shape), axis=axis).take(np.arange(shape[axis] - 5), axis) - shape[axis]
    if reduction != "none":  # of two updates for one place, onnxruntime has no say
        i //= 2
    updates = RNG.integers(-1, 2, i.shape).astype(np.float32)
    expected = onnxruntime_node("ScatterElements", [x, i, updates], axis=axis, reduction=reduction)[0]
    found = evaluate("ScatterElements", x, i.astype(np.int32), updates, axis=axis, reduction=reduction)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("operator", "most"), [("GatherElements", 9_000), ("ScatterElements", 11_000)])
def test_rows_of_an_axis_alone_are_on_all_cores(operator: str, most: int) -> None:
    """1,000 x 64 elements are no row that fits in UB; one by one they took 22.2 million cycles, and 19.1k."""
    given = {"x": numbers(1000, 64), "i": RNG.integers(-1000, 1000, (3000, 64))}
    attributes = {"reduction": "add"} if operator == "ScatterElements" else {}
    given |= {"u": numbers(3000, 64)} if attributes else {}
    network = model(
        [node(operator, " ".join(given), "y", **attributes)],
        {name: (np_type(array.dtype), list(array.shape)) for name, array in given.items()},
        ["y"],
    )
    artifact = compiler.compile(network.SerializeToString(), "tw2", precision="fp16", cache=False)
    expected = onnxruntime_node(operator, list(given.values()), **attributes)[0]
    np.testing.assert_allclose(artifact.run(given, hazards=True)["y"], expected, atol=1)
    assert 0 < (artifact.report.cycles or 0) < most


@pytest.mark.parametrize(
    ("batch_dims", "places"), [(0, (2, 3, 2)), (0, (5, 3)), (0, (1,)), (1, (4, 2)), (1, (4, 3, 1)), (2, (4, 5, 2, 1))]
)
def test_gather_nd(batch_dims: int, places: tuple[int, ...]) -> None:
    x = numbers(4, 5, 3)
    limits = np.array(x.shape[batch_dims : batch_dims + places[-1]])
    i = RNG.integers(-limits, limits, places).astype(np.int32)
    expected = onnxruntime_node("GatherND", [x, i.astype(np.int64)], batch_dims=batch_dims)[0]
    np.testing.assert_array_equal(evaluate("GatherND", x, i, batch_dims=batch_dims), expected)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    i = np.array([[0, 3, -1], [9, -4, 2]], np.int32)
    values = np.array([-1.5, 2.0], np.float32)
    got = evaluate("OneHot", i, np.array([5]), values, constants=[1], axis=axis)
    wrapped = np.where(i < 0, i + 5, i)
    expected = np.where(wrapped[..., None] == np.arange(5), values[1], values[0])
    np.testing.assert_array_equal(got, np.moveaxis(expected, -1, axis))


@pytest.mark.parametrize(("time_axis", "batch_axis"), [(0, 1), (1, 0)])
def test_reverse_sequence(time_axis: int, batch_axis: int) -> None:
    x = numbers(4, 4, 3)
    lengths = np.array([1, 4, 2, 3], np.int32)
    attributes = {"time_axis": time_axis, "batch_axis": batch_axis}
    expected = onnxruntime_node("ReverseSequence", [x, lengths.astype(np.int64)], **attributes)[0]
    np.testing.assert_array_equal(evaluate("ReverseSequence", x, lengths, **attributes), expected)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_scatter_elements(reduction: str, dtype: str) -> None:
    x, updates = numbers(4, 5, dtype=dtype), numbers(3, 5, dtype=dtype)
    i = RNG.integers(-4, 4, (3, 5)).astype(np.int32)
    if reduction == "none":  # of two updates for one place, onnxruntime has no say
        i = np.argsort(RNG.random((4, 5)), axis=0)[:3].astype(np.int32) - 4
    expected = onnxruntime_node("ScatterElements", [x, i.astype(np.int64), updates], axis=0, reduction=reduction)[0]
    np.testing.assert_array_equal(evaluate("ScatterElements", x, i, updates, reduction=reduction), expected)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd(reduction: str) -> None:
    x = numbers(4, 5, 3)
    i = np.array([[[1, -1], [0, 2]], [[-4, 0], [3, 3]]], np.int32)
    updates = numbers(2, 2, 3)
    expected = onnxruntime_node("ScatterND", [x, i.astype(np.int64), updates], reduction=reduction)[0]
    np.testing.assert_array_equal(evaluate("ScatterND", x, i, updates, reduction=reduction), expected)


def test_later_updates_see_the_earlier() -> None:
    x, i = np.zeros((2, 3), np.float32), np.array([[1], [1], [-1]], np.int32)
    updates = numbers(3, 3)
    np.testing.assert_array_equal(evaluate("ScatterND", x, i, updates)[1], updates[2])
    np.testing.assert_array_equal(evaluate("ScatterND", x, i, updates, reduction="add")[1], updates.sum(0))


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode: str) -> None:
    cache, update = numbers(2, 3, 4, 5), numbers(2, 3, 2, 5)
    start = np.array([1, 3 if mode == "circular" else 2], np.int32)
    expected = cache.copy()
    for batch, first in enumerate(start):
        for step in range(2):
            expected[batch, :, (first + step) % 4] = update[batch, :, step]
    np.testing.assert_array_equal(evaluate("TensorScatter", cache, update, start, mode=mode), expected)
    np.testing.assert_array_equal(evaluate("TensorScatter", cache, update)[:, :, :2], update)


def test_max_unpool() -> None:
    x = np.array([[[[1, 2], [3, 4]]]], np.float32)
    i = np.array([[[[5, 7], [13, 15]]]], np.int32)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    small = np.zeros((1, 1, 4, 4), np.float32)
    small.reshape(-1)[i.ravel()] = x.ravel()
    np.testing.assert_array_equal(evaluate("MaxUnpool", x, i, **attributes), small)
    larger = evaluate("MaxUnpool", x, i, np.array([1, 1, 5, 5]), constants=[2], **attributes)
    np.testing.assert_array_equal(larger, np.pad(small, [(0, 0), (0, 0), (0, 1), (0, 1)]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("axis", [0, -1])
def test_running_sum(axis: int, exclusive: int, reverse: int, dtype: str) -> None:
    x = RNG.integers(-9, 9, (5, 1, 7)).astype(dtype)
    got = evaluate("CumSum", x, np.array(axis), constants=[1], exclusive=exclusive, reverse=reverse)
    turned = np.flip(x, axis) if reverse else x
    expected = np.cumsum(turned, axis, dtype=dtype)
    expected = expected - turned if exclusive else expected
    np.testing.assert_array_equal(got, np.flip(expected, axis) if reverse else expected)


def test_running_sum_of_16_bits_is_rounded_once() -> None:
    x = np.full(5000, 0.1, np.float16)
    got = evaluate("CumSum", x, np.array(0), constants=[1])
    np.testing.assert_allclose(got, np.cumsum(x.astype(np.float64)), rtol=1e-3)


def test_running_product() -> None:
    x = RNG.integers(1, 3, (3, 6)).astype(np.float32)
    np.testing.assert_array_equal(evaluate("CumProd", x, np.array(1), constants=[1]), np.cumprod(x, 1))


def test_what_the_data_decides_is_refused_unless_it_is_known() -> None:
    x = np.array([[1, 0, 3], [0, 0, 5]], np.float32)
    np.testing.assert_array_equal(evaluate("NonZero", x, constants=[0]), np.array(np.nonzero(x)))
    kept = np.array([False, True, True])
    np.testing.assert_array_equal(evaluate("Compress", x, kept, constants=[1], axis=-1), x[:, 1:])
    np.testing.assert_array_equal(evaluate("Compress", x, kept, constants=[1]), x.ravel()[1:3])
    values, first, inverse, counts = evaluate("Unique", np.array([2, 1, 1, 3, 4, 3]), constants=[0], sorted=0)
    assert [a.tolist() for a in (values, first, inverse, counts)] == [
        [2, 1, 3, 4],
        [0, 1, 3, 4],
        [0, 1, 1, 2, 3, 2],
        [1, 2, 2, 1],
    ]
    for name, inputs in (("NonZero", [x]), ("Compress", [x, kept]), ("Unique", [x])):
        with pytest.raises(TilewrightError, match=f"TW2112.*{name}: the shape of the output depends"):
            evaluate(name, *inputs)


def test_constants_that_stand_for_gigabytes_are_not_looked_at() -> None:
    huge = np.broadcast_to(np.float32(1), (1 << 15, 1 << 15))
    for name in ("Unique", "NonZero"):
        with pytest.raises(TilewrightError, match="TW2113"):
            evaluate(name, huge, constants=[0])
