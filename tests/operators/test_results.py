"""What an operator's function may return: each refusal, and that it says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te, tirx, topi

from compiler.errors import InvalidError, TilewrightError, UnsupportedError
from compiler.operators import TensorType, find_called, operator

pytestmark = pytest.mark.usefixtures("forget_operators")


def nothing(x: te.Tensor) -> te.Tensor:
    return None


def a_number(x: te.Tensor) -> te.Tensor:
    return 3


def its_input(x: te.Tensor) -> te.Tensor:
    return x


def one_of_two(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    return (te.compute(x.shape, lambda i: x[i] * x[i], "square"),)  # type: ignore[return-value]


def wide(x: te.Tensor) -> te.Tensor:
    inner = te.compute(x.shape, lambda i: x[i].astype("float64"), "inner")
    return te.compute(x.shape, lambda i: inner[i].astype("float32"), "outer")


def from_outside(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i: tirx.call_pure_extern("float32", "sinf", x[i]), "sine")


def weighted(x: te.Tensor) -> te.Tensor:
    def joined(a: Any, b: Any) -> list[Any]:
        return [a[0] + b[0] * a[1], a[1] * b[1]]

    reducer = te.comm_reducer(joined, lambda *types: [tirx.const(0.0, types[0]), tirx.const(1.0, types[1])])
    k = te.reduce_axis((0, 3), "k")
    return te.compute((1,), lambda i: reducer((x[k], x[k]), axis=k), "weighted")[0]


def sum_of_first(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 3), "k")
    return te.compute((1,), lambda i: te.sum(x[k], axis=k, where=k < 2), "first")


def sum_and_more(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 3), "k")
    return te.compute((1,), lambda i: te.sum(x[k], axis=k, init=tirx.const(100, "float32")), "more")


def next_ones(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i: x[i + 1], "next")


def those_before(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((1, 3), "k")
    return te.compute(x.shape, lambda i: te.sum(x[i - k], axis=k), "before")


def of_changing_length(x: te.Tensor) -> te.Tensor:
    def total(i: Any) -> Any:
        k = te.reduce_axis((0, i + 1), "k")
        return te.sum(x[k], axis=k)

    return te.compute(x.shape, total, "parts")


def in_steps(x: te.Tensor) -> te.Tensor:
    state = te.placeholder(x.shape, x.dtype, "state")
    first = te.compute((1,), lambda i: x[i], "first")
    step = te.compute(x.shape, lambda i: state[i - 1] + x[i], "step")
    return te.scan(first, step, state, [x], name="in_steps")


def sorted_elements(x: te.Tensor) -> te.Tensor:
    return topi.sort(x)


@pytest.mark.parametrize(
    "function, kind, code, message",
    [
        (nothing, InvalidError, "TW2115", "returns None where a te.Tensor is expected"),
        (a_number, InvalidError, "TW2115", "returns a int"),
        (its_input, InvalidError, "TW2115", "returns its input 'x' as it is"),
        (one_of_two, InvalidError, "TW2115", "returns 1 tensors, but its annotation says 2"),
        (wide, UnsupportedError, "TW2116", "stage 'inner' has elements of float64"),
        (weighted, UnsupportedError, "TW2118", "stage 'weighted' reduces several values at once"),
        (sum_of_first, UnsupportedError, "TW2119", "stage 'first' reduces under a condition"),
        (sum_and_more, UnsupportedError, "TW2119", "stage 'more' begins its reduction with a value of its own"),
        (of_changing_length, UnsupportedError, "TW2119", "stage 'parts' has axis 'k' of a length that is not"),
        (in_steps, UnsupportedError, "TW2130", "stage 'in_steps' is a te.scan"),
        (sorted_elements, UnsupportedError, "TW2117", "calls a function that is not of TE (tirx.tvm_call_packed)"),
        (next_ones, InvalidError, "TW2129", "stage 'next' reads 'x' at 3 of axis 0, which has 3 elements"),
        (those_before, InvalidError, "TW2129", "stage 'before' reads 'x' at -2 of axis 0"),
        (from_outside, UnsupportedError, "TW2117", "stage 'sine' calls a function that is not of TE"),
    ],
)
def test_a_result_that_cannot_be_compiled(
    function: Callable[..., Any], kind: type[TilewrightError], code: str, message: str
) -> None:
    operator("test::Wrong", schedule="elementwise")(function)
    with pytest.raises(kind) as caught:
        find_called("test::Wrong").kernels([TensorType((3,), "float32")], {})
    (problem,) = caught.value.problems
    assert problem.code == code and problem.message.startswith("test::Wrong: ") and message in problem.message
    assert problem.hint or code == "TW2115"


@pytest.mark.parametrize(
    "element",
    [
        lambda x, i: x[2 - i],
        lambda x, i: tirx.if_then_else(i < 2, x[i + 1], x[0]),
        lambda x, i: tirx.Select(i < 2, x[i + 1], x[0]),
        lambda x, i: x[tirx.min(i + 1, 2)],
        lambda x, i: x[(i + 1) % 3],
        lambda x, i: x[x[i].astype("int32")],
    ],
)
def test_what_may_be_read_is(element: Callable[[Any, Any], Any]) -> None:
    def chosen(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i: element(x, i), "chosen")

    operator("test::Right", schedule="elementwise")(chosen)
    assert find_called("test::Right").kernels([TensorType((3,), "float32")], {})


def test_lengths_that_are_one_number_in_the_end_are_taken() -> None:
    def pooled(x: te.Tensor) -> te.Tensor:
        return topi.nn.adaptive_pool(x, (3, 3), "avg")

    operator("test::Pooled", schedule="pooling")(pooled)
    (kernel,) = find_called("test::Pooled").kernels([TensorType((1, 2, 12, 9), "float32")], {})
    assert kernel.attrs["tw.schedule"] == "pooling"
    with pytest.raises(UnsupportedError, match="of a length that is not one number"):
        find_called("test::Pooled").kernels([TensorType((1, 2, 11, 10), "float32")], {})
