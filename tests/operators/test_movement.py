"""Operators that only move elements, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import TilewrightError
from compiler.operators import TensorType, find
from tests.operators.evaluate import evaluate

DTYPES = ["float32", "float16", "int32", "int8", "bool"]
BIG = 2**31 - 1


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.arange(int(np.prod(shape))) % 101).reshape(shape).astype(dtype)


def same(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


# ---- axes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("perm", [None, (0, 2, 1), (2, 0, 1), (1, 2, 0), (0, 1, 2)])
def test_transpose(perm: tuple[int, ...] | None) -> None:
    x = numbers(3, 1, 7)
    attributes = {} if perm is None else {"perm": perm}
    same(evaluate("Transpose", x, **attributes), x.transpose(perm))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_and_back(mode: str) -> None:
    x = numbers(2, 12, 3, 5)
    spread = evaluate("DepthToSpace", x, blocksize=2, mode=mode)
    n, c, h, w = x.shape
    if mode == "DCR":
        expected = x.reshape(n, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        expected = x.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3)
    same(spread, expected.reshape(n, c // 4, h * 2, w * 2))
    same(evaluate("SpaceToDepth", spread, blocksize=2, mode=mode), x)


# ---- parts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "starts", "ends", "axes", "steps"),
    [
        (np.s_[1:3], [1], [3], None, None),
        (np.s_[:, 2:-1], [2], [-1], [1], None),
        (np.s_[:, :, ::-1], [-1], [-BIG - 1], [-1], [-1]),
        (np.s_[:, :, ::-2], [BIG], [-BIG], [2], [-2]),
        (np.s_[::3, 1::2], [0, 1], [BIG, BIG], [0, 1], [3, 2]),
        (np.s_[:, 5:1:-3], [5], [1], [1], [-3]),
        (np.s_[:, :, -2:1000], [-2], [1000], [2], [1]),
        (np.s_[4:0:-1], [20], [0], [0], [-1]),
    ],
)
def test_slice(index: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    x = numbers(5, 6, 7)
    given = [None if v is None else np.array(v, np.int64) for v in (starts, ends, axes, steps)]
    same(evaluate("Slice", x, *given, constants=[1, 2, 3, 4]), x[index])


def test_slice_takes_attributes_of_older_opsets() -> None:
    x = numbers(5, 6)
    same(evaluate("Slice", x, starts=[1, 0], ends=[3, -1], axes=[1, 0]), x[0:-1, 1:3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_split_and_concat(dtype: str) -> None:
    x = numbers(3, 7, 2, dtype=dtype)
    parts = evaluate("Split", x, np.array([1, 4, 2]), constants=[1], axis=-2)
    for got, expected in zip(parts, np.split(x, [1, 5], axis=1), strict=True):
        same(got, expected)
    same(evaluate("Concat", *parts, axis=1), x)
    same(evaluate("Concat", parts[0], axis=-1), parts[0])


def test_split_into_a_number_of_parts_of_which_the_last_is_smaller() -> None:
    x = numbers(2, 7)
    parts = evaluate("Split", x, axis=1, num_outputs=3)
    assert [part.shape for part in parts] == [(2, 3), (2, 3), (2, 1)]
    same(np.concatenate(parts, axis=1), x)


def test_concat_on_the_first_axis_and_of_scalars_rows() -> None:
    parts = [numbers(n, 3) for n in (1, 4, 2)]
    same(evaluate("Concat", *parts, axis=0), np.concatenate(parts))
    with pytest.raises(TilewrightError, match="TW2108"):
        evaluate("Concat", numbers(2, 3), numbers(2, 4), axis=0)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-(2**62), -9, -1, 0, 2, 9, 2**40])
def test_trilu(upper: int, k: int) -> None:
    x = numbers(2, 4, 5) + 1
    expected = (np.triu if upper else np.tril)(x, k)
    same(evaluate("Trilu", x, np.array(k), constants=[1], upper=upper), expected)


# ---- padding --------------------------------------------------------------------------------------------

PADS = [
    ([0, 1, 2, 3], [(0, 2), (1, 3)]),
    ([3, 0, 0, 0], [(3, 0), (0, 0)]),
    ([0, 0, 0, 0], [(0, 0), (0, 0)]),
    ([2, 2, 2, 2], [(2, 2), (2, 2)]),
]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(("pads", "by_axis"), PADS)
def test_pad(mode: str, pads: list[int], by_axis: Any) -> None:
    x = numbers(4, 5)
    same(evaluate("Pad", x, np.array(pads), constants=[1], mode=mode), np.pad(x, by_axis, mode=mode))


@pytest.mark.parametrize("mode", ["reflect", "wrap", "edge"])
def test_pad_further_than_the_extent(mode: str) -> None:
    x = numbers(3, 2)
    expected = np.pad(x, [(7, 5), (0, 0)], mode=mode)
    same(evaluate("Pad", x, np.array([7, 0, 5, 0]), constants=[1], mode=mode), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad_with_a_value(dtype: str) -> None:
    x = numbers(2, 3, dtype=dtype)
    value = np.array(1, dtype)
    expected = np.pad(x, [(1, 0), (0, 2)], constant_values=1)
    pads = np.array([1, 0, 0, 2])
    same(evaluate("Pad", x, pads, value, constants=[1, 2]), expected)
    same(evaluate("Pad", x, pads, value, constants=[1]), expected)


def test_negative_pads_crop() -> None:
    x = numbers(5, 6)
    same(evaluate("Pad", x, np.array([-1, 0, 0, -2]), constants=[1]), x[1:, :-2])
    expected = np.pad(x[2:], [(0, 1), (2, 0)])
    same(evaluate("Pad", x, np.array([-2, 2, 1, 0]), constants=[1]), expected)
    expected = np.pad(x[:, 2:], [(0, 0), (0, 1)])
    same(evaluate("Pad", x, np.array([-2, 1]), None, np.array([-1]), constants=[1, 3]), expected)
    same(evaluate("Pad", x, np.array([-7, 0, 4, 0]), constants=[1]), np.zeros((2, 6), np.float32))


def test_center_crop_pad() -> None:
    x = numbers(20, 8, 3)
    got = evaluate("CenterCropPad", x, np.array([10, 9]), constants=[1], axes=[0, 1])
    same(got, np.pad(x[5:15], [(0, 0), (0, 1), (0, 0)]))


# ---- repetition -----------------------------------------------------------------------------------------


def test_expand() -> None:
    x = numbers(3, 1, 2)
    same(evaluate("Expand", x, np.array([2, 1, 5, 2]), constants=[1]), np.broadcast_to(x, (2, 3, 5, 2)))
    same(evaluate("Expand", x, np.array([1]), constants=[1]), x)


@pytest.mark.parametrize("repeats", [(2, 3), (1, 4), (5, 1), (1, 1)])
@pytest.mark.parametrize("shape", [(3, 2), (1, 7)])
def test_tile(shape: tuple[int, ...], repeats: tuple[int, ...]) -> None:
    x = numbers(*shape, dtype="int8")
    same(evaluate("Tile", x, np.array(repeats), constants=[1]), np.tile(x, repeats))


# ---- nothing, and scalars -------------------------------------------------------------------------------


def test_tensors_without_elements() -> None:
    x, nothing = numbers(2, 3), numbers(0, 3)
    same(evaluate("Concat", nothing, x, nothing, axis=0), x)
    same(evaluate("Slice", x, np.array([2]), np.array([2]), constants=[1, 2]), x[2:2])
    same(evaluate("Tile", x, np.array([0, 1]), constants=[1]), nothing)
    same(evaluate("Pad", nothing, np.array([1, 0, 1, 0]), constants=[1]), np.zeros((2, 3), np.float32))
    same(evaluate("Transpose", nothing), nothing.T)


def test_scalars() -> None:
    x = numbers(1).reshape(())
    same(evaluate("Transpose", x), x)
    same(evaluate("Tile", x, np.array([], np.int64), constants=[1]), x)
    same(evaluate("Expand", x, np.array([2, 2]), constants=[1]), np.broadcast_to(x, (2, 2)))
    for name, inputs in (("Concat", [x, x]), ("Split", [x])):
        with pytest.raises(TilewrightError, match=f"TW2110.*{name}: axis 0 does not exist"):
            evaluate(name, *inputs, axis=0)


def test_counts_that_ask_for_too_much_take_no_memory() -> None:
    """Nothing lists the positions of an axis that may be as long as somebody likes."""
    expand, pad = find("", "Expand"), find("", "Pad")
    assert expand is not None
    assert pad is not None
    row = TensorType((3,), "float32")
    function = expand.prim_func([row, np.array([1 << 28, 3])], {})
    assert [int(n) for n in function.params[-1].shape] == [1 << 28, 3]
    with pytest.raises(TilewrightError, match="TW2113"):
        pad.prim_func([row, np.array([0, 1 << 40])], {"mode": "reflect"})
