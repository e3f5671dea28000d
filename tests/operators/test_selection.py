"""TopK and NonMaxSuppression against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import TilewrightError
from compiler.kernels import compile_kernel
from compiler.operators import TensorType, find_called
from compiler.operators.detection import VALID_COUNT
from compiler.operators.ranking import MOST_SORTED, block_of
from compiler.pipeline import Observer
from compiler.sim.simulator import simulate
from compiler.target import load_chip
from compiler.timing import alone
from tests.operators.evaluate import evaluate
from tests.operators.oracle import onnxruntime_node

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("by_loops", [False, True])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((7,), 0, 3),
        ((7,), 0, 7),
        ((2, 1, 37), -1, 5),
        ((3, 50, 2), 1, 50),
        ((2, 33), 0, 1),
        ((101, 1), 0, 40),
        ((1,), 0, 1),
    ],
)
def test_top_k(shape: tuple[int, ...], axis: int, k: int, largest: int, by_loops: bool) -> None:
    x = RNG.integers(-9, 9, shape).astype(np.float32)  # with many that are equal
    count = np.array([k], np.int64)
    expected = onnxruntime_node("TopK", [x, count], outputs=2, axis=axis, largest=largest)
    if by_loops:
        got = evaluate("tilewright::TopKByLoops", x, k=k, axis=axis % x.ndim, largest=largest)
    else:
        got = evaluate("TopK", x, count, constants=[1], axis=axis, largest=largest)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("dtype", ["float16", "int32", "int8", "uint8"])
@pytest.mark.parametrize("k", [2, 60])
def test_top_k_of_element_types(dtype: str, k: int) -> None:
    x = RNG.permutation(70).astype(dtype)
    values, indices = evaluate("TopK", x, np.array([k]), constants=[1])
    assert values.dtype == x.dtype
    np.testing.assert_array_equal(values, np.sort(x)[::-1][:k])
    np.testing.assert_array_equal(x[indices], values)


def test_top_k_of_a_long_row() -> None:
    x = RNG.permutation(5000).astype(np.float32)
    values, indices = evaluate("TopK", x, np.array([4]), constants=[1])
    assert values.tolist() == [4999, 4998, 4997, 4996]
    np.testing.assert_array_equal(x[indices], values)


@pytest.mark.parametrize(("shape", "axis", "k"), [((700,), 0, 9), ((2, 1100), 1, 50), ((1300, 2), 0, 3)])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_in_rounds(shape: tuple[int, ...], axis: int, k: int, largest: int) -> None:
    assert (block_of(shape[axis], k) or 0) < shape[axis]
    x = RNG.integers(-20, 20, shape).astype(np.float32)
    count = np.array([k], np.int64)
    expected = onnxruntime_node("TopK", [x, count], outputs=2, axis=axis, largest=largest)
    for mine, theirs in zip(
        evaluate("TopK", x, count, constants=[1], axis=axis, largest=largest), expected, strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("length", "k"), [(2, 2), (4096, 8), (5000, 8), (32000, 40), (151936, 50), (4096, 4096), (8191, 8191), (9001, 4000)]
)
def test_rounds_of_a_sort_end_and_their_last_blocks_have_enough(length: int, k: int) -> None:
    block = block_of(length, k)
    assert block is not None
    while block < length:
        assert min(block, (length - 1) % block + 1) >= k
        count = -(-length // block)
        assert count * k < length
        length, block = count * k, block_of(count * k, k) or 0
    assert block == length <= MOST_SORTED


def test_of_what_no_block_leaves_less_all_is_sorted_by_loops() -> None:
    assert block_of(10_000, 9_000) is None


def test_top_k_takes_k_as_an_attribute_and_checks_it() -> None:
    x = np.array([3, 1, 2], np.float32)
    assert evaluate("TopK", x, k=2)[1].tolist() == [0, 2]
    with pytest.raises(TilewrightError, match=r"TW2111.*TopK: must be 1 to 3"):
        evaluate("TopK", x, k=4)


def boxes(batches: int, number: int) -> np.ndarray:
    corners = RNG.uniform(0, 1, (batches, number, 2, 2)).astype(np.float32)
    return corners.reshape(batches, number, 4)  # the two corners in any order


@pytest.mark.parametrize("center_point_box", [0, 1])
@pytest.mark.parametrize(
    ("batches", "classes", "number", "most", "iou", "score"),
    [
        (1, 1, 6, 3, 0.3, 0.0),
        (2, 3, 20, 5, 0.2, 0.4),
        (1, 2, 1, 4, 0.5, 0.0),
        (1, 1, 9, 9, 0.0, 0.99),
        (2, 2, 15, 15, 1.0, 0.0),
        (1, 5, 1000, 2, 0.1, 0.5),  # classes in chunks
        (1, 2, 2051, 3, 0.1, 0.2),  # boxes in pieces
    ],
)
def test_non_max_suppression(
    batches: int, classes: int, number: int, most: int, iou: float, score: float, center_point_box: int
) -> None:
    inputs = [
        boxes(batches, number),
        RNG.uniform(0, 1, (batches, classes, number)).round(1).astype(np.float32),  # with some that are equal
        np.array([most], np.int64),
        np.array([iou], np.float32),
        np.array([score], np.float32),
    ]
    expected = onnxruntime_node("NonMaxSuppression", [*inputs], center_point_box=center_point_box)[0]
    for constants in ([2, 3, 4], [2]):
        rows, count = evaluate("NonMaxSuppression", *inputs, constants=constants, center_point_box=center_point_box)
        assert rows.shape == (batches * classes * min(most, number), 3)
        np.testing.assert_array_equal(rows[: count[0]], expected)
        assert not rows[count[0] :].any()


def test_non_max_suppression_without_a_score_limit_takes_any_score() -> None:
    scores = np.array([[[-np.inf, -5, -3e38]]], np.float32)
    inputs = [boxes(1, 3), scores, np.array([3], np.int64), np.array([0.9], np.float32)]
    expected = onnxruntime_node("NonMaxSuppression", inputs)[0]
    rows, count = evaluate("NonMaxSuppression", *inputs, constants=[2, 3])
    np.testing.assert_array_equal(rows[: count[0]], expected)


def test_boxes_without_an_area_overlap_nothing() -> None:
    corners = np.array([[[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 2, 2], [0, 1, 2, 1]]], np.float32)
    inputs = [corners, np.array([[[4, 3, 2, 1]]], np.float32), np.array([4], np.int64), np.array([0], np.float32)]
    expected = onnxruntime_node("NonMaxSuppression", inputs)[0]
    rows, count = evaluate("NonMaxSuppression", *inputs, constants=[2, 3])
    assert count[0] == 4
    np.testing.assert_array_equal(rows[: count[0]], expected)


@pytest.mark.parametrize(
    ("chip", "batches", "classes", "number"),
    [
        ("tiny", 1, 3, 2),
        ("tiny", 3, 3, 37),
        ("tiny", 1, 1, 1031),
        ("tw1", 3, 3, 37),
        ("tw1", 1, 43, 200),
        ("tw1", 1, 1, 1031),
        ("tw2", 1, 3, 2),
        ("tw2", 1, 43, 200),
        ("tw2", 1, 1, 7001),
    ],
)
def test_boxes_are_picked_on_all_cores(chip: str, batches: int, classes: int, number: int) -> None:
    """By few instructions for each step, however many boxes there are, and free of races."""
    most, target = 3, load_chip(chip)
    scores = RNG.uniform(0, 1, (batches, classes, number)).astype(np.float32)
    given = [boxes(batches, number), scores, np.array([0.1], np.float32)]
    types = [TensorType(each.shape, "float32") for each in given]
    function = find_called("tilewright::PickBoxes").prim_func(types, {"most": min(most, number)})
    kernel = compile_kernel(function, "suppression", target, Observer())
    run = simulate(alone(kernel.code, target), target, {f"p{n}": each for n, each in enumerate(given)}, hazards=True)
    assert not run.hazards
    picked, counts = run.outputs["p3"], run.outputs["p4"]
    found = np.concatenate([rows[:count] for rows, count in zip(picked, counts, strict=True)])
    expected = onnxruntime_node("NonMaxSuppression", [*given[:2], np.array([most], np.int64), given[2]])[0]
    np.testing.assert_array_equal(found, expected)
    trips = -(-batches * classes // target.cores)
    assert run.cycles < 10_000 + trips * most * (1_200 + (60 if chip == "tiny" else 8) * number)


@pytest.mark.parametrize("chip", ["tiny", "tw2"])
@pytest.mark.parametrize("counts", [[2, 0, 4, 1, 3], [3], [0], [0, 4], [4] * 8, [1, 0, 2] * 11], ids=str)
def test_what_was_picked_is_collected(chip: str, counts: list[int]) -> None:
    target, most = load_chip(chip), 4
    picked = np.arange(1, len(counts) * most * 3 + 1, dtype=np.int32).reshape(len(counts), most, 3)
    types = [TensorType(picked.shape, "int32"), TensorType((len(counts),), "int32")]
    kernel = compile_kernel(find_called("tilewright::CollectBoxes").prim_func(types, {}), "library", target, Observer())
    given = {"p0": picked, "p1": np.array(counts, np.int32)}
    run = simulate(alone(kernel.code, target), target, given, hazards=True)
    assert not run.hazards
    found = np.concatenate([rows[:count] for rows, count in zip(picked, counts, strict=True)])
    assert run.outputs["p3"].tolist() == [sum(counts)]
    behind = np.zeros((len(counts) * most - sum(counts), 3), np.int32)
    np.testing.assert_array_equal(run.outputs["p2"], np.concatenate([found, behind]))


def test_collecting_takes_a_scalar_load_for_each_class() -> None:
    target, cycles = load_chip("tw2"), []
    for classes in (80, 160):
        types = [TensorType((classes, 4, 3), "int32"), TensorType((classes,), "int32")]
        function = find_called("tilewright::CollectBoxes").prim_func(types, {})
        kernel = compile_kernel(function, "library", target, Observer())
        given = {"p0": np.ones((classes, 4, 3), np.int32), "p1": np.ones(classes, np.int32)}
        cycles.append(simulate(alone(kernel.code, target), target, given).cycles)
    assert cycles[1] - cycles[0] < 80 * 1.6 * target.scalar.memory_cycles


def test_collecting_boxes_says_which_output_is_the_count() -> None:
    inputs = [TensorType((2, 5, 3), "int32"), TensorType((2,), "int32")]
    function = find_called("tilewright::CollectBoxes").prim_func(inputs, {})
    assert int(function.attrs[VALID_COUNT]) == 1
