"""Operators of several stages around a product: which kernels they become, and that results stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import compiler
from compiler.isa.dtypes import Queue
from compiler.kernels import compile_kernel
from compiler.operators import TensorType, find_called, operator
from compiler.pipeline import Observer
from compiler.report.comparison import Tolerance, compare
from compiler.report.declared_reference import computed
from compiler.target import load_chip
from compiler.tiling.split_stages import split
from tests.host import for_host

pytestmark = pytest.mark.usefixtures("forget_operators")
HALVES = Tolerance(2e-2, 2e-2)
M, K, N = 50, 40, 36


def wide(value: Any) -> Any:
    return value.astype("float32")


def elements(x: te.Tensor, name: str, function: Callable[[Any], Any]) -> te.Tensor:
    return te.compute(x.shape, lambda *i: function(x(*i)), name)


def product(a: te.Tensor, b: te.Tensor, name: str = "sums") -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(wide(a[i, k]) * wide(b[k, j]), axis=k), name)


def of_a_made_operand(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    half = tirx.const(0.5, "float16")
    return product(elements(a, "made", lambda value: tirx.max(value * half, half)), b)


def with_a_made_scale(a: te.Tensor, b: te.Tensor, c: te.Tensor) -> te.Tensor:
    scale = te.compute((N,), lambda j: tirx.exp(wide(c[j])), "scale")
    sums = product(a, b)
    return te.compute(sums.shape, lambda i, j: sums[i, j] * scale[j], "scaled")


def of_a_product(a: te.Tensor, b: te.Tensor, c: te.Tensor) -> te.Tensor:
    hidden = elements(product(a, b, "first"), "hidden", lambda value: tirx.tanh(value).astype("float16"))
    return product(hidden, c, "second")


def of_two_products(a: te.Tensor, b: te.Tensor, c: te.Tensor) -> te.Tensor:
    one, other = product(a, b, "one"), product(a, c, "other")
    return te.compute(one.shape, lambda *i: one(*i) * tirx.sigmoid(other(*i)), "gated")


def reduced(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    scores = elements(product(a, b), "scores", lambda value: value * tirx.const(0.1, "float32"))
    k, j = te.reduce_axis((0, N), "k"), te.reduce_axis((0, N), "j")
    most = te.compute((M,), lambda i: te.max(scores[i, k], axis=k), "most")
    powers = te.compute(scores.shape, lambda i, j: tirx.exp(scores[i, j] - most[i]), "powers")
    total = te.compute((M,), lambda i: te.sum(powers[i, j], axis=j), "total")
    return te.compute(scores.shape, lambda i, j: powers[i, j] / total[i], "weights")


def of_an_expression(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k, zero = te.reduce_axis((0, K), "k"), tirx.const(0, "float32")
    value = lambda i, j: te.sum(tirx.max(wide(a[i, k]), zero) * wide(b[k, j]), axis=k)  # noqa: E731
    return te.compute((M, N), value, "sums")


def channels_last(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    """Three by three places, in steps of one, with a border of zeros."""
    height, width, channels, outputs = *(int(n) for n in x.shape), int(w.shape[-1])

    def bordered(i: Any, j: Any, c: Any) -> Any:
        inside = tirx.all(i >= 1, i <= height, j >= 1, j <= width)
        return tirx.if_then_else(inside, x[i - 1, j - 1, c], tirx.const(0, "float16"))

    padded = te.compute((height + 2, width + 2, channels), bordered, "padded")
    a, b, c = (te.reduce_axis((0, n), name) for n, name in ((3, "a"), (3, "b"), (channels, "c")))
    value = lambda i, j, o: te.sum(wide(padded[i + a, j + b, c]) * wide(w[a, b, c, o]), axis=[a, b, c])  # noqa: E731
    return te.compute((height, width, outputs), value, "sums", attrs={"tw.role": "convolution"})


def channels_first(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    """Two by two places in steps of two, what comes out cut off below zero."""
    channels, height, width, outputs = *(int(n) for n in x.shape), int(w.shape[0])
    c, a, b = (te.reduce_axis((0, n), name) for n, name in ((channels, "c"), (2, "a"), (2, "b")))
    value = lambda o, i, j: te.sum(wide(x[c, 2 * i + a, 2 * j + b]) * wide(w[o, c, a, b]), axis=[c, a, b])  # noqa: E731
    sums = te.compute((outputs, height // 2, width // 2), value, "sums")
    return elements(sums, "cut", lambda value: tirx.max(value, tirx.const(0, "float32")))


def over_two_axes(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k, q = te.reduce_axis((0, 10), "k"), te.reduce_axis((0, 5), "q")
    value = lambda i, j: te.sum(wide(a[k, i, q]) * wide(b[q, k, j]), axis=[k, q])  # noqa: E731
    return te.compute((M, N), value, "sums")


def with_itself(a: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, K), "k")
    return te.compute((M, M), lambda i, j: te.sum(wide(a[i, k]) * wide(a[j, k]), axis=k), "sums")


SQUARE = ((M, K), (K, N))
OPERATORS = [
    (of_a_made_operand, SQUARE, ["made", "sums"]),
    (with_a_made_scale, (*SQUARE, (N,)), ["scale", "scaled"]),
    (of_a_product, (*SQUARE, (N, 30)), ["hidden", "second"]),
    (of_two_products, (*SQUARE, (K, N)), ["other", "gated"]),
    (reduced, SQUARE, ["scores", "weights"]),
    (of_an_expression, SQUARE, ["sums_left", "sums_right", "sums"]),
    (channels_last, ((9, 11, 16), (3, 3, 16, 24)), ["sums_left", "sums_right", "sums"]),
    (channels_first, ((16, 18, 22), (24, 16, 2, 2)), ["sums_left", "sums_right", "cut"]),
    (with_itself, ((M, K),), ["sums_left", "sums"]),
    (over_two_axes, ((10, M, 5), (5, 10, N)), ["sums_left", "sums_right", "sums"]),
]


def attention(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
    """Of queries that are scaled first."""
    scaled = elements(q, "scaled", lambda value: value * tirx.const(0.5, "float16"))
    scores = product(scaled, k, "scores")
    j, i = te.reduce_axis((0, N), "j"), te.reduce_axis((0, N), "i")
    most = te.compute((M,), lambda r: te.max(scores[r, j], axis=j), "most")
    powers = te.compute(scores.shape, lambda r, c: tirx.exp(scores[r, c] - most[r]), "powers")
    total = te.compute((M,), lambda r: te.sum(powers[r, i], axis=i), "total")
    weights = te.compute(scores.shape, lambda r, c: (powers[r, c] / total[r]).astype("float16"), "weights")
    return product(weights, v, "result")


def func_of(function: Callable[..., te.Tensor], shapes: tuple[tuple[int, ...], ...]) -> Any:
    given = [te.placeholder(shape, "float16", f"in{at}") for at, shape in enumerate(shapes)]
    return te.create_prim_func([*given, function(*given)])


@pytest.mark.parametrize("function, shapes, made", OPERATORS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_the_kernels_make(
    function: Callable[..., te.Tensor], shapes: tuple[tuple[int, ...], ...], made: list[str]
) -> None:
    (found,) = split(func_of(function, shapes), "matmul", load_chip("tw2"))
    written = [str(part.func.params[-1].name) for part in found.parts]
    assert written == made
    assert [part.arguments[-1] for part in found.parts[:-1]] == [len(shapes) + 1 + at for at in range(len(made) - 1)]
    assert found.parts[-1].arguments[-1] == len(shapes)


def on_the_cpu(func: Any, arrays: list[tvm.runtime.Tensor]) -> None:
    for_host(func.with_attr("global_symbol", "main"))(*arrays)


def tensor(param: Any) -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(np.zeros([int(n) for n in param.shape], str(param.dtype)))


@pytest.mark.parametrize("function, shapes, made", OPERATORS, ids=lambda value: getattr(value, "__name__", ""))
def test_together_they_compute_the_same(
    function: Callable[..., te.Tensor], shapes: tuple[tuple[int, ...], ...], made: list[str]
) -> None:
    func, rng = func_of(function, shapes), np.random.default_rng(0)
    arrays = [tvm.runtime.tensor((rng.standard_normal(shape) / 4).astype(np.float16)) for shape in shapes]
    expected = tensor(func.params[-1])
    on_the_cpu(func, [*arrays, expected])
    (found,) = split(func, "matmul", load_chip("tw2"))
    places = [*arrays, tensor(func.params[-1]), *map(tensor, found.between)]
    for part in found.parts:
        on_the_cpu(part.func, [places[at] for at in part.arguments])
    np.testing.assert_allclose(places[len(shapes)].numpy(), expected.numpy(), rtol=2e-2, atol=2e-2)


def behind(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """Windows that begin behind the first elements, which are no rows of a matrix."""
    k = te.reduce_axis((3, K), "k")
    return te.compute((M, N), lambda i, j: te.sum(wide(a[i + k]) * wide(b[k, j]), axis=k), "sums")


@pytest.mark.parametrize(
    "function, shapes", [(of_a_made_operand, ((256, 300), (300, 200))), (behind, ((M + K,), (K, N)))]
)
def test_a_program_of_them_is_right_and_free_of_hazards(
    function: Callable[..., te.Tensor], shapes: tuple[tuple[int, ...], ...]
) -> None:
    operator("test::Stages", schedule="matmul")(function)
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal(shape) / 4).astype(np.float16) for shape in shapes]
    types = {name: TensorType(array.shape, "float16") for name, array in zip("ab", arrays, strict=True)}
    artifact = compiler.compile_operator(function, types, "tw2", host_kernels=False)
    (result,) = artifact.run(dict(zip("ab", arrays, strict=True)), hazards=True).values()
    (expected,) = computed(find_called("test::Stages"), arrays, {})
    assert not compare("out0", expected, result, HALVES).fault


@pytest.mark.parametrize("chip", ["tw1", "tiny"])
def test_an_attention_of_what_the_operator_makes_is_one(chip: str) -> None:
    shapes = ((M, K), (K, N), (N, 16))
    func = func_of(attention, shapes).with_attr("tw.operator", "test::Attention")
    found = split(func, "attention", load_chip(chip))
    assert [[part.schedule for part in way.parts] for way in found] == [
        ["reduction", "attention"],
        ["reduction", "matmul", "reduction", "matmul"],
    ]
    assert split(func.without_attr("tw.operator"), "attention", load_chip(chip)) == ()
    operator("test::Attention", schedule="attention")(attention)
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal(shape) / 2).astype(np.float16) for shape in shapes]
    types = {name: TensorType(array.shape, "float16") for name, array in zip("qkv", arrays, strict=True)}
    artifact = compiler.compile_operator(attention, types, chip, host_kernels=False)
    (result,) = artifact.run(dict(zip("qkv", arrays, strict=True)), hazards=True).values()
    (expected,) = computed(find_called("test::Attention"), arrays, {})
    assert not compare("out0", expected, result, HALVES).fault


def test_a_product_alone_and_other_classes_stay_one_kernel() -> None:
    chip, plain = load_chip("tw2"), func_of(product, SQUARE)
    assert split(plain, "matmul", chip) == ()
    assert split(func_of(of_a_made_operand, SQUARE), "elementwise", chip) == ()
    picked = te.placeholder((K,), "int32", "picked")
    a, b, k = te.placeholder((M, K), "float16"), te.placeholder((K, N), "float16"), te.reduce_axis((0, K), "k")
    sums = te.compute((M, N), lambda i, j: te.sum(wide(a[i, picked[k]]) * wide(b[k, j]), axis=k), "sums")
    assert split(te.create_prim_func([a, b, picked, sums]), "matmul", chip) == ()


def test_the_cube_takes_no_operand_that_the_same_kernel_makes() -> None:
    """As one kernel it is right, too: the vector unit has places for all stages."""
    kernel = compile_kernel(func_of(of_a_made_operand, SQUARE), "matmul", load_chip("tw2"), Observer())
    assert kernel.tile.startswith("tiles of")
    assert not any(instr.row.queue is Queue.M for instr in kernel.code.instrs)
